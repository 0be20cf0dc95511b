"""What publishing costs in learning: tables instead of per-visitor updates.

``python -m benchmarks.published_learning [STRATEGY-ARMS] [GROWTH ...]`` prints a Markdown table, by the
service's own rule or for other growths; only for one strategy and number of arms if given, such as
dynamic-20. Seeds are fixed and repetitions go on until the standard error is small, so load does not
change a number.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import product

import numpy as np

from benchmarks.timing import row
from deniable.simulation.environment import Environment
from deniable.simulation.job import make_job, run_repetition
from deniable.strategies.constant import Constant
from deniable.strategies.dynamic import Dynamic
from deniable.strategies.kernel_rules import Growth

VISITORS = 100_000
LIMIT = 0.03
"""Learning that publishing in batches may lose, as a part of the regret of per-visitor updates."""

BATCHES = [*product((2, 5, 10, 20), (1, 3, 5), (0.5, 2.0, 5.0)), *product((10,), (20,), (1.0, 5.0))]
_MOST, _STEP = 8_000, 400

Private = Constant | Dynamic


def page(n_arms: int, n_segments: int, visitors: int = VISITORS, base: float = 0.1) -> Environment:
    """Click rates from 80% to 120% of the base; segments have different best arms, if possible."""
    rates = np.linspace(1.2 * base, 0.8 * base, n_arms)
    turn = max(1, n_arms // n_segments)
    return Environment(
        np.array([np.roll(rates, turn * j) for j in range(n_segments)]),
        visitors,
        name=f"{n_arms} arms, {n_segments} segments",
    )


def regret(world: Environment, policy: Private, precision: float) -> tuple[float, float]:
    """Mean regret and its standard error, at most `precision` of the mean."""
    job = make_job(world, policy)
    lost = job.rates.max(axis=1, keepdims=True) - job.rates
    found: list[float] = []
    while True:
        for repetition in range(len(found), len(found) + _STEP):
            shows, _ = run_repetition(job, 1, repetition)
            found.append(float((shows[-1] * lost).sum()))
        mean, error = float(np.mean(found)), float(np.std(found)) / math.sqrt(len(found))
        if error <= precision * mean or len(found) >= _MOST:
            return mean, error


def increase(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """By which part the first mean is above the second, and its standard error."""
    ratio = one[0] / other[0]
    return ratio - 1, ratio * math.hypot(one[1] / one[0], other[1] / other[0])


def batches(growths: Sequence[Growth], wanted: Sequence[str] = ()) -> list[float]:
    """Print regret lost by publishing; returns what is lost at the first growth."""
    heads = " | ".join(f"growth {growth}" for growth in growths)
    print(f"| strategy | arms | segments | budget | regret | {heads} |")
    print("|---" * (5 + len(growths)) + "|")
    losses: list[float] = []
    for kind in (Constant, Dynamic):
        for n_arms, n_segments, budget in BATCHES:
            if wanted and f"{kind.name}-{n_arms}" not in wanted:
                continue
            world = page(n_arms, n_segments)
            base = regret(world, kind(budget), 0.006)
            cells = [
                increase(regret(world, kind(budget, growth=growth), 0.006), base)
                for growth in growths
            ]
            texts = " | ".join(f"{loss:+.1%} ± {error:.1%}" for loss, error in cells)
            print(
                f"| {kind.name} | {n_arms} | {n_segments} | {budget:g} | {base[0]:,.0f} | {texts} |",
                flush=True,
            )
            losses.append(cells[0][0])
    return losses


def main() -> bool:
    """The table; False where publishing costs more than the limit."""
    given = sys.argv[1:]
    growths: list[Growth] = [float(text) for text in given if text[0].isdigit()] or ["service"]
    held = True
    parts = [text for text in given if "-" in text]
    losses = batches(growths, parts)
    if losses:
        held = row("learning lost by publishing, share of regret", max(losses), "", LIMIT)
    return held


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
