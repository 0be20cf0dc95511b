"""Learners in Python: their kernel against the compiled ones, posteriors; planted faults."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats
from scipy.integrate import quad
from tests.simulation.test_enumeration import grown
from tests.simulation.two_samples import NEVER, least_p_value, sample, world_of

from deniable import Constant, Custom, Environment, Random, simulate
from deniable.errors import InvalidArgumentError
from deniable.simulation.job import SimulationJob, make_job, run_repetition
from deniable.strategies.custom import ThompsonSampling, UpperConfidence
from deniable.strategies.kernel_rules import LearnerRule, Simulated

PAGE = Environment([0.3, 0.2], 50)
WORLD = world_of((0.5, 0.35, 0.2), 2, 150)
BUDGET = 2.0


class Greedy:
    """The paper's greedy arm, written for this test: clicks over shows, ties at random."""

    def __init__(self, n_arms: int, n_segments: int, horizon: int, rng: Any) -> None:
        self.rng = rng
        self.shows = [[0] * n_arms for _ in range(n_segments)]
        self.sums = [[0.0] * n_arms for _ in range(n_segments)]

    def choose(self, segment: int) -> int:
        means = [
            won / max(seen, 1)
            for won, seen in zip(self.sums[segment], self.shows[segment], strict=True)
        ]
        best = [arm for arm, mean in enumerate(means) if mean == max(means)]
        return best[self.rng.integers(len(best))] if len(best) > 1 else best[0]

    def update(self, segment: int, arm: int, reward: float) -> None:
        self.shows[segment][arm] += 1
        self.sums[segment][arm] += reward


class FirstOfTies(Greedy):
    """A fault: the first arm wins all ties."""

    def choose(self, segment: int) -> int:
        means = [
            won / max(seen, 1)
            for won, seen in zip(self.sums[segment], self.shows[segment], strict=True)
        ]
        return means.index(max(means))


class SharesWhatItLearns(Greedy):
    """A fault: what one segment does is learned for the first."""

    def update(self, segment: int, arm: int, reward: float) -> None:
        super().update(0, arm, reward)


def _less_explored(job: SimulationJob, seed: int, repetition: int) -> Any:
    assert isinstance(job.rule, LearnerRule)
    rule = replace(job.rule, explored=0.8 * job.rule.explored)
    return run_repetition(replace(job, rule=rule), seed, repetition)


@pytest.fixture(scope="module")
def compiled() -> Any:
    """The leap kernel's law of the constant strategy."""
    return sample(WORLD, Constant(BUDGET), "leap", 8_000, seed=1)


def test_a_learner_through_randomized_response_is_the_constant_strategy(compiled: Any) -> None:
    policy = Custom(Greedy, budget=BUDGET)
    assert least_p_value(sample(WORLD, policy, "leap", 1_000, seed=2), compiled) > NEVER


@pytest.mark.parametrize("fault", ["ties", "segments", "mechanism"])
def test_a_planted_fault_is_found(compiled: Any, fault: str) -> None:
    kind = {"ties": FirstOfTies, "segments": SharesWhatItLearns}.get(fault, Greedy)
    run = _less_explored if fault == "mechanism" else run_repetition
    policy = Custom(kind, budget=BUDGET)
    assert least_p_value(sample(WORLD, policy, "leap", 1_000, 2, run), compiled) < NEVER


def _beats(a: tuple[int, int], b: tuple[int, int]) -> float:
    """P(Beta(a) > Beta(b)), by integration."""
    value, _ = quad(lambda x: stats.beta.pdf(x, *a) * stats.beta.cdf(x, *b), 0, 1)
    return float(value)


def _thompson_law(rates: tuple[float, float], horizon: int) -> dict[tuple[int, ...], float]:
    law: dict[tuple[int, ...], float] = {(0, 0, 0, 0): 1.0}
    for _ in range(horizon):
        after: dict[tuple[int, ...], float] = defaultdict(float)
        for counts, chance in law.items():
            n0, n1, c0, c1 = counts
            first = _beats((1 + c0, 1 + n0 - c0), (1 + c1, 1 + n1 - c1))
            for arm, shown in ((0, first), (1, 1 - first)):
                for hit, clicked in ((1, rates[arm]), (0, 1 - rates[arm])):
                    after[grown(counts, arm, hit)] += chance * shown * clicked
        law = after
    return law


@pytest.mark.parametrize("wrong", [False, True])
def test_thompson_sampling_has_its_law(wrong: bool) -> None:
    """Against all paths of four visitors; with a prior that is not uniform it is found out."""
    rates, horizon, repetitions = (0.7, 0.3), 4, 3_000
    job = make_job(Environment(rates, horizon), Custom(_TooSure if wrong else _Thompson))
    seen: dict[tuple[int, ...], int] = defaultdict(int)
    for repetition in range(repetitions):
        shows, clicks = run_repetition(job, 1, repetition)
        seen[(*shows[-1, 0].tolist(), *clicks[-1, 0].tolist())] += 1
    law = _thompson_law(rates, horizon)
    assert set(seen) <= set(law)
    cells = sorted(law)
    p = stats.chisquare(
        [seen[cell] for cell in cells], [repetitions * law[cell] for cell in cells]
    ).pvalue
    assert bool(p < NEVER) is wrong


