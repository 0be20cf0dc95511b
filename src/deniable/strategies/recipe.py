"""Computes an experiment's table from its counts, for the publisher and again for an auditor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deniable.errors import BrokenPromiseError
from deniable.privacy.tables import Band, Row, Table
from deniable.strategies import TABLE_RULES
from deniable.strategies.rules import Counts, TableRule


@dataclass(frozen=True)
class Recipe:
    """How an experiment's tables follow from its counts; the same for a whole version.

    Attributes:
        strategy: name of the strategy.
        budgets: nano-nats per arm.
        active: indices of the active arms; the others are never shown.
        cap: the largest reward of one show.
        horizon: planned number of visitors, if known.
        by_context: number of rows of each context, which never changes; 0 without contexts.
    """

    strategy: str
    budgets: Row
    active: tuple[int, ...]
    cap: int
    horizon: int | None = None
    by_context: int = 0

    @property
    def kind(self) -> type[TableRule]:
        """The class that makes the tables."""
        return TABLE_RULES[self.strategy]

    @property
    def active_budgets(self) -> Row:
        """The budgets of the active arms."""
        return tuple(self.budgets[arm] for arm in self.active)

    def counts(self, shows: Sequence[Sequence[int]], rewards: Sequence[Sequence[int]]) -> Counts:
        """Return the counts of the active arms.

        Args:
            shows: by segment and arm.
            rewards: sums of rewards by segment and arm.
        """
        if len(self.active) < len(self.budgets):
            shows = [[row[arm] for arm in self.active] for row in shows]
            rewards = [[row[arm] for arm in self.active] for row in rewards]
        contexts = len(shows) // self.by_context if self.by_context else 1
        return Counts(shows, rewards, self.cap, self.horizon, contexts)

    def fixed_band(self) -> Band | None:
        """The band of all tables from the start; None if the strategy has none."""
        band = self.kind.band(self.active_budgets)
        if band is None:
            return None
        return Band(
            floors=self._over_all_arms(band.floors),
            ceilings=self._over_all_arms(band.ceilings),
            neutral=self._over_all_arms(band.neutral),
        )

    def table(self, counts: Counts) -> Table:
        """Return the table for these counts, checked exactly where rows must keep a budget.

        Args:
            counts: the result of `counts`.

        Raises:
            BrokenPromiseError: the table would exceed a budget.
        """
        table = made = self.kind.table(self.active_budgets, counts)
        if len(self.active) < len(self.budgets):
            table = Table(
                rows=tuple(self._over_all_arms(row) for row in made.rows),
                unlisted=self._over_all_arms(made.unlisted),
            )
        if self.kind.bounded:
            table.check(self.budgets)
        return table

    def replays(self, published: Table, counts: Counts) -> bool:
        """Whether a published table is what the strategy makes from these counts."""
        off = set(range(len(self.budgets))) - set(self.active)
        if any(row[arm] for row in (*published.rows, published.unlisted) for arm in off):
            return False
        try:
            some = Table(
                rows=tuple(tuple(row[arm] for arm in self.active) for row in published.rows),
                unlisted=tuple(published.unlisted[arm] for arm in self.active),
            )
            made = self.kind.table(self.active_budgets, counts)
        except BrokenPromiseError:
            return False
        return len(made.rows) == len(some.rows) and self.kind.replays(some, made, counts)

    def _over_all_arms(self, row: Row) -> Row:
        if len(self.active) == len(self.budgets):
            return row
        entries = dict(zip(self.active, row, strict=True))
        return tuple(entries.get(arm, 0) for arm in range(len(self.budgets)))
