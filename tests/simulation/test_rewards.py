"""Rewards that are late or have a worth, and click rates that change: against brute force."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.simulation.plain_python import as_python
from tests.simulation.test_custom import Greedy
from tests.simulation.test_enumeration import Law, Paths, Undrawn
from tests.simulation.two_samples import NEVER, least_p_value, sample, world_of

from deniable import (
    BestPrivate,
    Constant,
    Custom,
    Dynamic,
    Environment,
    EpsilonGreedy,
    Gittins,
    Joint,
    Perfect,
    Random,
    simulate,
)
from deniable.errors import InvalidArgumentError
from deniable.simulation.job import (
    SimulationJob,
    kernel_rule,
    make_job,
    run_outcome,
    run_repetition,
)
from deniable.simulation.kernels import block, late_rewards
from deniable.simulation.kernels.late_rewards import Worth, run_late
from deniable.simulation.kernels.random_numbers import generator_state
from deniable.simulation.kernels.run import Setting
from deniable.strategies.kernel_rules import GreedyRule, Simulated

RATES = (0.3, 0.6)


def _law_of_the_kernel(
    policy: Simulated, delays: tuple[float, ...], horizon: int, **replaced: Any
) -> Law:
    """All paths of the kernel's own source, with their probabilities."""
    rule = policy.rule(np.array([RATES]), horizon)
    assert isinstance(rule, GreedyRule)

    def run(paths: Paths) -> tuple[int, ...]:
        def uniform(state: Any) -> Undrawn:
            return Undrawn(paths, [0.0, 1.0])

        parts = {
            "uniform": uniform,
            "pick": as_python(block.pick, uniform=uniform),
            "_shown_arm": as_python(late_rewards._shown_arm, uniform=uniform),
            **replaced,
        }
        kernel = as_python(late_rewards._run_late, **parts)
        worth = Worth(np.ones((1, 2)), 0.0, np.cumsum(delays))
        setting = Setting(
            np.array([RATES]), np.ones(1), np.array([horizon]), np.zeros(4, np.uint64)
        )
        run = as_python(run_late_source, _run_late=kernel)
        shows, clicks, _ = run(kernel_rule(rule), True, worth, setting)
        return (*shows[-1, 0].tolist(), *clicks[-1, 0].tolist())

    return Paths().laws(run)


class _Source:
    """`as_python` takes what Numba compiled; this is the same for a plain function."""

    py_func = staticmethod(run_late)


run_late_source: Any = _Source


def _law_by_definition(policy: Any, delays: tuple[float, ...], horizon: int) -> Law:
    """A recursion over whole histories: each visitor's arm, click and delay."""
    law: Law = defaultdict(float)

    def visit(history: tuple[tuple[int, int, int], ...], chance: float) -> None:
        n = len(history) + 1
        if n > horizon:
            arms = [arm for arm, _, _ in history]
            hits = [(arm, hit) for arm, hit, _ in history]
            law[arms.count(0), arms.count(1), hits.count((0, 1)), hits.count((1, 1))] += chance
            return
        means = []
        for arm in (0, 1):
            known = [hit for a, hit, due in history if a == arm and due <= n]
            means.append(Fraction(sum(known), len(known)) if known else Fraction(0))
        greedy = 0.5 if means[0] == means[1] else float(means[0] > means[1])
        explored = policy(n)
        first = explored / 2 + (1 - explored) * greedy
        for arm, shown in ((0, first), (1, 1 - first)):
            for hit, clicked in ((1, RATES[arm]), (0, 1 - RATES[arm])):
                for late, slow in enumerate(delays):
                    if shown * clicked * slow > 0:
                        step = (arm, hit, n + 1 + late)
                        visit((*history, step), chance * shown * clicked * slow)

    visit((), 1.0)
    return law


def _off(one: Law, other: Law) -> float:
    return max(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in {*one, *other})


DELAYS = [(1.0,), (0.0, 1.0), (0.0, 0.0, 1.0), (0.4, 0.0, 0.6)]


@pytest.mark.parametrize("delays", DELAYS, ids=str)
def test_every_path_of_late_rewards_has_its_probability(delays: tuple[float, ...]) -> None:
    explored = 2 / (1 + np.exp(2.0))
    got = _law_of_the_kernel(Constant(2.0), delays, 4)
    assert _off(got, _law_by_definition(lambda n: explored, delays, 4)) < 1e-12


