"""Risks that add up, and accounts that never give one nano-nat too much."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.patience import PATIENCE

from deniable.errors import NANO, InsufficientBudgetError
from deniable.privacy import BudgetAccount, nano_down, nano_up, parallel, sequential

nats = st.floats(0, 1e12)


@given(nats)
def test_rounding_is_never_in_the_trackers_favour(value: float) -> None:
    exact = Fraction(Decimal(str(value))) * NANO
    up, down = nano_up(value), nano_down(value)
    assert down <= exact <= up
    assert up - exact < 1
    assert exact - down < 1


@given(st.integers(0, 10**15))
def test_budgets_are_the_decimals_that_were_typed(nano: int) -> None:
    typed = float(Decimal(nano) / NANO)
    assert nano_up(typed) == nano_down(typed) == nano == nano_down(nano / NANO)


@given(st.lists(st.floats(0, 700), min_size=1))
def test_parallel_is_the_largest_and_sequential_the_sum(risks: list[float]) -> None:
    assert parallel(iter(risks)) == max(risks)
    assert sequential(iter(risks)) == float(sum(map(Fraction, risks)))
    assert parallel(risks) <= sequential(risks)


def test_nothing_costs_nothing() -> None:
    assert parallel([]) == sequential([]) == 0
    assert parallel([1.0, float("inf")]) == float("inf")


@given(st.integers(0, 10**12), st.lists(st.integers(0, 10**12), max_size=30))
def test_an_account_is_whole_or_untouched(limit: int, debits: list[int]) -> None:
    account, spent = BudgetAccount(limit), 0
    for amount in debits:
        if spent + amount <= limit:
            account.debit(amount)
            spent += amount
        else:
            with pytest.raises(InsufficientBudgetError) as refusal:
                account.debit(amount)
            assert refusal.value.remaining == limit - spent
            assert refusal.value.requested == amount
        assert (account.limit, account.spent, account.remaining) == (limit, spent, limit - spent)


def test_amounts_beyond_floats_are_exact() -> None:
    account = BudgetAccount(10**400)
    account.debit(10**400 - 1)
    assert account.remaining == 1


def _race(account: BudgetAccount, n_threads: int, debits_each: int) -> int:
    """Successful debits of one nano-nat by threads that start together."""
    start, granted = threading.Barrier(n_threads), []

    def spend() -> None:
        start.wait()
        for _ in range(debits_each):
            try:
                account.debit(1)
            except InsufficientBudgetError:
                continue
            granted.append(1)

    threads = [threading.Thread(target=spend) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(granted)


def test_threads_racing_for_the_last_nano_nat() -> None:
    for _ in range(100):
        account = BudgetAccount(1)
        assert _race(account, n_threads=8, debits_each=1) == 1
        assert account.remaining == 0


def test_threads_spend_a_limit_exactly() -> None:
    account = BudgetAccount(10_000)
    assert _race(account, n_threads=8, debits_each=1500) == 10_000
    assert account.remaining == 0


def test_without_its_lock_the_account_would_be_overdrawn() -> None:
    """The race is real: let both threads look before either spends, and both are granted."""
    both_looked = threading.Barrier(2)

    class Watched(int):
        def __sub__(self, other: int) -> int:
            both_looked.wait(timeout=PATIENCE)
            return int(self) - other

    account = BudgetAccount(1)
    account._limit = Watched(1)
    account._lock = nullcontext()  # type: ignore[assignment]
    assert _race(account, n_threads=2, debits_each=1) == 2
    assert account.spent == 2
