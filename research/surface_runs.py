"""Runs behind the surface of expected gains: random priors, one run of the simulator for each.

A row is one experiment: a size and a prior drawn at random from what planners meet, click rates drawn
from that prior, and one run of the strategy with the simulator's own kernels, tables published as the
service publishes them. Clicks lost are in units of what perfect information gains on average.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deniable._validation import FloatArray
from deniable.expectations.prior import Prior, best_rate, mean_rate
from deniable.expectations.surface import (
    BEST_PRIVATE,
    LEAST_CLICKS,
    MOST_BEFORE,
    POOLED,
    RANDOM,
    RATES,
    Question,
    after_first,
    domain_of,
    has_room,
    learns_apart,
    learns_together,
    reach,
    usual,
)
from deniable.strategies import STRATEGIES
from deniable.strategies.kernel_rules import Simulated, as_served
from deniable.strategies.pooled import Pooled
from research.posterior import LEAST_APART, MOST_JUDGED, judge

Counts: TypeAlias = NDArray[np.int64]

SEED = 20_260
CHUNK = 1000
"""Rows of a file: what an interrupted run loses at most."""

FIELDS = ("arms", "visitors", "segments", "base_rate", "lift", "heterogeneity", "budget")
COLUMNS = (*FIELDS, "lost", "gain", "known", "shown", "best", "usual")

MOST_BUDGET = 8.0
SIGNALS = (0.02, 1e6)
VISITORS = (1e3, 1e10)
LIFTS = (0.002, 0.5)

BEYOND, MORE_BUDGET = 1.3, 1.1
"""Rows of strategies that learn from all segments lie beyond the edge of the domain too, by this factor:
a fit is worst where it has neighbours on one side only."""

LOOKS = 1.5
"""How often, in a tenfold of visitors, a run is looked at on the way."""

LUCKY = (0.1, 1000.0)
"""Signals between which runs differ most by luck: most rows are made there."""

DRAWS = 16
"""Of the rates, whose mean is a row of the best private table: they cost little, and its share is wanted
more exactly than what is fitted relative to it."""


class Few(NamedTuple):
    """Files whose rows have few arms: there runs differ most by luck, so that more of them are needed.

    Attributes:
        first: number of the first of them.
        arms: at most.
        budget: at most; None: as elsewhere.
    """

    first: int
    arms: int
    budget: float | None = None


FEW: dict[str, tuple[Few, ...]] = {
    POOLED: (Few(150, 2),),
}

MOST_LIFT = 0.3
"""Up to this lift the mean of clipped rates is nearly a clipped mean, as pooled segments are judged."""


def names() -> tuple[str, ...]:
    """Everything that has a surface, what others need first."""
    return (RANDOM, BEST_PRIVATE, POOLED, *STRATEGIES)


def draw_questions(
    name: str, count: int, rng: np.random.Generator, *, fitted: bool = False
) -> list[Question]:
    """Random experiments and priors of the domain, each asked of its own.

    Args:
        name: of the surface.
        count: how many.
        rng: the generator.
        fitted: whether they are for a fit: fewer where runs hardly differ by luck, more where the budget
            is large.
    """
    if fitted and learns_together(name):
        return _wide_questions(name, count, rng)
    domain = domain_of(name)
    found: list[Question] = []
    while len(found) < count:
        visitors = round(_log_uniform(rng, *VISITORS))
        rate, lift = _log_uniform(rng, *RATES), _log_uniform(rng, *LIFTS)
        signal = visitors * rate * lift**2 / (1 - rate)
        if not SIGNALS[0] <= signal <= SIGNALS[1] or visitors * rate < 2 * LEAST_CLICKS:
            continue
        arms = round(_log_uniform(rng, 1.6, domain.arms + 0.49))
        low, high = domain.segments
        segments = round(_log_uniform(rng, max(low - 0.4, 0.75), high + 0.49))
        dull = not learns_apart(name) and not LUCKY[0] <= signal <= LUCKY[1]
        if fitted and dull and rng.random() < 0.6:
            continue
        # Budgets are denser where they matter: half of all below 2. Large ones are harder to fit.
        budget = MOST_BUDGET * rng.random() ** (1 if fitted and learns_apart(name) else 2)
        asked = Question.of(
            arms=max(2, arms),
            visitors=visitors,
            segments=segments,
            base_rate=rate,
            lift=lift,
            heterogeneity=rng.random(),
            budget=budget,
        )
        # A fit needs neighbours beyond the edge.
        if fitted or usual(name, asked):
            found.append(asked)
    return found


def _wide_questions(name: str, count: int, rng: np.random.Generator) -> list[Question]:
    """For the fit of a strategy that learns from all segments: a bit beyond its domain.

    Runs differ most by luck where arms are few, and there a run costs least: half have two to four.
    """
    domain, (low, high) = domain_of(name), SIGNALS
    fewest, most = np.log((1.6, domain.arms + 0.49))
    found: list[Question] = []
    while len(found) < count:
        asked = Question.of(
            arms=max(2, round(math.exp(fewest + (most - fewest) * rng.random() ** 1.5))),
            visitors=round(_log_uniform(rng, *wider(domain.visitors))),
            segments=round(_log_uniform(rng, domain.segments[0] - 0.4, domain.segments[1] + 0.49)),
            base_rate=_log_uniform(rng, *RATES),
            lift=_log_uniform(rng, *wider(domain.lifts)),
            heterogeneity=rng.random(),
            budget=MORE_BUDGET * domain.budget * rng.random() ** 1.7,
        )
        near = low / BEYOND <= asked.signal <= high * BEYOND and has_room(asked)
        near &= asked.visitors * asked.base_rate >= LEAST_CLICKS / 2 * asked.arms
        near &= after_first(name, asked) >= 1 - 1.5 * MOST_BEFORE
        dull = not LUCKY[0] <= asked.signal <= LUCKY[1]
        if near and not (dull and rng.random() < 0.6):
            found.append(asked)
    return found


def wider(ends: tuple[float, float]) -> tuple[float, float]:
    """Both a bit beyond the edge."""
    return ends[0] / BEYOND, ends[1] * BEYOND


class Rows(NamedTuple):
    """Many runs; see Row."""

    lost: FloatArray
    gain: FloatArray
    known: FloatArray
    shown: FloatArray
    best: FloatArray
    usual: FloatArray


class Row(NamedTuple):
    """One run, in units of the expected gain of perfect information.

    The expectations of all but the first are known or the strategy's own, which takes most of the noise
    away: see `surface_luck.expected_rows`.

    Attributes:
        lost: clicks lost.
        gain: what perfect information gains with these rates.
        known: what is lost with these rates once they are known.
        shown: what the shown arms are expected to gain, given the counts; NaN where not computed.
        best: what the best arms are expected to have more than usual, given the counts.
        usual: the same of all arms in equal parts.
    """

    lost: float
    gain: float
    known: float
    shown: float
    best: float
    usual: float


def run_row(name: str, asked: Question, rng: np.random.Generator) -> Row:
    """One run at this prior: rates, and the strategy's luck."""
    return run_rows(name, [asked], rng)[0]


