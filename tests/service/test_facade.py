"""Decide and reward as an integrating engineer sees them, on both stores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import deniable
from deniable.errors import InvalidArgumentError, UnknownNameError


@pytest.fixture
def service(store_url: str) -> Iterator[deniable.Deniable]:
    with deniable.open(store_url) as opened:
        opened.set_firm(budget=10)
        yield opened


def running(service: deniable.Deniable, key: str = "checkout", **options: object) -> None:
    settings: dict[str, object] = {"arms": ["old", "new", "bold"], "segments": ["a", "b"], "budget": 1}
    service.create_experiment(key, **{**settings, **options})  # type: ignore[arg-type]
    service.start(key)


def test_a_visitor_keeps_the_arm_whatever_the_segment(service: deniable.Deniable) -> None:
    running(service)
    first = service.decide("checkout", "v", "a")
    assert all(service.decide("checkout", "v", s) == first for s in ("a", "b", "unheard of", None))
    with deniable.open(service._store.url.replace("***", "")) as second:
        assert second.decide("checkout", "v", "b") == first


def test_rewards_count_once(service: deniable.Deniable) -> None:
    running(service)
    decision = service.decide("checkout", "v", "a")
    for value in (1, 1, 0):
        service.reward(decision.id, value)
    service.reward("0" * 32, 1)
    service.reward("no id at all", 1)
    assert [(c.segment, c.arm, c.shows, c.clicks) for c in service.counts("checkout") if c.shows] == [
        ("a", decision.arm, 1, 1)
    ]
    assert service.verify_ledger().sound


def test_batches_are_in_order_and_agree_with_single_calls(service: deniable.Deniable) -> None:
    running(service)
    pairs = [(f"v{i % 70}", "ab"[i % 2]) for i in range(700)]
    answers = service.decide_batch("checkout", pairs)
    for (visitor, segment), answer in zip(pairs, answers, strict=True):
        assert service.decide("checkout", visitor, segment) == answer
    assert len({answer.id for answer in answers}) == 70
    service.reward_batch([(answer.id, 1) for answer in answers])
    assert sum(cell.clicks for cell in service.counts("checkout")) == 70
    assert service.verify_ledger().sound


def test_unknown_experiment_and_bad_input(service: deniable.Deniable) -> None:
    running(service)
    with pytest.raises(UnknownNameError, match="'nope'"):
        service.decide("nope", "v", "a")
    for visitor in ("", "x" * 513, 7, None, "\ud800"):
        with pytest.raises(InvalidArgumentError, match="visitor"):
            service.decide("checkout", visitor, "a")  # type: ignore[arg-type]
    decision = service.decide("checkout", "v", "a")
    for value in (2, -1, 0.5, float("nan"), 1e308, "1", None):
        with pytest.raises(InvalidArgumentError, match="value"):
            service.reward(decision.id, value)  # type: ignore[arg-type]
