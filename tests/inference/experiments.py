"""Many simulated experiments at once: each is a segment of one state, so the product's code runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from deniable._validation import FloatArray
from deniable.inference.state import State, VisitorBatch, new_state, update

Rule: TypeAlias = Callable[[State, int, np.random.Generator], FloatArray]
"""State, visitors so far, generator -> a table with one row for each experiment."""


def favourites(state: State) -> FloatArray:
    """The greedy arms of each experiment; ties share."""
    rates = np.divide(
        state.rewards, state.shows, out=np.zeros_like(state.shows), where=state.shows > 0
    )
    best = rates == rates.max(axis=1, keepdims=True)
    return np.asarray(best / best.sum(axis=1, keepdims=True))


def constant(budget: float) -> Rule:
    def table(state: State, n: int, rng: np.random.Generator) -> FloatArray:
        bonus = np.expm1(budget) / (state.n_arms + np.expm1(budget))
        return np.asarray((1 - bonus) / state.n_arms + bonus * favourites(state))

    return table


def dynamic(budget: float) -> Rule:
    def table(state: State, n: int, rng: np.random.Generator) -> FloatArray:
        k = state.n_arms
        exploration = min(1.0, (k * np.log(n) / n) ** (1 / 3)) if n >= 3 else 1.0
        bonus = min(np.expm1(budget) / (k + np.expm1(budget)), 1 - exploration)
        return np.asarray((1 - bonus) / k + bonus * favourites(state))

    return table


def arm_budgets(budgets: Sequence[float]) -> Rule:
    c = 1 / np.expm1(np.array(budgets))

    def table(state: State, n: int, rng: np.random.Generator) -> FloatArray:
        return np.asarray((c + favourites(state)) / (1 + c.sum()))

    return table


def thompson(budget: float) -> Rule:
    """Chances follow a noisy softmax of the rates, mixed with uniform to stay within the budget."""

    def table(state: State, n: int, rng: np.random.Generator) -> FloatArray:
        noise = rng.normal(size=state.shows.shape) * 0.3 / np.sqrt(1 + state.shows)
        rates = state.rewards / np.maximum(state.shows, 1)
        weight = np.exp(np.clip((rates + noise) * 100, -30, 30))
        weight /= weight.sum(axis=1, keepdims=True)
        bonus = np.expm1(budget) / (state.n_arms + np.expm1(budget))
        return np.asarray((1 - bonus) / state.n_arms + bonus * weight)

    return table


def one_table_for_two(lifts: FloatArray, budget: float) -> FloatArray:
    """The best table of two segments and two arms within a budget, for many experiments at once.

    Args:
        lifts: how much better the second arm is, in the first segments of all experiments and then,
            in the same order, in the second segments. Segments come equally often.
        budget: between the two segments.

    The best one is a corner: one arm for both, which tells nothing, or each its better arm, randomised.
    """
    halves = np.split(lifts, 2)
    more = 1 / (1 + np.exp(-budget))
    apart = [np.where(half > 0, more, 1 - more) for half in halves]
    corners = [(0.0, 0.0), (1.0, 1.0), tuple(apart)]
    allowed = np.sign(halves[0]) != np.sign(halves[1])
    worth = np.stack([first * halves[0] + second * halves[1] for first, second in corners])
    worth[2] = np.where(allowed, worth[2], -np.inf)
    chosen = worth.argmax(axis=0)
    second = np.concatenate(
        [np.select([chosen == 0, chosen == 1], [0.0, 1.0], part) for part in apart]
    )
    return np.column_stack([1 - second, second])


def joint(budget: float, draws: int = 16) -> Rule:
    """Two runs are the two segments of one experiment: the mean of best tables for drawn rates."""

    def table(state: State, n: int, rng: np.random.Generator) -> FloatArray:
        mean = (1 + state.rewards) / (10 + state.shows)
        deviation = np.sqrt(mean * (1 - mean) / (10 + state.shows))
        tables = []
        for _ in range(draws):
            first, second = (mean + deviation * rng.normal(size=mean.shape)).T
            tables.append(one_table_for_two(second - first, budget))
        return np.asarray(np.mean(tables, axis=0))

    return table


def erratic(budget: float) -> Rule:
    """As joint, but for the scores of a model outside, which change their mind from batch to batch."""

    def table(state: State, n: int, rng: np.random.Generator) -> FloatArray:
        return one_table_for_two(rng.normal(size=state.n_segments), budget)

    return table


def retiring(budget: float, after: int) -> Rule:
    """As constant, but the arm with the lowest rate is hardly shown any more after some visitors."""

    def table(state: State, n: int, rng: np.random.Generator) -> FloatArray:
        rows = constant(budget)(state, n, rng)
        if n >= after:
            rates = state.rewards / np.maximum(state.shows, 1)
            worst = rates.argmin(axis=1)
            rows[np.arange(len(rows)), worst] = 1e-4
        return np.asarray(rows / rows.sum(axis=1, keepdims=True))

    return table


@dataclass(frozen=True)
class Setting:
    """What is simulated.

    Attributes:
        rule: how tables are made.
        rates: probability of a reward for each arm, as a function of the share of time passed.
        values: what a reward is worth, with equal chances.
        horizon: visitors of each experiment.
        growth: size of a batch as a share of the visitors before it ...
        first: ... but at least this size.
        typical: plan for the state.
        share: of these visitors who are of the segment, each by chance.
    """

    rule: Rule
    rates: Callable[[float], Sequence[float]]
    values: tuple[float, ...] = (1.0,)
    horizon: int = 20_000
    growth: float = 0.1
    first: int = 100
    typical: float | None = None
    share: float = 1.0
    runs: int = 2000


def same(*rates: float) -> Callable[[float], Sequence[float]]:
    """Rates that never change."""
    return lambda passed: rates


def run(
    setting: Setting, seed: int, runs: int | None = None
) -> Iterator[tuple[int, State, FloatArray, FloatArray, VisitorBatch]]:
    """After each batch: visitors, the state, the true targets of pairs and of arms, the batch."""
    rng = np.random.default_rng(seed)
    n_runs = setting.runs if runs is None else runs
    n_arms = len(setting.rates(0.0))
    ahead = setting.horizon * setting.share
    state = new_state(n_runs, n_arms, horizon=ahead, typical=setting.typical)
    a, b = state.pairs.T
    between = np.zeros(state.between.weight.shape)
    alone = np.zeros(state.alone.weight.shape)
    values = np.array(setting.values)
    n = 0
    while n < setting.horizon:
        size = setting.first if n == 0 else max(setting.first, int(n * setting.growth))
        size = min(size, setting.horizon - n)
        table = setting.rule(state, n, rng)
        chance = np.asarray(setting.rates(n / setting.horizon), dtype=float)
        came = rng.binomial(size, setting.share, size=n_runs)
        shows = rng.multinomial(came, table)
        hits = rng.binomial(shows, chance)
        if values.size == 1:
            rewards, squares = hits * values[0], hits * values[0] ** 2
        else:
            split = rng.multinomial(hits, np.full(values.size, 1 / values.size))
            rewards, squares = split @ values, split @ values**2
        batch = VisitorBatch(table, shows, rewards, squares)
        before = state
        state = update(state, batch)
        mean = chance * values.mean()
        between += (state.between.weight - before.between.weight) * (mean[b] - mean[a])
        alone += (state.alone.weight - before.alone.weight) * mean
        n += size
        with np.errstate(invalid="ignore"):
            targets = between / state.between.weight, alone / state.alone.weight
        yield n, state, *targets, batch
