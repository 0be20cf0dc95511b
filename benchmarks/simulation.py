"""The simulator: the times that README and docs/simulate.md quote, and the first compilation.

Times are processor time of one thread, so that a busy machine does not matter.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks.timing import row
from deniable.datasets import RECOMMENDATION_RATES
from deniable.simulation.environment import Environment
from deniable.simulation.job import Kernel, make_job, run_from
from deniable.simulation.kernels.random_numbers import generator_state
from deniable.strategies.benchmarks import Gittins
from deniable.strategies.constant import Constant
from deniable.strategies.dynamic import Dynamic
from deniable.strategies.kernel_rules import Simulated

CLEAR, NEAR, EQUAL = (0.324, 0.295), (0.1955, 0.195), (0.2, 0.2)

LEAPS: tuple[tuple[tuple[float, ...], float, Simulated, float], ...] = (
    *((CLEAR, 1e8, Constant(budget), 0.4) for budget in (0.05, 1, 3, 5)),
    *((CLEAR, 1e8, Dynamic(budget), 2.0) for budget in (0.05, 1, 3, 5)),
    *((NEAR, 1e8, Constant(budget), 20.0) for budget in (0.05, 1, 3, 5)),
    *((NEAR, 1e8, Dynamic(budget), 20.0) for budget in (0.05, 1, 3, 5)),
    *((NEAR, horizon, Constant(1), 20.0) for horizon in (1e6, 1e10)),
    *((EQUAL, horizon, Constant(1), limit) for horizon, limit in ((1e6, 8.0), (1e8, 100.0))),
    *((EQUAL, horizon, Dynamic(3), limit) for horizon, limit in ((1e6, 8.0), (1e8, 100.0))),
    *((RECOMMENDATION_RATES, 1e6, make(3), 3.0) for make in (Constant, Dynamic)),
    (CLEAR, 1e6, Gittins(), 1.0),
)
"""Click rates, visitors, strategy, and the limit in milliseconds: twice what was measured, or more."""

COMPILE = """
import time
from deniable import Constant, Dynamic, Environment, simulate
import deniable.simulation.kernels.run
start = time.process_time()
strategies = [Constant(3), Dynamic(3)]
simulate(Environment([0.324, 0.295], 10**4), strategies, repetitions=1, workers=1)
print(time.process_time() - start)
"""


def main() -> bool:
    """Print every row; True where all limits hold."""
    return all([*_leaps(), _late(), _against_step(), _first_compilation()])


def milliseconds(
    world: Environment, strategy: Simulated, kernel: Kernel, repeats: int
) -> tuple[float, float]:
    """The median and the mean processor time of one repetition."""
    job = make_job(world, strategy, kernel=kernel)
    times = []
    for seed in range(-1, repeats):
        state = generator_state(np.random.SeedSequence(seed + 1))
        start = time.thread_time()
        run_from(job, state)
        times.append(1000 * (time.thread_time() - start))
    return statistics.median(times[1:]), statistics.fmean(times[1:])  # the first one compiles


def _leaps() -> list[bool]:
    held = []
    for rates, horizon, strategy, limit in LEAPS:
        median, mean = milliseconds(Environment(rates, int(horizon)), strategy, "leap", 101)
        shown = f"{rates[0]:.4g}/{rates[1]:.4g}" if len(rates) == 2 else f"{len(rates)} arms"
        name = f"leap, {shown}, T={horizon:.0e}, {strategy.label} (median {median:.2g})"
        held.append(row(name, mean, "ms", limit))
    return held


def _late() -> bool:
    world = Environment(CLEAR, 10**5, delay=[0.5, 0.3, 0.2])
    _, mean = milliseconds(world, Constant(3), "leap", 21)
    return row("late rewards, T=1e5", mean, "ms", 20)


def _against_step() -> bool:
    world = Environment(CLEAR, 10**6)
    leap, _ = milliseconds(world, Constant(3), "leap", 101)
    step, _ = milliseconds(world, Constant(3), "step", 5)
    name = f"step / leap, T=1e6 ({step:.3g} ns a visitor by steps)"
    return row(name, step / leap, "x", 50, at_least=True)


def _first_compilation() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        kept = {**os.environ, "DENIABLE_CACHE": folder}
        command = [sys.executable, "-c", COMPILE]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=kept)
    return row("first compilation", float(done.stdout), "s", 20)