def run_rows(name: str, looks: Sequence[Question], rng: np.random.Generator) -> list[Row]:
    """One run that is looked at on the way: questions that differ in their visitors, ascending."""
    asked = looks[-1]
    usual = float(mean_rate(asked.base_rate, asked.lift))
    unit = float(best_rate(asked.arms, asked.base_rate, asked.lift)) - usual
    budget = float(asked.budget)
    if name == BEST_PRIVATE:
        each = [_known(_rates(asked, rng), unit, budget) for _ in range(DRAWS)]
        gain, pooled, private = np.mean(each, axis=0).tolist()
        return [Row(private, gain, pooled, math.nan, math.nan, math.nan)]
    rates = _rates(asked, rng)
    together = name in STRATEGIES and not learns_apart(name)
    truth = _known(rates, unit, budget if together else None)
    if name == RANDOM:
        return [Row(truth.gain, truth.gain, truth.gain, math.nan, math.nan, math.nan)]
    found = []
    counted = _run(name, looks, rates, int(rng.integers(2**62)))
    for look, lost, shows, clicks in zip(looks, *counted, strict=True):
        if name == POOLED:
            known = truth.pooled
        elif together:
            known = truth.private
        else:
            known = float(1 - reach(name, look)) * truth.gain
        judged = _judged(name, look, shows, clicks)
        found.append(Row(lost / unit, truth.gain, known, *(part / unit for part in judged)))
    return found


class _Known(NamedTuple):
    """What is known of drawn rates, in units of what perfect information gains on average.

    Attributes:
        gain: what perfect information gains with these rates.
        pooled: what the best arm for everybody loses.
        private: what the best private table loses; NaN without a budget.
    """

    gain: float
    pooled: float
    private: float


def _known(rates: FloatArray, unit: float, budget: float | None) -> _Known:
    best = float(rates.max(axis=1).mean())
    table = math.nan if budget is None else _private_value(rates, budget)
    shown = float(rates.mean()), float(rates.mean(axis=0).max()), table
    return _Known(*((best - one) / unit for one in shown))


def run_lost(name: str, asked: Question, rates: FloatArray, seed: int) -> float:
    """Clicks lost in one run with these rates: the sum of the shown arms' gaps."""
    return float(_run(name, [asked], rates, seed)[0][0]) * float(asked.visitors)


def _run(
    name: str, looks: Sequence[Question], rates: FloatArray, seed: int
) -> tuple[FloatArray, Counts, Counts]:
    """Clicks lost by visitor, and shows and clicks by segment and arm, at each look."""
    from deniable.simulation.environment import Environment
    from deniable.simulation.job import make_job, run_repetition

    points = [int(one.visitors) for one in looks]
    truth = Environment(rates, points[-1])
    job = make_job(truth, policy_of(name, looks[-1]), checkpoints=points)
    shows, clicks = run_repetition(job, seed, 0)
    lost = (shows * truth.gaps).sum(axis=(1, 2)) / np.array(points)
    return lost, shows, clicks


