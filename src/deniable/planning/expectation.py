"""The expected part of a plan: clicks and lost clicks, by strategy and budget, given prior knowledge.

It uses the precomputed surface of `deniable.expectations` for segments of equal size without a
trace budget. Anything else is simulated on request, and the result says which of the two it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._extras import require
from deniable._validation import FloatArray
from deniable.expectations.expected import RIVALS, Expected, expected_loss, has_surface
from deniable.expectations.prior import Prior
from deniable.expectations.surface import PERFECT, POOLED, RANDOM, surface_name, worst_error
from deniable.policies.base import Policy
from deniable.privacy.belief import highest_belief
from deniable.strategies import STRATEGIES

NEAR_LOST = 0.02
"""A loss within this share of the gain of perfect information over random arms, above the least,
counts as near it. It is about the surface's own error, so smaller differences are not meaningful.
"""

TOP = 8.0
"""The largest budget considered, in nats. Beyond it, promises are meaningless."""

WORLDS = 60
"""Number of draws of the click rates, with one run each, if the expectation is simulated."""


@dataclass(frozen=True)
class Outcome:
    """The expected result of a strategy.

    Attributes:
        clicks: expected clicks of all visitors.
        lost: expected clicks lost against perfect information.
        low: 10% quantile of the loss, over the prior and the randomness of learning.
        high: 90% quantile of the loss.
    """

    clicks: float
    lost: float
    low: float
    high: float


@dataclass(frozen=True)
class ExpectedLine:
    """One budget in the table of expectations.

    Attributes:
        budget: in nats.
        belief: the strongest belief that a watcher could have.
        outcomes: outcomes by strategy.
    """

    budget: float
    belief: float
    outcomes: Mapping[str, Outcome]


@dataclass(frozen=True)
class Expectation:
    """What is expected to happen, given prior knowledge.

    Attributes:
        base_rate: p, the usual click rate.
        lift: d, how much arms usually differ, relative to the base rate (standard deviation).
        heterogeneity: h, the part of that variance that differs by segment.
        per_day: visitors per day, or None.
        days: how long the experiment takes, or None.
        source: "surface" (precomputed) or "simulated".
        note: what the figures leave out, as sentences; may be empty.
        rivals: random arms, one bandit for all segments (pooled) and perfect information.
        strategies: every strategy at the plan's budget, by name.
        best: the strategy that loses least there.
        gain: additional clicks of perfect information compared with random arms.
        error: how far the best strategy's surface was off at most against direct simulation at random
            priors, in clicks: a share of the gain. None if figures were simulated, or are beyond it.
        privacy_cost: additional clicks that the best strategy loses, compared with the least loss
            at any budget.
        privacy_cost_per_day: the same per day, or None.
        table: a grid of budgets.
    """

    base_rate: float
    lift: float
    heterogeneity: float
    per_day: float | None
    days: int | None
    source: Literal["surface", "simulated"]
    note: str
    rivals: Mapping[str, Outcome]
    strategies: Mapping[str, Outcome]
    best: str
    gain: float
    error: float | None
    privacy_cost: float
    privacy_cost_per_day: float | None
    table: tuple[ExpectedLine, ...]


@dataclass(frozen=True)
class Asked:
    """A validated experiment with prior knowledge; hashable.

    Attributes:
        n_arms: K.
        horizon: T.
        n_segments: J.
        shares: shares of the segments; None for equal ones.
        prior: prior of the click rates.
        trace_budget: in nats, 0 for none.
    """

    n_arms: int
    horizon: int
    n_segments: int
    shares: tuple[float, ...] | None
    prior: Prior
    trace_budget: float = 0.0

    @property
    def usual(self) -> bool:
        """Whether the surface covers it: segments of equal size, no trace budget."""
        shares = self.shares
        equal = shares is None or np.allclose(shares, 1 / len(shares), rtol=1e-6, atol=0)
        return bool(equal) and not self.trace_budget

    def look_up(self, strategy: str, budgets: ArrayLike = 0.0) -> Expected:
        """Return the surface's value."""
        return expected_loss(
            strategy,
            self.n_arms,
            self.horizon,
            self.n_segments,
            base_rate=self.prior.base_rate,
            lift=self.prior.lift,
            heterogeneity=self.prior.heterogeneity,
            budgets=budgets,
        )


