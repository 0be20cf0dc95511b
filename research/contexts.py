"""What trackers know anyway against what costs a budget: six arms, four contexts, three segments.

Half of what differs is by context and half by segment (heterogeneity .6 of the variance in all), base
rate .05, lift .2. Gains as shares of what perfect information gains over random arms, sums over all
experiments. Experiments vary a lot by chance: the first 40 are worse for segments than the mean, by .03
even if click rates are known. So the last column says what known rates gain in the same experiments.

    python -m research.contexts [visitors] [experiments]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

from deniable.simulation.environment import Environment
from deniable.simulation.job import make_job, run_repetition
from deniable.strategies.joint import Joint
from deniable.strategies.joint_lp import best_table
from deniable.strategies.kernel_rules import Simulated
from deniable.strategies.pooled import Pooled
from deniable.strategies.unbounded import Unbounded

ARMS, CONTEXTS, SEGMENTS = 6, 4, 3
BASE_RATE, LIFT, BY_CONTEXT, BY_SEGMENT = 0.05, 0.2, 0.3, 0.3
SEED = 38


def worlds(visitors: int, experiments: int) -> Iterator[tuple[Environment, Environment]]:
    """Yield experiments as whoever sees contexts meets them, and as whoever sees segments does."""
    rng = np.random.default_rng(SEED)
    context, segment = np.divmod(np.arange(CONTEXTS * SEGMENTS), SEGMENTS)
    for _ in range(experiments):
        alike = rng.standard_normal(ARMS)
        own = [rng.standard_normal((n, ARMS)) for n in (CONTEXTS, SEGMENTS)]
        z = (
            np.sqrt(1 - BY_CONTEXT - BY_SEGMENT) * alike
            + np.sqrt(BY_CONTEXT) * own[0][context]
            + np.sqrt(BY_SEGMENT) * own[1][segment]
        )
        rates = np.clip(BASE_RATE * (1 + LIFT * z), BASE_RATE / 20, 1)
        seen = [
            Environment(rates, visitors, contexts=list(map(str, known))).by_context()
            for known in (context, segment)
        ]
        yield seen[0], seen[1]


def main(visitors: int, experiments: int) -> None:
    """Print the table."""
    told: dict[str, list[tuple[float, float]]] = {}
    possible_in_all = 0.0
    for run, (contexts, segments) in enumerate(worlds(visitors, experiments)):
        random = float(contexts.shares @ contexts.rates.mean(axis=1))
        possible_in_all += contexts.best_reward - random
        everybody = float((contexts.shares @ contexts.rates).max())
        table = best_table(segments.rates, 1.0, segments.shares)
        within = float(segments.shares @ (table * segments.rates).sum(axis=1))
        by_context = float(contexts.shares @ contexts.rates.max(axis=1))
        compared: tuple[tuple[str, Environment, Simulated, float], ...] = (
            ("one bandit for everybody", contexts, Pooled(), everybody),
            ("segments, joint, budget 1", segments, Joint(1.0), within),
            ("a bandit per context, risk 0", contexts, Unbounded(), by_context),
        )
        for name, world, policy, known in compared:
            shows, _ = run_repetition(make_job(world, policy), SEED, run)
            learned = float((shows[-1] * world.rates).sum()) / visitors
            told.setdefault(name, []).append((learned - random, known - random))
    for name, gains in told.items():
        learned, known = np.sum(gains, axis=0) / possible_in_all
        sys.stdout.write(f"{visitors:>9,} {name:30} {learned:.3f}, known rates {known:.3f}\n")


if __name__ == "__main__":
    main(*(int(float(text)) for text in sys.argv[1:3] or ("1e6", "40")))
