"""A kept simulation is found by everything that its numbers depend on, and by nothing else."""

from __future__ import annotations

from pathlib import Path

from deniable.simulation.environment import Environment
from deniable.simulation.run import Case
from deniable.strategies.benchmarks import Random
from deniable.strategies.constant import Constant
from research.study import Context


def test_every_parameter_makes_another_run(tmp_path: Path) -> None:
    context = Context(kept=tmp_path)
    world = Environment([[0.3, 0.2], [0.1, 0.2]], 100, [0.5, 0.5], name="world")
    case = Case(world, Constant(1))
    others = [
        (Context(kept=tmp_path, seed=1), case, 5),
        (Context(kept=tmp_path, quick=True), case, 5),
        (context, case, 6),
        (context, Case(world, Random()), 5),
        (context, Case(world, Constant(2)), 5),
        (context, Case(world, Constant(1), 50), 5),
        (context, Case(world, Constant(1), None, (10,)), 5),
        (context, Case(Environment([[0.3, 0.2], [0.1, 0.3]], 100, name="world"), case.policy), 5),
        (context, Case(Environment(world.rates, 100, [0.4, 0.6], name="world"), case.policy), 5),
        (context, Case(Environment(world.rates, 100, name="other"), case.policy), 5),
    ]
    keys = [made._key([one], repetitions) for made, one, repetitions in others]
    first = context._key([case], 5)
    assert first == context._key([Case(world, Constant(1))], 5)
    assert len({first, *keys}) == 1 + len(others)
