"""What an experiment has promised and published, as plain data: all that an auditor needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deniable import _validation as check
from deniable.errors import InvalidArgumentError
from deniable.privacy.tables import Band, Row, Table
from deniable.strategies import STRATEGIES
from deniable.strategies.making import make_band, make_table

GIVEN_THE_TIME = "given the time"


@dataclass(frozen=True)
class AuditedTable:
    """A published table with the counts that it says it was made from.

    Attributes:
        number: within the experiment, from 1.
        version: of the promise.
        table: the rows.
        shows: by segment and arm.
        rewards: sums of rewards by segment and arm.
    """

    number: int
    version: int
    table: Table
    shows: tuple[Row, ...]
    rewards: tuple[Row, ...]


@dataclass(frozen=True)
class Lottery:
    """Who may become a member, by a keyed hash of the visitor; in thousandths.

    Attributes:
        slots: of its layer's 1,000; 1,000 without a layer.
        holdout: of those who have one of its slots.

    >>> Lottery(slots=600, holdout=100).other_share
    0.4
    """

    slots: int
    holdout: int

    @property
    def other_share(self) -> float:
        """The share of visitors whose slot is not one of the experiment's."""
        return 1 - self.slots / 1000

    @property
    def holdout_share(self) -> float:
        """The share of the others who are held out."""
        return self.holdout / 1000


@dataclass(frozen=True)
class Promise:
    """An experiment's budgets and strategy, and every table that it has published.

    Attributes:
        name: the experiment's key.
        arms: the arms' keys, in stored order.
        segments: the listed segments' names, in stored order.
        budgets_nano: the budget of each arm in nano-nats; all equal for the symmetric mechanism.
        strategy: its name.
        cap: the largest reward of one show.
        horizon: visitors planned for, where known.
        versions: version -> the arms (positions) that it shows; switching an arm off makes another.
        tables: as published, oldest first.
        one_band: whether the tables of all versions keep the budgets together.

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
    horizon: int | None = None
    versions: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    tables: tuple[AuditedTable, ...] = ()
    one_band: bool = True

    def __post_init__(self) -> None:
        check.distinct("arms", self.arms, 2)
        check.distinct("segments", self.segments, 1)
        if len(self.budgets_nano) != len(self.arms):
            raise InvalidArgumentError(
                "budgets_nano", self.budgets_nano, f"{len(self.arms)} budgets, one for each arm"
            )
        if self.strategy not in STRATEGIES:
            raise InvalidArgumentError("strategy", self.strategy, "one of " + ", ".join(STRATEGIES))
        if not self.versions:
            object.__setattr__(self, "versions", {1: tuple(range(len(self.arms)))})
        for version, shown in self.versions.items():
            if len(shown) < 2 or not set(shown) <= set(range(len(self.arms))):
                raise InvalidArgumentError("versions", {version: shown}, "2 or more of the arms")

    @property
    def budget_nano(self) -> int:
        """The largest risk that any visitor may be given."""
        return max(self.budgets_nano)

    @property
    def grade(self) -> str:
        """What is promised of tables of one version: each alone, or all of them together."""
        return STRATEGIES[self.strategy].grade

    @property
    def stated_grade(self) -> str:
        """What is promised over all versions: switching an arm off can make it weaker."""
        return self.grade if self.one_band else GIVEN_THE_TIME

    def band(self, version: int) -> Band | None:
        """The integers that tables of this version must stay between; None where there are none."""
        return make_band(self.strategy, budgets=self.budgets_nano, active=self.versions[version])

    def replayed(self, published: AuditedTable) -> Table:
        """The table that the strategy makes of the counts that a published one names."""
        return self.made(published.version, published.shows, published.rewards)

    def first_table(self, version: int) -> Table:
        """The table of a version before anybody came."""
        nothing = ((0,) * len(self.arms),) * len(self.segments)
        return self.made(version, nothing, nothing)

    def made(self, version: int, shows: tuple[Row, ...], rewards: tuple[Row, ...]) -> Table:
        """The table of these counts."""
        return make_table(
            self.strategy,
            budgets=self.budgets_nano,
            active=self.versions[version],
            shows=shows,
            rewards=rewards,
            cap=self.cap,
            horizon=self.horizon,
        )
