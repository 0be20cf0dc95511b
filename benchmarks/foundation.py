"""Start-up against a bare interpreter; formulas against one NumPy exp; one serving draw."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from bisect import bisect_right

import numpy as np

import deniable
from benchmarks.timing import ratio, row, seconds
from deniable.privacy.tables import band, thresholds

LOAD = "import deniable"

BUDGETS = np.linspace(1e-3, 8, 1_000_000)

FORMULAS = {
    "constant_regret": deniable.theory.constant_regret,
    "dynamic_regret": deniable.theory.dynamic_regret,
    "constant_gain": deniable.theory.constant_gain,
    "dynamic_gain": deniable.theory.dynamic_gain,
    "constant_elasticity": deniable.theory.constant_elasticity,
    "dynamic_elasticity": deniable.theory.dynamic_elasticity,
}


def main() -> bool:
    """Print every row; True where all limits hold."""
    return all([*_start_up(), *_formulas(), *_plans(), *_draws()])


def _start_up() -> list[bool]:
    def process(*arguments: str) -> None:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    def bare() -> None:
        process("-c", "pass")

    script = "import sys; from deniable.cli import main; sys.exit(main(sys.argv[1:]))"
    told = ("-c", script, "--help")
    plan = ("plan", "--arms", "2", "--visitors", "100000", "--budget", "1")
    return [
        row("import deniable / bare python", ratio(lambda: process("-c", LOAD), bare), "x", 4),
        row("deniable --help / bare python", ratio(lambda: process(*told), bare), "x", 12),
        row("deniable plan", seconds(lambda: process("-c", script, *plan), 7), "s", 1.5),
    ]


def _plans() -> list[bool]:
    """A whole plan (budgets by strategies, expected and bounds), sizes that were not asked before."""
    sizes = itertools.count(100_000)

    def whole() -> None:
        deniable.plan(
            n_arms=5, horizon=next(sizes), n_segments=3, base_rate=0.05, lift=0.1, max_belief=0.5
        )

    return [row("plan with expected clicks, one core", seconds(whole, 15), "s", 0.3)]


def _formulas() -> list[bool]:
    def rival() -> None:
        np.exp(BUDGETS)

    rows = [
        row("exploration_from_risk / np.exp, 1e6 risks",
            ratio(lambda: deniable.privacy.exploration_from_risk(5, BUDGETS), rival), "x", 20),
        row("highest_belief / np.exp, 1e6 risks",
            ratio(lambda: deniable.highest_belief(0.2, BUDGETS), rival), "x", 20),
        row("exhaustion_clock / np.exp, 1e6 budgets",
            ratio(lambda: deniable.privacy.exhaustion_clock(5, BUDGETS), rival), "x", 100),
    ]  # fmt: skip
    for name, formula in FORMULAS.items():
        measured = ratio(lambda formula=formula: formula(5, 10**6, BUDGETS), rival)  # type: ignore[misc]
        rows.append(row(f"{name} / np.exp, 1e6 budgets", measured, "x", 20))
    return rows


def _draws() -> list[bool]:
    rows = []
    for n_arms in (2, 50):
        ends = thresholds(band((1_000_000_000,) * n_arms).neutral)

        def thousand(ends: list[int] = ends) -> None:
            for _ in range(1000):
                bisect_right(ends, int.from_bytes(os.urandom(8), "little"))

        rows.append(row(f"one serving draw, {n_arms} arms", seconds(thousand) * 1e3, "us", 2))
    return rows
