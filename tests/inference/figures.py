"""The tables of docs/inference.md: `PYTHONPATH=. python -m tests.inference.figures`."""

from __future__ import annotations

import sys

from tests.inference.experiments import Setting, constant, same
from tests.inference.test_coverage import SETTINGS, outcome, rare


def coverage() -> None:
    """Misses over all looks and widths at the end, for every setting of the tests."""
    for name, setting in SETTINGS.items():
        o = outcome(setting, seed=17)
        shares = f"{o.asymptotic:.1%} | {o.exact:.1%} | {o.peeking:.0%}"
        _row(f"{name} | {o.looks} | {shares} | {o.width:.2f} | {o.width_exact:.2f}")


def power() -> None:
    """Shares of 500 experiments in which two arms were told apart."""
    for first, second in ((0.1, 0.11), (0.1, 0.12), (0.03, 0.036)):
        for horizon in (20_000, 100_000):
            found = []
            for budget in (0.1, 1.0, 3.0):
                setting = Setting(
                    constant(budget),
                    same(first, second),
                    horizon=horizon,
                    typical=rare(budget),
                    runs=500,
                )
                o = outcome(setting, seed=5)
                found.append(f"{o.found:.0%} / {o.found_exact:.0%}")
            _row(f"{first} and {second} | {horizon:,} | {' | '.join(found)}")


def _row(text: str) -> None:
    sys.stdout.write(f"| {text} |\n")


if __name__ == "__main__":
    coverage()
    power()
