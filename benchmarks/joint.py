"""The joint strategy on the random settings of `_joint_settings`, as a Markdown table.

``python -m benchmarks.joint [tuning|held-out|fresh] [seconds]`` simulates until each number has a
standard error of half a point or the time per setting and policy is up. Numbers are shares of what
perfect information gains over random arms, in points (hundredths).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks._joint_settings import RUN_SEED, Setting, fresh, held_out, tuning
from benchmarks.timing import row, seconds
from deniable.policies.greedy import DynamicPolicy
from deniable.privacy.joint_table import integer_table
from deniable.simulation._epochs import ACROSS, JOINT, POOLED, run_epochs
from deniable.simulation.environment import Environment
from deniable.simulation.kernels.random_numbers import generator_state
from deniable.simulation.run import simulate
from deniable.strategies.joint_lp import best_table, lowest_ratio, solve, workspace
from deniable.strategies.joint_rule import GROWTH, joint_table
from deniable.strategies.joint_rule import tuning as rule_tuning

POLICIES = ("joint", "across time", "pooled", "Thompson", "dynamic")
_MOST = 3000

Numbers = dict[str, tuple[float, float]]


def share(setting: Setting, clicks: float) -> float:
    """Clicks per visitor as a part of the way from random arms to perfect information."""
    random = float((setting.shares * setting.rates.mean(axis=0)).sum())
    perfect = float((setting.shares * setting.rates.max(axis=0)).sum())
    return (clicks - random) / (perfect - random)


def limit(setting: Setting) -> float:
    """What the best private table with known rates gains."""
    return share(setting, best_table(setting.rates, setting.shares, setting.budget).value)


def repetitions(setting: Setting, policy: str, start: int = 0) -> Iterator[float]:
    """Shares of one repetition after another; the same seeds for every policy."""
    kind = {"joint": JOINT, "across time": ACROSS}.get(policy, POOLED)
    settings = rule_tuning()
    if policy == "Thompson":
        settings[1] = np.inf  # not cooled down
    shape = setting.rates.shape
    space, zeros = workspace(*shape), np.zeros(shape)
    for repetition in range(start, _MOST):
        seed = np.random.SeedSequence([RUN_SEED, setting.number, repetition])
        expected = run_epochs(
            kind,
            setting.budget,
            settings,
            GROWTH,
            0.1,
            zeros,
            setting.rates,
            setting.shares,
            setting.horizon,
            generator_state(seed),
            space,
            np.zeros(shape),
            np.zeros(shape),
        )
        yield share(setting, expected / setting.horizon)


def dynamic(setting: Setting, patience: float) -> tuple[float, float]:
    """The paper's dynamic strategy, on its segments' own clocks."""
    world = Environment(
        setting.rates, horizon=setting.horizon, shares=setting.shares, name=f"s{setting.number}"
    )
    found: list[float] = []
    start = time.perf_counter()
    while not _enough(found) and (time.perf_counter() - start < patience or len(found) < 20):
        run = simulate(
            world,
            [DynamicPolicy(setting.budget)],
            repetitions=20,
            seed=RUN_SEED + len(found),
            workers=1,
            by_arm=False,
        )
        found.extend((1 - run.frame["regret"].to_numpy() / setting.perfect_gain).tolist())
    return _mean(found)


def measure(setting: Setting, patience: float) -> Numbers:
    """Mean share and standard error of every policy."""
    result = {"dynamic": dynamic(setting, patience / 4)}
    for policy in POLICIES[:-1]:
        found: list[float] = []
        start = time.perf_counter()
        for value in repetitions(setting, policy):
            found.append(value)
            if len(found) % 10 == 0 and (_enough(found) or time.perf_counter() - start > patience):
                break
        result[policy] = _mean(found)
    return result


def line(setting: Setting, numbers: Numbers) -> str:
    n_arms, n_segments = setting.rates.shape
    cells = [
        str(setting.number),
        setting.world,
        str(n_arms),
        str(n_segments),
        f"{setting.horizon:,}",
        f"{setting.budget:g}",
        f"{setting.perfect_gain:,.0f}",
        *(f"{100 * numbers[p][0]:.1f} ± {100 * numbers[p][1]:.1f}" for p in POLICIES),
        f"{100 * limit(setting):.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def summary(rows: list[tuple[Setting, Numbers]]) -> dict[str, object]:
    """What the strategy was asked to reach, measured."""

    def excess(pooled: str) -> np.ndarray:
        return np.array(
            [100 * (n["joint"][0] - max(n[pooled][0], n["dynamic"][0])) for _, n in rows]
        )

    def below(pooled: str) -> list[str]:
        return [
            f"{s.number}: {e:.1f}"
            for (s, _), e in zip(rows, excess(pooled), strict=True)
            if e < (-8 if s.horizon < 100_000 else -5)
        ]

    def ratio(budget: float) -> float:
        several = [(s, n) for s, n in rows if s.budget == budget and len(s.rates) > 2]
        return float(np.median([n["joint"][0] / max(n["dynamic"][0], 1e-3) for _, n in several]))

    long = [n["joint"][0] / limit(s) for s, n in rows if s.horizon == 1_000_000]
    across = [n["across time"][0] / n["joint"][0] for _, n in rows if n["joint"][0] > 0.05]
    return {
        "settings": len(rows),
        "mean excess over the better of dynamic and pooled (Thompson)": excess("Thompson").mean(),
        "mean excess over the better of dynamic and pooled (cooled)": excess("pooled").mean(),
        "worst excess (Thompson, cooled)": (excess("Thompson").min(), excess("pooled").min()),
        "too far below (Thompson)": below("Thompson"),
        "too far below (cooled)": below("pooled"),
        "median ratio to dynamic at budget 3, K > 2": ratio(3.0),
        "median ratio to dynamic at budget .5, K > 2": ratio(0.5),
        "median part of the limit at T = 1e6": float(np.median(long)) if long else float("nan"),
        "median part that across time keeps": float(np.median(across)),
    }


def _enough(found: list[float]) -> bool:
    return len(found) >= 40 and float(np.std(found)) / len(found) ** 0.5 < 0.005


def _mean(found: list[float]) -> tuple[float, float]:
    return float(np.mean(found)), float(np.std(found)) / len(found) ** 0.5


def speed() -> bool:
    """The programme, the rule at its largest and a long simulated run, beside their limits."""
    rng = np.random.default_rng(1)
    held = []
    rates, shares = rng.uniform(0.02, 0.08, (50, 20)), rng.dirichlet(np.ones(20))
    values, weakest, table = rates * shares, lowest_ratio(1.0, 50), np.empty((50, 20))
    space = workspace(50, 20)
    took = seconds(lambda: solve(values, weakest, 1e-10, False, space, table))
    held.append(row("best table, K = 50, J = 20", 1e3 * took, "ms", 1.0))
    shows = rng.poisson(200, (200, 200))
    clicks = rng.binomial(shows, 0.05)
    start = time.perf_counter()
    integer_table(joint_table(shows, clicks, 10**8, 1.0).tolist(), 10**9)
    held.append(row("rule and rounding, 200 x 200", time.perf_counter() - start, "s", 10.0))
    world = Setting(0, "mixed", rng.uniform(0.02, 0.08, (8, 5)), np.full(5, 0.2), 10**8, 1.0)
    runs = repetitions(world, "joint")
    took = seconds(lambda: next(runs))
    held.append(row("one run, T = 1e8, K = 8, J = 5", 1e3 * took, "ms", 20.0))
    return all(held)


CHOICES: dict[str, Callable[[], list[Setting]]] = {
    "tuning": tuning,
    "held-out": held_out,
    "fresh": fresh,
}


def main() -> bool:
    chosen = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in CHOICES else "fresh"
    patience = float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
    print("| no. | world | K | J | T | budget | gain | " + " | ".join(POLICIES) + " | limit |")
    print("|" + " --- |" * (len(POLICIES) + 8))
    rows = []
    for setting in CHOICES[chosen]():
        numbers = measure(setting, patience)
        print(line(setting, numbers), flush=True)
        if setting.perfect_gain >= 100:
            rows.append((setting, numbers))
    found = summary(rows)
    for name, value in found.items():
        print(f"{name}: {value}")
    mean = found["mean excess over the better of dynamic and pooled (Thompson)"]
    reached = isinstance(mean, float) and mean >= 5 and not found["too far below (Thompson)"]
    return speed() and reached


if __name__ == "__main__":
    main()
