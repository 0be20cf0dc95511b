"""Computes an experiment's table from its counts, for the publisher and again for an auditor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import le

from deniable.errors import NANO, BrokenPromiseError
from deniable.privacy.exact import SPACE, exp_floor
from deniable.privacy.joint_table import band_of_floors
from deniable.privacy.noise import laplace_variance
from deniable.privacy.tables import Band, Row, Table
from deniable.strategies import table_rules
from deniable.strategies.rules import Counts, TableRule, Wanted


@dataclass(frozen=True)
class Recipe:
    """How an experiment's tables follow from its counts; the same for a whole version.

    Attributes:
        strategy: name of the strategy.
        budgets: nano-nats per arm.
        active: indices of the active arms; the others are never shown.
        cap: the largest reward of one show.
        horizon: planned number of visitors, if known.
        across_time: whether the experiment requires the grade "across time".
        trace_nano: the trace budget that noise in the counts keeps; None if they are exact.
        rule: number of the strategy's rule; None for the current one.
    """

    strategy: str
    budgets: Row
    active: tuple[int, ...]
    cap: int
    horizon: int | None = None
    across_time: bool = False
    trace_nano: int | None = None
    rule: int | None = None

    @property
    def kind(self) -> type[TableRule]:
        """The class that makes the tables."""
        return table_rules()[self.strategy]

    @property
    def active_budgets(self) -> Row:
        """The budgets of the active arms."""
        return tuple(self.budgets[arm] for arm in self.active)

    def counts(
        self,
        shows: Sequence[Sequence[int]],
        rewards: Sequence[Sequence[int]],
        additions: int = 0,
        wanted: Wanted | None = None,
    ) -> Counts:
        """Return the counts of the active arms. Noisy counts can have any value and are clipped here.

        Args:
            shows: by segment and arm.
            rewards: sums of rewards by segment and arm.
            additions: how often noise was added to each of them.
            wanted: what a model wants, for all arms.
        """
        if len(self.active) < len(self.budgets):
            shows = [[row[arm] for arm in self.active] for row in shows]
            rewards = [[row[arm] for arm in self.active] for row in rewards]
        # They are clipped where they are used, never where they are summed.
        shown = [row if min(row) >= 0 else [max(0, count) for count in row] for row in shows]
        earned = [
            _between(row, [count * self.cap for count in counts])
            for row, counts in zip(rewards, shown, strict=True)
        ]
        variance = 0.0
        if self.trace_nano is not None:
            variance = additions * laplace_variance(4 * NANO, self.trace_nano)
        if wanted is not None:
            rows = (tuple(row[arm] for arm in self.active) for row in wanted.rows)
            wanted = Wanted(wanted.kind, tuple(rows))
        return Counts(shown, earned, self.cap, self.horizon, variance, wanted, self.rule)

    def fixed_band(self) -> Band | None:
        """The band of all tables from the start; None if the strategy has none."""
        return self._band(self.kind.band(self.active_budgets))

    def late_band(self, counts: Counts) -> Band | None:
        """Return the band that an experiment across time settles on at these counts; None if not yet."""
        if not (self.across_time and self.kind.offers_across_time):
            return None
        return self._band(self.kind.late_band(self.active_budgets, counts))

    def settled_band(self, floors: Sequence[int] | None) -> Band | None:
        """Return the late band with these floors, as named by a published table; None without floors."""
        if floors is None:
            return None
        some = tuple(floors[arm] for arm in self.active)
        return self._band(band_of_floors(some, exp_floor(max(self.active_budgets))))

    def settles(self, floors: Sequence[int] | None, counts: Counts) -> bool:
        """Whether these are the floors that the strategy settles on at these counts; None for not yet.

        They come from floating-point arithmetic, whose last digits may differ between machines.
        """
        band = self.late_band(counts)
        if band is None or floors is None:
            return band is None and floors is None
        apart = max(abs(ours - theirs) for ours, theirs in zip(band.floors, floors, strict=True))
        return apart <= SPACE // 10**9

    def table(self, counts: Counts, band: Band | None = None) -> Table:
        """Return the table for these counts, checked exactly.

        Args:
            counts: the result of `counts`.
            band: the late band, if there is one yet.

        Raises:
            BrokenPromiseError: the table would exceed a budget.
        """
        inside = None if band is None else _of_some_arms(band, self.active)
        made = self.kind.table(
            self.active_budgets, counts, across_time=self.across_time, band=inside
        )
        table = made
        if len(self.active) < len(self.budgets):
            table = Table(
                rows=tuple(self._over_all_arms(row) for row in made.rows),
                zero=self._over_all_arms(made.zero),
            )
        table.check(self.budgets)
        return table

    def replays(self, published: Table, counts: Counts, band: Band | None = None) -> bool:
        """Whether a published table is what the strategy makes from these counts."""
        off = set(range(len(self.budgets))) - set(self.active)
        if any(row[arm] for row in (*published.rows, published.zero) for arm in off):
            return False
        try:
            some = Table(
                rows=tuple(tuple(row[arm] for arm in self.active) for row in published.rows),
                zero=tuple(published.zero[arm] for arm in self.active),
            )
            inside = None if band is None else _of_some_arms(band, self.active)
            made = self.kind.table(
                self.active_budgets, counts, across_time=self.across_time, band=inside
            )
        except BrokenPromiseError:
            return False
        return len(made.rows) == len(some.rows) and self.kind.replays(some, made, counts)

    def _band(self, band: Band | None) -> Band | None:
        if band is None:
            return None
        return Band(
            floors=self._over_all_arms(band.floors),
            ceilings=self._over_all_arms(band.ceilings),
            zero=self._over_all_arms(band.zero),
        )

    def _over_all_arms(self, row: Row) -> Row:
        if len(self.active) == len(self.budgets):
            return row
        entries = dict(zip(self.active, row, strict=True))
        return tuple(entries.get(arm, 0) for arm in range(len(self.budgets)))


def _between(row: Sequence[int], most: Sequence[int]) -> Sequence[int]:
    """The row, moved to 0 and to the most where it lies beyond, which exact counts never do.

    >>> _between([-1, 5, 2], [9, 3, 2])
    [0, 3, 2]
    """
    if min(row) >= 0 and all(map(le, row, most)):
        return row
    return [min(max(0, entry), end) for entry, end in zip(row, most, strict=True)]


def _of_some_arms(band: Band, arms: Sequence[int]) -> Band:
    return Band(
        floors=tuple(band.floors[arm] for arm in arms),
        ceilings=tuple(band.ceilings[arm] for arm in arms),
        zero=tuple(band.zero[arm] for arm in arms),
    )
