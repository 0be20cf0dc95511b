"""The expected part of a plan: clicks and lost clicks, by strategy and budget, given prior knowledge.

It uses the precomputed surface of `deniable.expectations`. Beyond what that covers, the figures are
those of its edge. The note says so and names `deniable simulate`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deniable import _validation as check
from deniable.expectations.expected import RIVALS, Expected, has_surface
from deniable.expectations.prior import Prior
from deniable.expectations.surface import (
    LEAST_CLICKS,
    LEAST_ROOM,
    MOST_BEFORE,
    PERFECT,
    POOLED,
    RANDOM,
    RATES,
    Question,
    after_first,
    domain_of,
    has_room,
    surface_name,
    worst_error,
)
from deniable.planning.experiment import PlannedExperiment
from deniable.planning.power import Power, power
from deniable.privacy.belief import highest_belief
from deniable.strategies import STRATEGIES

NEAR_LOST = 0.02
"""A loss within this share of the gain of perfect information over random arms, above the least,
counts as near it. It is about the surface's own error, so smaller differences are not meaningful.
"""

UNEQUAL_ERROR = 0.03
"""How far figures for segments of different sizes were off at most, as a share of the same gain:
`tests/expectations/test_unequal_segments.py` has the settings."""

TOP = 6.0
"""The largest budget considered, in nats; all surfaces cover it. Beyond, promises are meaningless."""


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
        belief: the strongest belief that a tracker could have.
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
        note: which figures the surface does not cover, as sentences; may be empty.
        rivals: random arms, one bandit for all segments (pooled) and perfect information.
        strategies: every strategy at the plan's budget, by name.
        best: the strategy that loses least there.
        gain: additional clicks of perfect information compared with random arms.
        error: how far the best strategy's surface was off at most against direct simulation at random
            priors, in clicks: a share of the gain. None beyond what the surface covers.
        privacy_cost: additional clicks that the best strategy loses, compared with the least loss
            at any budget.
        privacy_cost_per_day: the same per day, or None.
        table: a grid of budgets.
        power: when the experiment can be decided.
    """

    base_rate: float
    lift: float
    heterogeneity: float
    per_day: float | None
    days: int | None
    note: str
    rivals: Mapping[str, Outcome]
    strategies: Mapping[str, Outcome]
    best: str
    gain: float
    error: float | None
    privacy_cost: float
    privacy_cost_per_day: float | None
    table: tuple[ExpectedLine, ...]
    power: Power


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


def choose(
    planned: PlannedExperiment, rate_prior: Prior, names: Sequence[str], limit: float = TOP
) -> Choice | None:
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
    lost = np.array([planned.expected(rate_prior, name, budgets).lost for name in known])
    least = float(lost.min())
    gain = float(planned.expected(rate_prior, RANDOM).lost)
    place = int(np.argmax(lost.min(axis=0) <= least + NEAR_LOST * gain))
    name = known[int(lost[:, place].argmin())]
    return Choice(name, float(budgets[place]), float(lost[:, place].min()), least)


def expectation(
    planned: PlannedExperiment,
    rate_prior: Prior,
    budget: float,
    *,
    belief_before: float,
    budgets: Sequence[float],
    per_day: float | None = None,
) -> Expectation | None:
    """Return the expectation at a budget, with a table of others; None if it is unknown.

    Args:
        planned: the experiment.
        rate_prior: what is known about its click rates.
        budget: the plan's budget.
        belief_before: the tracker's prior belief, for the table.
        budgets: budgets in the table.
        per_day: visitors per day.
    """
    if per_day is not None:
        per_day = check.single("per_day", check.nonnegative("per_day", per_day))
        if not per_day:
            per_day = None
    names = [name for name in STRATEGIES if has_surface(name)]
    if not names:
        return None
    marks = sorted({*budgets, budget})
    looked = {name: planned.expected(rate_prior, name, np.array(marks)) for name in names}
    outcomes = {name: dict(zip(marks, _outcomes(one), strict=True)) for name, one in looked.items()}
    rivals = {name: _outcome(planned.expected(rate_prior, name)) for name in RIVALS}
    at = {name: row[budget] for name, row in outcomes.items()}
    served = [name for name in at if STRATEGIES[name].fits(planned.n_arms, planned.n_segments)]
    best = min(served, key=lambda name: at[name].lost)
    least = min(one.lost for row in outcomes.values() for one in row.values())
    unlimited = choose(planned, rate_prior, names)
    least = least if unlimited is None else min(least, unlimited.least)
    cost = max(0.0, at[best].lost - least)
    gain = rivals[PERFECT].clicks - rivals[RANDOM].clicks
    certified = planned.equal_sizes and planned.expected(rate_prior, best, budget).on_surface
    worst = worst_error(surface_name(best, planned.n_segments))
    return Expectation(
        base_rate=rate_prior.base_rate,
        lift=rate_prior.lift,
        heterogeneity=rate_prior.heterogeneity,
        per_day=per_day,
        days=None if per_day is None else math.ceil(planned.horizon / per_day),
        note=_note(planned, rate_prior, marks, looked),
        rivals=rivals,
        strategies=at,
        best=best,
        gain=gain,
        error=worst * gain if certified else None,
        privacy_cost=cost,
        privacy_cost_per_day=None if per_day is None else cost * per_day / planned.horizon,
        table=tuple(
            ExpectedLine(
                mark,
                float(highest_belief(belief_before, mark)),
                {name: row[mark] for name, row in outcomes.items()},
            )
            for mark in marks
        ),
        power=power(planned, rate_prior, per_day),
    )


