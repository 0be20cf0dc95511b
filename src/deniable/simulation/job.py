"""One policy in one environment, in a form that a worker process can run."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.privacy.epochs import simulated_epochs
from deniable.simulation.environment import LONGEST_HORIZON, Environment
from deniable.strategies.kernel_rules import (
    EpochRule,
    FixedRule,
    GreedyRule,
    IndexRule,
    KnownRatesRule,
    LearnerRule,
    PublishedRule,
    Rule,
    Simulated,
)

if TYPE_CHECKING:
    from deniable.simulation.kernels import epochs, tables
    from deniable.simulation.kernels import state as kernels
    from deniable.simulation.kernels.run import Setting

Kernel: TypeAlias = Literal["leap", "step"]
Counts: TypeAlias = NDArray[np.int64]
Outcome: TypeAlias = tuple[Counts, Counts, FloatArray | None]
"""Shows, clicks and rewards at each checkpoint, (C, J, K) each; None if rewards are clicks."""

KERNELS: tuple[Kernel, ...] = ("leap", "step")

LONGEST_LEARNING = 10**7
"""Maximum visitors for a learner in Python; a repetition then takes minutes."""


@dataclass(frozen=True, eq=False)
class SimulationJob:
    """The input of a worker.

    Attributes:
        key: the job's random number stream: one per environment and policy name.
        rule: the policy's rule for this environment.
        rates: click rates by segment and arm, (J, K).
        arrival: cumulative shares of the segments, (J,).
        checkpoints: numbers of visitors at which counts are recorded, ascending, ending with T.
            Click rates change only there.
        kernel: "leap" or "step".
        rates_until: if click rates change, those until each checkpoint, (C, J, K); else empty.
        values: mean value of a click by segment and arm, (J, K).
        value_spread: standard deviation of its logarithm.
        delays: cumulative probabilities that a reward is known 0, 1, 2, ... visitors late.
    """

    key: int
    rule: Rule
    rates: FloatArray
    arrival: FloatArray
    checkpoints: Counts
    kernel: Kernel
    rates_until: FloatArray
    values: FloatArray
    value_spread: float
    delays: FloatArray

    @cached_property
    def is_plain(self) -> bool:
        """Whether rewards are clicks that are known immediately."""
        return self.delays.size == 1 and self.value_spread == 0 and bool((self.values == 1).all())


def make_job(
    environment: Environment,
    policy: Simulated,
    horizon: int | None = None,
    checkpoints: Sequence[int] | None = None,
    kernel: Kernel = "leap",
) -> SimulationJob:
    """Create the job of one policy in one environment.

    Args:
        environment: the ground truth.
        policy: how arms are chosen.
        horizon: T, if different from the environment's.
        checkpoints: visitors at which to record counts; always includes the horizon.
        kernel: "leap", or "step" for visitor by visitor.
    """
    _check_kinds(environment, policy)
    end = environment.horizon if horizon is None else horizon
    end = check.whole("horizon", end, 1, LONGEST_HORIZON)
    if kernel not in KERNELS:
        raise InvalidArgumentError("kernel", kernel, "leap or step")
    points = {check.whole("checkpoints", point, 1, end) for point in points_of(checkpoints)}
    points |= {start for start in environment.starts if 0 < start < end} | {end}
    ordered = np.array(sorted(points), dtype=np.int64)
    phases = environment.phase_at(ordered)
    rule = _rule(environment, policy, end, phases)
    # Learners share their visitors. Else use the policy's name, not its label: a budget that differs
    # in its last bit, as solvers' budgets do between machines, must not change the random numbers.
    shared = isinstance(rule, LearnerRule)
    stream = environment.name if shared else f"{environment.name}\0{policy.name}"
    changing = len(environment.changes) > 0
    return SimulationJob(
        key=zlib.crc32(stream.encode()),
        rule=rule,
        # Writable, as after unpickling, so that there is only one compilation.
        rates=np.array(environment.rates, order="C"),
        arrival=_cumulated(environment.shares),
        checkpoints=ordered,
        kernel=kernel,
        rates_until=np.array(
            environment.phases[phases] if changing else np.empty((0, 0, 0)),
            order="C",
        ),
        values=np.array(environment.values, order="C"),
        value_spread=environment.value_spread,
        delays=_cumulated(np.array(environment.delay)),
    )


def _check_kinds(environment: object, policy: object) -> None:
    if not isinstance(environment, Environment):
        raise InvalidArgumentError("environment", environment, "an Environment")
    if isinstance(policy, type) or not hasattr(policy, "rule"):
        allowed = "policies such as Constant(1) or Random()"
        raise InvalidArgumentError("policies", policy, allowed)


def points_of(checkpoints: Sequence[int] | None) -> Sequence[int]:
    """Return the requested checkpoints as a sequence."""
    allowed = "a list of numbers of visitors"
    return () if checkpoints is None else check.listed("checkpoints", checkpoints, allowed)


def _rule(environment: Environment, policy: Simulated, horizon: int, phases: Counts) -> Rule:
    """Return the policy's rule. Rules that use the true rates become the tables they would show."""
    rule = policy.rule(environment.rates, horizon)
    if isinstance(rule, FixedRule | KnownRatesRule):
        worth = environment.phases * environment.values
        tables = [_known(environment, policy.rule(rates, horizon), rates) for rates in worth]
        return FixedRule(tables[0] if len(tables) == 1 else np.stack(tables)[phases])
    if isinstance(rule, EpochRule):
        _check_size(environment, policy)
    if isinstance(rule, LearnerRule) and horizon > LONGEST_LEARNING:
        allowed = f"at most {LONGEST_LEARNING:,} visitors for {policy.label}, a learner in Python"
        raise InvalidArgumentError("horizon", horizon, allowed)
    if not environment.is_plain and not isinstance(rule, GreedyRule | LearnerRule):
        argument = "delay" if len(environment.delay) > 1 else "values"
        allowed = f"rewards that are clicks and known at once, for {policy.label}"
        raise InvalidArgumentError(argument, getattr(environment, argument), allowed)
    return rule


