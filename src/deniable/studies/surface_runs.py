"""Runs behind the surface of expected gains: random priors, one run of the simulator for each.

A row is one experiment: a size and a prior drawn at random from what planners meet, click rates drawn
from that prior, and one run of the strategy with the simulator's own kernels, tables published as the
service publishes them. Clicks lost are in units of what perfect information gains on average.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deniable._validation import FloatArray
from deniable.expectations.prior import Prior, best_rate, mean_rate
from deniable.expectations.surface import (
    BEST_PRIVATE,
    ONE_SEGMENT,
    POOLED,
    RANDOM,
    Question,
    reach,
)
from deniable.policies.base import Policy, as_served
from deniable.policies.tables import PooledPolicy
from deniable.strategies import STRATEGIES

SEED = 20_260
CHUNK = 1000
"""Rows of a file: what an interrupted run loses at most."""

FIELDS = ("arms", "visitors", "segments", "base_rate", "lift", "heterogeneity", "budget")
COLUMNS = (*FIELDS, "lost", "gain", "known")

MOST_BUDGET = 8.0
SIGNALS = (0.02, 1e6)
VISITORS = (1e3, 1e10)
LIFTS = (0.002, 0.5)
RATES = (0.002, 0.6)
LEAST_CLICKS = 20


@dataclass(frozen=True)
class Domain:
    """From which sizes experiments are drawn.

    Attributes:
        arms: the most.
        segments: the fewest and the most.
    """

    arms: int
    segments: tuple[int, int]


def domain_of(name: str) -> Domain:
    """The sizes that the surface of this name covers."""
    if name.endswith(ONE_SEGMENT):
        return Domain(20, (1, 1))
    by_segment = name in STRATEGIES and STRATEGIES[name].explored(2, 100, 1.0) is not None
    if by_segment or name in (POOLED, RANDOM):
        return Domain(50, (1, 20))
    return Domain(20, (2, 10))


def names() -> tuple[str, ...]:
    """Everything that has a surface, what others need first."""
    found = [RANDOM, BEST_PRIVATE, POOLED]
    for name, strategy in STRATEGIES.items():
        found.append(name)
        if strategy.explored(2, 100, 1.0) is None:
            found.append(name + ONE_SEGMENT)
    return tuple(found)


def draw_questions(name: str, count: int, rng: np.random.Generator) -> list[Question]:
    """Random experiments and priors of the domain, each asked of its own."""
    domain = domain_of(name)
    found: list[Question] = []
    while len(found) < count:
        visitors = round(_log_uniform(rng, *VISITORS))
        rate, lift = _log_uniform(rng, *RATES), _log_uniform(rng, *LIFTS)
        signal = visitors * rate * lift**2 / (1 - rate)
        if not SIGNALS[0] <= signal <= SIGNALS[1] or visitors * rate < LEAST_CLICKS:
            continue
        arms = round(_log_uniform(rng, 1.6, domain.arms + 0.49))
        low, high = domain.segments
        segments = round(_log_uniform(rng, max(low - 0.4, 0.75), high + 0.49))
        # Budgets are denser where they matter: half of all below 2.
        budget = MOST_BUDGET * rng.random() ** 2
        found.append(
            Question.of(
                arms=max(2, arms),
                visitors=visitors,
                segments=segments,
                base_rate=rate,
                lift=lift,
                heterogeneity=rng.random(),
                budget=budget,
            )
        )
    return found


def run_row(name: str, asked: Question, rng: np.random.Generator) -> tuple[float, float, float]:
    """One run: clicks lost, what perfect information gains, what is lost with known rates.

    All in units of the expected gain of perfect information. The last two are what the run would have
    been without learning; their expectations are known, which takes most of the noise away.
    """
    rates, horizon = _rates(asked, rng), int(asked.visitors)
    means = rates.mean(axis=0)
    unit = float(
        best_rate(asked.arms, asked.base_rate, asked.lift) - mean_rate(asked.base_rate, asked.lift)
    )
    best = float(rates.max(axis=0).mean())
    gain = (best - float(means.mean())) / unit
    if name == RANDOM:
        return gain, gain, gain
    if name == BEST_PRIVATE:
        pooled = (best - float(rates.mean(axis=1).max())) / unit
        return (best - _private_value(rates, asked)) / unit, gain, pooled
    lost = run_lost(name, asked, rates, int(rng.integers(2**62))) / (unit * horizon)
    if name == POOLED:
        known = (best - float(rates.mean(axis=1).max())) / unit
    elif domain_of(name).segments == (1, 1):
        known = 0.0
    elif domain_of(name).segments[0] == 1:
        known = float(1 - reach(name, asked)) * gain
    else:
        known = (best - _private_value(rates, asked)) / unit
    return lost, gain, known


def run_lost(name: str, asked: Question, rates: FloatArray, seed: int) -> float:
    """Clicks lost in one run with these rates: the sum of the shown arms' gaps."""
    from deniable.simulation.environment import Environment
    from deniable.simulation.job import make_job, run_repetition

    truth = Environment(rates, int(asked.visitors))
    shows, _ = run_repetition(make_job(truth, policy_of(name, asked)), seed, 0)
    return float((shows[-1].T * truth.gaps).sum())


def policy_of(name: str, asked: Question) -> Policy:
    """What the simulator runs."""
    if name == POOLED:
        return PooledPolicy()
    strategy = STRATEGIES[name.removesuffix(ONE_SEGMENT)]
    return as_served(strategy(int(asked.arms), float(asked.budget)).policy())


def _rates(asked: Question, rng: np.random.Generator) -> FloatArray:
    prior = Prior(float(asked.base_rate), float(asked.lift), float(asked.heterogeneity))
    return np.asarray(prior.draw(int(asked.arms), int(asked.segments), 1, rng)[0])


def _private_value(rates: FloatArray, asked: Question) -> float:
    from deniable.strategies.joint_lp import best_table

    segments = rates.shape[1]
    return best_table(rates, np.full(segments, 1 / segments), float(asked.budget)).value


def make_chunk(name: str, number: int) -> FloatArray:
    """The rows of one file, (CHUNK, columns); a function of its arguments alone."""
    rng = np.random.default_rng([SEED, names().index(name), number])
    rows = []
    for asked in draw_questions(name, CHUNK, rng):
        values = [float(getattr(asked, field)) for field in FIELDS]
        rows.append([*values, *run_row(name, asked, rng)])
    return np.array(rows)


def make_runs(
    folder: Path, wanted: dict[str, int], seconds: float = float("inf")
) -> Iterator[tuple[str, int, float]]:
    """Make the files that are missing until the time is up; yields what was made, and its seconds.

    Args:
        folder: where files are, one for each thousand rows.
        wanted: files for each surface.
        seconds: after which no further file is begun.
    """
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    for number in range(max(wanted.values())):
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


def read_runs(folder: Path, name: str) -> tuple[Question, FloatArray, FloatArray, FloatArray]:
    """All rows of a surface: the questions, lost, gain, known."""
    paths = sorted(folder.glob(f"{_plain(name)}-*.npy"))
    rows = np.concatenate([np.load(path) for path in paths if ".part" not in path.name])
    at = dict(zip(COLUMNS, rows.T, strict=True))
    asked = Question.of(**{field: at[field] for field in FIELDS})
    return asked, at["lost"], at["gain"], at["known"]


def _path(folder: Path, name: str, number: int) -> Path:
    return folder / f"{_plain(name)}-{number:03}.npy"


def _plain(name: str) -> str:
    return name.replace(ONE_SEGMENT, "_one")


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