class _Thompson(ThompsonSampling):
    pass


class _TooSure(ThompsonSampling):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._won *= 4


def test_ucb_shows_the_highest_bound() -> None:
    learner = UpperConfidence(3, 1, 100, np.random.default_rng(1))
    shows, sums = [0, 0, 0], [0.0, 0.0, 0.0]
    rng = np.random.default_rng(2)
    for n in range(200):
        bounds = [
            s / k + math.sqrt(2 * math.log(n) / k) if k else math.inf
            for s, k in zip(sums, shows, strict=True)
        ]
        arm = learner.choose(0)
        assert arm == bounds.index(max(bounds))
        reward = float(rng.random() < (0.2, 0.5, 0.4)[arm])
        learner.update(0, arm, reward)
        shows[arm] += 1
        sums[arm] += reward
    assert max(shows) == shows[1]


def test_privacy_costs_clicks() -> None:
    world = Environment([[0.5, 0.2, 0.2]] * 3, 3_000)
    policies: list[Simulated] = [
        Custom(ThompsonSampling),
        Custom(ThompsonSampling, budget=0.5),
        Random(),
    ]
    result = simulate(world, policies, repetitions=4, seed=1, workers=1)
    free, response, random = result.summary("regret")["mean"].to_list()
    assert free < response < random
    labels = ["thompson", "thompson-response(0.5)", "random"]
    assert [policy.label for policy in policies] == labels
    assert [policy.risk_cap for policy in policies] == [math.inf, 0.5, 0.0]


def test_learners_meet_the_same_visitors() -> None:
    world = world_of((0.5, 0.5), 2, 400)
    same = [Custom(Greedy, name="a"), Custom(Greedy, name="b")]
    result = simulate(world, same, repetitions=3, seed=1, workers=1)
    one, other = (rows.drop("policy") for rows in result.frame.partition_by("policy"))
    assert one.equals(other)
    # Arms that click alike, whatever is shown: every visitor's click is the same for both.
    policies = [Custom(Greedy), Custom(UpperConfidence)]
    result = simulate(world, policies, repetitions=3, seed=1, workers=1)
    greedy, ucb = (rows["clicks"].to_list() for rows in result.frame.partition_by("policy"))
    assert greedy == ucb
    assert result.arms["shows"].to_list()[:4] != result.arms["shows"].to_list()[12:16]


class WrongArm(Greedy):
    def choose(self, segment: int) -> Any:
        return 2


class NoArm(Greedy):
    def choose(self, segment: int) -> Any:
        return None


class OnlyChooses:
    def __init__(self, *_setting: object) -> None: ...

    def choose(self, segment: int) -> int:
        return 0


@pytest.mark.parametrize(
    ("policy", "argument"),
    [
        (Custom(WrongArm), "learner"),
        (Custom(NoArm), "learner"),
        (Custom(OnlyChooses), "learner"),  # type: ignore[arg-type]
    ],
    ids=["an arm that is not there", "no arm", "no update"],
)
def test_what_a_learner_does_wrong_is_told(policy: Custom, argument: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        simulate(Environment([0.3, 0.2], 200), [policy], repetitions=1, workers=1)
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"learner": "thompson"}, "learner"),
        ({"learner": Greedy, "name": 3}, "name"),
        ({"learner": Greedy, "budget": -1}, "budget"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(given: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Custom(**given)
    assert caught.value.argument == argument


def test_a_learner_that_cannot_be_sent_runs_here(tmp_path: Path) -> None:
    """A lambda, and a class of a notebook: no process is started for them, and none can fail."""
    policy = Custom(lambda *given: Greedy(*given), name="mine")
    result = simulate(PAGE, [policy], repetitions=3, seed=1)
    assert result.frame["policy"].to_list() == ["mine"] * 3
    with pytest.raises(InvalidArgumentError, match="learner"):
        simulate(PAGE, [policy], repetitions=3, seed=1, folder=tmp_path / "kept")
    assert pickle.loads(pickle.dumps(Custom(Greedy))) == Custom(Greedy)


NOTEBOOK = """
import deniable
class Always:
    name = "always"
    def __init__(self, n_arms, n_segments, horizon, rng): pass
    def choose(self, segment): return 1
    def update(self, segment, arm, reward): pass
page = deniable.Environment([0.3, 0.2], 20)
found = deniable.simulate(page, [deniable.Custom(Always)], repetitions=2, workers=2)
print(found.arms["shows"].to_list())
"""


def test_a_notebooks_learner_runs() -> None:
    """As in a notebook: the class is in a `__main__` that is no file."""
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[0, 20, 0, 20]"


def test_results_are_kept_and_taken_up(tmp_path: Path) -> None:
    policies = [Custom(Greedy), Custom(Greedy, budget=1)]
    whole = simulate(WORLD, policies, repetitions=6, seed=1, workers=1)
    folder = tmp_path / "kept"
    simulate(WORLD, policies, repetitions=2, seed=1, workers=1, folder=folder)
    again = simulate(WORLD, policies, repetitions=6, seed=1, workers=1, folder=folder)
    assert again.frame.equals(whole.frame)
    assert again.frame["reward"].dtype == pl.Float64
