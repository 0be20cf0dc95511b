"""Speed of the joint strategy: the programme, the rule at its largest, a long simulated run.

CPU time, which a busy machine changes little. What the strategy gains: `research/`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from benchmarks.timing import row
from deniable.privacy.joint_table import integer_table
from deniable.simulation.environment import Environment
from deniable.simulation.job import make_job, run_repetition
from deniable.strategies.joint import Joint
from deniable.strategies.joint_lp import lowest_ratio, proved_table, solve, workspace
from deniable.strategies.joint_rule import joint_table


def main() -> bool:
    """Print every figure beside its limit."""
    rng = np.random.default_rng(1)
    held = []
    rates, shares = rng.uniform(0.02, 0.08, (20, 50)), rng.dirichlet(np.ones(20))
    values, weakest, table = (
        (shares[:, None] * rates).T.copy(),
        lowest_ratio(1.0, 50),
        np.empty((50, 20)),
    )
    space = workspace(50, 20)
    took = _cpu(lambda: solve(values, weakest, 1e-10, False, space, table))
    held.append(row("best table, K = 50, J = 20", 1e3 * took, "ms", 1.0))
    gap = max(proved_table(rates, shares, budget).gap for budget in (0.1, 0.5, 1, 3))
    held.append(row("its dual gap", gap, "", 1e-9))
    shows = rng.poisson(200, (200, 200))
    clicks = rng.binomial(shows, 0.05)
    took = _cpu(
        lambda: integer_table(joint_table(shows, clicks, 10**8, 1.0).tolist(), 10**9), repeats=1
    )
    held.append(row("rule and rounding, 200 x 200", took, "s", 10.0))
    world = Environment(rng.uniform(0.02, 0.08, (5, 8)), 10**8, np.full(5, 0.2))
    job = make_job(world, Joint(1))
    took = _cpu(lambda: run_repetition(job, 1, 1))
    held.append(row("one run, T = 1e8, K = 8, J = 5", 1e3 * took, "ms", 20.0))
    return all(held)


def _cpu(work: Callable[[], object], repeats: int = 15) -> float:
    """Median CPU time of one call, after one call to warm up."""
    work()
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
