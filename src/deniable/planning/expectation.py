"""The expected part of a plan: clicks and lost clicks, by strategy and budget, given prior knowledge.

It uses the precomputed surface of `deniable.expectations` where that was fitted, for segments of equal
size without a trace budget. Anything else is simulated (`simulated.py`) if the simulator is installed,
and the result says which of the two it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from deniable import _validation as check
from deniable.expectations.expected import RIVALS, Expected, has_surface
from deniable.expectations.surface import PERFECT, POOLED, RANDOM, surface_name, worst_error
from deniable.planning.asked import Asked, Outcome
from deniable.planning.simulated import Made, Progress, can_simulate, edge_words, simulate_all
from deniable.privacy.belief import highest_belief
from deniable.strategies import STRATEGIES

NEAR_LOST = 0.02
"""A loss within this share of the gain of perfect information over random arms, above the least,
counts as near it. It is about the surface's own error, so smaller differences are not meaningful.
"""

TOP = 6.0
"""The largest budget considered, in nats; all surfaces cover it. Beyond, promises are meaningless."""

FEW_BUDGETS = (0.5, 1.0, 2.0, 4.0)
"""Budgets in the table, besides the plan's own, if one strategy or more have to be simulated at all."""


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
        source: "surface" (precomputed) or "simulated", all figures or those that the note names.
        note: what the figures leave out, as sentences; may be empty.
        rivals: random arms, one bandit for all segments (pooled) and perfect information.
        strategies: every strategy at the plan's budget, by name.
        best: the strategy that loses least there.
        gain: additional clicks of perfect information compared with random arms.
        error: how far the best strategy's surface was off at most against direct simulation at random
            priors, in clicks: a share of the gain. None if they were simulated, or are the edge's.
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
    progress: Progress | None = None,
) -> Expectation | None:
    """Return the expectation at a budget, with a table of others; None if it is unknown.

    Args:
        asked: the experiment.
        budget: the plan's budget.
        belief_before: the watcher's prior belief, for the table.
        budgets: budgets in the table.
        per_day: visitors per day.
        simulate: whether to simulate what the surface does not cover; if not, the note says so.
        progress: hears how many runs are done if something is simulated, and of how many.

    Raises:
        MissingExtraError: segments differ in size, or there is a trace budget, and the simulator is not
            installed.
    """
    if per_day is not None:
        per_day = check.single("per_day", check.nonnegative("per_day", per_day))
        if not per_day:
            per_day = None
    names = [name for name in STRATEGIES if has_surface(name)]
    if not names:
        return None
    found = _figures(asked, names, budget, budgets, simulate, progress)
    at = {name: row[budget] for name, row in found.outcomes.items()}
    served = [name for name in at if STRATEGIES[name].fits(asked.n_arms, asked.n_segments)]
    best = min(served, key=lambda name: at[name].lost)
    least = min(one.lost for row in found.outcomes.values() for one in row.values())
    if found.source == "surface":
        unlimited = choose(asked, names)
        least = least if unlimited is None else min(least, unlimited.least)
    cost = max(0.0, at[best].lost - least)
    gain = found.rivals[PERFECT].clicks - found.rivals[RANDOM].clicks
    worst = worst_error(surface_name(best, asked.n_segments))
    return Expectation(
        base_rate=asked.prior.base_rate,
        lift=asked.prior.lift,
        heterogeneity=asked.prior.heterogeneity,
        per_day=per_day,
        days=None if per_day is None else math.ceil(asked.horizon / per_day),
        source=found.source,
        note=found.note,
        rivals=found.rivals,
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
                {name: row[mark] for name, row in found.outcomes.items()},
            )
            for mark in sorted(next(iter(found.outcomes.values())))
        ),
    )


class _Figures(NamedTuple):
    """Outcomes by strategy and budget, those of the rivals, their source, and what to say about it."""

    outcomes: dict[str, dict[float, Outcome]]
    rivals: dict[str, Outcome]
    source: Literal["surface", "simulated"]
    note: str


def _figures(
    asked: Asked,
    names: Sequence[str],
    budget: float,
    budgets: Sequence[float],
    simulate: bool,
    progress: Progress | None,
) -> _Figures:
    """Read from the surface what it covers, and simulate the rest where that is wanted and possible."""
    fitting = [name for name in STRATEGIES if STRATEGIES[name].fits(asked.n_arms, asked.n_segments)]
    rivals = {name: _outcome(asked.look_up(name)) for name in RIVALS}
    few = sorted({budget, *FEW_BUDGETS})
    if simulate and not asked.usual:
        todo = dict.fromkeys(fitting, few) | {name: [0.0] for name in (POOLED, RANDOM)}
        made = simulate_all(asked, todo, progress, strict=True)
        outcomes = {name: made.outcomes[name] for name in fitting}
        rivals |= {name: made.outcomes[name][0.0] for name in (POOLED, RANDOM)}
        return _Figures(outcomes, rivals, "simulated", _off_surface(asked) + made.words)
    marks = sorted({*budgets, budget})
    sizes = {name: bool(asked.look_up(name).on_surface) for name in (*names, POOLED)}
    able = simulate and asked.usual and can_simulate()
    if able and not all(sizes[name] for name in names if name in fitting):
        marks = few
    looked = {name: asked.look_up(name, np.array(marks)) for name in names}
    outcomes = {name: dict(zip(marks, _outcomes(one), strict=True)) for name, one in looked.items()}
    beyond = {
        name: [mark for mark, good in zip(marks, one.on_surface, strict=True) if not good]
        for name, one in looked.items()
    } | {POOLED: [] if sizes[POOLED] else [0.0]}
    beyond = {name: off for name, off in beyond.items() if off}
    note = "" if asked.usual else (
        _off_surface(asked) + "The figures are for segments of one size and no trace budget."
    )  # fmt: skip
    made = Made({}, "")
    if able and beyond:
        todo = {name: off for name, off in beyond.items() if name in (*fitting, POOLED)}
        made = simulate_all(asked, todo, progress)
        for name, row in made.outcomes.items():
            if name == POOLED:
                rivals[POOLED] = row[0.0]
            else:
                outcomes[name] |= row
    told = {name: off for name, off in beyond.items() if name not in made.outcomes}
    parts = (note, made.words, edge_words(asked, told, wanted=simulate))
    return _Figures(
        outcomes,
        rivals,
        "simulated" if made.outcomes else "surface",
        " ".join(part for part in parts if part),
    )


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
