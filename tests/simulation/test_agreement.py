"""Leap against step in distribution: many settings, no flakes, and power against planted faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.simulation.two_samples import NEVER, least_p_value, sample

from deniable.policies.catalogue import POLICIES, Settings, policy_named
from deniable.policies.contract import GreedyRule, Policy
from deniable.simulation import _leap
from deniable.simulation._block import draw_totals, split_block, walk_block
from deniable.simulation._exploring import explore
from deniable.simulation._generator import generator_state
from deniable.simulation._samplers import hypergeometric
from deniable.simulation._step import step_visitors
from deniable.simulation.environment import Environment
from deniable.simulation.job import Job

REPETITIONS = 2000

TWO = [
    ((0.324, 0.295), 3000),
    ((0.1955, 0.195), 4000),
    ((0.5, 0.5), 700),
    ((0.001, 0.002), 6000),
    ((0.9, 0.85), 600),
    ((0.02, 0.03), 2000),
]
MORE = [
    ((0.3, 0.35, 0.25), 1500),
    ((0.1, 0.1, 0.12, 0.05), 2000),
    ((0.0027, 0.0022, 0.0013, 0.0026, 0.0011, 0.0025, 0.0046, 0.0053), 6000),
    ((0.6, 0.61, 0.59, 0.6, 0.62), 900),
]
RULES = [("constant", 0.05), ("constant", 1), ("constant", 3), ("dynamic", 1), ("dynamic", 5)]
OTHERS = ["epsilon-greedy", "gittins", "random", "perfect", "arm-constant", "arm-dynamic"]


def _policy(name: str, budget: float, n_arms: int) -> Policy:
    budgets = tuple(np.geomspace(0.5, 4, n_arms))
    return policy_named(name, Settings(budget, budgets, discount=0.99))


SETTINGS = [
    *((name, budget, rates, 1, horizon) for rates, horizon in TWO for name, budget in RULES),
    *((name, budget, rates, 1, horizon) for rates, horizon in MORE for name, budget in RULES[1:4]),
    *((name, 1, rates, 1, horizon) for rates, horizon in (TWO[0], MORE[0]) for name in OTHERS),
    *((name, 2, MORE[0][0], 3, 1200) for name in POLICIES),
]


def _world(rates: tuple[float, ...], segments: int, horizon: int) -> Environment:
    table = np.array([np.roll(rates, j) for j in range(segments)]).T
    shares = np.arange(1, segments + 1) / np.arange(1, segments + 1).sum()
    return Environment(table, horizon, shares)


def test_there_are_enough_settings() -> None:
    assert len(SETTINGS) >= 40
    assert {setting[0] for setting in SETTINGS} == set(POLICIES)


@pytest.mark.parametrize(
    ("name", "budget", "rates", "segments", "horizon"),
    SETTINGS,
    ids=[f"{s[0]}-{s[1]}-K{len(s[2])}-{s[2][0]}-J{s[3]}" for s in SETTINGS],
)
def test_leap_is_step_in_law(
    name: str, budget: float, rates: tuple[float, ...], segments: int, horizon: int
) -> None:
    world = _world(rates, segments, horizon)
    policy = _policy(name, budget, len(rates))
    leap = sample(world, policy, "leap", REPETITIONS, seed=1)
    step = sample(world, policy, "step", REPETITIONS, seed=2)
    assert least_p_value(leap, step) > NEVER


# Planted faults run the leap kernel as Python, with one of its parts replaced.


def _run_in_python(job: Job, seed: int, repetition: int) -> Any:
    rule = job.rule
    assert isinstance(rule, GreedyRule)
    n_segments, n_arms = job.rates.shape
    state = generator_state(np.random.SeedSequence(seed, spawn_key=(repetition,)))
    shows = np.zeros((n_segments, n_arms), np.int64)
    clicks = np.zeros((n_segments, n_arms), np.int64)
    clocks = np.zeros(1, np.int64)
    kinds = {"fixed": 0, "dynamic": 1, "arm-dynamic": 2}
    seen = []
    for done, point in zip((0, *job.checkpoints[:-1]), job.checkpoints, strict=True):
        _leap.leap_visitors.py_func(  # type: ignore[attr-defined]
            kinds[rule.kind],
            rule.exploring,
            rule.floor,
            rule.budgets,
            rule.turns,
            clocks,
            job.rates,
            job.arrival,
            int(point - done),
            shows,
            clicks,
            state,
        )
        seen.append((shows.copy(), clicks.copy()))
    return np.array([s for s, _ in seen]), np.array([c for _, c in seen])


def _accept_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_leap, "holds", lambda *arguments: True)


def _keep_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:

    def go_on(*arguments: Any) -> bool:
        walk_block(*arguments)
        return True

    monkeypatch.setattr(_leap, "walk_block", go_on)


def _first_tied_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(shows: Any, clicks: Any, leader: int, rank: int) -> int:
        return leader

    for name, function in (("step_visitors", step_visitors), ("draw_totals", draw_totals)):
        monkeypatch.setattr(_leap, name, _python(function, tied_arm=first))


def _python(function: Any, **replaced: Any) -> Any:
    """A compiled function as Python, with some of what it calls replaced."""
    source = function.py_func
    return type(source)(source.__code__, {**source.__globals__, **replaced}, source.__name__)


def _frozen_schedule(monkeypatch: pytest.MonkeyPatch) -> None:

    def at_the_start(kind: int, clock: int, *rest: Any) -> float:
        return float(explore(kind, max(1, clock // 4), *rest))

    monkeypatch.setattr(_leap, "explore", at_the_start)


def _off_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = hypergeometric

    def more(good: int, bad: int, size: int, state: Any) -> int:
        got = int(drawn(good, bad, size, state))
        return got + 1 if got < min(good, size) else got

    monkeypatch.setattr(_leap, "split_block", _python(split_block, hypergeometric=more))


def _long_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any length is exact; long blocks are full of changes, so that every part has work to do."""
    monkeypatch.setattr(_leap, "LONG", 0.0)  # no words of 64 visitors either
    length = _leap._quiet_length
    monkeypatch.setattr(_leap, "_quiet_length", lambda *rest: min(rest[-1], 40 + 8 * length(*rest)))


FAULTS = {
    "accepting a block too early": (_accept_early, "constant", 3, (0.3, 0.32, 0.1), 400),
    "not dropping the rest": (_keep_the_rest, "constant", 3, (0.3, 0.32, 0.1), 400),
    "wrong tie rule": (_first_tied_arm, "constant", 3, (0.05, 0.05, 0.05), 60),
    "wrong schedule": (_frozen_schedule, "dynamic", 4, (0.3, 0.32, 0.1), 400),
    "hypergeometric off by one": (_off_by_one, "constant", 3, (0.3, 0.32, 0.1), 400),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, name, budget, rates, horizon = FAULTS[fault]
    world = _world(rates, 1, horizon)
    policy = _policy(name, budget, len(rates))
    step = sample(world, policy, "step", REPETITIONS, seed=2)
    _long_blocks(monkeypatch)
    plant(monkeypatch)
    broken = sample(world, policy, "leap", REPETITIONS, seed=1, run=_run_in_python)
    assert least_p_value(broken, step) < NEVER


def test_the_same_harness_passes_without_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _world((0.3, 0.32, 0.1), 1, 400)
    policy = _policy("constant", 3, 3)
    step = sample(world, policy, "step", REPETITIONS, seed=2)
    _long_blocks(monkeypatch)
    sound = sample(world, policy, "leap", REPETITIONS, seed=1, run=_run_in_python)
    assert least_p_value(sound, step) > NEVER
