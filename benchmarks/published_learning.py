"""What publishing costs in learning: tables instead of per-visitor updates, and noise in the tables.

``python -m benchmarks.published_learning [batches|trace] [STRATEGY-ARMS] [GROWTH ...]`` prints Markdown
tables, by the service's own rule or for other growths; of one strategy and number of arms where asked
for, such as dynamic-20. Seeds are fixed and repetitions go on until the standard error
is small, so load does not change a number.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from benchmarks.timing import row
from deniable.policies.base import Growth, Published
from deniable.policies.greedy import ConstantPolicy, DynamicPolicy
from deniable.simulation.environment import Environment
from deniable.simulation.job import make_job, run_repetition

VISITORS = 100_000
LIMIT = 0.03
"""Learning that publishing in batches may lose, as a part of the regret of per-visitor updates."""

BATCHES = [*product((2, 5, 10, 20), (1, 3, 5), (0.5, 2.0, 5.0)), *product((10,), (20,), (1.0, 5.0))]
TRACES = (None, 3.0, 1.0, 0.3, 0.1)
_MOST, _STEP = 8_000, 400

Private = ConstantPolicy | DynamicPolicy


def page(n_arms: int, n_segments: int, visitors: int = VISITORS, base: float = 0.1) -> Environment:
    """Click rates from 80% to 120% of the base; segments have different best arms, if possible."""
    rates = np.linspace(1.2 * base, 0.8 * base, n_arms)
    turn = max(1, n_arms // n_segments)
    return Environment(
        np.array([np.roll(rates, turn * j) for j in range(n_segments)]).T,
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
    for kind in (ConstantPolicy, DynamicPolicy):
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


def gained(world: Environment, policy: Private) -> tuple[float, float]:
    """The part of what perfect information gains over random arms, and its standard error."""
    mean, error = regret(world, policy, 0.003)
    shares, rates = world.shares, world.rates
    most = world.horizon * float((shares * (rates.max(axis=0) - rates.mean(axis=0))).sum())
    return 1 - mean / most, error / most


TRACE_WORLDS = {
    "2 arms, 2 segments agree, 1e5": Environment([[0.10] * 2, [0.12] * 2], 100_000, name="agree"),
    "2 arms, 2 segments differ, 1e5": page(2, 2),
    "20 arms, 3 segments, 1e6": page(20, 3, 1_000_000),
    "8 arms, rates .003, 1e6": page(8, 2, 1_000_000, base=0.003),
}


def traces() -> None:
    """Print the share of the possible gain that is kept at each trace budget."""
    heads = " | ".join("none" if trace is None else f"trace {trace:g}" for trace in TRACES)
    print(f"| experiment | strategy, budget | {heads} |")
    print("|---" * (2 + len(TRACES)) + "|")
    policies: list[Private] = [ConstantPolicy(1), DynamicPolicy(1), DynamicPolicy(3)]
    for name, world in TRACE_WORLDS.items():
        for policy in policies:
            cells = [gained(world, _with_trace(policy, trace)) for trace in TRACES]
            texts = " | ".join(f"{share:.3f} ± {error:.3f}" for share, error in cells)
            print(f"| {name} | {policy.label} | {texts} |", flush=True)


def _with_trace(policy: Private, trace: float | None) -> Private:
    assert isinstance(policy, Published)
    return replace(policy, growth="service" if trace is None else None, trace_budget=trace)


def main() -> bool:
    """Both tables; False where publishing costs more than the limit."""
    given = sys.argv[1:]
    growths: list[Growth] = [float(text) for text in given if text[0].isdigit()] or ["service"]
    held = True
    if "trace" not in given:
        parts = [text for text in given if "-" in text]
        losses = batches(growths, parts)
        if losses:
            held = row("learning lost by publishing, share of regret", max(losses), "", LIMIT)
    if "batches" not in given:
        traces()
    return held


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
