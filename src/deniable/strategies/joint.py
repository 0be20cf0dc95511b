"""The joint strategy: one table for all segments at once, as good as the budget allows.

The promise is about segments: P(arm | segment) may differ by e^budget between any two of them.
Whatever all segments share is free. `joint_rule` computes the table for given counts. This module
converts it to integers that keep the budget exactly, and implements everything else that planner,
service and audit need.

The promise is given the time of the first visit: each table is made independently, and an arm may be
retired, which reveals when a visitor came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.errors import NANO, InvalidArgumentError
from deniable.privacy.exact import SPACE
from deniable.privacy.joint_table import integer_table, mean_row
from deniable.privacy.tables import Row, Table
from deniable.strategies.base import NEAR, Formulas, Reading, Strategy
from deniable.strategies.kernel_rules import EpochRule, shortest
from deniable.strategies.rules import LARGEST, Counts, Grade
from deniable.theory import joint as theory
from deniable.theory.regret import Form, RegretTerms

_SAME_VALUE = 1e-9  # tolerance for an auditor's own table, in clicks per visitor


def _segments(n_segments: ArrayLike, form: Form, shares: ArrayLike | None) -> ArrayLike:
    """Return J. The bound holds for segments of any size."""
    if form != "summed":
        raise InvalidArgumentError("form", form, "summed: the paper has no joint strategy")
    return n_segments if shares is None else np.asarray(shares).shape[-1]


def _regret_terms(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    budget: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "summed",
    shares: ArrayLike | None = None,
) -> RegretTerms:
    segments = _segments(n_segments, form, shares)
    return theory.joint_regret_terms(n_arms, horizon, budget, segments)


def _gain(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    budget: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "summed",
    shares: ArrayLike | None = None,
) -> Floats:
    return theory.joint_gain(n_arms, horizon, budget, _segments(n_segments, form, shares))


def _best_budget(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "summed",
    shares: ArrayLike | None = None,
) -> Floats:
    return theory.best_joint_budget(n_arms, horizon, _segments(n_segments, form, shares))


@dataclass(frozen=True)
class Joint(Strategy):
    """The best table for all segments together, learned.

    Its bound falls as the budget grows. By convention, the best budget is where the price of
    privacy equals the cost of learning. With one segment nothing can leak, so no budget is needed
    and the best is 0.

    Attributes:
        told_horizon: the number of visitors that it expects in a simulation; None for the true one,
            0 if it is unknown.

    >>> Joint(1).label, Joint(1, told_horizon=0).label
    ('joint(1)', 'joint(1, told 0)')
    >>> round(float(Joint.regret(2, 10_000, 1, 2)), 3)
    7153.581
    >>> round(float(Joint.best_budget(8, 10**6, 2)), 6), float(Joint.best_budget(8, 99))
    (2.137428, 0.0)
    """

    told_horizon: int | None = None

    name: ClassVar[str] = "joint"
    title: ClassVar[str] = "Joint"
    description: ClassVar[str] = "one table for all segments: what they share is free"
    grade: ClassVar[Grade] = "given the time"
    at_zero: ClassVar[str] = "the same chances for everybody, learned from all segments together"
    bound_note: ClassVar[str] = (
        "The joint bound is proved for an optimistic variant and is 50 to 200 times too high: rank by "
        "it, do not predict with it."
    )
    largest: ClassVar[int | None] = LARGEST
    arm_budgets: ClassVar[bool] = False
    forms: ClassVar[tuple[Form, ...]] = ("summed",)
    falls_forever: ClassVar[bool] = True
    formulas: ClassVar[Formulas] = Formulas(_regret_terms, _gain, _best_budget)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.told_horizon is not None:
            check.whole("told_horizon", self.told_horizon, 0)

    @property
    def label(self) -> str:
        """The name with the budget, and the expected visitors if they were given."""
        told = "" if self.told_horizon is None else f", told {self.told_horizon}"
        return f"{self.name}({shortest(self.budget)}{told})"

    def rule(self, rates: FloatArray, horizon: int) -> EpochRule:
        """A table per epoch, from the counts before it."""
        told = horizon if self.told_horizon is None else self.told_horizon
        return EpochRule("joint", self.budget, told)

    @classmethod
    def table(cls, budgets: Row, counts: Counts) -> Table:
        """See Strategy. With too few counts or too small a budget, all segments have the same row.

        The row of unlisted segments is the mean of the others, weighted by their visitors.
        """
        n_arms, n_segments = len(budgets), len(counts.shows)
        cls.check_size(n_arms, n_segments)
        budget = _one_budget(budgets)
        if _too_few(counts):
            share, odd = divmod(SPACE, n_arms)
            even = tuple(share + (arm < odd) for arm in range(n_arms))
            return Table((even,) * n_segments, even)
        rows = integer_table(_learned(counts, budget).tolist(), budget)
        return Table(rows, mean_row(rows, counts.weights))

    @classmethod
    def replays(cls, published: Table, made: Table, counts: Counts) -> bool:
        """Whether it is as good as the auditor's own for the same counts, to 1e-9 clicks per visitor.

        A linear programme may have several best tables, and which one is found can depend on the
        machine in the last digit. If the rule has not learned yet, or has one row for all segments,
        the published table must too. The row of unlisted segments must follow
        from the others exactly.
        """
        if _too_few(counts):
            return published == made
        if published.unlisted not in (made.unlisted, mean_row(published.rows, counts.weights)):
            return False
        if len(set(made.rows)) == 1 and len(set(published.rows)) > 1:
            return False
        return abs(_value(published.rows, counts) - _value(made.rows, counts)) <= _SAME_VALUE

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
        """Return the smallest budget whose bound is within `excess` of the bound without privacy."""
        segments = _segments(n_segments, form, shares)
        return theory.joint_budget_for_regret(n_arms, horizon, excess, segments)

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
        """Return the budget at which privacy adds 5% to the cost of learning."""
        return cls.budget_for_regret(n_arms, horizon, NEAR, n_segments, form=form, shares=shares)

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
        """Return the budget at which the price of privacy equals the cost of learning."""
        return cls.best_budget(n_arms, horizon, n_segments, form=form, shares=shares)

    @classmethod
    def advice(cls, n_segments: int) -> str:
        """See Strategy."""
        if n_segments == 1:
            return (
                "With one segment nothing can leak: everybody has the same chances, whatever is "
                "learned, and no budget is needed. Say how many segments must not be told apart."
            )
        return (
            "At this budget privacy costs as much as learning does by the joint bound; a larger one "
            "could at most halve it."
        )

    @classmethod
    def reading(
        cls, *, regret: float, gain: float, budget: float, best_budget: float, best_regret: float
    ) -> Reading:
        """See Strategy. The bound keeps falling: beyond the best budget it is near its lowest."""
        if gain == 0 and budget > 0:
            return "cap never binds"
        return "too random" if budget < best_budget else "near the best"

    @classmethod
    def reading_words(cls, reading: Reading, elasticity: float) -> str:
        """See Strategy."""
        if reading == "near the best":
            return "Privacy costs no more than learning does."
        return super().reading_words(reading, elasticity)


def _one_budget(budgets: Row) -> int:
    if len(set(budgets)) > 1:
        raise InvalidArgumentError("arms", "...", "one budget for all arms with the joint strategy")
    return budgets[0]


def _too_few(counts: Counts) -> bool:
    from deniable.strategies.joint_rule import first_epoch

    return counts.visitors < first_epoch(len(counts.shows[0]), len(counts.shows))


def _learned(counts: Counts, budget: int) -> FloatArray:
    from deniable.strategies.joint_rule import joint_table

    return joint_table(*counts.arrays(), counts.horizon, budget / NANO)


def _value(rows: Sequence[Row], counts: Counts) -> float:
    """Return the clicks per visitor of a table by smoothed rates, which needs no solver."""
    shows, clicks = counts.arrays()
    prior = (shows.sum() + 2) / (clicks.sum() + 1)
    rates = (clicks + 1) / (shows + prior)
    weights = np.array(counts.weights, dtype=np.float64)
    table = np.array([[part / SPACE for part in row] for row in rows])
    return float((rates * table * (weights / weights.sum())[:, None]).sum())