def test_a_reward_that_comes_a_visitor_too_early_would_be_seen() -> None:
    explored = 2 / (1 + np.exp(2.0))
    got = _law_of_the_kernel(Constant(2.0), (0.0, 1.0), 4)
    early = _law_by_definition(lambda n: explored, (1.0,), 4)
    assert _off(got, early) > 1e-3


def _in_the_late_kernel(job: SimulationJob, seed: int, repetition: int) -> Any:
    """An ordinary job by the kernel for late rewards, with none late."""
    rule = job.rule
    assert isinstance(rule, GreedyRule)
    state = generator_state(np.random.SeedSequence(seed, spawn_key=(repetition,)))
    setting = Setting(job.rates, job.arrival, job.checkpoints, state)
    worth = Worth(np.ones(job.rates.shape), 0.0, np.ones(1))
    return run_late(kernel_rule(rule), rule.on_segment_clock, worth, setting)[:2]


@pytest.mark.parametrize("policy", [Constant(2), Dynamic(3), EpsilonGreedy()])
def test_without_delay_it_is_the_leap_kernel_in_law(policy: Simulated) -> None:
    world = world_of((0.3, 0.35, 0.25), 3, 1200)
    late = sample(world, policy, "step", 2000, 1, _in_the_late_kernel)
    assert least_p_value(late, sample(world, policy, "leap", 2000, seed=2)) > NEVER


@pytest.mark.parametrize("delay", [20, (0.2, 0.0, 0.3, 0.0, 0.5)], ids=["fixed", "random"])
def test_a_learner_in_python_meets_the_same_delays(delay: Any) -> None:
    table = world_of((0.6, 0.3), 2, 100)
    world = Environment(table.rates, 100, table.shares, delay=delay)
    compiled = sample(world, Constant(3), "leap", 8_000, seed=1)
    learner = sample(world, Custom(Greedy, budget=3), "leap", 1_000, seed=2)
    assert least_p_value(learner, compiled) > NEVER


def test_a_delay_that_is_left_out_would_be_seen() -> None:
    world = Environment([0.6, 0.3], 200, delay=20)
    late = sample(world, Constant(3), "leap", 4_000, seed=1)
    at_once = Environment([0.6, 0.3], 200)
    assert least_p_value(sample(at_once, Constant(3), "leap", 4_000, 2), late) < NEVER


class Diary:
    """Writes down what it is told, and when."""

    written: list[tuple[str, int]] = []  # noqa: RUF012

    def __init__(self, n_arms: int, n_segments: int, horizon: int, rng: Any) -> None:
        self.written.clear()
        self.visitor = 0

    def choose(self, segment: int) -> int:
        self.visitor += 1
        self.written.append(("choose", self.visitor))
        return self.visitor % 2

    def update(self, segment: int, arm: int, reward: float) -> None:
        told = sum(kind == "update" for kind, _ in self.written) + 1
        assert arm == told % 2
        self.written.append(("update", told))


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_a_reward_is_told_before_the_visitor_after_its_delay(delay: int) -> None:
    simulate(Environment([0.5, 0.5], 8, delay=delay), [Custom(Diary)], repetitions=1, workers=1)
    for told in range(1, 8 - delay):
        at = Diary.written.index(("update", told))
        assert Diary.written.index(("choose", told + delay)) < at
        assert at < Diary.written.index(("choose", told + delay + 1))


SWAPPED: dict[str, Any] = {"changes": [(151, [0.2, 0.6])]}
ALL: list[Simulated] = [
    Constant(2),
    Dynamic(3),
    Constant(2, growth=1.5),
    Gittins(0.9),
    Random(),
    Perfect(),
]


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.label)
def test_leap_is_step_where_rates_change(policy: Simulated) -> None:
    world = Environment([0.6, 0.2], 400, **SWAPPED)
    leap = sample(world, policy, "leap", 2_000, seed=1)
    step = sample(world, policy, "step", 2_000, seed=2)
    assert least_p_value(leap, step) > NEVER


def test_a_learner_in_python_meets_the_same_changes() -> None:
    world = Environment([0.6, 0.2], 250, **SWAPPED)
    compiled = sample(world, Constant(2), "leap", 6_000, seed=1)
    learner = sample(world, Custom(Greedy, budget=2), "leap", 800, seed=2)
    assert least_p_value(learner, compiled) > NEVER
    still = sample(Environment([0.6, 0.2], 250), Constant(2), "leap", 2_000, seed=2)
    assert least_p_value(still, compiled) < NEVER


SURE = Environment([1.0, 0.0], 30, changes=[(11, [0.0, 1.0]), (21, [1.0, 0.0])], name="sure")


