"""What an experiment has promised and published, as plain data for an auditor."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deniable import _validation as check
from deniable.errors import BrokenPromiseError, InvalidArgumentError
from deniable.privacy.tables import Band, Row, Table, stored_table
from deniable.strategies import table_rules
from deniable.strategies.recipe import Recipe
from deniable.strategies.rules import Wanted

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
        rule: number of the strategy's rule that made it; 1 if none was stored.
        additions: how often noise was added to the counts, if there is a trace budget.
        floors: floors of the band that was fixed after the start; None if there is none (yet).
        wanted: the model's scores that it claims to follow; None if there are none.
    """

    number: int
    version: int
    table: Table
    shows: tuple[Row, ...]
    rewards: tuple[Row, ...]
    horizon: int | None = None
    additions: int = 0
    floors: Row | None = None
    wanted: Wanted | None = None
    rule: int = 1

    @classmethod
    def stored(
        cls,
        number: int,
        version: int,
        rows: bytes,
        counts: bytes,
        *,
        n_segments: int,
        n_arms: int,
    ) -> AuditedTable:
        """Decode the blobs of a store or a log, in the current shape of the experiment.

        Raises:
            BrokenPromiseError: a publisher cannot have written them.
        """
        try:
            made_from = json.loads(counts)
            floors, wanted = made_from.get("floors"), made_from.get("scores")
            return cls(
                number=number,
                version=version,
                table=stored_table(rows, counts, n_segments, n_arms),
                shows=tuple(map(tuple, made_from["shows"])),
                rewards=tuple(map(tuple, made_from["rewards"])),
                horizon=made_from.get("horizon"),
                additions=made_from.get("additions", 0),
                floors=None if floors is None else tuple(floors) + (0,) * (n_arms - len(floors)),
                wanted=None
                if wanted is None
                else Wanted(wanted["what"], tuple(map(tuple, wanted["rows"]))),
                rule=int(made_from.get("rule", 1)),
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
        trace_nano: the trace budget that noise in the counts keeps; None if they are exact.
        across_time: whether it requires the grade "across time", if that is an option.
        versions: version -> indices of the arms that it shows; switching an arm off or adding one
            makes a new version.
        tables: the published tables, oldest first.
        one_band: whether the tables of all versions keep the budgets together.
        arms_since: the version that added each arm; all 1 by default.
        segments_since: the number of the first table with a row for each segment; all 1 by default.
        given: table number -> the model's newest scores in the chain at that time.

    >>> promise = Promise("checkout", ("old", "new"), ("a", "b"), (10**9, 10**9), "dynamic")
    >>> promise.budget_nano, promise.grade, promise.stated_grade
    (1000000000, 'across time', 'across time')
    """

    name: str
    arms: tuple[str, ...]
    segments: tuple[str, ...]
    budgets_nano: tuple[int, ...]
    strategy: str
    cap: int = 1
    trace_nano: int | None = None
    across_time: bool = False
    versions: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    tables: tuple[AuditedTable, ...] = ()
    one_band: bool = True
    arms_since: tuple[int, ...] = ()
    segments_since: tuple[int, ...] = ()
    given: Mapping[int, Wanted] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check.distinct("arms", self.arms, 2)
        check.distinct("segments", self.segments, 1)
        if len(self.budgets_nano) != len(self.arms):
            raise InvalidArgumentError(
                "budgets_nano", self.budgets_nano, f"{len(self.arms)} budgets, one for each arm"
            )
        known = table_rules()
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
        given: Mapping[int, Wanted] | None = None,
    ) -> Promise:
        """Build the promise from the chain.

        Args:
            told: the promise in its entries.
            off: arm key -> the version from which it is off. An arm of a scratch copy may be off
                without an entry, from the copy's first version on.
            tables: the published tables, oldest first.
            given: table number -> the model's newest scores at that time.
        """
        until = [1 if not on and key not in off else off.get(key) for key, _, on in told.arms]
        since = told.arms_since or (1,) * len(told.arms)
        return cls(
            name=told.key,
            arms=tuple(key for key, _, _ in told.arms),
            segments=told.segments,
            budgets_nano=tuple(
                told.budget_nano if budget is None else budget for _, budget, _ in told.arms
            ),
            strategy=told.strategy,
            cap=told.metrics[0].cap_micro,
            trace_nano=told.trace_nano,
            across_time=told.across_time,
            versions={
                version: tuple(
                    place
                    for place, (begin, end) in enumerate(zip(since, until, strict=True))
                    if begin <= version and (end is None or end > version)
                )
                for version in range(1, told.version + 1)
            },
            tables=tuple(tables),
            one_band=told.one_band,
            arms_since=since,
            segments_since=told.segments_since,
            given=given or {},
        )

    @property
    def budget_nano(self) -> int:
        """The largest risk of any visitor."""
        return max(self.budgets_nano)

    @property
    def grade(self) -> str:
        """What is promised for tables of one version: each alone, or all of them together."""
        return table_rules()[self.strategy].grade_of(self.across_time)

    @property
    def late(self) -> bool:
        """Whether the band of all tables is fixed after the start, from what was learned."""
        return self.across_time and table_rules()[self.strategy].offers_across_time

    @property
    def stated_grade(self) -> str:
        """What is promised over all versions; a change of the arms can weaken it."""
        return self.grade if self.one_band else GIVEN_THE_TIME

    def band(self, version: int) -> Band | None:
        """Return integer limits on the tables of this version; None if there are none."""
        recipe = self.recipe(version)
        late = [table for table in self.tables if table.version == version and table.floors]
        if not late:
            return recipe.fixed_band()
        try:
            return recipe.settled_band(late[0].floors)
        except BrokenPromiseError:  # floors that no table can have; no table replays either
            return None

    def recipe(self, version: int, horizon: int | None = None, rule: int | None = None) -> Recipe:
        """Return how tables of a version follow from their counts."""
        return Recipe(
            self.strategy,
            budgets=self.budgets_nano,
            active=self.versions[version],
            cap=self.cap,
            horizon=horizon,
            across_time=self.across_time,
            trace_nano=self.trace_nano,
            rule=rule,
        )

    def replays(self, published: AuditedTable) -> bool:
        """Whether a table is what the strategy makes from its counts.

        The first table inside a late band must be where the strategy would have fixed that band.
        Scores that it names must be those in the chain. A table has a row for each segment that was
        listed when it was published; segments listed later have the zero row, and arms that are not
        in its version are not shown.
        """
        if not self._has_its_shape(published):
            return False
        rows = len(published.shows)
        if any(row != published.table.zero for row in published.table.rows[rows:]):
            return False
        recipe = self.recipe(published.version, published.horizon, published.rule)
        if not 1 <= published.rule <= recipe.kind.rule:
            return False
        wanted = self.given.get(published.number) if recipe.kind.follows_scores else None
        if published.wanted != wanted:
            return False
        counts = recipe.counts(published.shows, published.rewards, published.additions, wanted)
        before = [
            table
            for table in self.tables
            if (table.version, table.number < published.number) == (published.version, True)
        ]
        known = before[-1].floors if before else None
        if known is not None:
            settled = published.floors == known
        else:
            settled = recipe.settles(published.floors, counts)
        try:
            band = recipe.settled_band(published.floors)
        except BrokenPromiseError:
            return False
        own = Table(published.table.rows[:rows], published.table.zero)
        return settled and recipe.replays(own, counts, band)

    def _has_its_shape(self, published: AuditedTable) -> bool:
        """Whether a table was made for the segments and arms that the chain had at that point."""
        arms = sum(since <= published.version for since in self.arms_since)
        segments = sum(since <= published.number for since in self.segments_since)
        shows, rewards = published.shows, published.rewards
        return len(shows) == len(rewards) == segments and set(map(len, shows + rewards)) == {arms}

    def groups(self) -> dict[int, int]:
        """Return table number -> the first of the tables that keep the budgets together with it.

        Given the time, each table is alone; across time, all tables of a version, or all in its
        late band, are together.
        """
        first: dict[object, int] = {}
        found = {}
        for table in self.tables:
            lone = self.grade == GIVEN_THE_TIME or (self.late and table.floors is None)
            key = table.number if lone else ("together", table.version)
            found[table.number] = first.setdefault(key, table.number)
        return found

    def first_table(self, version: int) -> Table:
        """Return the table of a version before any visits."""
        nothing = ((0,) * len(self.arms),) * len(self.segments)
        return self.made(version, nothing, nothing)

    def made(self, version: int, shows: tuple[Row, ...], rewards: tuple[Row, ...]) -> Table:
        """Return the table for these counts, without a late band."""
        recipe = self.recipe(version)
        return recipe.table(recipe.counts(shows, rewards))
