"""How large the writer's transactions become: only by what earlier ones took."""

from __future__ import annotations

import pytest

from deniable.service.jobs import (
    BATCH_SECONDS,
    FIRST_BATCH,
    SMALLEST_BATCH,
    BatchSize,
)

MOST = 5_000


def _settled(rate: float, transactions: int = 40) -> BatchSize:
    """After transactions on a store that takes so many decisions a second."""
    size = BatchSize(MOST)
    for _ in range(transactions):
        size.measured(size.limit, size.limit / rate)
    return size


@pytest.mark.parametrize("rate", [8_000.0, 40_000.0, 150_000.0])
def test_a_transaction_takes_about_the_time_it_should(rate: float) -> None:
    assert _settled(rate).limit == pytest.approx(rate * BATCH_SECONDS, abs=1)


def test_no_transaction_is_long_before_anything_was_measured() -> None:
    assert BatchSize(MOST).limit == FIRST_BATCH
    assert BatchSize(most=200).limit == 200


def test_sizes_are_bounded() -> None:
    assert _settled(1e9).limit == MOST
    assert _settled(1.0).limit == SMALLEST_BATCH


def test_small_transactions_tell_nothing() -> None:
    """A single decision waits for the disk like a thousand: that is no sign of a slow store."""
    size = BatchSize(MOST)
    for _ in range(100):
        size.measured(1, 0.01)
    assert size.limit == FIRST_BATCH


def test_a_store_that_becomes_slow_is_noticed_within_a_few_transactions() -> None:
    size, slow = _settled(150_000.0), 20_000.0
    for _ in range(8):
        size.measured(size.limit, size.limit / slow)
    assert size.limit < 1.5 * slow * BATCH_SECONDS
