"""Two-sample tests with thresholds that never flake: is one simulator the other, in law?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from deniable.simulation.environment import Environment
from deniable.simulation.job import Kernel, SimulationJob, make_job, run_repetition
from deniable.simulation.scenario import Settings, policy_named
from deniable.strategies.kernel_rules import Simulated

Samples = NDArray[np.float64]
NEVER = 1e-9


def named(name: str, budget: float, n_arms: int) -> Simulated:
    """A policy; arms that need budgets of their own get some between .5 and 4."""
    budgets = tuple(np.geomspace(0.5, 4, n_arms))
    return policy_named(name, Settings(budget, budgets, discount=0.99))


def world_of(rates: tuple[float, ...], segments: int, horizon: int) -> Environment:
    """Segments of unequal shares, each with the rates in another order."""
    table = np.array([np.roll(rates, j) for j in range(segments)])
    shares = np.arange(1, segments + 1) / np.arange(1, segments + 1).sum()
    return Environment(table, horizon, shares)


def sample(
    environment: Environment,
    policy: Simulated,
    kernel: Kernel,
    repetitions: int | range,
    seed: int,
    run: Callable[[SimulationJob, int, int], Any] = run_repetition,
) -> Samples:
    """Per repetition: shows and clicks by arm and segment, at T/5 and at T, and total clicks."""
    job = make_job(environment, policy, checkpoints=[-(-environment.horizon // 5)], kernel=kernel)
    wanted = range(repetitions) if isinstance(repetitions, int) else repetitions
    runs = np.array([run(job, seed, repetition) for repetition in wanted])
    shows, clicks = runs.swapaxes(0, 1)
    columns = (*(part.reshape(len(runs), -1) for part in (shows, clicks)), clicks.sum(axis=(2, 3)))
    return np.concatenate(columns, axis=1).astype(np.float64)


def least_p_value(one: Samples, other: Samples) -> float:
    """The smallest p-value over the columns, times their number: chi-square on shared bins."""
    columns = [_p_value(one[:, i], other[:, i]) for i in range(one.shape[1])]
    return min(1.0, min(columns) * len(columns))


def _p_value(one: Samples, other: Samples, bins: int = 12) -> float:
    pooled = np.concatenate([one, other])
    cuts = np.unique(np.quantile(pooled, np.linspace(0, 1, bins + 1)[1:-1]))
    counts = np.array(
        [
            np.bincount(np.searchsorted(cuts, x, "left"), minlength=cuts.size + 1)
            for x in (one, other)
        ]
    )
    counts = counts[:, counts.sum(axis=0) > 0]
    while counts.shape[1] > 1 and counts.sum(axis=0).min() < 40:
        thin = int(counts.sum(axis=0).argmin())
        into = thin - 1 if thin > 0 else 1
        counts[:, into] += counts[:, thin]
        counts = np.delete(counts, thin, axis=1)
    if counts.shape[1] < 2:
        return 1.0
    return float(stats.chi2_contingency(counts, correction=False).pvalue)
