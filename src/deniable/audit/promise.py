"""What an experiment has promised, as plain data: enough to rebuild every table it may draw from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from deniable import _validation as check
from deniable.errors import InvalidArgumentError
from deniable.privacy.serving import ServingSchedule, ServingTable, arm_specific_table

STEPS = 4096
"""A dynamic schedule rounds its risk down to one of this many steps of the largest budget."""


@dataclass(frozen=True)
class Promise:
    """An experiment's budgets and strategy.

    Attributes:
        name: the experiment's key.
        arms: the arms' keys, in stored order.
        segments: the listed segments' names, in stored order.
        budgets_nano: the budget of each arm in nano-nats; all equal for the symmetric mechanism.
        dynamic: whether the risk follows the clock or is the budget from the start.
        versions: version -> the arms (positions) that it shows; switching an arm off makes another.

    >>> promise = Promise("checkout", ("old", "new"), ("a", "b"), (10**9, 10**9), dynamic=True)
    >>> promise.budget_nano, len(list(promise.tables(1)))
    (1000000000, 4098)
    """

    name: str
    arms: tuple[str, ...]
    segments: tuple[str, ...]
    budgets_nano: tuple[int, ...]
    dynamic: bool
    versions: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check.distinct("arms", self.arms, 2)
        check.distinct("segments", self.segments, 1)
        if len(self.budgets_nano) != len(self.arms):
            raise InvalidArgumentError(
                "budgets_nano", self.budgets_nano, f"{len(self.arms)} budgets, one for each arm"
            )
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
    def symmetric(self) -> bool:
        """Whether all arms have the same budget."""
        return len(set(self.budgets_nano)) == 1

    def budgets_of(self, version: int) -> tuple[int, ...]:
        """The budgets of the arms that a version shows."""
        return tuple(self.budgets_nano[arm] for arm in self.versions[version])

    def schedule(self, version: int) -> ServingSchedule:
        """The schedule that the version draws from."""
        return ServingSchedule(self.budgets_of(version), dynamic=self.dynamic)

    def table(self, version: int, risk_nano: int) -> ServingTable:
        """The table that gives the version's visitors this largest risk."""
        return table_within(self.budgets_of(version), risk_nano)

    def tables(self, version: int) -> Iterator[ServingTable]:
        """Every table that listed visitors of the version can meet, from uniform to final."""
        budgets = self.budgets_of(version)
        for level in levels(max(budgets)) if self.dynamic else (max(budgets),):
            yield table_within(budgets, level)


def levels(largest: int) -> list[int]:
    """Every risk that a dynamic schedule can give under its largest budget, in nano-nats.

    >>> levels(3), len(levels(10**9))
    ([0, 1, 2, 3], 4098)
    """
    step = max(1, largest // STEPS)
    return [*range(0, largest, step), largest]


@lru_cache(maxsize=32_768)
def table_within(budgets: tuple[int, ...], level: int) -> ServingTable:
    """The table with risks min(budget_j, level), built anew: the serving code's cache is not used."""
    return arm_specific_table([min(budget, level) for budget in budgets])