@dataclass(frozen=True)
class Choice:
    """A strategy and a budget chosen by expected loss.

    Attributes:
        strategy: name of the strategy.
        budget: the smallest budget that is near the least loss.
        lost: expected loss there.
        least: the least loss of all allowed strategies and budgets.
    """

    strategy: str
    budget: float
    lost: float
    least: float


def choose(asked: Asked, names: Sequence[str], limit: float = TOP) -> Choice | None:
    """Return the smallest budget, up to a limit, whose loss is near the least; None without a surface.

    "Near" means within `NEAR_LOST` of what perfect information gains over random arms. Among the
    strategies at this budget, the one that loses least is chosen.
    """
    known = [name for name in names if has_surface(name)]
    if not known:
        return None
    top = min(limit, TOP)
    budgets = np.unique(np.append(np.round(np.arange(0, 100 * top + 1e-9) / 100, 2), top))
    budgets = budgets[budgets <= top]
    lost = np.array([asked.look_up(name, budgets).lost for name in known])
    least = float(lost.min())
    gain = float(asked.look_up(RANDOM).lost)
    place = int(np.argmax(lost.min(axis=0) <= least + NEAR_LOST * gain))
    name = known[int(lost[:, place].argmin())]
    return Choice(name, float(budgets[place]), float(lost[:, place].min()), least)


def expectation(
    asked: Asked,
    budget: float,
    *,
    belief_before: float,
    budgets: Sequence[float],
    per_day: float | None = None,
    simulate: bool = True,
) -> Expectation | None:
    """Return the expectation at a budget, with a table of others; None if it is unknown.

    Args:
        asked: the experiment.
        budget: the plan's budget.
        belief_before: the watcher's prior belief, for the table.
        budgets: budgets in the table.
        per_day: visitors per day.
        simulate: whether to simulate what the surface does not cover; if not, the note says so.

    Raises:
        MissingExtraError: it must be simulated, and the simulator is not installed.
    """
    if per_day is not None:
        per_day = check.single("per_day", check.nonnegative("per_day", per_day))
        if not per_day:
            per_day = None
    names = [name for name in STRATEGIES if has_surface(name)]
    if not names:
        return None
    simulated = simulate and not asked.usual
    marks = sorted({budget, 0.5, 1.0, 2.0, 4.0} if simulated else {*budgets, budget})
    outcomes: dict[str, list[Outcome]]
    rivals = {name: _outcome(asked.look_up(name)) for name in RIVALS}
    covered = False
    if simulated:
        fitting = [n for n in STRATEGIES if STRATEGIES[n].fits(asked.n_arms, asked.n_segments)]
        outcomes = {name: simulated_outcomes(asked, name, marks) for name in fitting}
        rivals |= {name: simulated_outcomes(asked, name, [0.0])[0] for name in (POOLED, RANDOM)}
        note = _off_surface(asked) + f"It was simulated: {WORLDS} draws of the click rates."
    else:
        found = {name: asked.look_up(name, np.array(marks)) for name in names}
        outcomes = {name: _outcomes(one) for name, one in found.items()}
        note = "" if asked.usual else (
            _off_surface(asked)
            + "The figures are for segments of one size and no trace budget."
        )  # fmt: skip
        covered = all(one.on_surface[marks.index(budget)] for one in found.values())
        if not covered:
            note += (" " if note else "") + (
                "Some figures are beyond what the surface covers (20 to 50 arms, 10 to 20 segments, "
                "budget 8 (constant: 6), 1,000 to ten billion visitors, a fifth of them at most before "
                "the first table, click rates of 0.2% to 60% that stay below 100% with three times the "
                "lift, 10 clicks an arm): they are those of the edge."
            )
    here = marks.index(budget)
    at = {name: found[here] for name, found in outcomes.items()}
    served = [name for name in at if STRATEGIES[name].fits(asked.n_arms, asked.n_segments)]
    best = min(served, key=lambda name: at[name].lost)
    least = min(one.lost for found in outcomes.values() for one in found)
    unlimited = choose(asked, names) if not simulated else None
    least = least if unlimited is None else min(least, unlimited.least)
    cost = max(0.0, at[best].lost - least)
    gain = rivals[PERFECT].clicks - rivals[RANDOM].clicks
    worst = worst_error(surface_name(best, asked.n_segments))
    return Expectation(
        base_rate=asked.prior.base_rate,
        lift=asked.prior.lift,
        heterogeneity=asked.prior.heterogeneity,
        per_day=per_day,
        days=None if per_day is None else math.ceil(asked.horizon / per_day),
        source="simulated" if simulated else "surface",
        note=note,
        rivals=rivals,
        strategies=at,
        best=best,
        gain=gain,
        error=worst * gain if covered and asked.usual else None,
        privacy_cost=cost,
        privacy_cost_per_day=None if per_day is None else cost * per_day / asked.horizon,
        table=tuple(
            ExpectedLine(
                mark,
                float(highest_belief(belief_before, mark)),
                {name: found[row] for name, found in outcomes.items()},
            )
            for row, mark in enumerate(marks)
        ),
    )


