"""The exact check: the worst ratio of every published table, as a fraction, without rounding.

For a shown arm j, let ``most_j`` and ``least_j`` be the largest and the smallest probability with
which any visitor can be shown it. Within one table, over segments, listed or not, a tracker that
knows when the visitor first came can move its odds by at most most_j / least_j; over all tables of
a version, one that does not know it. Where rows need no bound (contexts, unobserved visits), each row
is checked alone: its visitors all have the same chances. The promise is kept if that fraction is at
most a rational number below e^budget_j. Strategies of the grade "across time" also have a band,
fixed at the start, whose ratio bounds every table that they can ever publish.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction

from deniable._types import JsonObject
from deniable.audit.promise import Promise
from deniable.errors import NANO
from deniable.privacy.exact import SPACE, exp_floor
from deniable.privacy.tables import Row, Table

ACROSS_TIME = "across time"


@dataclass(frozen=True)
class ArmProof:
    """The exact check of one shown arm.

    Attributes:
        arm: its index.
        budget_nano: its budget.
        ratio: the exact worst-case factor by which seeing it can move a tracker's odds, given the
            time of the first visit; None if some visitors can be shown it and others cannot.
        ratio_across_time: the same for a tracker that does not know the time.
        bound: a rational number at most e^budget.
        most: the largest probability of being shown, times 2^64, over all tables.
        least: the smallest probability, times 2^64.
        grade: determines which of the two ratios is promised.
    """

    arm: int
    budget_nano: int
    ratio: Fraction | None
    ratio_across_time: Fraction | None
    bound: Fraction
    most: int
    least: int
    grade: str

    @property
    def promised_ratio(self) -> Fraction | None:
        """The ratio that the promise covers. Across time, each table alone must keep it too."""
        if self.grade != ACROSS_TIME or self.ratio is None or self.ratio_across_time is None:
            return self.ratio if self.grade != ACROSS_TIME else None
        return max(self.ratio, self.ratio_across_time)

    @property
    def holds(self) -> bool:
        """Whether the promise is kept, in exact arithmetic."""
        return self.promised_ratio is not None and self.promised_ratio <= self.bound

    def to_dict(self) -> JsonObject:
        """Return plain numbers; fractions as text, so that nothing is rounded."""
        ratio, across = self.promised_ratio, self.ratio_across_time
        return {
            "arm": self.arm,
            "budget": self.budget_nano / NANO,
            "ratio": None if ratio is None else f"{ratio.numerator}/{ratio.denominator}",
            "ratio_decimal": None if ratio is None else decimal(ratio),
            "ratio_across_time_decimal": None if across is None else decimal(across),
            "bound_decimal": decimal(self.bound),
            "worst_nats": None if ratio is None else math.log(ratio),
            "shown_at_most": self.most / SPACE,
            "shown_at_least": self.least / SPACE,
            "holds": self.holds,
        }


@dataclass(frozen=True)
class VersionProof:
    """The exact check of all arms of one version.

    Attributes:
        version: 1 until an arm is switched off or added.
        n_tables: number of published tables; 0 if only the design was checked.
        arms: one proof per arm that the version shows.
        band_holds: whether the band's ratio is within every budget; None without a band.
        outside_band: numbers of tables with an entry outside the band.
        not_replayed: numbers of tables that do not follow from their counts.
        not_due: numbers of tables that were made at another number of decisions than they were due
            at.
        skipped: how many numbers of the schedule passed without a table.
    """

    version: int
    n_tables: int
    arms: tuple[ArmProof, ...]
    band_holds: bool | None
    outside_band: tuple[int, ...]
    not_replayed: tuple[int, ...]
    not_due: tuple[int, ...] = ()
    skipped: int = 0

    @property
    def worst(self) -> ArmProof:
        """The arm that comes closest to its bound, or exceeds it most."""
        return max(
            self.arms,
            key=lambda proof: (
                Fraction(SPACE + 1)
                if proof.promised_ratio is None
                else proof.promised_ratio / proof.bound
            ),
        )

    @property
    def holds(self) -> bool:
        """Whether every arm keeps its budget, and every table is what it says."""
        broken = self.band_holds is False or self.outside_band or self.not_replayed or self.not_due
        return not broken and all(proof.holds for proof in self.arms)


def exact_proof(promise: Promise, *, replay: bool = True) -> tuple[VersionProof, ...]:
    """Return one proof for each version of the experiment.

    Args:
        promise: the promise with its tables.
        replay: whether to recompute each table from its counts, which takes long for many tables.
            Without it `not_replayed` is empty; the ratios are proven all the same.

    >>> promise = Promise("checkout", ("old", "new"), ("a", "b"), (10**9, 10**9), "constant")
    >>> proof = exact_proof(promise)[0].worst
    >>> proof.holds, decimal(proof.bound)[:12]
    (True, '2.7182818284')
    """
    return tuple(_version_proof(promise, one, replay=replay) for one in sorted(promise.versions))


def decimal(value: Fraction, digits: int = 20) -> str:
    """Format a fraction as a decimal, truncated (not rounded) after this many digits.

    >>> decimal(Fraction(2, 3), 5)
    '0.66666'
    """
    context = Context(prec=digits, rounding="ROUND_FLOOR")
    return str(context.divide(Decimal(value.numerator), Decimal(value.denominator)))


def _version_proof(promise: Promise, version: int, *, replay: bool) -> VersionProof:
    mine = [published for published in promise.tables if published.version == version]
    tables = [published.table for published in mine] or [promise.first_table(version)]
    band = promise.band(version)
    neutral = promise.neutral_row(version)
    outside = [
        published.number
        for published in mine
        if band is not None and not band.holds((*published.table.rows, published.table.unlisted))
    ]
    return VersionProof(
        version=version,
        n_tables=len(mine),
        arms=tuple(_arm_proof(promise, arm, tables) for arm in promise.versions[version]),
        band_holds=None
        if band is None
        else band.holds([neutral])
        and all(
            band.ceilings[arm] <= exp_floor(promise.budgets_nano[arm]) * band.floors[arm]
            for arm in promise.versions[version]
        ),
        outside_band=tuple(outside),
        not_replayed=tuple(
            published.number for published in mine if replay and not promise.replays(published)
        ),
        not_due=tuple(table.number for table in mine if table.number in promise.not_due()),
        skipped=sum(promise.skipped().get(table.number, 0) for table in mine),
    )


def _arm_proof(promise: Promise, arm: int, tables: list[Table]) -> ArmProof:
    extremes = [
        _extremes(rows, arm)
        for table in tables
        for rows in (
            [(*table.rows, table.unlisted)] if promise.bounded else [(row,) for row in table.rows]
        )
    ]
    alone = [_ratio(low, high) for low, high in extremes]
    most, least = max(high for _, high in extremes), min(low for low, _ in extremes)
    budget = promise.budgets_nano[arm]
    return ArmProof(
        arm=arm,
        budget_nano=budget,
        ratio=None if None in alone else max(ratio for ratio in alone if ratio is not None),
        ratio_across_time=_ratio(least, most),
        bound=exp_floor(budget),
        most=most,
        least=least,
        grade=promise.version_grade,
    )


def _extremes(rows: Sequence[Row], arm: int) -> tuple[int, int]:
    column = [row[arm] for row in rows]
    return min(column), max(column)


def _ratio(least: int, most: int) -> Fraction | None:
    """Return their fraction; 1 for an arm that is never shown; None for one that only some are shown."""
    if least:
        return Fraction(most, least)
    return None if most else Fraction(1)
