"""The comparison of leap and step has power: one fault in one part of the leap kernel, and it fails.

The kernel runs as Python, with one of its parts replaced, in blocks of a constant exploration and of a
falling one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.simulation.plain_python import as_python
from tests.simulation.two_samples import NEVER, Samples, least_p_value, named, sample, world_of

from deniable.simulation.job import SimulationJob, kernel_rule
from deniable.simulation.kernels import block, leap, step
from deniable.simulation.kernels.exploration import explore
from deniable.simulation.kernels.random_numbers import generator_state, hypergeometric
from deniable.simulation.kernels.run import leap_space
from deniable.simulation.kernels.state import World
from deniable.strategies.kernel_rules import GreedyRule

REPETITIONS = 2000
TWO, THREE = (0.3, 0.32), (0.3, 0.32, 0.1)
Parts = dict[str, Any]


def _run_in_python(job: SimulationJob, seed: int, repetition: int) -> Any:
    rule = job.rule
    assert isinstance(rule, GreedyRule)
    state = generator_state(np.random.SeedSequence(seed, spawn_key=(repetition,)))
    shows, clicks = np.zeros(job.rates.shape, np.int64), np.zeros(job.rates.shape, np.int64)
    clocks = np.zeros(1, np.int64)
    world = World(job.rates, job.arrival, shows, clicks, clocks, state)
    n_segments, n_arms = job.rates.shape
    space = leap_space(n_segments, n_arms, 1)
    seen = []
    for done, point in zip((0, *job.checkpoints[:-1]), job.checkpoints, strict=True):
        visit = as_python(leap.leap_visitors)
        visit(kernel_rule(rule), int(point - done), space, world)
        seen.append((shows.copy(), clicks.copy()))
    return np.array([s for s, _ in seen]), np.array([c for _, c in seen])


# Any block length is exact; long ones are full of changes: every part has work.


def _blocks(settle: Parts, **parts: Any) -> Parts:
    length, falling = leap._quiet_length, leap._schedule_length
    return {
        "_schedule_length": lambda *rest: 40 + 4 * falling(*rest),
        "_quiet_length": lambda *rest: min(rest[-1], 40 + 8 * length(*rest)),
        "settle_block": as_python(block.settle_block, **settle),
        **parts,
    }


# The faults.


def _yes(*arguments: Any) -> bool:
    return True


def _first_tied(shows: Any, clicks: Any, segment: int, leader: int, rank: int) -> int:
    return leader


def _one_more(good: int, bad: int, size: int, state: Any) -> int:
    got = int(hypergeometric(good, bad, size, state))
    return got + 1 if got < min(good, size) else got


def _early_explore(rule: Any, clock: int, out: Any) -> float:
    """The exploration of an earlier clock."""
    return float(explore(rule, max(1, clock // 4), out))


def _keep_going(function: Any) -> Any:
    def go_on(*arguments: Any) -> bool:
        function(*arguments)
        return True

    return go_on


NO_FAULT: dict[str, tuple[Parts, str, float, tuple[float, ...], int]] = {
    "blocks": (_blocks({}), "constant", 3, THREE, 400),
    "blocks of two arms": (_blocks({}), "constant", 3, TWO, 400),
    "blocks of a falling schedule": (_blocks({}), "dynamic", 4, THREE, 400),
}
_off = {"_split_block": as_python(block._split_block, hypergeometric=_one_more)}
_ties = {
    "step_visitors": as_python(step.step_visitors, tied_arm=_first_tied),
    "draw_totals": as_python(block.draw_totals, tied_arm=_first_tied),
}
_late = {
    "explore": _early_explore,
    "_draw_undecided": as_python(leap._draw_undecided, explore=_early_explore),
}
_rest = {"_walk_block": _keep_going(block._walk_block)}
_all_greedy = as_python(leap._draw_undecided, uniform=lambda state: 0.0)
_all_early = as_python(leap._draw_undecided, failures_before_success=lambda scale, state: 0)
_uncounted = {"_sum_part": lambda blocks, part, first, stop: block._sum_part(blocks, part, 0, 0)}
_few = (0.05, 0.05, 0.05)
FAULTS: dict[str, tuple[Parts, str, float, tuple[float, ...], int]] = {
    "accepting a block too early": (_blocks({"_holds": _yes}), "constant", 3, THREE, 400),
    "not dropping the rest": (_blocks(_rest), "constant", 3, THREE, 400),
    "wrong tie rule": (_blocks({}, **_ties), "constant", 3, _few, 60),
    "wrong schedule": (_blocks({}, **_late), "arm-dynamic", 4, THREE, 400),
    "hypergeometric off by one": (_blocks(_off), "constant", 3, THREE, 400),
    "two arms: accepting too early": (_blocks({"_holds": _yes}), "constant", 3, TWO, 400),
    "two arms: not dropping the rest": (_blocks(_rest), "constant", 3, TWO, 400),
    "falling: accepting too early": (_blocks({"_holds": _yes}), "dynamic", 4, THREE, 400),
    "falling: wrong schedule": (_blocks({}, **_late), "dynamic", 4, THREE, 400),
    "falling: the undecided all see the greedy arm": (
        _blocks({}, _draw_undecided=_all_greedy),
        "dynamic",
        4,
        THREE,
        400,
    ),
    "falling: everybody is undecided": (
        _blocks({}, _draw_undecided=_all_early),
        "dynamic",
        4,
        THREE,
        400,
    ),
    "falling: the undecided are not counted": (_blocks(_uncounted), "dynamic", 4, THREE, 400),
}


@cache
def _stepped(name: str, budget: float, rates: tuple[float, ...], horizon: int) -> Samples:
    """What several faults are compared with."""
    policy = named(name, budget, len(rates))
    return sample(world_of(rates, 1, horizon), policy, "step", REPETITIONS, seed=2)


def _p_values(
    case: Any, parts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> Iterator[float]:
    """After so many repetitions, one part after the other."""
    replaced, name, budget, rates, horizon = case
    world = world_of(rates, 1, horizon)
    policy = named(name, budget, len(rates))
    stepped = _stepped(name, budget, rates, horizon)
    leapt = stepped[:0]
    for part in parts:
        with monkeypatch.context() as patch:
            for place, replacement in replaced.items():
                patch.setattr(leap, place, replacement)
            wanted = range(len(leapt), part)
            more = sample(world, policy, "leap", wanted, seed=1, run=_run_in_python)
        leapt = np.concatenate([leapt, more])
        yield least_p_value(leapt, stepped[:part])


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of them already in a part of the repetitions: the whole has more power."""
    parts = (REPETITIONS // 8, REPETITIONS // 2, REPETITIONS)
    assert any(found < NEVER for found in _p_values(FAULTS[fault], parts, monkeypatch))


@pytest.mark.parametrize("way", NO_FAULT)
def test_the_same_harness_passes_without_a_fault(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = _p_values(NO_FAULT[way], (REPETITIONS,), monkeypatch)
    assert found > NEVER