def _note(
    planned: PlannedExperiment,
    rate_prior: Prior,
    marks: Sequence[float],
    looked: Mapping[str, Expected],
) -> str:
    """Say which figures the surface does not cover, and what to do about it; empty if it covers all."""
    beyond = {
        name: [mark for mark, good in zip(marks, one.on_surface, strict=True) if not good]
        for name, one in looked.items()
    }
    if not planned.expected(rate_prior, POOLED).on_surface:
        beyond[POOLED] = [0.0]
    by_reason: dict[str, list[str]] = {}
    for name, budgets in beyond.items():
        if budgets:
            by_reason.setdefault(beyond_words(planned, rate_prior, name, budgets), []).append(name)
    sentences = []
    if not planned.equal_sizes:
        sentences.append(
            "Segments differ in size: the figures are approximate, and in checks off by up to "
            f"{UNEQUAL_ERROR:.0%} of what perfect information gains."
        )
    if by_reason:
        listed = "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason.items())
        sentences.append(
            f"Beyond what the surface covers: {listed}. These figures are those of the edge."
        )
    if sentences:
        sentences.append("`deniable simulate` gives those of your own rates and sizes.")
    return " ".join(sentences)


def beyond_words(
    planned: PlannedExperiment, rate_prior: Prior, strategy: str, budgets: Sequence[float]
) -> str:
    """Why the surface does not cover a strategy at these budgets, in a few words.

    >>> beyond_words(PlannedExperiment(4, 10**9, 3), Prior(0.1), "joint", [1.0])
    'more than 200,000,000 visitors'
    >>> beyond_words(PlannedExperiment(30, 10**6, 3), Prior(0.1, 0.001), "joint", [7.0])
    'more than 20 arms, a lift below 0.5%, a budget above 6'
    """
    name = surface_name(strategy, planned.n_segments) if strategy not in RIVALS else strategy
    domain = domain_of(name)
    question = Question.of(
        arms=planned.n_arms,
        visitors=planned.horizon,
        segments=planned.n_segments,
        base_rate=rate_prior.base_rate,
        lift=rate_prior.lift,
        heterogeneity=rate_prior.heterogeneity,
        budget=0.0,
    )
    before = f"more than {MOST_BEFORE:.0%} of the visitors before the first table"
    clipped = f"rates that are clipped within {LEAST_ROOM:g} standard deviations"
    reasons = {
        f"more than {domain.arms} arms": planned.n_arms > domain.arms,
        f"more than {domain.segments[1]} segments": planned.n_segments > domain.segments[1],
        f"fewer than {domain.visitors[0]:,.0f} visitors": planned.horizon < domain.visitors[0],
        f"more than {domain.visitors[1]:,.0f} visitors": planned.horizon > domain.visitors[1],
        f"a base rate below {RATES[0]:.1%}": rate_prior.base_rate < RATES[0],
        f"a base rate above {RATES[1]:.0%}": rate_prior.base_rate > RATES[1],
        f"a lift below {domain.lifts[0]:.1%}": rate_prior.lift < domain.lifts[0],
        f"a lift above {domain.lifts[1]:.0%}": rate_prior.lift > domain.lifts[1],
        f"fewer than {LEAST_CLICKS} clicks an arm": planned.horizon * rate_prior.base_rate
        < LEAST_CLICKS * planned.n_arms,
        before: float(after_first(name, question)) < 1 - MOST_BEFORE,
        clipped: not has_room(question),
        f"a budget above {domain.budget:g}": max(budgets) > domain.budget,
    }
    return (
        ", ".join(word for word, holds in reasons.items() if holds) or "a signal out of its range"
    )


def _outcome(found: Expected) -> Outcome:
    return Outcome(float(found.clicks), float(found.lost), float(found.low), float(found.high))


def _outcomes(found: Expected) -> list[Outcome]:
    return [
        Outcome(*map(float, values))
        for values in zip(found.clicks, found.lost, found.low, found.high, strict=True)
    ]