def _check_size(environment: Environment, policy: Simulated) -> None:
    from deniable.strategies.rules import LARGEST

    if max(environment.rates.shape) > LARGEST:
        allowed = f"at most {LARGEST} arms and segments for {policy.name}"
        raise InvalidArgumentError("rates", environment.rates.shape, allowed)


def _known(environment: Environment, rule: Rule, rates: FloatArray) -> FloatArray:
    """Return what is shown if rates are known or irrelevant, (J, K)."""
    if isinstance(rule, FixedRule):
        return rule.shown
    assert isinstance(rule, KnownRatesRule)
    from deniable.strategies.joint_lp import proved_table

    scale = max(float(rates.max()), 1.0)  # values may exceed 1; their unit does not matter
    return proved_table(rates / scale, environment.shares, rule.budget).table


def run_repetition(job: SimulationJob, seed: int, repetition: int) -> tuple[Counts, Counts]:
    """Return shows and clicks at each checkpoint, (C, J, K) each; a pure function of its arguments.

    >>> from deniable.strategies.benchmarks import Random
    >>> page = Environment([0.5, 0.5], horizon=10)
    >>> shows, clicks = run_repetition(make_job(page, Random()), seed=1, repetition=0)
    >>> shows.shape, int(shows.sum())
    ((1, 1, 2), 10)
    """
    return run_from(job, _state(job, seed, repetition))


def run_outcome(job: SimulationJob, seed: int, repetition: int) -> Outcome:
    """Like `run_repetition`, with rewards; None if these are clicks."""
    if job.is_plain and not isinstance(job.rule, LearnerRule):
        return (*run_repetition(job, seed, repetition), None)
    return run_with_rewards(job, _state(job, seed, repetition))


def _state(job: SimulationJob, seed: int, repetition: int) -> NDArray[np.uint64]:
    from deniable.simulation.kernels.random_numbers import generator_state

    child = np.random.SeedSequence(seed, spawn_key=(job.key, repetition))
    return generator_state(child)


def run_from(job: SimulationJob, state: NDArray[np.uint64]) -> tuple[Counts, Counts]:
    """Like `run_repetition`, from a generator's state, which is modified."""
    # Kernels are imported where they are run, because importing them loads Numba, which takes a
    # second.
    leap = job.kernel == "leap"
    rule = job.rule
    if isinstance(rule, LearnerRule) or not job.is_plain:
        return run_with_rewards(job, state)[:2]
    setting = _setting(job, state)
    if isinstance(rule, GreedyRule):
        from deniable.simulation.kernels.run import run_greedy

        return run_greedy(leap, kernel_rule(rule), rule.on_segment_clock, setting)
    if isinstance(rule, FixedRule):
        from deniable.simulation.kernels.run import run_fixed

        return run_fixed(leap, _shown(rule, job), setting)
    if isinstance(rule, EpochRule):
        return _run_epoch_rule(leap, rule, setting)
    if isinstance(rule, PublishedRule):
        from deniable.simulation.kernels.tables import run_tables

        return run_tables(leap, _publishing(rule), setting)
    assert isinstance(rule, IndexRule)  # `make_job` replaced the other kinds
    from deniable.simulation.kernels.gittins import run_index
    from deniable.simulation.kernels.gittins_table import gittins_table

    return run_index(leap, gittins_table(rule.discount), setting)


