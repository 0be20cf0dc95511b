"""What an experiment has promised and published, as plain data for an auditor."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from deniable import _validation as check
from deniable.errors import BrokenPromiseError, InvalidArgumentError
from deniable.privacy.epochs import Epochs, due_at, epochs_of, last_due
from deniable.privacy.tables import Band, Row, Table, neutral_row, stored_table
from deniable.storage.records import rows_by_context
from deniable.storage.table_counts import stored_cut
from deniable.strategies import TABLE_RULES
from deniable.strategies.recipe import Recipe

if TYPE_CHECKING:
    from deniable.storage.promises import Promise as ChainedPromise

GIVEN_THE_TIME = "given the time"


@dataclass(frozen=True)
class AuditedTable:
    """A published table with the counts that it was made from.

    Attributes:
        number: its number within the experiment, from 1.
        version: version of the promise.
        table: the rows, in the current shape of the experiment.
        shows: by segment and arm, in the shape at that time.
        rewards: sums of rewards by segment and arm.
        horizon: planned number of visitors, if known.
        made_of: writer -> how many of its first decisions it was made from; None if not known, for
            a table that was not read from a store or a log.
        rewards_upto: writer -> how long its chain was: rewards up to there count.
        published_at: when it was made, in microseconds since 1970.
    """

    number: int
    version: int
    table: Table
    shows: tuple[Row, ...]
    rewards: tuple[Row, ...]
    horizon: int | None = None
    made_of: Mapping[int, int] | None = None
    rewards_upto: Mapping[int, int] = field(default_factory=dict)
    published_at: int = 0

    @property
    def decisions(self) -> int:
        """The number of decisions that it was made from."""
        return sum((self.made_of or {}).values())

    @classmethod
    def stored(
        cls,
        number: int,
        version: int,
        rows: bytes,
        counts: bytes,
        *,
        decisions: int,
        published_at: int,
        n_segments: int,
        n_arms: int,
    ) -> AuditedTable:
        """Decode the blobs of a store or a log, in the current shape of the experiment.

        Raises:
            BrokenPromiseError: a publisher cannot have written them.
        """
        try:
            made_from = json.loads(counts)
            made_of = stored_cut(made_from, "decisions")
            if sum(made_of.values()) != decisions:
                raise ValueError
            return cls(
                number=number,
                version=version,
                table=stored_table(rows, counts, n_segments, n_arms),
                shows=tuple(map(tuple, made_from["shows"])),
                rewards=tuple(map(tuple, made_from["rewards"])),
                horizon=made_from.get("horizon"),
                made_of=made_of,
                rewards_upto=stored_cut(made_from, "rewards"),
                published_at=published_at,
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise BrokenPromiseError(f"table {number} was changed") from None


@dataclass(frozen=True)
class Lottery:
    """How members are chosen, by a keyed hash of the visitor; in thousandths.

    Attributes:
        slots: its slots out of the layer's 1,000; 1,000 without a layer.
        holdout: held-out share of the visitors in its slots.

    >>> Lottery(slots=600, holdout=100).other_share
    0.4
    """

    slots: int
    holdout: int

    @property
    def other_share(self) -> float:
        """The share of visitors whose slot does not belong to the experiment."""
        return 1 - self.slots / 1000

    @property
    def holdout_share(self) -> float:
        """The share of the remaining visitors who are held out."""
        return self.holdout / 1000


@dataclass(frozen=True)
class Promise:
    """An experiment's budgets and strategy, and all tables that it has published.

    Attributes:
        name: the experiment's key.
        arms: the arms' keys, in stored order.
        segments: the listed segments' names, in stored order.
        budgets_nano: the budget of each arm in nano-nats; all equal for the symmetric mechanism.
        strategy: name of the strategy.
        cap: the largest reward of one show.
        versions: version -> indices of the arms that it shows; switching an arm off or adding one
            makes a new version.
        tables: the published tables, oldest first.
        arms_since: the version that added each arm; all 1 by default.
        segments_since: the number of the first table with a row for each segment; all 1 by default.
        attribution_seconds: how long rewards of a show count; None for ever.
        neutral: the neutral row of each version, oldest first; by default the band's, or equal chances
            without a band.
        restarts: numbers of the tables with whose decisions counts ended, to begin again from zero.
        by_context: number of rows of each context; 0 without contexts. `segments` names the rows.
        bounded: whether the rows of a table must keep the budgets; see `storage.promises.Promise`.

    >>> promise = Promise("checkout", ("old", "new"), ("a", "b"), (10**9, 10**9), "dynamic")
    >>> promise.budget_nano, promise.grade
    (1000000000, 'across time')
    """

    name: str
    arms: tuple[str, ...]
    segments: tuple[str, ...]
    budgets_nano: tuple[int, ...]
    strategy: str
    cap: int = 1
    versions: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    tables: tuple[AuditedTable, ...] = ()
    arms_since: tuple[int, ...] = ()
    segments_since: tuple[int, ...] = ()
    attribution_seconds: int | None = None
    neutral: tuple[Row, ...] = ()
    restarts: tuple[int, ...] = ()
    by_context: int = 0
    bounded: bool = True

    def __post_init__(self) -> None:
        check.distinct("arms", self.arms, 2)
        check.distinct("segments", self.segments, 1)
        if len(self.budgets_nano) != len(self.arms):
            raise InvalidArgumentError(
                "budgets_nano", self.budgets_nano, f"{len(self.arms)} budgets, one for each arm"
            )
        known = TABLE_RULES
        if self.strategy not in known:
            raise InvalidArgumentError("strategy", self.strategy, "one of " + ", ".join(known))
        for name, listed in (("arms_since", self.arms), ("segments_since", self.segments)):
            object.__setattr__(self, name, getattr(self, name) or (1,) * len(listed))
        if not self.versions:
            object.__setattr__(self, "versions", {1: tuple(range(len(self.arms)))})
        for version, shown in self.versions.items():
            if len(shown) < 2 or not set(shown) <= set(range(len(self.arms))):
                raise InvalidArgumentError("versions", {version: shown}, "2 or more of the arms")

    @classmethod
    def chained(
        cls,
        told: ChainedPromise,
        off: Mapping[str, int],
        tables: Sequence[AuditedTable],
    ) -> Promise:
        """Build the promise from the chain.

        Args:
            told: the promise in its entries.
            off: arm key -> the version from which it is off.
            tables: the published tables, oldest first.
        """
        until = [off.get(key) for key, _, _ in told.arms]
        since = told.arms_since or (1,) * len(told.arms)
        return cls(
            name=told.key,
            arms=tuple(key for key, _, _ in told.arms),
            segments=told.rows,
            budgets_nano=tuple(
                told.budget_nano if budget is None else budget for _, budget, _ in told.arms
            ),
            strategy=told.strategy,
            cap=told.metrics[0].cap_micro,
            versions={
                version: tuple(
                    place
                    for place, (begin, end) in enumerate(zip(since, until, strict=True))
                    if begin <= version and (end is None or end > version)
                )
                for version in range(1, told.version + 1)
            },
            tables=tuple(tables),
            arms_since=since,
            segments_since=told.rows_since,
            by_context=rows_by_context(told.contexts, told.segments),
            bounded=told.bounded,
            attribution_seconds=told.attribution_seconds,
            neutral=told.neutral,
            restarts=told.restarts,
        )

    @property
    def budget_nano(self) -> int:
        """The largest risk of any visitor."""
        return max(self.budgets_nano)

    @property
    def version_grade(self) -> str:
        """What is promised for tables of one version: each alone, or all of them together."""
        return TABLE_RULES[self.strategy].grade

    @property
    def grade(self) -> str:
        """What is promised over all versions.

        Where an arm was switched off or added, it is "given the time": no band has room for entries
        of 0 and for others.
        """
        return self.version_grade if len(self.versions) == 1 else GIVEN_THE_TIME

    def band(self, version: int) -> Band | None:
        """Return integer limits on the tables of this version; None if there are none."""
        return self.recipe(version).fixed_band()

    def neutral_row(self, version: int) -> Row:
        """Return the row of risk 0 for everybody who is not a member, which depends on no data."""
        if self.neutral:
            row = self.neutral[version - 1]
            return row + (0,) * (len(self.arms) - len(row))
        band = self.band(version)
        shown = self.versions[version]
        equal = neutral_row([int(arm in shown) for arm in range(len(self.arms))])
        return equal if band is None else band.neutral

    def recipe(self, version: int, horizon: int | None = None) -> Recipe:
        """Return how tables of a version follow from their counts."""
        return Recipe(
            self.strategy,
            budgets=self.budgets_nano,
            active=self.versions[version],
            cap=self.cap,
            horizon=horizon,
            by_context=self.by_context,
        )

    def replays(self, published: AuditedTable) -> bool:
        """Whether a table is what the strategy makes from its counts.

        A table has a row for each segment that was listed when it was published; segments listed
        later have that of unlisted ones, and arms that are not in its version are not shown.
        """
        if not self._has_its_shape(published):
            return False
        rows = len(published.shows)
        if any(row != published.table.unlisted for row in published.table.rows[rows:]):
            return False
        recipe = self.recipe(published.version, published.horizon)
        counts = recipe.counts(published.shows, published.rewards)
        own = Table(published.table.rows[:rows], published.table.unlisted)
        return recipe.replays(own, counts)

    def not_due(self) -> set[int]:
        """Return the numbers of tables that were not made at the number of decisions they were due at.

        A version's first table is made when the version begins, at whatever number that is. No cut
        may fall from one table to the next.
        """
        found: set[int] = set()
        known = [table for table in self.tables if table.made_of is not None]
        for before, table in zip((None, *known), known, strict=False):
            if before is None:
                due = table.decisions == 0
            elif table.version != before.version or before.number in self.restarts:
                due = table.decisions >= before.decisions
            else:
                number = last_due(before.decisions, table.decisions, self.epochs(table))
                due = before.decisions < number == table.decisions
            fell = before is not None and (
                _falls(before.made_of or {}, table.made_of or {})
                or _falls(before.rewards_upto, table.rewards_upto)
            )
            if fell or not due:
                found.add(table.number)
        return found

    def skipped(self) -> dict[int, int]:
        """Return table number -> how many numbers of the schedule passed without a table before it.

        A publisher that comes late skips them. So does one that waits for something.
        """
        found: dict[int, int] = {}
        for before, table in pairwise(self.tables):
            if table.version == before.version and before.number not in self.restarts:
                due, epochs = due_at(before.decisions, self.epochs(table)), self.epochs(table)
                while due < table.decisions:
                    found[table.number] = found.get(table.number, 0) + 1
                    due = due_at(due, epochs)
        return found

    def epochs(self, published: AuditedTable) -> Epochs:
        """Return the schedule that was in force when a table was made."""
        return epochs_of(*self._shape_of(published))

    def _shape_of(self, published: AuditedTable) -> tuple[int, int]:
        """Return the numbers of arms and segments that the chain had when a table was made."""
        return (
            sum(since <= published.version for since in self.arms_since),
            sum(since <= published.number for since in self.segments_since),
        )

    def _has_its_shape(self, published: AuditedTable) -> bool:
        """Whether a table was made for the segments and arms that the chain had at that point."""
        arms, segments = self._shape_of(published)
        shows, rewards = published.shows, published.rewards
        return len(shows) == len(rewards) == segments and set(map(len, shows + rewards)) == {arms}

    def groups(self) -> dict[int, int]:
        """Return table number -> the first of the tables that keep the budgets together with it.

        Given the time, each table is alone; across time, all tables of a version are together.
        """
        first: dict[object, int] = {}
        found = {}
        for table in self.tables:
            lone = self.version_grade == GIVEN_THE_TIME
            key = table.number if lone else ("together", table.version)
            found[table.number] = first.setdefault(key, table.number)
        return found

    def first_table(self, version: int) -> Table:
        """Return the table of a version before any visits."""
        nothing = ((0,) * len(self.arms),) * len(self.segments)
        return self.made(version, nothing, nothing)

    def made(self, version: int, shows: tuple[Row, ...], rewards: tuple[Row, ...]) -> Table:
        """Return the table for these counts."""
        recipe = self.recipe(version)
        return recipe.table(recipe.counts(shows, rewards))


def _falls(before: Mapping[int, int], after: Mapping[int, int]) -> bool:
    return any(after.get(writer, 0) < count for writer, count in before.items())
