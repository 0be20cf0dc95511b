"""What a strategy is: everything that planner, simulator, charts and pages ask of one.

A strategy has two sides. The class knows what holds for all budgets: its name and words, its regret
bound and what follows from it. These formulas take scalars and arrays. An instance is the strategy at
one budget: what its visitors meet, clock by clock.

A new strategy derives from `Strategy`, says what is abstract here, and is entered in `STRATEGIES`. A
strategy that shows every arm by randomized response derives from `SymmetricStrategy` and says even less.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.policies.base import Policy
from deniable.privacy.mechanism import Mechanism
from deniable.strategies.rules import TableRule
from deniable.theory.best_budget import lowest_budget, smallest_within
from deniable.theory.regret import Form, RegretTerms

ClockKind: TypeAlias = Literal["segment", "experiment"]
Reading: TypeAlias = Literal["too random", "near the best", "too greedy", "cap never binds"]

NEAR = 0.05
"""A bound this much above the lowest counts as near it: the last percents cost the most privacy."""


class Formulas(NamedTuple):
    """What is known in closed form about a strategy's regret; arguments as in `Strategy`.

    Attributes:
        regret_terms: the bound by cause.
        gain: minus its derivative by the budget.
        best_budget: the budget to be compared at; None: found by minimization.
    """

    regret_terms: Callable[..., RegretTerms]
    gain: Callable[..., Floats]
    best_budget: Callable[..., Floats] | None = None


class Spending(Protocol):
    """A budget, or budgets by arm, being spent: what its visitors meet, clock by clock."""

    clock_kind: ClassVar[ClockKind]

    @property
    def n_arms(self) -> int:
        """K."""

    @property
    def global_budget(self) -> float:
        """The largest risk that any visitor can be given."""

    @property
    def binds_at(self) -> float:
        """The clock from which the budget limits what is shown; infinite where it never does."""

    def exploration(self, clock: ArrayLike) -> Floats:
        """Probability of a random arm at each clock, the clock's shape."""

    def risk(self, clock: ArrayLike) -> Floats:
        """Global privacy risk at each clock, the clock's shape."""

    def mechanism(self, clock: int) -> Mechanism:
        """The mechanism that shows an arm to the visitor with this clock."""