def run_with_rewards(job: SimulationJob, state: NDArray[np.uint64]) -> Outcome:
    """Run learners, and rewards that are late or have values: shows, clicks and rewards."""
    from deniable.simulation.kernels.late_rewards import Worth, run_late
    from deniable.simulation.kernels.run import run_fixed

    rule = job.rule
    worth = Worth(job.values, job.value_spread, job.delays)
    setting = _setting(job, state)
    if isinstance(rule, LearnerRule):
        from deniable.simulation.learners import run_learner

        return run_learner(rule, worth, setting)
    if isinstance(rule, GreedyRule):
        return run_late(kernel_rule(rule), rule.on_segment_clock, worth, setting)
    assert isinstance(rule, FixedRule)  # `make_job` rejects the other kinds
    shows, clicks = run_fixed(job.kernel == "leap", _shown(rule, job), setting)
    return shows, clicks, _rewards_of(clicks, job, state)


def _rewards_of(clicks: Counts, job: SimulationJob, state: NDArray[np.uint64]) -> FloatArray:
    """Return rewards of clicks that no policy learns from."""
    if job.value_spread == 0:
        return np.asarray(clicks * job.values)
    rng = np.random.default_rng(state.tolist())
    spread = job.value_spread
    new = np.diff(clicks, axis=0, prepend=0)
    sums = [rng.lognormal(-(spread**2) / 2, spread, count).sum() for count in new.ravel().tolist()]
    return np.asarray(np.cumsum(np.reshape(sums, new.shape) * job.values, axis=0))


def _setting(job: SimulationJob, state: NDArray[np.uint64]) -> Setting:
    from deniable.simulation.kernels.run import Setting

    # Copy if rates change, because the kernel writes to it.
    rates = job.rates.copy() if job.rates_until.size else job.rates
    return Setting(rates, job.arrival, job.checkpoints, state, job.rates_until)


def _shown(rule: FixedRule, job: SimulationJob) -> FloatArray:
    """Return cumulative tables until each checkpoint, (C, J, K)."""
    shown = rule.shown[: job.checkpoints.size] if rule.shown.ndim == 3 else rule.shown
    tables = np.broadcast_to(shown, (job.checkpoints.size, *shown.shape[-2:]))
    return _cumulated(tables)


def _run_epoch_rule(leap: bool, rule: EpochRule, setting: Setting) -> tuple[Counts, Counts]:
    # Imported here, because these take seconds to compile and only some policies need them.
    from deniable.simulation.kernels import epochs

    n_segments, n_arms = setting.rates.shape
    between = simulated_epochs(n_arms, n_segments)
    return epochs.run_epochs(leap, between, _next_table(rule, n_arms, n_segments), setting)


def _next_table(rule: EpochRule, n_arms: int, n_segments: int) -> epochs.NextTable:
    if rule.kind == "unbounded":
        from deniable.strategies.unbounded import unbounded_table

        return lambda shows, clicks: unbounded_table(shows, clicks, rule.told_horizon or None)
    from deniable.strategies.joint_rule import TableMaker

    return TableMaker(rule.kind, n_arms, n_segments, rule.told_horizon, rule.budget).next_table


def is_compiled(job: SimulationJob) -> bool:
    """Whether the job's kernel was compiled before; if not, the first repetition takes seconds."""
    from deniable._compile import is_cached

    if isinstance(job.rule, LearnerRule):
        return True
    if isinstance(job.rule, EpochRule):
        return is_cached("serve" if job.rule.kind == "unbounded" else "write_joint")
    if isinstance(job.rule, GreedyRule):
        return is_cached(f"_{job.kernel}_greedy" if job.is_plain else "_run_late")
    entries = {FixedRule: "_run_fixed", PublishedRule: "_run_tables"}
    entry = entries.get(type(job.rule), "_run_index")
    return is_cached(entry)


def kernel_rule(rule: GreedyRule) -> kernels.Rule:
    """Convert the rule to the kernels' type."""
    from deniable.simulation.kernels import state as kernels

    kinds = {
        "fixed": kernels.FIXED,
        "dynamic": kernels.DYNAMIC,
        "arm-dynamic": kernels.ARM_DYNAMIC,
    }
    return kernels.Rule(kinds[rule.kind], rule.exploring, rule.floor, rule.budgets, rule.turns)


def _publishing(rule: PublishedRule) -> tables.Publishing:
    """Convert the rule to the kernels' type."""
    from deniable.simulation.kernels import tables

    return tables.Publishing(rule.weights, rule.bonus, rule.scheduled, *rule.epochs)


def _cumulated(probabilities: FloatArray) -> FloatArray:
    """Return cumulative sums along the last axis, exactly 1 from the last possible class on."""
    sums = np.cumsum(probabilities, axis=-1)
    possible_later = np.cumsum(probabilities[..., ::-1], axis=-1)[..., ::-1] - probabilities
    return np.ascontiguousarray(np.where(possible_later <= 0, 1.0, np.minimum(sums, 1.0)))
