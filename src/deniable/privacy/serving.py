"""The exact serving sampler: integer tables that keep the promise, drawn with system entropy.

A table divides [0, 2^64) into one piece per arm, the same for every segment, and a last piece for
the greedy arm. With budget b_j for shown arm j, pieces ``low_j`` and the last piece
``bonus = 2^64 - sum(low)``, arm j is shown with probability (low_j + bonus)/2^64 if it is greedy,
and low_j/2^64 if it is not. Pieces are rounded up, which only shrinks the bonus, so the ratio is at
most e^b_j in exact arithmetic. Every table is checked with fractions before it can be drawn from.

Symmetric tables also keep the budget against each other when segments have different clocks: a
table with a smaller risk has no smaller piece and no larger total. `ServingSchedule` checks that
too.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

from deniable import _validation as check
from deniable.errors import NANO, BrokenPromiseError, InvalidArgumentError
from deniable.privacy.exact import SPACE, exp_floor, nano_nats

_FIXED_POINT = 192
"""Fractional bits while pieces are computed, far finer than one unit of SPACE."""

Entropy = Callable[[int], bytes]


@dataclass(frozen=True)
class ServingTable:
    """Shown-arm probabilities in units of 2^-64. Construction fails unless they keep their budgets.

    Attributes:
        pieces: low_j, the size of arm j's piece whatever the greedy arm, length K.
        budgets: the risk of each shown arm, in nano-nats, that the pieces keep.
        thresholds: cumulative sums of the pieces, padded so that all searches take equally many
            steps.

    >>> ServingTable(pieces=(2**62, 2**62), budgets=(1_000_000_000, 1_000_000_000))
    Traceback (most recent call last):
    ...
    deniable.errors.BrokenPromiseError: a table for a risk of 1000000000 nano-nats exceeds it
    """

    pieces: tuple[int, ...]
    budgets: tuple[int, ...]
    thresholds: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        nano_nats("budgets", self.budgets)
        if len(self.pieces) != len(self.budgets):
            allowed = f"{len(self.budgets)} pieces, as many as budgets"
            raise InvalidArgumentError("pieces", self.pieces, allowed)
        _check_promise(self.pieces, self.budgets)
        steps = len(self.pieces).bit_length()  # 2^steps >= K + 1 outcomes
        padding = (SPACE,) * ((1 << steps) - 1 - len(self.pieces))
        object.__setattr__(self, "thresholds", (*accumulate(self.pieces), *padding))

    @property
    def n_arms(self) -> int:
        """Number of arms, K."""
        return len(self.pieces)

    @property
    def bonus(self) -> int:
        """The piece in which the greedy arm is shown because it is greedy."""
        return SPACE - sum(self.pieces)

    def count(self, shown: int, greedy: int) -> int:
        """Return the probability, times 2^64, that `shown` is shown when `greedy` is greedy."""
        return self.pieces[shown] + (self.bonus if shown == greedy else 0)

    def worst_ratio(self, shown: int) -> Fraction:
        """Return the exact factor by which seeing this arm can move a watcher's odds."""
        return Fraction(self.pieces[shown] + self.bonus, self.pieces[shown])

    def draw(self, greedy: int, entropy: Entropy = os.urandom) -> int:
        """Return the arm to show. No branch, table or number of steps depends on `greedy`.

        Args:
            greedy: index of the greedy arm, 0 to K - 1. Not checked, because that would be a
                branch.
            entropy: source of 8 random bytes; replaced only in tests.
        """
        return self.arm_at(int.from_bytes(entropy(8), "little"), greedy)

    def arm_at(self, point: int, greedy: int) -> int:
        """Return the arm whose piece of [0, 2^64) contains this uniformly drawn point."""
        n_arms = len(self.pieces)
        index = bisect_right(self.thresholds, point)
        # index == n_arms is the greedy piece; the product is 0 for every other index.
        return index + (index // n_arms) * (greedy - n_arms)


def symmetric_table(n_arms: int, risk_nano: int) -> ServingTable:
    """Return the table of the symmetric mechanism.

    Args:
        n_arms: K.
        risk_nano: the risk in nano-nats.

    >>> table = symmetric_table(2, 1_000_000_000)
    >>> round(table.count(0, greedy=0) / 2**64, 6)
    0.731059
    """
    risk = check.whole("risk_nano", risk_nano, 0)
    return _table((risk,) * check.whole("n_arms", n_arms, 2))


def arm_specific_table(risks_nano: Sequence[int]) -> ServingTable:
    """Return the table of the arm-specific mechanism; with equal risks it is the symmetric one.

    >>> table = arm_specific_table([500_000_000, 1_000_000_000, 2_000_000_000])
    >>> [round(table.count(j, greedy=j) / 2**64, 3) for j in range(3)]
    [0.775, 0.482, 0.353]
    """
    return _table(nano_nats("risks_nano", risks_nano))


def _table(risks: tuple[int, ...]) -> ServingTable:
    return ServingTable(_uniform(len(risks)) if max(risks) == 0 else _rounded_up(risks), risks)


def _uniform(n_arms: int) -> tuple[int, ...]:
    """Divide 2^64 evenly. Which arms get the odd units does not depend on a segment."""
    share, odd = divmod(SPACE, n_arms)
    return tuple(share + (arm < odd) for arm in range(n_arms))


def _rounded_up(risks: tuple[int, ...]) -> tuple[int, ...]:
    """Return ceil(2^64 c_j / (1 + C)) with c_j = 1/(e^risk_j - 1), rounded up in fixed point."""
    one = 1 << _FIXED_POINT
    factors = {risk: _inverse_odds(risk) for risk in set(risks)}
    total = one + sum(map(factors.__getitem__, risks))
    piece_of = {risk: -(-SPACE * factor // total) for risk, factor in factors.items()}
    pieces = tuple(map(piece_of.__getitem__, risks))
    # Budgets below the resolution of 2^-64 leave no room for a bonus; uniform pieces keep them.
    return pieces if sum(pieces) <= SPACE else _uniform(len(risks))


def _inverse_odds(risk: int) -> int:
    """Return 1/(e^risk - 1) in fixed point, rounded up."""
    power = exp_floor(risk)
    return -(-(power.denominator << _FIXED_POINT) // (power.numerator - power.denominator))


def _check_promise(pieces: tuple[int, ...], risks: tuple[int, ...]) -> None:
    """Raise unless exact arithmetic shows that no arm's ratio exceeds e^risk."""
    bonus = SPACE - sum(pieces)
    smallest: dict[int, int] = {}  # the smallest piece has the worst ratio among equal risks
    for piece, risk in set(zip(pieces, risks, strict=True)):
        smallest[risk] = min(piece, smallest.get(risk, piece))
    for risk, piece in smallest.items():
        bound = exp_floor(risk)  # (piece + bonus) / piece > bound, without a division
        over = (piece + bonus) * bound.denominator > bound.numerator * piece
        if bonus < 0 or piece <= 0 or over:
            raise BrokenPromiseError(f"a table for a risk of {risk} nano-nats exceeds it")


@dataclass(frozen=True)
class ServingSchedule:
    """The tables of one experiment by clock, checked, and never above the budget.

    The dynamic risk is rounded down to one of 4,096 steps of the budget, so that an experiment has
    few tables. Rounding down costs a little learning and no privacy. With unequal budgets, a
    dynamic schedule must use the clock of the experiment, which is the same for every segment.

    Attributes:
        budgets: the budget of each arm in nano-nats; all equal for the symmetric mechanism.
        dynamic: whether the risk follows the clock, or equals the budget from the start.

    >>> schedule = ServingSchedule((1_000_000_000,) * 2, dynamic=True)
    >>> schedule.table(1).budgets, schedule.table(51).budgets
    ((0, 0), (1000000000, 1000000000))
    """

    budgets: tuple[int, ...]
    dynamic: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "budgets", nano_nats("budgets", self.budgets))

    def table(self, clock: int) -> ServingTable:
        """Return the table for the visitor with this clock (1 is the first)."""
        visitor = check.whole("clock", clock, 1)
        level = self._level(visitor) if self.dynamic else max(self.budgets)
        return _table_within(self.budgets, level)

    def _level(self, clock: int) -> int:
        """Return the uncapped risk in nano-nats, rounded down to a step of the largest budget."""
        if clock < 3:
            return 0
        n_arms, largest = len(self.budgets), max(self.budgets)
        rate = (n_arms * math.log(clock) / clock) ** (1 / 3)
        if rate >= 1:
            return 0
        risk = int(math.log(1 - n_arms + n_arms / rate) * NANO)
        step = max(1, largest // 4096)
        return largest if risk >= largest else risk // step * step


@lru_cache(maxsize=65_536)
def _table_within(budgets: tuple[int, ...], level: int) -> ServingTable:
    """Return the table with risks min(budget_j, level), safe in combination with all others.

    Symmetric tables with different clocks can be in use at the same time. Each one's smallest piece
    is at least the final table's, and its largest total is at most the final table's, so any two
    are within the final ratio.
    """
    table = _table(tuple(min(budget, level) for budget in budgets))
    if len(set(budgets)) == 1:
        final = table if level >= budgets[0] else _table_within(budgets, budgets[0])
        larger_total = max(table.pieces) + table.bonus > max(final.pieces) + final.bonus
        if larger_total or min(table.pieces) < min(final.pieces):
            raise BrokenPromiseError("two tables of one experiment exceed its budget together")
    return table
