"""Composition: how risks add up, and budgets as integers that can be spent exactly.

Within an experiment visitors are disjoint, so its risk is the largest of theirs (parallel
composition), given one draw per visitor. Over experiments, a visitor's risks add up (sequential
composition). Accounts are kept in whole nano-nats: debits are rounded up and limits down, so
rounding never favours the tracker.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from threading import Lock

from deniable import _validation as check
from deniable.errors import NANO, InsufficientBudgetError


def nano_up(nats: float) -> int:
    """Convert a debit to nano-nats, rounded up.

    >>> nano_up(1.13), nano_up(1e-12)
    (1130000000, 1)
    """
    return math.ceil(_as_typed(nats) * NANO)


def nano_down(nats: float) -> int:
    """Convert a limit to nano-nats, rounded down. ``nano_down(nano / NANO)`` is `nano` again.

    >>> nano_down(1.13), nano_down(1e-12)
    (1130000000, 0)
    """
    return math.floor(_as_typed(nats) * NANO)


def _as_typed(nats: float) -> Fraction:
    """Return the shortest decimal that stands for this float: 1.13, not 1.12999999999999989."""
    return Fraction(repr(check.single("nats", check.nonnegative("nats", nats))))


def parallel(risks: Iterable[float]) -> float:
    """Return the risk of one experiment over its visitors: the largest.

    >>> parallel([0.2, 1.0, 0.4])
    1.0
    """
    return max((check.single("risks", check.risk("risks", risk)) for risk in risks), default=0.0)


def sequential(budgets: Iterable[float]) -> float:
    """Return the risk of one visitor over experiments: at most the sum of their budgets.

    >>> sequential([0.5, 1.0, 2.0])
    3.5
    """
    return math.fsum(
        check.single("budgets", check.nonnegative("budgets", budget)) for budget in budgets
    )


class BudgetAccount:
    """A limit in nano-nats. Debits succeed completely or not at all. Thread-safe.

    >>> account = BudgetAccount(limit=3_000_000_000)
    >>> account.debit(2_500_000_000)
    >>> account.remaining
    500000000
    """

    def __init__(self, limit: int) -> None:
        self._limit = check.whole("limit", limit, 0)
        self._spent = 0
        self._lock = Lock()

    @property
    def limit(self) -> int:
        """The total budget."""
        return self._limit

    @property
    def spent(self) -> int:
        """The amount debited so far."""
        return self._spent

    @property
    def remaining(self) -> int:
        """The amount that can still be debited."""
        return self._limit - self._spent

    def debit(self, amount: int) -> None:
        """Debit `amount`, or raise InsufficientBudgetError and debit nothing."""
        wanted = check.whole("amount", amount, 0)
        with self._lock:
            if wanted > self._limit - self._spent:
                raise InsufficientBudgetError(remaining=self.remaining, requested=wanted)
            self._spent += wanted
