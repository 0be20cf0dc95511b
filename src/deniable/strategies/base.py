"""The interface of a strategy, as used by the planner, the simulator, charts and pages.

A strategy has two sides. The class provides what holds for all budgets: names and descriptions, the
regret bound and what follows from it. These formulas take scalars and arrays. An instance, such as
`Constant(budget=1)`, is the strategy at one budget: it describes what happens at each clock, and gives
the simulator its rule.

To add a strategy, derive from `Strategy`, implement the abstract methods, and add it to
`STRATEGIES`. A strategy that uses randomized response can derive from `SymmetricStrategy`, which
needs less.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.strategies.kernel_rules import Rule, shortest
from deniable.strategies.rules import TableRule
from deniable.theory.best_budget import lowest_budget, smallest_within
from deniable.theory.regret import Form, RegretTerms

ClockKind: TypeAlias = Literal["segment", "experiment"]
Reading: TypeAlias = Literal["too random", "near the best", "too greedy", "cap never binds"]

NEAR = 0.05
"""A bound this much above the lowest counts as near it: the last few percent cost the most privacy."""


class Formulas(NamedTuple):
    """Closed-form formulas for a strategy's regret; arguments as in `Strategy`.

    Attributes:
        regret_terms: the bound by cause.
        gain: minus its derivative with respect to the budget.
        best_budget: the budget at which to compare; None if it is found by minimization.
    """

    regret_terms: Callable[..., RegretTerms]
    gain: Callable[..., Floats]
    best_budget: Callable[..., Floats] | None = None


@dataclass(frozen=True)
class Strategy(TableRule):
    """A way to spend a privacy budget over the visitors of an experiment.

    All formulas take n_arms (K), horizon (T, visitors of all segments together), n_segments (J) and
    optionally shares, the share of visitors in each segment on the last axis; by default the
    segments are of equal size. `form` is "summed" (the exact sum of the visitors' bounds, for
    planning) or "paper" (as printed, without shares, for reproduction).

    Attributes:
        budget: gamma, the limit on every visitor's risk, in nats.
    """

    budget: float

    at_zero: ClassVar[str]
    """What all visitors are shown at budget 0, as a clause."""

    bound_note: ClassVar[str] = ""
    """A caveat about its bound, as a sentence; may be empty."""

    falls_forever: ClassVar[bool] = False
    """Whether the bound keeps falling with the budget, so that the best budget is a convention."""

    forms: ClassVar[tuple[Form, ...]] = ("summed", "paper")
    """The available forms of its bound."""

    formulas: ClassVar[Formulas]

    clock_kind: ClassVar[ClockKind] = "segment"
    """Which visitors the clock counts."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", check.budget(self.budget))

    @property
    def label(self) -> str:
        """The name with the budget, which distinguishes the strategies of a run."""
        return f"{self.name}({shortest(self.budget)})"

    @property
    def risk_cap(self) -> float:
        """The largest privacy risk of any visitor: the budget."""
        return self.budget

    @abstractmethod
    def rule(self, rates: FloatArray, horizon: int) -> Rule:
        """Return the simulator's rule for an experiment of this size; see `kernel_rules.Simulated`."""

    def binds_at(self, n_arms: int) -> float | None:
        """The clock from which the budget limits what is shown; None if no clock says that."""
        return None

    def risk(self, clock: ArrayLike, n_arms: int) -> Floats:
        """Return the largest possible risk at each clock, at most the budget, in the clock's shape."""
        return check.unwrap(np.full(check.count("clock", clock, 1).shape, self.budget))

    def exploration(self, clock: ArrayLike, n_arms: int) -> Floats | None:
        """Return the share of random arms at each clock; None if it depends on the counts."""
        return None

    @classmethod
    def explored(
        cls, n_arms: ArrayLike, visitors: ArrayLike, budget: ArrayLike
    ) -> FloatArray | None:
        """Return the share of random arms over a segment's visitors; None if it depends on counts."""
        return None

    @classmethod
    def explored_last(
        cls, n_arms: ArrayLike, visitors: ArrayLike, budget: ArrayLike
    ) -> FloatArray | None:
        """Return the share of random arms for the last of these visitors."""
        return None

    @classmethod
    def drawn_by_lot(cls, n_arms: int, n_segments: int, budget: float) -> float:
        """Return the smallest share of visitors whose arm does not depend on their segment.

        It is e^-budget in every table that keeps the budget, and 1 with a single segment.
        """
        return 1.0 if n_segments == 1 else math.exp(-budget)

    @classmethod
    def fits(cls, n_arms: ArrayLike, n_segments: ArrayLike) -> NDArray[np.bool_]:
        """Whether the strategy can make tables of this size."""
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
        """Return the regret bound by cause."""
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
        """Return the marginal learning gain: minus the derivative of the bound by the budget."""
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
        """Return the regret bound: at most this many expected clicks are lost."""
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
        """Return the percentage change of the bound per percent of budget."""
        gain = cls.gain(n_arms, horizon, budget, n_segments, form=form, shares=shares)
        bound = cls.regret(n_arms, horizon, budget, n_segments, form=form, shares=shares)
        # Divide first: both may be near the largest float.
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
        """Return the smallest budget with the lowest bound.

        Without a formula, it is searched for up to log(1 + K T), where less than one visitor in
        total sees a random arm.
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
        """Return the budget beyond which more hardly helps; the best one if the bound has a minimum."""
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
        """Return the smallest budget whose bound is within `excess` (0.05 for 5%) of the lowest."""
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
        """Return the budget that the planner recommends with this strategy; `advice` explains it."""
        return cls.budget_for_regret(n_arms, horizon, NEAR, n_segments, form=form, shares=shares)

    @classmethod
    def advice(cls, n_segments: int) -> str:
        """Explain the recommended budget, in a sentence or two."""
        return (
            f"It is the smallest budget whose regret bound is within {NEAR:.0%} of the lowest one of "
            f"the {cls.name} strategy. More would cost privacy and buy almost nothing."
        )

    @classmethod
    def kinks(
        cls, n_arms: FloatArray, horizon: FloatArray, n_segments: FloatArray, *, form: Form
    ) -> FloatArray:
        """Return budgets at which the bound's slope jumps, shape (experiments, any), padded with NaN."""
        return np.empty((np.asarray(n_arms).size, 0))

    @classmethod
    def dominated(cls, n_segments: ArrayLike, *, form: Form) -> NDArray[np.bool_]:
        """Where another strategy's bound is never higher at the same budget."""
        return np.zeros(np.shape(n_segments), dtype=bool)

    @classmethod
    def reading(
        cls, *, regret: float, gain: float, budget: float, best_budget: float, best_regret: float
    ) -> Reading:
        """Classify a budget by its bound, consistently with the sign of the elasticity.

        A bound that a larger budget would lower is "too random", one that a smaller would lower is
        "too greedy". It is "near the best" within 5% of its minimum, and "cap never binds" where it
        is flat.
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
        """Return the classification as a sentence."""
        change = "much of it" if abs(elasticity) > 5 else f"{abs(elasticity):.2f}% of it"
        return {
            "too random": f"Too random: 1% more budget would take {change} off the bound.",
            "near the best": f"Within {NEAR:.0%} of the lowest bound.",
            "too greedy": f"Too greedy: 1% less budget would take {change} off the bound.",
            "cap never binds": "More budget than it can use: less would protect more and cost nothing.",
        }[reading]
