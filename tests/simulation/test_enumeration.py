"""The step kernel against all paths: its exact law for tiny T, from its own source, to 1e-12.

The kernel's source is run as Python on uniform numbers that are not yet drawn: each comparison splits
their interval, and every branch is followed with its probability. The other side is a recursion over
visitors, written from the definition with fractions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.simulation.plain_python import as_python

from deniable.simulation.job import kernel_rule
from deniable.simulation.kernels import step
from deniable.simulation.kernels.state import Leaders, StepSpace, World
from deniable.simulation.scenario import Settings, policy_named
from deniable.strategies.constant import Constant
from deniable.strategies.dynamic import Dynamic
from deniable.strategies.kernel_rules import GreedyRule

Law = dict[tuple[int, ...], float]


class Undrawn:
    """scale * U + shift for a U that is uniform on what earlier comparisons have left of [0, 1)."""

    def __init__(self, paths: Paths, box: list[float], scale: float = 1.0, shift: float = 0.0):
        self.paths, self.box, self.scale, self.shift = paths, box, scale, shift

    def __mul__(self, factor: float) -> Undrawn:
        return Undrawn(self.paths, self.box, self.scale * factor, self.shift * factor)

    def __sub__(self, term: float) -> Undrawn:
        return Undrawn(self.paths, self.box, self.scale, self.shift - term)

    def __lt__(self, limit: float) -> bool:
        cut = (limit - self.shift) / self.scale
        low, high = self.box
        if cut >= high or cut <= low:
            return cut >= high
        below = self.paths.choose((cut - low) / (high - low))
        self.box[:] = [low, cut] if below else [cut, high]
        return below

    def __ge__(self, limit: float) -> bool:
        return not self < limit

    def __int__(self) -> int:
        whole = 0
        while not self < whole + 1:
            whole += 1
        return whole


class Paths:
    """Depth-first through all branches: the first way is taken where a path has no script."""

    def __init__(self) -> None:
        self.script: list[tuple[bool, float]] = []
        self.step = 0

    def choose(self, probability: float) -> bool:
        if self.step == len(self.script):
            self.script.append((True, probability))
        way, _ = self.script[self.step]
        self.step += 1
        return way

    def laws(self, run: Callable[[Paths], tuple[int, ...]]) -> Law:
        law: Law = defaultdict(float)
        while True:
            self.step = 0
            result = run(self)
            chance = 1.0
            for way, probability in self.script:
                chance *= probability if way else 1 - probability
            law[result] += chance
            while self.script and not self.script[-1][0]:
                self.script.pop()
            if not self.script:
                return law
            self.script[-1] = (False, self.script[-1][1])


def _from_source(name: str, budget: float, rates: tuple[float, float], horizon: int) -> Law:
    rule = policy_named(name, Settings(budget)).rule(np.array([rates]), horizon)
    assert isinstance(rule, GreedyRule)

    def run(paths: Paths) -> tuple[int, ...]:
        def uniform(state: Any) -> Undrawn:
            return Undrawn(paths, [0.0, 1.0])

        visit = as_python(step.step_visitors, uniform=uniform)
        shows, clicks = np.zeros((1, 2), np.int64), np.zeros((1, 2), np.int64)
        leaders = Leaders(np.zeros(1, np.int64), np.zeros(1, np.int64))
        space = StepSpace(np.zeros((1, 2)), np.zeros(1), np.zeros(1, np.int64))
        clocks, state = np.zeros(1, np.int64), np.zeros(4, np.uint64)
        world = World(np.array([rates]), np.ones(1), shows, clicks, clocks, state)
        visit(kernel_rule(rule), horizon, leaders, space, world)
        return (*shows[0].tolist(), *clicks[0].tolist())

    return Paths().laws(run)


def _from_definition(name: str, budget: float, rates: tuple[float, float], horizon: int) -> Law:
    strategy = {"constant": Constant, "dynamic": Dynamic}[name](budget)
    law: Law = {(0, 0, 0, 0): 1.0}
    for clock in range(1, horizon + 1):
        after: Law = defaultdict(float)
        explored = float(strategy.exploration(clock, 2))
        for counts, chance in law.items():
            n0, n1, c0, c1 = counts
            q0 = Fraction(c0, n0) if n0 else Fraction(0)
            q1 = Fraction(c1, n1) if n1 else Fraction(0)
            greedy = 0.5 if q0 == q1 else float(q0 > q1)
            first = explored / 2 + (1 - explored) * greedy
            for arm, shown in ((0, first), (1, 1 - first)):
                for hit, clicked in ((1, rates[arm]), (0, 1 - rates[arm])):
                    after[grown(counts, arm, hit)] += chance * shown * clicked
        law = after
    return law


def grown(counts: tuple[int, ...], arm: int, hit: int) -> tuple[int, ...]:
    """Shows and clicks of two arms after one more visitor."""
    more = [*counts]
    more[arm] += 1
    more[2 + arm] += hit
    return tuple(more)


@pytest.mark.parametrize(
    ("name", "budget", "rates", "horizon"),
    [
        ("constant", 1.0, (0.3, 0.6), 1),
        ("constant", 1.0, (0.3, 0.6), 4),
        ("constant", 3.0, (0.324, 0.295), 5),
        ("dynamic", 0.2, (0.5, 0.5), 4),
        ("dynamic", 3.0, (0.9, 0.1), 5),
        ("constant", 0.5, (1.0, 0.25), 6),
    ],
)
def test_every_path_has_its_probability(
    name: str, budget: float, rates: tuple[float, float], horizon: int
) -> None:
    got = _from_source(name, budget, rates, horizon)
    want = _from_definition(name, budget, rates, horizon)
    for key in set(got) | {key for key, chance in want.items() if chance > 0}:
        assert abs(got.get(key, 0.0) - want.get(key, 0.0)) < 1e-12, key


def test_a_wrong_tie_rule_would_be_seen() -> None:
    got = _from_source("constant", 1.0, (0.3, 0.6), 2)
    want = dict(_from_definition("constant", 1.0, (0.3, 0.6), 2))
    shifted = {**want, (2, 0, 1, 0): want[2, 0, 1, 0] + 1e-9}
    assert max(abs(got[key] - chance) for key, chance in want.items()) < 1e-12
    assert max(abs(got[key] - chance) for key, chance in shifted.items()) > 1e-10
