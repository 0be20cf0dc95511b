"""The trace budget in a plan: what it promises, what the firm commits, and what it costs.

The promise does not depend on click rates, but the cost does, so it is simulated: click rates are
drawn around a base rate, and tables are published as in the service, with and without noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deniable import _validation as check
from deniable._extras import require
from deniable._validation import FloatArray
from deniable.expectations.prior import Prior
from deniable.policies.base import Published, as_served, checked_trace_budget
from deniable.privacy.belief import highest_belief
from deniable.strategies import STRATEGIES

if TYPE_CHECKING:
    from deniable.simulation.run import Case

RATE, LIFT = 0.1, 0.1
"""Default base rate, and standard deviation of the arms' rates relative to it."""

WORLDS, REPETITIONS = 100, 4
"""Number of draws of the click rates, and runs with each (only one for the joint strategy)."""

_OWN = 0.5  # the part of the variance between arms that differs by segment


@dataclass(frozen=True)
class TracePromise:
    """What a plan promises with a trace budget.

    Attributes:
        trace_budget: eta, in nats: the limit on what later tables reveal about a visitor.
        total: budget + trace budget: the visitor's own arm and all arms shown to anyone later move
            a watcher's odds by at most e^total. The firm's account commits it at the start.
        highest_belief: the strongest belief possible after both.
    """

    trace_budget: float
    total: float
    highest_belief: float


@dataclass(frozen=True)
class TraceCost:
    """The simulated cost of a trace budget's noise for one strategy.

    Attributes:
        strategy: name of the strategy.
        lost: clicks lost without a trace budget, with tables published as in the service.
        lost_with_trace: the same with it.
        error: standard error of the difference between the two.
    """

    strategy: str
    lost: float
    lost_with_trace: float
    error: float


def trace_promise(prior: float, budget: float, trace_budget: float) -> TracePromise:
    """Return the promise with a trace budget.

    >>> trace_promise(0.2, 1.0, 0.5).total
    1.5
    """
    trace = checked_trace_budget(trace_budget)
    total = budget + trace
    return TracePromise(trace, total, float(highest_belief(prior, total)))


def trace_costs(
    *,
    n_arms: int,
    horizon: int,
    budget: float,
    trace_budget: float,
    n_segments: int = 1,
    shares: Sequence[float] | None = None,
    base_rate: float = RATE,
    lift: float = LIFT,
    seed: int = 0,
) -> tuple[TraceCost, ...]:
    """Simulate lost clicks with and without a trace budget, by strategy, for rates around a base rate.

    Args:
        n_arms: K.
        horizon: T, visitors.
        budget: gamma, in nats.
        trace_budget: eta, in nats.
        n_segments: J.
        shares: shares of the visitors by segment; equal by default.
        base_rate: the usual click rate.
        lift: standard deviation of the arms' rates, relative to the base rate; half of the variance
            differs by segment.
        seed: random seed.

    Raises:
        MissingExtraError: the simulator is not installed.
    """
    require("numba", extra="simulate")
    require("polars", extra="simulate")
    from deniable.simulation.environment import LONGEST_HORIZON, Environment
    from deniable.simulation.run import Case, simulate_many

    checked_trace_budget(trace_budget)
    check.whole("horizon", horizon, 1, LONGEST_HORIZON)
    worlds = [
        Environment(rates, horizon, shares, name=f"draw {number}")
        for number, rates in enumerate(_rates(n_arms, n_segments, base_rate, lift, seed))
    ]
    costs = []
    for name, strategy in STRATEGIES.items():
        policy = strategy(n_arms, budget).policy()
        pair = (as_served(policy), as_served(policy, trace_budget))
        if pair[0] == pair[1]:
            continue  # it does not learn from counts
        # Joint tables take longer to compute, and the draws of the rates contribute most of the
        # variance.
        repetitions = REPETITIONS if isinstance(policy, Published) else 1
        cases: list[Case] = [Case(world, one) for one in pair for world in worlds]
        frame = simulate_many(cases, repetitions, seed, workers=1).frame
        plain, noisy = frame["regret"].to_numpy().reshape(2, WORLDS, repetitions).mean(axis=2)
        error = float((noisy - plain).std(ddof=1)) / math.sqrt(WORLDS)
        costs.append(TraceCost(name, float(plain.mean()), float(noisy.mean()), error))
    return tuple(costs)


def _rates(n_arms: int, n_segments: int, rate: float, lift: float, seed: int) -> list[FloatArray]:
    """Draw click rates from the prior."""
    prior, rng = Prior(rate, lift, _OWN), np.random.default_rng(seed)
    return [prior.draw(n_arms, n_segments, 1, rng)[0] for _ in range(WORLDS)]
