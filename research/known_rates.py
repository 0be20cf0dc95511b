"""The value of knowing click rates: allocations of a table of past experiments.

Half of the experiments are the past, from which `fit_prior` learns how much arms differ. The budget
is divided over the other half in four ways: by bounds (nearly by visitors), by base rates and arms
with the usual lift, with the fitted lift, and by what really happened. Each is judged by the last:
the clicks that every experiment is expected to gain over budget 0 with its own lift, which is the
observed one, shrunk by what luck explains.

    python -m research known-rates FILE      # experiment,arm,shows,clicks; or headline tests
    python -m research known-rates           # ASOS in $DENIABLE_DATA
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deniable._validation import FloatArray
from deniable.datasets import asos
from deniable.errors import InvalidArgumentError, InvalidTableError
from deniable.expectations.fit import FittedPrior, fit_prior
from deniable.portfolio.allocation import Allocation, allocate
from deniable.portfolio.problem import Portfolio

FIRM_BUDGETS = (1.0, 3.0, 10.0, 30.0)
REGIME = "constant"
HEADLINES = {"clickability_test_id": "experiment", "impressions": "shows"}
"""Columns of the public archive of headline tests -> their names here."""

Row = Mapping[str, str | float]


@dataclass(frozen=True)
class Known:
    """Clicks gained over budget 0 at one firm budget, by how the budget was divided."""

    firm_budget: float
    by_bound: float
    by_base_rate: float
    by_fitted_lift: float
    by_truth: float


def compare(
    rows: Iterable[Row], firm_budgets: Sequence[float] = FIRM_BUDGETS, regime: str = REGIME
) -> tuple[FittedPrior, list[Known]]:
    """Compare the four ways at every firm budget, and return what was learned from the first half.

    Args:
        rows: past experiments: experiment, arm, shows, clicks.
        firm_budgets: in nats.
        regime: which strategies are allowed; *constant* gains nothing without a budget.
    """
    tests: dict[str | float, list[Row]] = {}
    for row in rows:
        tests.setdefault(row["experiment"], []).append(row)
    names = [name for name, own in tests.items() if _countable(own)]
    if len(names) < 4:
        raise InvalidTableError([(0, "at least four experiments with two arms and clicks each")])
    fitted = fit_prior([row for name in names[::2] for row in tests[name]])
    new = [tests[name] for name in names[1::2]]
    truth = _portfolio(new, [shrunken_lift(own, fitted) for own in new])
    ways = {
        "by_bound": truth.judged_by("bound"),
        "by_base_rate": _portfolio(new, None),
        "by_fitted_lift": _portfolio(new, [fitted.lift] * len(new)),
        "by_truth": truth,
    }
    found = []
    for budget in firm_budgets:
        gained = {
            name: _gained(truth, allocate(way, budget, regime=regime), budget, regime)
            for name, way in ways.items()
        }
        found.append(Known(budget, **gained))
    return fitted, found


def shrunken_lift(own: Sequence[Row], fitted: FittedPrior) -> float:
    """Return how much the arms of one experiment differ, given its counts and the prior."""
    shows, clicks = _counts(own)
    rate = clicks.sum() / shows.sum()
    seen = clicks / shows / rate - 1
    noise = (1 - rate) / (rate * shows)
    trust = fitted.lift**2 / (fitted.lift**2 + noise)
    lift = float(
        np.sqrt(np.sum((trust * (seen - np.average(seen, weights=trust))) ** 2) / (shows.size - 1))
    )
    return float(np.clip(lift, 1e-4, 1.0))


def read_tests(path: Path | None) -> list[dict[str, str | float]]:
    """Read rows of a CSV file, or ASOS from the data folder; every line of an archive is an arm."""
    if path is None:
        return [
            {"experiment": test.name, "arm": arm, "shows": shows, "clicks": round(shows * rate)}
            for test in asos()
            for arm, rate in enumerate(test.rates)
            for shows in (round(test.visitors / test.n_arms),)
        ]
    if not path.is_file():
        raise InvalidArgumentError("path", str(path), "a CSV file")
    with path.open(newline="", encoding="utf-8-sig") as source:
        lines = list(csv.DictReader(source))
    rows: list[dict[str, str | float]] = []
    for number, line in enumerate(lines):
        row = {HEADLINES.get(name, name): value for name, value in line.items()}
        if not {"experiment", "shows", "clicks"} <= set(row):
            raise InvalidArgumentError("path", str(path), "columns experiment, shows and clicks")
        rows.append({"arm": number, **row})
    return rows


def _countable(own: Sequence[Row]) -> bool:
    shows, clicks = _counts(own)
    return shows.size >= 2 and 0 < clicks.sum() < shows.sum()


def _counts(own: Sequence[Row]) -> tuple[FloatArray, FloatArray]:
    pairs = np.array([[float(row["shows"]), float(row["clicks"])] for row in own]).reshape(-1, 2)
    pairs = pairs[pairs[:, 0] > 0]
    return pairs[:, 0], pairs[:, 1]


def _portfolio(tests: Sequence[Sequence[Row]], lifts: Sequence[float] | None) -> Portfolio:
    rows = []
    for number, own in enumerate(tests):
        shows, clicks = _counts(own)
        row = {
            "id": str(own[0]["experiment"]),
            "arms": shows.size,
            "visitors": int(shows.sum()),
            "base_rate": float(clicks.sum() / shows.sum()),
        }
        rows.append(row if lifts is None else {**row, "lift": lifts[number]})
    return Portfolio.of(rows)


def _gained(truth: Portfolio, found: Allocation, budget: float, regime: str) -> float:
    """Return the clicks over budget 0 of the given budgets, at the true lifts."""
    held = [
        {
            "id": truth.ids[row],
            "arms": int(truth.arms[row]),
            "visitors": int(truth.visitors[row]),
            "base_rate": float(truth.known.base_rate[row]),
            "lift": float(truth.known.lift[row]),
            "committed": float(found.budgets[row]),
        }
        for row in range(truth.size)
        if truth.known is not None
    ]
    nothing = allocate(truth, 0.0, regime=regime).total_regret
    return nothing - allocate(Portfolio.of(held), budget, regime=regime).total_regret


def report(file: Path | None) -> str:
    """The comparison as lines of text: for a file, or for ASOS in $DENIABLE_DATA."""
    fitted, table = compare(read_tests(file))
    lines = [
        f"{fitted.experiments} past experiments: lift {fitted.lift:.3f} "
        f"({fitted.lift_low:.3f} to {fitted.lift_high:.3f}), base rate {fitted.base_rate:.4f}",
        "clicks gained, as a multiple of dividing by the bound",
        "firm budget   by bound   base rates   fitted lift   truth",
    ]
    for line in table:
        parts = (line.by_base_rate, line.by_fitted_lift, line.by_truth)
        shown = "".join(f"{part / line.by_bound:>13.2f}" for part in parts)
        lines.append(f"{line.firm_budget:>11g}{line.by_bound:>11,.0f}{shown}")
    return "\n".join(lines)