@dataclass(frozen=True)
class Strategy(TableRule):
    """A way to spend a privacy budget over the visitors of an experiment.

    All formulas take n_arms (K), horizon (T, visitors of all segments together), n_segments (J) and
    optionally shares, the part of the visitors in each segment on the last axis; without shares the
    segments are of one size. `form` is "summed" (for planning: really the sum of the visitors' bounds)
    or "paper" (for reproduction: as printed, without shares).

    Attributes:
        n_arms: K.
        budget: gamma, the cap on every visitor's risk, in nats.
    """

    n_arms: int
    budget: float

    at_zero: ClassVar[str]
    """What everybody is shown at budget 0, as a clause."""

    bound_note: ClassVar[str] = ""
    """What a reader of its bound must know, as a sentence; empty where there is nothing."""

    falls_forever: ClassVar[bool] = False
    """Whether the bound falls with every budget, so that the best one is a convention."""

    forms: ClassVar[tuple[Form, ...]] = ("summed", "paper")
    """The forms in which its bound is known."""

    formulas: ClassVar[Formulas]

    clock_kind: ClassVar[ClockKind] = "segment"
    """Whose visitors the clock counts."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_arms", check.whole("n_arms", self.n_arms, 2))
        budget = check.single("budget", check.nonnegative("budget", self.budget))
        object.__setattr__(self, "budget", budget)

    @property
    def global_budget(self) -> float:
        """The budget."""
        return self.budget

    @property
    def binds_at(self) -> float | None:
        """The clock from which the budget limits what is shown; None: no clock says that."""
        return None

    def risk(self, clock: ArrayLike) -> Floats:
        """Most that a visitor with this clock can be given, at most the budget; the clock's shape."""
        return check.unwrap(np.full(check.count("clock", clock, 1).shape, self.budget))

    def exploration(self, clock: ArrayLike) -> Floats | None:
        """Share of random arms at each clock, the clock's shape; None: it depends on the counts."""
        return None

    @abstractmethod
    def policy(self) -> Policy:
        """What the simulator runs; its name is the strategy's."""

    @classmethod
    def explored(
        cls, n_arms: ArrayLike, visitors: ArrayLike, budget: ArrayLike
    ) -> FloatArray | None:
        """Share of random arms over all `visitors` of a segment; None: it depends on the counts."""
        return None

    @classmethod
    def explored_last(
        cls, n_arms: ArrayLike, visitors: ArrayLike, budget: ArrayLike
    ) -> FloatArray | None:
        """The same for the last of these visitors."""
        return None

    @classmethod
    def drawn_by_lot(cls, n_arms: int, n_segments: int, budget: float) -> float:
        """The least share of visitors whose arm does not depend on their segment, at this budget.

        e^-budget in every table that keeps the budget; all of them with one segment.
        """
        return 1.0 if n_segments == 1 else math.exp(-budget)

    @classmethod
    def fits(cls, n_arms: ArrayLike, n_segments: ArrayLike) -> NDArray[np.bool_]:
        """Whether it makes tables of this size."""
        most = np.inf if cls.largest is None else cls.largest
        return np.asarray((np.asarray(n_arms) <= most) & (np.asarray(n_segments) <= most))

    @classmethod
    def regret_terms(
        cls,
        n_arms: ArrayLike,
        horizon: ArrayLike,
        budget: ArrayLike,
        n_segments: ArrayLike = 1,
        *,
        form: Form = "summed",
        shares: ArrayLike | None = None,
    ) -> RegretTerms:
        """The regret bound by cause."""
        return cls.formulas.regret_terms(
            n_arms, horizon, budget, n_segments, form=form, shares=shares
        )

    @classmethod
    def gain(
        cls,
        n_arms: ArrayLike,
        horizon: ArrayLike,
        budget: ArrayLike,
        n_segments: ArrayLike = 1,
        *,
        form: Form = "summed",
        shares: ArrayLike | None = None,
    ) -> Floats:
        """Marginal learning gain: minus the derivative of the bound by the budget."""
        return cls.formulas.gain(n_arms, horizon, budget, n_segments, form=form, shares=shares)

    @classmethod
    def regret(
        cls,
        n_arms: ArrayLike,
        horizon: ArrayLike,
        budget: ArrayLike,
        n_segments: ArrayLike = 1,
        *,
        form: Form = "summed",
        shares: ArrayLike | None = None,
    ) -> Floats:
        """The regret bound: expected clicks lost, at most. Above the horizon it says nothing."""
        return cls.regret_terms(n_arms, horizon, budget, n_segments, form=form, shares=shares).total

    @classmethod
    def elasticity(
        cls,
        n_arms: ArrayLike,
        horizon: ArrayLike,
        budget: ArrayLike,
        n_segments: ArrayLike = 1,
        *,
        form: Form = "summed",
        shares: ArrayLike | None = None,
    ) -> Floats:
        """Percent by which the bound changes per percent of budget."""
        gain = cls.gain(n_arms, horizon, budget, n_segments, form=form, shares=shares)
        bound = cls.regret(n_arms, horizon, budget, n_segments, form=form, shares=shares)
        # The ratio before the product: both may be near the largest float.
        return check.unwrap(np.asarray(0.0 - np.asarray(budget) * (np.asarray(gain) / bound)))

    @classmethod
    def best_budget(
        cls,
        n_arms: ArrayLike,
        horizon: ArrayLike,
        n_segments: ArrayLike = 1,
        *,
        form: Form = "summed",
        shares: ArrayLike | None = None,
    ) -> Floats:
        """The smallest budget with the lowest bound.

        Where there is no formula: looked for up to log(1 + K T), where fewer than one visitor in all
        sees a random arm.
        """
        known: Formulas | None = getattr(cls, "formulas", None)
        if known is not None and known.best_budget is not None:
            return known.best_budget(n_arms, horizon, n_segments, form=form, shares=shares)
        top = np.log1p(np.asarray(n_arms, np.float64) * np.asarray(horizon, np.float64))

        def bound(budget: FloatArray) -> Floats:
            return cls.regret(n_arms, horizon, budget, n_segments, form=form, shares=shares)

        def gain(budget: FloatArray) -> Floats:
            return cls.gain(n_arms, horizon, budget, n_segments, form=form, shares=shares)

        return lowest_budget(bound, gain, top)

    @classmethod
    def useful_budget(
        cls,
        n_arms: ArrayLike,
        horizon: ArrayLike,
        n_segments: ArrayLike = 1,
        *,
        form: Form = "summed",
        shares: ArrayLike | None = None,
    ) -> Floats:
        """The budget beyond which more hardly helps; the best one where the bound has a lowest."""
        return cls.best_budget(n_arms, horizon, n_segments, form=form, shares=shares)

    @classmethod
    def budget_for_regret(
        cls,
        n_arms: ArrayLike,
        horizon: ArrayLike,
        excess: ArrayLike,
        n_segments: ArrayLike = 1,
        *,
        form: Form = "summed",
        shares: ArrayLike | None = None,
    ) -> Floats:
        """The smallest budget whose bound is within `excess` (0.05 for 5%) of the lowest."""
        best = cls.best_budget(n_arms, horizon, n_segments, form=form, shares=shares)
        return smallest_within(
            lambda budget: cls.regret(
                n_arms, horizon, budget, n_segments, form=form, shares=shares
            ),
            best,
            excess,
        )

    @classmethod
    def advised_budget(
        cls,
        n_arms: ArrayLike,
        horizon: ArrayLike,
        n_segments: ArrayLike = 1,
        *,
        form: Form = "summed",
        shares: ArrayLike | None = None,
    ) -> Floats:
        """The budget that the planner takes with this strategy: `advice` says why."""
        return cls.budget_for_regret(n_arms, horizon, NEAR, n_segments, form=form, shares=shares)

    @classmethod
    def advice(cls, n_segments: int) -> str:
        """Why `advised_budget` is the one to take, as a sentence or two."""
        return (
            f"It is the smallest budget whose regret bound is within {NEAR:.0%} of the lowest one of "
            f"the {cls.name} strategy. More would cost privacy and buy almost nothing."
        )

    @classmethod
    def kinks(
        cls, n_arms: FloatArray, horizon: FloatArray, n_segments: FloatArray, *, form: Form
    ) -> FloatArray:
        """Budgets at which the bound's slope jumps, shape (experiments, any); NaN: there is none."""
        return np.empty((np.asarray(n_arms).size, 0))

    @classmethod
    def dominated(cls, n_segments: ArrayLike, *, form: Form) -> NDArray[np.bool_]:
        """Where another strategy's bound is never higher at the same budget."""
        return np.zeros(np.shape(n_segments), dtype=bool)

    @classmethod
    def reading(
        cls, *, regret: float, gain: float, budget: float, best_budget: float, best_regret: float
    ) -> Reading:
        """What the bound at a budget says about it. It agrees with the elasticity's sign.

        A bound that more budget would lower is "too random", one that less would lower "too greedy";
        "near the best" where it is within 5% of its lowest, "cap never binds" where it is flat.
        """
        if gain == 0 and budget > best_budget:
            return "cap never binds"
        if regret <= (1 + NEAR) * best_regret:
            return "near the best"
        if gain == 0:
            return "too random" if budget < best_budget else "too greedy"
        return "too random" if gain > 0 else "too greedy"

    @classmethod
    def reading_words(cls, reading: Reading, elasticity: float) -> str:
        """The reading as a sentence."""
        change = "much of it" if abs(elasticity) > 5 else f"{abs(elasticity):.2f}% of it"
        return {
            "too random": f"Too random: 1% more budget would take {change} off the bound.",
            "near the best": f"Within {NEAR:.0%} of the lowest bound.",
            "too greedy": f"Too greedy: 1% less budget would take {change} off the bound.",
            "cap never binds": "More budget than it can use: less would protect more and cost nothing.",
        }[reading]
