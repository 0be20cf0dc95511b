"""One policy in one environment, as numbers that a worker process can run repetition by repetition."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.policies.base import (
    EpochRule,
    FixedRule,
    GreedyRule,
    IndexRule,
    KnownRatesRule,
    Policy,
    Rule,
    TableRule,
)
from deniable.privacy.epochs import LEAST_NEW
from deniable.simulation.environment import LONGEST_HORIZON, Environment

if TYPE_CHECKING:
    from deniable.simulation.kernels import state as kernels
    from deniable.simulation.kernels import tables
    from deniable.simulation.kernels.run import Setting

Kernel: TypeAlias = Literal["leap", "step"]
Counts: TypeAlias = NDArray[np.int64]

KERNELS: tuple[Kernel, ...] = ("leap", "step")


@dataclass(frozen=True, eq=False)
class Job:
    """What a worker needs to know.

    Attributes:
        key: the job's stream of random numbers: one for each environment and name of a policy.
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
    *,
    common_random_numbers: bool = False,
) -> Job:
    """The job of one policy in one environment.

    Args:
        environment: the truth.
        policy: how arms are chosen.
        horizon: T, if other than the environment's.
        checkpoints: visitors at which to keep counts; the horizon is always one of them.
        kernel: "leap", or "step" for visitor by visitor.
        common_random_numbers: whether all policies start from the same random numbers.
    """
    end = environment.horizon if horizon is None else horizon
    end = check.whole("horizon", end, 1, LONGEST_HORIZON)
    if kernel not in KERNELS:
        raise InvalidArgumentError("kernel", kernel, "leap or step")
    points = {check.whole("checkpoints", point, 1, end) for point in checkpoints or ()}
    # By the policy's name, not by its label: a budget that differs in its last bit, as solvers'
    # budgets do from one machine to the next, must not change the random numbers.
    stream = environment.name if common_random_numbers else f"{environment.name}\0{policy.name}"
    return Job(
        key=zlib.crc32(stream.encode()),
        rule=_rule(environment, policy, end),
        rates=np.array(
            environment.rates.T, order="C"
        ),  # writable, as after pickling: one compilation
        arrival=_cumulated(environment.shares),
        checkpoints=np.array(sorted(points | {end}), dtype=np.int64),
        kernel=kernel,
    )


def _rule(environment: Environment, policy: Policy, horizon: int) -> Rule:
    """The policy's rule; what knows the rates becomes the table it would show."""
    rule = policy.rule(environment.rates, horizon)
    if not isinstance(rule, EpochRule | KnownRatesRule):
        return rule
    from deniable.strategies.joint_lp import best_table
    from deniable.strategies.rules import LARGEST

    if isinstance(rule, KnownRatesRule):
        return FixedRule(best_table(environment.rates, environment.shares, rule.budget).table)
    if max(environment.rates.shape) > LARGEST:
        raise InvalidArgumentError(
            "rates",
            environment.rates.shape,
            f"at most {LARGEST} arms and segments for {policy.name}",
        )
    return rule


def run_repetition(job: Job, seed: int, repetition: int) -> tuple[Counts, Counts]:
    """Shows and clicks at each checkpoint, (C, J, K) each; a function of its arguments alone.

    >>> from deniable.policies.benchmarks import RandomPolicy
    >>> page = Environment([0.5, 0.5], horizon=10)
    >>> shows, clicks = run_repetition(make_job(page, RandomPolicy()), seed=1, repetition=0)
    >>> shows.shape, int(shows.sum())
    ((1, 1, 2), 10)
    """
    from deniable.simulation.kernels.random_numbers import generator_state

    child = np.random.SeedSequence(seed, spawn_key=(job.key, repetition))
    return run_from(job, generator_state(child))


def run_from(job: Job, state: NDArray[np.uint64]) -> tuple[Counts, Counts]:
    """The same from a generator's state, which is used up."""
    # Imported here: importing the kernels loads Numba, which takes a second.
    from deniable.simulation.kernels.gittins import run_index
    from deniable.simulation.kernels.gittins_table import gittins_table
    from deniable.simulation.kernels.run import Setting, run_fixed, run_greedy
    from deniable.simulation.kernels.tables import run_tables

    leap = job.kernel == "leap"
    setting = Setting(job.rates, job.arrival, job.checkpoints, state)
    rule = job.rule
    if isinstance(rule, GreedyRule):
        return run_greedy(leap, kernel_rule(rule), rule.on_segment_clock, setting)
    if isinstance(rule, FixedRule):
        return run_fixed(leap, _cumulated(rule.shown.T), setting)
    if isinstance(rule, EpochRule):
        return _run_epoch_rule(leap, rule, setting)
    if isinstance(rule, TableRule):
        return run_tables(leap, _publishing(rule), setting)
    assert isinstance(rule, IndexRule)  # `make_job` has replaced the rest
    return run_index(leap, gittins_table(rule.discount), setting)


def _run_epoch_rule(leap: bool, rule: EpochRule, setting: Setting) -> tuple[Counts, Counts]:
    # Imported here: these take seconds to compile, for whoever uses these policies alone.
    from deniable.simulation.kernels import epochs
    from deniable.strategies.joint_rule import GROWTH, TableMaker, first_epoch

    n_segments, n_arms = setting.rates.shape
    maker = TableMaker(rule.kind, n_arms, n_segments, rule.told_horizon, rule.budget)
    publishing = epochs.Publishing(first_epoch(n_arms, n_segments), GROWTH, rule.trace_budget)
    return epochs.run_epochs(leap, publishing, maker.next_table, setting)


def is_compiled(job: Job) -> bool:
    """Whether what the job runs was compiled before; if not, its first repetition takes seconds."""
    from deniable._compile import is_cached

    if isinstance(job.rule, GreedyRule):
        return is_cached(f"_{job.kernel}_greedy")
    entries = {FixedRule: "_run_fixed", EpochRule: "write_joint", TableRule: "_run_tables"}
    entry = entries.get(type(job.rule), "_run_index")
    return is_cached(entry)


def kernel_rule(rule: GreedyRule) -> kernels.Rule:
    """The rule as the kernels take it."""
    from deniable.simulation.kernels import state as kernels

    kinds = {
        "fixed": kernels.FIXED,
        "dynamic": kernels.DYNAMIC,
        "arm-dynamic": kernels.ARM_DYNAMIC,
    }
    return kernels.Rule(kinds[rule.kind], rule.exploring, rule.floor, rule.budgets, rule.turns)


def _publishing(rule: TableRule) -> tables.Publishing:
    """The rule as the kernels take it."""
    from deniable.simulation.kernels import tables

    return tables.Publishing(
        rule.weights, rule.bonus, rule.scheduled, rule.growth, LEAST_NEW, rule.trace_budget
    )


def _cumulated(probabilities: FloatArray) -> FloatArray:
    """Cumulative sums along the last axis, exactly 1 from the last possible class on."""
    sums = np.cumsum(probabilities, axis=-1)
    possible_later = np.cumsum(probabilities[..., ::-1], axis=-1)[..., ::-1] - probabilities
    return np.ascontiguousarray(np.where(possible_later <= 0, 1.0, np.minimum(sums, 1.0)))