def simulated_outcomes(
    asked: Asked, strategy: str, budgets: Sequence[float], *, worlds: int = WORLDS, seed: int = 0
) -> list[Outcome]:
    """Return outcomes from direct simulation, for any shares and trace budget.

    Args:
        asked: the experiment.
        strategy: name of a strategy or a rival.
        budgets: one outcome for each.
        worlds: number of draws of the click rates, the same for all strategies and budgets.
        seed: random seed.
    """
    require("numba", extra="simulate")
    require("polars", extra="simulate")
    from deniable.policies.base import as_served
    from deniable.policies.benchmarks import PerfectPolicy, RandomPolicy
    from deniable.policies.tables import PooledPolicy
    from deniable.simulation.environment import LONGEST_HORIZON, Environment
    from deniable.simulation.run import Case, simulate_many

    check.whole("horizon", asked.horizon, 1, LONGEST_HORIZON)
    rng = np.random.default_rng(seed)
    drawn = asked.prior.draw(asked.n_arms, asked.n_segments, worlds, rng)
    truths = [
        Environment(rates, asked.horizon, asked.shares, name=f"draw {number}")
        for number, rates in enumerate(drawn)
    ]
    rivals: dict[str, Policy] = {
        RANDOM: RandomPolicy(),
        POOLED: PooledPolicy(),
        PERFECT: PerfectPolicy(),
    }
    found = []
    best = np.array([truth.best_rate for truth in truths]) * asked.horizon
    for budget in budgets:
        policy = rivals.get(strategy) or STRATEGIES[strategy](asked.n_arms, budget).policy()
        policy = as_served(policy, asked.trace_budget)
        frame = simulate_many([Case(one, policy) for one in truths], 1, seed, workers=1).frame
        lost: FloatArray = frame["regret"].to_numpy()
        low, high = np.quantile(lost, (0.1, 0.9))
        found.append(
            Outcome(float(best.mean() - lost.mean()), float(lost.mean()), float(low), float(high))
        )
    return found


def _off_surface(asked: Asked) -> str:
    uneven = asked.shares is not None and len(set(asked.shares)) > 1
    named = ["segments of different sizes"] if uneven else []
    named += ["a trace budget"] if asked.trace_budget else []
    return f"With {' and '.join(named)} the expectation was not made beforehand. "


def _outcome(found: Expected) -> Outcome:
    return Outcome(float(found.clicks), float(found.lost), float(found.low), float(found.high))


def _outcomes(found: Expected) -> list[Outcome]:
    return [
        Outcome(*map(float, values))
        for values in zip(found.clicks, found.lost, found.low, found.high, strict=True)
    ]
