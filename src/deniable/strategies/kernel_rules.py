"""What the simulator's kernels run: each strategy turns an experiment into a rule of plain numbers.

There is one kind of rule for each way to choose: greedily with exploration, from tables published at
intervals, by an index, from a fixed distribution, or as decided by a learner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast

import numpy as np

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.privacy.epochs import LEAST_NEW, Epochs, epochs_of

if TYPE_CHECKING:
    from deniable.strategies.custom import MakeLearner

LARGEST_GROWTH = 1000
"""Maximum growth from table to table; beyond it nothing would be learned."""

RuleKind: TypeAlias = Literal["fixed", "dynamic", "arm-dynamic"]
Growth: TypeAlias = float | Literal["service"]
"""The factor by which visitors grow from table to table, or "service" for the service's rule."""


@dataclass(frozen=True, eq=False)
class GreedyRule:
    """Show the greedy arm, with some exploration.

    Attributes:
        kind: "fixed" (the same for every visitor), "dynamic" or "arm-dynamic" (by the clock).
        exploring: for "fixed", exploration probability by arm and, last, the greedy arm's bonus,
            (K + 1,), summing to 1.
        floor: for "dynamic", the minimum exploration of the schedule.
        budgets: for "arm-dynamic", the limit on each arm's risk, (K,).
        turns: clocks at which a limit starts to bind, ascending; from the last on, the rule does
            not change.
        on_segment_clock: whether the clock counts visitors of the segment or of the whole
            experiment.
    """

    kind: RuleKind
    exploring: FloatArray
    floor: float
    budgets: FloatArray
    turns: FloatArray
    on_segment_clock: bool = True


@dataclass(frozen=True, eq=False)
class PublishedRule:
    """Show arms from tables that are published as in the service.

    A row is (1 - b) weights + b for the greedy arm of the counts so far; arms that tie share b.

    Attributes:
        weights: (K,), summing to 1.
        bonus: the largest b.
        scheduled: b = min(bonus, 1 - exploration_n) on the segment's clock n; else b is the bonus.
        epochs: how the visitors of all segments together grow from table to table.
    """

    weights: FloatArray
    bonus: float
    scheduled: bool
    epochs: Epochs


@dataclass(frozen=True)
class IndexRule:
    """Show the arm with the highest Gittins index.

    Attributes:
        discount: the weight of the next visitor's click, below 1.
    """

    discount: float


@dataclass(frozen=True, eq=False)
class FixedRule:
    """Show arms from one distribution, whatever the clicks.

    Attributes:
        shown: probability in each segment (row) of each arm (column), (J, K); if click rates
            change, one such table per checkpoint, (C, J, K).
    """

    shown: FloatArray


@dataclass(frozen=True)
class EpochRule:
    """Publish one table for all segments per epoch, from the counts before it.

    Attributes:
        kind: "joint", "pooled" or "unbounded".
        budget: g; only joint uses it.
        told_horizon: the number of visitors to expect; 0 if unknown.
    """

    kind: Literal["joint", "pooled", "unbounded"]
    budget: float
    told_horizon: int


@dataclass(frozen=True)
class KnownRatesRule:
    """Show arms from the best table that keeps the budget, given the true rates and shares.

    Attributes:
        budget: g.
    """

    budget: float


@dataclass(frozen=True)
class LearnerRule:
    """Ask a learner in Python for every visitor; see `custom.py`.

    Attributes:
        learner: creates the learner from the next three and a random generator.
        n_arms: K.
        n_segments: J.
        horizon: T.
        explored: how often a random arm is shown instead of the chosen one.
    """

    learner: MakeLearner
    n_arms: int
    n_segments: int
    horizon: int
    explored: float


Rule: TypeAlias = (
    GreedyRule | PublishedRule | IndexRule | FixedRule | EpochRule | KnownRatesRule | LearnerRule
)


class Simulated(Protocol):
    """The interface of what can be simulated: strategies and benchmarks.

    They are immutable, comparable and picklable.
    """

    @property
    def name(self) -> str:
        """The name without parameters."""

    @property
    def label(self) -> str:
        """The name with parameters, which distinguishes the strategies of a run."""

    @property
    def risk_cap(self) -> float:
        """The largest privacy risk of any visitor; infinite if nothing is promised."""

    def rule(self, rates: FloatArray, horizon: int) -> Rule:
        """Return the rule for click rates of shape (J, K) and this many visitors.

        Only perfect information uses the rates; all others use only their shape.
        """


@dataclass(frozen=True, kw_only=True)
class Published:
    """Common base of strategies that can publish tables.

    Attributes:
        growth: a table is published when the visitors have grown by this factor, and by 100; with
            "service", when the service would (`privacy/epochs.py`). None learns after every
            visitor, as in the paper.
    """

    growth: Growth | None = None

    def __post_init__(self) -> None:
        if self.growth is not None:
            object.__setattr__(self, "growth", _growth(self.growth))

    @property
    def publishes(self) -> bool:
        """Whether it learns from table to table."""
        return self.growth is not None

    def epochs(self, n_arms: int, n_segments: int) -> Epochs:
        """Return the distance from table to table."""
        if isinstance(self.growth, float):
            return Epochs(self.growth, LEAST_NEW)
        return epochs_of(n_arms, n_segments)

    def labelled(self, budgets: str) -> str:
        """Return the label of a strategy with these budgets."""
        growth = f", growth {shortest(self.growth)}" if isinstance(self.growth, float) else ""
        if self.growth == "service":
            growth = ", published"
        return f"({budgets}{growth})"

    def published(
        self, explored: FloatArray, bonus: float, n_segments: int, *, scheduled: bool
    ) -> PublishedRule:
        """Return the rule of tables with these probabilities and this bonus for the greedy arm."""
        return PublishedRule(
            weights=explored / explored.sum(),
            bonus=bonus,
            scheduled=scheduled,
            epochs=self.epochs(explored.size, n_segments),
        )


def as_served(strategy: Simulated) -> Simulated:
    """Return the strategy as the service runs it: learning from table to table."""
    if isinstance(strategy, Published):
        return cast(Simulated, replace(strategy, growth="service"))
    return strategy


def _growth(value: Growth) -> Growth:
    if value == "service":
        return value
    growth = check.single("growth", check.nonnegative("growth", value))
    if not 1 < growth <= LARGEST_GROWTH:
        allowed = f"a factor above 1, up to {LARGEST_GROWTH}, or 'service'"
        raise InvalidArgumentError("growth", value, allowed)
    return growth


def shortest(value: float) -> str:
    """Return the shortest text that parses to the same number, so that labels never collide.

    >>> shortest(3.0), shortest(2.7288521), shortest(1e-7)
    ('3', '2.7288521', '1e-07')
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def fixed_rule(shown_alone: FloatArray, bonus: float) -> GreedyRule:
    """Return the same exploration for every visitor: probabilities, and the greedy arm's bonus."""
    n_arms = shown_alone.size
    return GreedyRule(
        kind="fixed",
        exploring=np.append(shown_alone, bonus),
        floor=float(shown_alone.sum()),
        budgets=np.zeros(n_arms),
        turns=np.ones(1),
    )


def decaying_rule(n_arms: int, floor: float, settles_at: float) -> GreedyRule:
    """Return exploration max(floor, (K log n / n)^(1/3)), which reaches the floor at `settles_at`."""
    return GreedyRule(
        kind="dynamic",
        exploring=np.zeros(n_arms + 1),
        floor=floor,
        budgets=np.zeros(n_arms),
        turns=np.array([settles_at]),
    )