def _judged(
    name: str, asked: Question, shows: Counts, clicks: Counts
) -> tuple[float, float, float]:
    """Expected rates given the counts: of the shown arms, of the best and of all arms.

    Each less what it is usually: of all arms, of the best, of all arms.
    """
    rate, lift, part = (
        float(getattr(asked, key)) for key in ("base_rate", "lift", "heterogeneity")
    )
    signal = float(asked.signal)
    exact = True
    if name == POOLED:  # segments do not matter to it: one with their mean rates
        lift *= math.sqrt(float(asked.shared))
        signal *= float(asked.shared)
        exact = bool(asked.segments == 1 or asked.lift <= MOST_LIFT)
        shows, clicks, part = (*(x.sum(axis=0, keepdims=True) for x in (shows, clicks)), 1.0)
    elif learns_apart(name):  # each segment by its own counts, which is all that it learns from
        signal, part = signal / float(asked.segments), 1.0
    else:
        exact = part >= LEAST_APART
    if not exact or signal > MOST_JUDGED:
        return math.nan, math.nan, math.nan
    return judge(Prior(rate, lift, part), shows, clicks, signal)


def policy_of(name: str, asked: Question) -> Simulated:
    """What the simulator runs."""
    if name == POOLED:
        return Pooled()
    return as_served(STRATEGIES[name](float(asked.budget)))


def _rates(asked: Question, rng: np.random.Generator) -> FloatArray:
    prior = Prior(float(asked.base_rate), float(asked.lift), float(asked.heterogeneity))
    return np.asarray(prior.draw(int(asked.arms), int(asked.segments), 1, rng)[0])


def _private_value(rates: FloatArray, budget: float) -> float:
    from deniable.strategies.joint_lp import proved_table

    segments = len(rates)
    return proved_table(rates, np.full(segments, 1 / segments), budget).value


def make_chunk(name: str, number: int) -> FloatArray:
    """The rows of one file, (CHUNK, columns); a function of its arguments alone."""
    rng = np.random.default_rng([SEED, names().index(name), number])
    rows: list[list[float]] = []
    while len(rows) < CHUNK:
        (asked,) = draw_questions(name, 1, rng, fitted=True)
        for few in [few for few in FEW.get(name, ()) if few.first <= number][-1:]:
            asked = replace(asked, arms=np.asarray(rng.integers(2, few.arms + 1), np.float64))
            if few.budget is not None:
                asked = replace(asked, budget=np.asarray(few.budget * rng.random()))
        looks = looks_of(asked, rng) if learns_apart(name) else [asked]
        for look, row in zip(looks, run_rows(name, looks, rng), strict=True):
            rows.append([*(float(getattr(look, field)) for field in FIELDS), *row])
    return np.array(rows[:CHUNK])


def looks_of(asked: Question, rng: np.random.Generator) -> list[Question]:
    """When a run of a strategy that is not told its horizon is looked at, besides at the end.

    Everything that it did until then is a run with fewer visitors.
    """
    rate = float(asked.base_rate)
    signal = rate * float(asked.lift) ** 2 / (1 - rate)
    low = math.log(max(VISITORS[0], SIGNALS[0] / signal, 2 * LEAST_CLICKS / rate))
    end = math.log(float(asked.visitors))
    count = math.ceil((end - low) / math.log(10) * LOOKS)
    steps = (np.arange(count) + rng.random(count)) / max(count, 1)
    points = {round(math.exp(low + step * (end - low))) for step in steps.tolist()}
    return [
        replace(asked, visitors=np.asarray(float(point)))
        for point in sorted(points | {int(asked.visitors)})
    ]


def make_runs(
    folder: Path,
    wanted: dict[str, int],
    seconds: float = float("inf"),
    part: tuple[int, int] = (0, 1),
) -> Iterator[tuple[str, int, float]]:
    """Make the files that are missing until the time is up; yields what was made, and its seconds.

    Args:
        folder: where files are, one for each thousand rows.
        wanted: files for each surface.
        seconds: after which no further file is begun.
        part: which of how many processes this one is: it makes every so many-th file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    for number in range(part[0], max(wanted.values()), part[1]):
        for name, count in wanted.items():
            path = _path(folder, name, number)
            if number >= count or path.exists():
                continue
            if time.monotonic() - begun > seconds:
                return
            started = time.monotonic()
            rows = make_chunk(name, number)
            unfinished = path.with_suffix(".part.npy")
            np.save(unfinished, rows)
            unfinished.replace(path)
            yield name, number, time.monotonic() - started


def read_runs(folder: Path, name: str) -> tuple[Question, Rows]:
    """All rows of a surface that have room above their rates, and what was asked."""
    paths = sorted(folder.glob(f"{name}-*.npy"))
    rows = np.concatenate([np.load(path) for path in paths if ".part" not in path.name])
    at = dict(zip(COLUMNS, rows.T, strict=True))
    asked = Question.of(**{field: at[field] for field in FIELDS})
    kept = has_room(asked)
    return asked.part(kept), Rows(**{field: at[field][kept] for field in Rows._fields})


def _path(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}-{number:03}.npy"


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
