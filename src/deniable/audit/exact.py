"""The exact check: every table rebuilt, its worst ratio a fraction, compared without rounding.

For a shown arm j let ``most_j`` be the largest and ``least_j`` the smallest probability with which any
visitor can be shown it, over greedy arms and, where segments may be on different clocks, over all
tables. A tracker's odds move by at most most_j / least_j. The promise is kept if that fraction is at
most a rational number that is itself below e^budget_j.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from deniable.audit.promise import Promise, levels, table_within
from deniable.errors import NANO
from deniable.privacy.serving import SPACE, ServingTable, exp_floor


@dataclass(frozen=True)
class ArmProof:
    """One shown arm.

    Attributes:
        arm: its position.
        budget_nano: what is promised for it.
        ratio: the exact factor by which seeing it can move a tracker's odds, at worst.
        bound: a rational number at most e^budget.
        most: the largest probability of being shown, times 2^64.
        least: the smallest.
    """

    arm: int
    budget_nano: int
    ratio: Fraction
    bound: Fraction
    most: int
    least: int

    @property
    def holds(self) -> bool:
        """Whether the promise is kept, in exact arithmetic."""
        return self.ratio <= self.bound

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers; fractions as text, so that nothing is rounded."""
        return {
            "arm": self.arm,
            "budget": self.budget_nano / NANO,
            "ratio": f"{self.ratio.numerator}/{self.ratio.denominator}",
            "ratio_decimal": decimal(self.ratio),
            "bound_decimal": decimal(self.bound),
            "worst_nats": math.log(self.ratio),
            "shown_at_most": self.most / SPACE,
            "shown_at_least": self.least / SPACE,
            "holds": self.holds,
        }


@dataclass(frozen=True)
class VersionProof:
    """All arms of one version.

    Attributes:
        version: 1 until an arm is switched off.
        n_tables: how many tables were rebuilt.
        arms: one proof an arm.
        final: the table once the whole budget is used, the one most visitors meet.
    """

    version: int
    n_tables: int
    arms: tuple[ArmProof, ...]
    final: ServingTable

    @property
    def worst(self) -> ArmProof:
        """The arm that comes closest to its bound, or exceeds it most."""
        return max(self.arms, key=lambda proof: proof.ratio / proof.bound)

    @property
    def holds(self) -> bool:
        """Whether every arm keeps its budget."""
        return all(proof.holds for proof in self.arms)


def exact_proof(promise: Promise) -> tuple[VersionProof, ...]:
    """One proof for each version of the experiment.

    >>> promise = Promise("checkout", ("old", "new"), ("a", "b"), (10**9, 10**9), dynamic=False)
    >>> proof = exact_proof(promise)[0].worst
    >>> proof.holds, decimal(proof.ratio)[:12], decimal(proof.bound)[:12]
    (True, '2.7182818284', '2.7182818284')
    """
    found = []
    for version, arms in sorted(promise.versions.items()):
        budgets = promise.budgets_of(version)
        extremes = _extremes(budgets, promise.dynamic)
        proofs = tuple(
            ArmProof(arm, budget, ratio, exp_floor(budget), most, least)
            for arm, budget, (ratio, most, least) in zip(arms, budgets, extremes, strict=True)
        )
        n_tables = len(levels(max(budgets))) if promise.dynamic else 1
        final = table_within(budgets, max(budgets))
        found.append(VersionProof(version, n_tables, proofs, final))
    return tuple(found)


def unlisted_ratio(promise: Promise, version: int, arm_place: int) -> Fraction:
    """The worst ratio between a listed visitor's final table and a uniform one, for one shown arm.

    Visitors whose segment is not listed may be served uniformly while the others are not.
    """
    final = table_within(promise.budgets_of(version), promise.budget_nano)
    uniform = Fraction(SPACE, final.n_arms)
    return max(
        final.count(arm_place, arm_place) / uniform, uniform / Fraction(final.pieces[arm_place])
    )


def decimal(value: Fraction, digits: int = 20) -> str:
    """A fraction as a decimal, cut (not rounded) after this many digits.

    >>> decimal(Fraction(2, 3), 5)
    '0.66666'
    """
    context = Context(prec=digits, rounding="ROUND_FLOOR")
    return str(context.divide(Decimal(value.numerator), Decimal(value.denominator)))


@lru_cache(maxsize=256)
def _extremes(budgets: tuple[int, ...], dynamic: bool) -> tuple[tuple[Fraction, int, int], ...]:
    """For each arm: the worst ratio, the largest and the smallest probability times 2^64."""
    n_arms = len(budgets)
    steps = levels(max(budgets)) if dynamic else [max(budgets)]
    # Symmetric experiments run on segments' own clocks: any two of their tables may meet.
    tables_meet = len(set(budgets)) == 1
    most, least, worst = [0] * n_arms, [SPACE] * n_arms, [(1, 1)] * n_arms
    highest, lowest = 0, SPACE  # over the tables in which all arms have equal pieces
    for level in steps:
        table = table_within(budgets, level)
        pieces, bonus = table.pieces, table.bonus
        if tables_meet and len(set(pieces)) == 1:
            highest, lowest = max(highest, pieces[0] + bonus), min(lowest, pieces[0])
            continue
        totals = [piece + bonus for piece in pieces]
        most, least = list(map(max, most, totals)), list(map(min, least, pieces))
        worst = list(map(_larger, worst, zip(totals, pieces, strict=True)))
    most, least = [max(highest, high) for high in most], [min(lowest, low) for low in least]
    pairs = zip(most, least, strict=True) if tables_meet else worst
    ratios = [Fraction(high, low) for high, low in pairs]
    return tuple(zip(ratios, most, least, strict=True))


def _larger(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """The larger of two ratios, compared as integers: fractions are built once, at the end."""
    return other if other[0] * one[1] > one[0] * other[1] else one
