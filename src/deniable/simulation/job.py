"""One policy in one environment, as numbers that a worker process can run repetition by repetition."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.policies.contract import FixedRule, GreedyRule, Policy, Rule
from deniable.simulation.environment import LONGEST_HORIZON, Environment

Kernel: TypeAlias = Literal["leap", "step"]
Counts: TypeAlias = NDArray[np.int64]

KERNELS: tuple[Kernel, ...] = ("leap", "step")
_KINDS = {"fixed": 0, "dynamic": 1, "arm-dynamic": 2}


@dataclass(frozen=True, eq=False)
class Job:
    """What a worker needs to know.

    Attributes:
        key: distinguishes the job's random numbers from those of other jobs of the run.
        rule: the policy's rule for this environment.
        rates: click rates by segment and arm, (J, K).
        arrival: cumulative shares of the segments, (J,).
        checkpoints: numbers of visitors at which counts are kept, ascending, the last is T.
        kernel: "leap" or "step".
    """

    key: int
    rule: Rule
    rates: FloatArray
    arrival: FloatArray
    checkpoints: Counts
    kernel: Kernel


def make_job(
    environment: Environment,
    policy: Policy,
    horizon: int | None = None,
    checkpoints: Sequence[int] | None = None,
    kernel: Kernel = "leap",
) -> Job:
    """The job of one policy in one environment.

    Args:
        environment: the truth.
        policy: how arms are chosen.
        horizon: T, if other than the environment's.
        checkpoints: visitors at which to keep counts; the horizon is always one of them.
        kernel: "leap", or "step" for visitor by visitor.
    """
    end = environment.horizon if horizon is None else horizon
    end = check.whole("horizon", end, 1, LONGEST_HORIZON)
    if kernel not in KERNELS:
        raise InvalidArgumentError("kernel", kernel, "leap or step")
    points = {check.whole("checkpoints", point, 1, end) for point in checkpoints or ()}
    return Job(
        key=zlib.crc32(f"{environment.name}\0{policy.label}".encode()),
        rule=policy.rule(environment.rates, end),
        rates=np.array(
            environment.rates.T, order="C"
        ),  # writable, as after pickling: one compilation
        arrival=_cumulated(environment.shares),
        checkpoints=np.array(sorted(points | {end}), dtype=np.int64),
        kernel=kernel,
    )


def run_repetition(job: Job, seed: int, repetition: int) -> tuple[Counts, Counts]:
    """Shows and clicks at each checkpoint, (C, J, K) each; a function of its arguments alone.

    >>> from deniable.policies.random import RandomPolicy
    >>> page = Environment([0.5, 0.5], horizon=10)
    >>> shows, clicks = run_repetition(make_job(page, RandomPolicy()), seed=1, repetition=0)
    >>> shows.shape, int(shows.sum())
    ((1, 1, 2), 10)
    """
    from deniable.simulation._generator import generator_state

    child = np.random.SeedSequence(seed, spawn_key=(job.key, repetition))
    return run_from(job, generator_state(child))


def run_from(job: Job, state: NDArray[np.uint64]) -> tuple[Counts, Counts]:
    """The same from a generator's state, which is used up."""
    from deniable.simulation import _kernels

    shape = (job.checkpoints.size, *job.rates.shape)
    shows, clicks = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    leap = job.kernel == "leap"
    world = (job.rates, job.arrival, job.checkpoints, state, shows, clicks)
    rule = job.rule
    if isinstance(rule, GreedyRule):
        _kernels.run_greedy(
            leap,
            _KINDS[rule.kind],
            rule.exploring,
            rule.floor,
            rule.budgets,
            rule.turns,
            rule.on_segment_clock,
            *world,
        )
    elif isinstance(rule, FixedRule):
        _kernels.run_fixed(leap, _cumulated(rule.shown.T), *world)
    else:
        from deniable.policies.gittins_index import gittins_table

        _kernels.run_index(leap, *gittins_table(rule.discount).arrays, *world)
    return shows, clicks


def _cumulated(probabilities: FloatArray) -> FloatArray:
    """Cumulative sums along the last axis, exactly 1 from the last possible class on."""
    sums = np.cumsum(probabilities, axis=-1)
    possible_later = np.cumsum(probabilities[..., ::-1], axis=-1)[..., ::-1] - probabilities
    return np.ascontiguousarray(np.where(possible_later <= 0, 1.0, np.minimum(sums, 1.0)))
