"""The effect of a privacy budget: the beliefs that remain possible, and the cost in clicks.

A *mechanism* makes a table that keeps a budget from what a log shows; `MECHANISMS` lists the ones
compared. Mechanisms may use the rewards of only one half of the log, and are valued with the
rewards of the other half. Otherwise a lucky variant would be chosen and then credited with its
luck.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from deniable._validation import FloatArray
from deniable.leak.counting import Counts
from deniable.leak.measuring import ExperimentLeak
from deniable.privacy.belief import highest_belief
from deniable.privacy.mechanism import RandomizedResponse

BUDGETS = (0.1, 0.5, 1.0, 2.0, 3.0)


@dataclass(frozen=True, eq=False)
class Situation:
    """What a mechanism may know about an experiment.

    Attributes:
        shares: shares of the segments, shape (J,).
        today: probability of each variant in each segment, shape (J, K).
        ratio_high: upper limit of all odds ratios of today's table, with the report's confidence.
        rates: mean reward of each variant in each segment, shape (J, K); None without rewards.
    """

    shares: FloatArray
    today: FloatArray
    ratio_high: float
    rates: FloatArray | None


Mechanism: TypeAlias = Callable[[Situation, float], "FloatArray | None"]
"""(situation, budget) -> a table (J, K) whose worst ratio is at most e^budget; None if impossible."""


def respond_with_todays_variant(now: Situation, budget: float) -> FloatArray:
    """Use randomized response on today's variant; today's table if it already keeps the budget.

    >>> now = Situation(np.array([0.5, 0.5]), np.eye(2), float("inf"), None)
    >>> respond_with_todays_variant(now, 1.0).round(3).tolist()
    [[0.731, 0.269], [0.269, 0.731]]
    """
    if now.ratio_high <= np.exp(budget):
        return now.today
    response = RandomizedResponse(n_arms=now.today.shape[1], risk=budget)
    return np.asarray(now.today @ response.matrix.T)


def respond_with_best_variant(now: Situation, budget: float) -> FloatArray | None:
    """Use randomized response on each segment's best variant."""
    if now.rates is None:
        return None
    response = RandomizedResponse(n_arms=now.today.shape[1], risk=budget)
    return np.asarray(response.matrix.T[now.rates.argmax(axis=1)])


MECHANISMS: dict[str, Mechanism] = {
    "today's variant": respond_with_todays_variant,
    "best variant": respond_with_best_variant,
}
"""Mechanisms by name, as compared in the report."""


@dataclass(frozen=True)
class MechanismCost:
    """One mechanism at one budget, over all experiments.

    Attributes:
        mechanism: name of the mechanism.
        belief: the largest belief in the segment that leaks most today, under its table for the
            experiment that leaks most.
        change: change of the rewards over the log's visitors, compared with today; None without
            rewards.
        error: standard error of the change; None if unknown.
    """

    mechanism: str
    belief: float
    change: float | None
    error: float | None


@dataclass(frozen=True)
class BudgetEffect:
    """One budget, over all experiments.

    Attributes:
        budget: in nats, for each experiment.
        factor: e^budget, the largest factor by which one variant could multiply the odds.
        belief: the strongest possible belief in the segment that leaks most today.
        joint_belief: the same after all experiments that one visitor met; None without ids.
        costs: costs by mechanism.
    """

    budget: float
    factor: float
    belief: float
    joint_belief: float | None
    costs: tuple[MechanismCost, ...]