@pytest.mark.parametrize(
    "policy",
    [Perfect(), BestPrivate(20), Random(), Custom(Greedy), Joint(1)],
    ids=lambda policy: policy.label,
)
def test_clicks_and_regret_follow_the_rates_of_the_time(policy: Simulated) -> None:
    """Rates of 0 and 1: what is shown tells what is clicked and lost, visitor by visitor."""
    points = list(range(1, 31))
    result = simulate(SURE, [policy], repetitions=4, seed=3, checkpoints=points, workers=1)
    assert result.frame["visitors"].to_list() == points * 4
    for run in result.arms.partition_by("repetition"):
        shows = run["shows"].to_numpy().reshape(30, 2)
        new = np.diff(shows, axis=0, prepend=0)
        best = np.repeat([0, 1, 0], 10)
        clicked = np.cumsum(new[np.arange(30), best])
        mine = result.frame.filter(result.frame["repetition"] == run["repetition"][0])
        assert mine["clicks"].to_list() == clicked.tolist()
        assert mine["regret"].to_numpy() == pytest.approx(np.arange(1, 31) - clicked)
    if policy.name in ("perfect", "best-private"):
        assert result.final["regret"].sum() == 0


def test_only_checkpoints_that_were_asked_for_are_told() -> None:
    result = simulate(SURE, [Random()], repetitions=2, checkpoints=[15], workers=1)
    assert result.frame["visitors"].to_list() == [15, 30] * 2
    assert result.arms.height == 2 * 2 * 2
    short = simulate(SURE, [Perfect()], horizon=10, repetitions=1, workers=1)
    assert short.frame["clicks"].to_list() == [10]


WORTH = Environment([0.2, 0.1], 2_000, values=[1.0, 4.0], value_spread=0.8, name="shop")


def test_values_make_rewards() -> None:
    policies: list[Simulated] = [Random(), Perfect(), EpsilonGreedy()]
    policies.append(Custom(Greedy))
    result = simulate(WORTH, policies, repetitions=40, seed=1, workers=1)
    means = {row["policy"]: row for row in result.summary("reward").to_dicts()}
    assert means["perfect"]["mean"] == pytest.approx(2_000 * 0.4, rel=0.03)
    assert means["random"]["mean"] == pytest.approx(2_000 * 0.3, rel=0.03)
    assert means["random"]["mean"] < means["epsilon-greedy"]["mean"] < means["perfect"]["mean"]
    regret = {row["policy"]: row["mean"] for row in result.summary("regret").to_dicts()}
    assert regret["perfect"] == 0
    assert regret["random"] == pytest.approx(2_000 * 0.1, rel=0.03)
    # Rewards given the clicks: lognormal with mean 1 times the value, in every kernel.
    for rows in result.arms.partition_by("policy"):
        for arm, value in (("0", 1.0), ("1", 4.0)):
            mine = rows.filter(rows["arm"] == arm)
            clicks = int(mine["clicks"].sum())
            if clicks > 500:
                ratio = float(mine["reward"].to_numpy().sum()) / clicks / value
                assert abs(ratio - 1) < 6.2 * np.sqrt(np.expm1(0.8**2) / clicks)


def test_a_spread_of_none_is_the_value_itself() -> None:
    world = Environment([0.5, 0.4], 300, values=2.5)
    for policy in (Constant(1), Random(), Custom(Greedy)):
        _, clicks, rewards = run_outcome(make_job(world, policy), 1, 1)
        assert rewards is not None
        assert rewards == pytest.approx(2.5 * clicks)
    assert run_outcome(make_job(Environment([0.5, 0.4], 300), Random()), 1, 1)[2] is None


def test_with_equal_values_the_law_is_that_of_clicks() -> None:
    """Twice the worth of a click changes no comparison of arms."""
    plain = sample(Environment([0.3, 0.35], 600), Constant(2), "leap", 4_000, seed=1)
    world = Environment([0.3, 0.35], 600, values=2.0)
    doubled = sample(world, Constant(2), "leap", 4_000, seed=2, run=run_repetition)
    assert least_p_value(plain, doubled) > NEVER


@pytest.mark.parametrize("policy", [Gittins(), Joint(1), Constant(1, growth=2)])
def test_policies_that_learn_from_clicks_alone_say_so(policy: Simulated) -> None:
    cases: list[dict[str, Any]] = [{"delay": 3}, {"values": 2.0}]
    for more in cases:
        with pytest.raises(InvalidArgumentError) as caught:
            make_job(Environment([0.3, 0.2], 100, **more), policy)
        assert caught.value.argument == next(iter(more))
