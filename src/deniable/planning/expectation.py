"""The expected part of a plan: clicks and lost clicks, by strategy and budget, given prior knowledge.

It uses the precomputed surface of `deniable.expectations`, for segments of equal size. Beyond what that
covers, the figures are those of its edge. The note says so and names `deniable simulate`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deniable import _validation as check
from deniable.expectations.expected import RIVALS, Expected, has_surface
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
from deniable.planning.asked import Asked, Outcome
from deniable.planning.power import Power, power
from deniable.privacy.belief import highest_belief
from deniable.strategies import STRATEGIES

NEAR_LOST = 0.02
"""A loss within this share of the gain of perfect information over random arms, above the least,
counts as near it. It is about the surface's own error, so smaller differences are not meaningful.
"""

TOP = 6.0
"""The largest budget considered, in nats; all surfaces cover it. Beyond, promises are meaningless."""


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
) -> Expectation | None:
    """Return the expectation at a budget, with a table of others; None if it is unknown.

    Args:
        asked: the experiment.
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
    looked = {name: asked.look_up(name, np.array(marks)) for name in names}
    outcomes = {name: dict(zip(marks, _outcomes(one), strict=True)) for name, one in looked.items()}
    rivals = {name: _outcome(asked.look_up(name)) for name in RIVALS}
    at = {name: row[budget] for name, row in outcomes.items()}
    served = [name for name in at if STRATEGIES[name].fits(asked.n_arms, asked.n_segments)]
    best = min(served, key=lambda name: at[name].lost)
    least = min(one.lost for row in outcomes.values() for one in row.values())
    unlimited = choose(asked, names)
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
        note=_note(asked, marks, looked),
        rivals=rivals,
        strategies=at,
        best=best,
        gain=gain,
        error=worst * gain if asked.usual and asked.look_up(best, budget).on_surface else None,
        privacy_cost=cost,
        privacy_cost_per_day=None if per_day is None else cost * per_day / asked.horizon,
        table=tuple(
            ExpectedLine(
                mark,
                float(highest_belief(belief_before, mark)),
                {name: row[mark] for name, row in outcomes.items()},
            )
            for mark in marks
        ),
        power=power(asked, per_day),
    )


def _note(asked: Asked, marks: Sequence[float], looked: Mapping[str, Expected]) -> str:
    """Say which figures the surface does not cover, and what to do about it; empty if it covers all."""
    beyond = {
        name: [mark for mark, good in zip(marks, one.on_surface, strict=True) if not good]
        for name, one in looked.items()
    }
    if not asked.look_up(POOLED).on_surface:
        beyond[POOLED] = [0.0]
    by_reason: dict[str, list[str]] = {}
    for name, budgets in beyond.items():
        if budgets:
            by_reason.setdefault(beyond_words(asked, name, budgets), []).append(name)
    sentences = []
    if not asked.usual:
        sentences.append("The figures are for segments of one size, not of different sizes.")
    if by_reason:
        listed = "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason.items())
        sentences.append(
            f"Beyond what the surface covers: {listed}. These figures are those of the edge."
        )
    if sentences:
        sentences.append("`deniable simulate` gives those of your own rates and sizes.")
    return " ".join(sentences)


def beyond_words(asked: Asked, strategy: str, budgets: Sequence[float]) -> str:
    """Why the surface does not cover a strategy at these budgets, in a few words.

    >>> from deniable.expectations.prior import Prior
    >>> beyond_words(Asked(4, 10**9, 3, None, Prior(0.1)), "joint", [1.0])
    'more than 200,000,000 visitors'
    >>> beyond_words(Asked(30, 10**6, 3, None, Prior(0.1, 0.001)), "joint", [7.0])
    'more than 20 arms, a lift below 0.5%, a budget above 6'
    """
    name = surface_name(strategy, asked.n_segments) if strategy not in RIVALS else strategy
    domain, prior = domain_of(name), asked.prior
    question = Question.of(
        arms=asked.n_arms,
        visitors=asked.horizon,
        segments=asked.n_segments,
        base_rate=prior.base_rate,
        lift=prior.lift,
        heterogeneity=prior.heterogeneity,
        budget=0.0,
    )
    before = f"more than {MOST_BEFORE:.0%} of the visitors before the first table"
    clipped = f"rates that are clipped within {LEAST_ROOM:g} standard deviations"
    reasons = {
        f"more than {domain.arms} arms": asked.n_arms > domain.arms,
        f"more than {domain.segments[1]} segments": asked.n_segments > domain.segments[1],
        f"fewer than {domain.visitors[0]:,.0f} visitors": asked.horizon < domain.visitors[0],
        f"more than {domain.visitors[1]:,.0f} visitors": asked.horizon > domain.visitors[1],
        f"a base rate below {RATES[0]:.1%}": prior.base_rate < RATES[0],
        f"a base rate above {RATES[1]:.0%}": prior.base_rate > RATES[1],
        f"a lift below {domain.lifts[0]:.1%}": prior.lift < domain.lifts[0],
        f"a lift above {domain.lifts[1]:.0%}": prior.lift > domain.lifts[1],
        f"fewer than {LEAST_CLICKS} clicks an arm": asked.horizon * prior.base_rate
        < LEAST_CLICKS * asked.n_arms,
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