def budget_effects(
    experiments: Sequence[tuple[Counts, ExperimentLeak]],
    *,
    segment: str,
    prior: float,
    met_most: int | None,
    budgets: Sequence[float] = BUDGETS,
    mechanisms: Mapping[str, Mechanism] = MECHANISMS,
) -> tuple[BudgetEffect, ...]:
    """Return the effect of each budget on the measured experiments.

    Args:
        experiments: counts and their measurements; the one that leaks most comes first.
        segment: the segment that leaks most there.
        prior: prior belief in it.
        met_most: the largest number of experiments that one visitor met; None if unknown.
        budgets: in nats.
        mechanisms: mechanisms to compare.
    """
    settings = [(_situation(counts, leak), _Value(counts, leak)) for counts, leak in experiments]
    effects = []
    for budget in budgets:
        costs = []
        for name, mechanism in mechanisms.items():
            made = [(now, value, mechanism(now, budget)) for now, value in settings]
            if all(table is not None for _, _, table in made):
                costs.append(_cost(name, segment, made))
        effects.append(
            BudgetEffect(
                budget,
                float(np.exp(budget)),
                float(highest_belief(prior, budget)),
                None if met_most is None else float(highest_belief(prior, budget * met_most)),
                tuple(costs),
            )
        )
    return tuple(effects)


def todays_reward(experiments: Sequence[tuple[Counts, ExperimentLeak]]) -> float | None:
    """Return the sum of all rewards of these experiments; None without rewards."""
    sums = [counts.reward.sum() for counts, _ in experiments if counts.reward is not None]
    return float(sum(sums)) if len(sums) == len(experiments) else None


def smoothed_rates(shown: FloatArray, reward: FloatArray) -> FloatArray:
    """Return mean rewards, shape (J, K), with one exposure at the variant's mean added to each cell.

    A cell without exposures gets its variant's mean, and a variant without any the overall mean.

    >>> smoothed_rates(np.array([[9.0, 0.0], [9.0, 10.0]]), np.array([[3.0, 0.0], [0.0, 5.0]])).round(3)
    array([[0.317, 0.481],
           [0.017, 0.498]])
    """
    overall = reward.sum() / max(shown.sum(), 1)
    variant = (reward.sum(axis=0) + overall) / (shown.sum(axis=0) + 1)
    return np.asarray((reward + variant) / (shown + 1))


def _situation(counts: Counts, leak: ExperimentLeak) -> Situation:
    rates = None if counts.reward is None else smoothed_rates(counts.shown[0], counts.reward[0])
    return Situation(leak.shares, leak.table, leak.ratio.high, rates)


class _Value:
    """Values tables with the rewards of the second half."""

    def __init__(self, counts: Counts, leak: ExperimentLeak) -> None:
        self.leak = leak
        self.known = counts.reward is not None
        if counts.reward is None:
            return
        shown = counts.shown[1]
        self._rates = smoothed_rates(shown, counts.reward[1])
        self._variance: FloatArray | None = None
        if counts.reward_squared is not None:
            total = max(float(shown.sum()), 1.0)
            pooled = counts.reward_squared[1].sum() / total - (counts.reward[1].sum() / total) ** 2
            mean = counts.reward[1] / np.maximum(shown, 1)
            spread = counts.reward_squared[1] - shown * mean**2
            variance = (np.maximum(spread, 0) + max(pooled, 0)) / (shown + 1)
            self._variance = variance / np.maximum(shown, 1)

    def change(self, table: FloatArray) -> tuple[float, float | None]:
        """Return the rewards gained or lost over the log's visitors, and the variance of that figure."""
        weight = self.leak.shares[:, None] * (table - self.leak.table) * self.leak.visitors
        gained = float((weight * self._rates).sum())
        if self._variance is None:
            return gained, None
        return gained, float((weight**2 * self._variance).sum())


def _cost(
    name: str, segment: str, made: Sequence[tuple[Situation, _Value, FloatArray | None]]
) -> MechanismCost:
    changes, variances = [], []
    for _, value, table in made:
        assert table is not None
        if value.known:
            change, variance = value.change(table)
            changes.append(change)
            variances.append(variance)
    worst, first, table = made[0]
    assert table is not None
    joint = worst.shares[:, None] * table
    shown = joint.sum(axis=0)
    own = joint[first.leak.segments.index(segment)]
    highest = float((own[shown > 0] / shown[shown > 0]).max())
    if len(changes) < len(made):
        return MechanismCost(name, highest, None, None)
    known = [v for v in variances if v is not None]
    error = float(np.sqrt(sum(known))) if len(known) == len(variances) else None
    return MechanismCost(name, highest, sum(changes), error)
