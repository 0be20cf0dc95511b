"""What the portfolio page shows for one set of experiments and one firm budget, as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from deniable._types import JsonObject, Record
from deniable.charts.cache import specification
from deniable.charts.portfolio_page import CHARTS, DATASETS
from deniable.errors import NANO, InvalidArgumentError, InvalidTableError
from deniable.portfolio.allocation import Allocation, Allocator, gap_words
from deniable.portfolio.curves import IntArray
from deniable.portfolio.problem import OBJECTIVES, Portfolio
from deniable.portfolio.rows import COLUMNS, in_columns
from deniable.portfolio.rules import RuleOutcome, best_budgets, compare_rules, zero_budgets
from deniable.web.wording import whole

MOST_EXPERIMENTS = 2_000
MOST_CURVES = 6
QUICK = {"gap": 1e-3, "time_limit": 0.25}
"""While a slider moves; what is applied is solved to the usual proof."""
RULE_NAMES = {
    "optimal": "this allocation",
    "best budgets": "best for each",
    "equal split": "equal split",
    "zero": "zero",
    "random arms": "random arms",
}

Row = Record


def checked_rows(rows: Sequence[Row]) -> list[JsonObject]:
    """The rows with the known columns only, without what is empty; checked by `Portfolio.of`."""
    if len(rows) > MOST_EXPERIMENTS:
        raise InvalidTableError([(0, f"{len(rows):,} experiments; at most {MOST_EXPERIMENTS:,}")])
    plain = [{k: v for k, v in in_columns(row).items() if v not in (None, "")} for row in rows]
    Portfolio.of(plain, objective="bound")
    return [{column: row.get(column) for column in COLUMNS} for row in plain]


def question(rows: Sequence[Row], objective: str, usual: JsonObject) -> str:
    """Rows and objective as text; rows without a base rate have the usual one."""
    known = [{**row, **(usual if row.get("base_rate") is None else {})} for row in rows]
    if objective not in ("", *OBJECTIVES):
        raise InvalidArgumentError("objective", objective, " or ".join(OBJECTIVES))
    if "base_rate" not in usual and not all(row.get("base_rate") for row in rows):
        objective = objective or "bound"
    return json.dumps([known, objective or None], sort_keys=True)


@lru_cache(maxsize=64)
def allocator(text: str, regime: str) -> Allocator:
    """The solver for what `question` returned, prepared once and remembered."""
    rows, objective = json.loads(text)
    return Allocator(Portfolio.of(rows, objective=objective), regime)


def view(found: Allocation) -> JsonObject:
    """Numbers, sentences and chart data of one allocation."""
    outcomes = compare_rules(found)
    by_rule = {outcome.rule: outcome.total_regret for outcome in outcomes}
    funded = int((found.budgets_nano > 0).sum())
    return {
        "lines": [_line(found, row, best) for row, best in enumerate(found.has_all.tolist())],
        "funded": funded,
        "spent": found.spent_nano / NANO,
        "total": found.total_regret,
        "price": found.shadow_value,
        "gap": gap_words(found.relative_gap),
        "certified": found.certified,
        "certificate": found.certificate,
        "objective": found.portfolio.objective,
        "lost_title": lost_title(found).capitalize(),
        "meaning": meaning(found),
        "verdict": verdict(found, by_rule, funded),
        "datasets": _datasets(found, outcomes),
        "summaries": summaries(found, by_rule),
        "tables": _tables(found, outcomes),
    }


@lru_cache(maxsize=32)
def what_if(text: str, regime: str, points: int = 13) -> list[dict[str, float]]:
    """Least loss over firm budgets from the least possible to the largest useful."""
    solver = allocator(text, regime)
    least = solver.least_nano / NANO
    most = max(least, best_budgets(solver.portfolio, 0.0, regime).cost_nano / NANO)
    budgets = least + (most - least) * np.linspace(0, 1, points) ** 2
    nothing = zero_budgets(solver.portfolio, least, regime).total_regret
    found = [solver.allocate(np.ceil(b * NANO) / NANO, **QUICK).total_regret for b in budgets[1:]]
    return [
        {"firm_budget": float(budget), "regret": regret}
        for budget, regret in zip(budgets, [nothing, *found], strict=True)
    ]


def filled(name: str, datasets: Mapping[str, Sequence[Row]]) -> JsonObject:
    """One chart with its data; what is not known yet is empty."""
    known = {dataset: datasets.get(dataset, []) for dataset in DATASETS[name]}
    return {**specification(CHARTS[name]), "datasets": known}


def _line(found: Allocation, row: int, has_all: bool) -> JsonObject:
    return {
        "id": found.portfolio.ids[row],
        "strategy": found.strategies[row],
        "budget": round(float(found.budgets[row]), 9),
        "regret": float(found.regret[row]),
        "saved": float(found.saved[row]),
        "gain": float(found.marginal_gain[row]),
        "at_best": has_all,
    }


def _datasets(found: Allocation, outcomes: Sequence[RuleOutcome]) -> dict[str, list[JsonObject]]:
    order = np.argsort(-found.budgets_nano, kind="stable")
    top = [int(row) for row in order[:MOST_BARS] if found.budgets_nano[row] > 0]
    gains, dots = [], []
    for row in _some(found, order):
        curve, dot = _gain_curve(found, row)
        gains += curve
        dots.append(dot)
    return {
        "bars": [
            {
                "id": found.portfolio.ids[row],
                "strategy": found.strategies[row],
                "budget": float(found.budgets[row]),
            }
            for row in top
        ],
        "gains": _cut(gains, dots, found.shadow_value),
        "dots": dots,
        "price": [{"gain": found.shadow_value, "text": f"lambda: {short(found.shadow_value)}"}],
        "here": [
            {
                "firm_budget": found.firm_budget,
                "regret": found.total_regret,
                "text": f"{found.firm_budget:.3g} nats: {whole(found.total_regret)}",
            }
        ],
        "rules": [
            {"rule": RULE_NAMES[outcome.rule], "regret": outcome.total_regret}
            for outcome in outcomes
        ],
    }


def _some(found: Allocation, order: IntArray) -> list[int]:
    """Experiments that can use more, from the largest budget to the smallest, evenly picked.

    Those without budget come only where there are few with one.
    """
    free = found.portfolio.min_nano[order] < found.portfolio.max_nano[order]
    wanting = order[free & ~found.has_all[order]]
    funded = wanting[found.budgets_nano[wanting] > 0]
    pool = funded if funded.size >= MOST_CURVES else wanting[:MOST_CURVES]
    pool = pool if pool.size else order
    places = np.linspace(0, pool.size - 1, MOST_CURVES).round().astype(int).tolist()
    return [int(pool[place]) for place in sorted(set(places))]


def _gain_curve(found: Allocation, row: int) -> tuple[list[JsonObject], JsonObject]:
    own = np.full(60, found.curve[row])
    grid = np.linspace(0, float(found.curves.useful[found.curve[row]]), 62)[1:-1]
    heights = found.curves.gain(own, grid)
    name = found.portfolio.ids[row]
    curve = [
        {"budget": float(f"{x:.5g}"), "gain": float(f"{y:.5g}"), "experiment": name}
        for x, y in zip(grid, heights, strict=True)
    ]
    dot = {
        "budget": float(found.budgets[row]),
        "gain": float(found.marginal_gain[row]),
        "experiment": name,
    }
    return curve, dot


def _cut(gains: list[JsonObject], dots: Sequence[Row], price: float) -> list[JsonObject]:
    """Curves up to a height at which the points where they meet can still be seen."""
    top = 1.8 * max([price, 1e-9, *(dot["gain"] for dot in dots)])
    seen = [point for point in gains if 0 <= point["gain"] <= top]
    # Where every experiment has all that helps it, the curves meet at 0: then they are shown whole.
    return seen or [point for point in gains if point["gain"] >= 0]


def _tables(found: Allocation, outcomes: Sequence[RuleOutcome]) -> JsonObject:
    order, best = np.argsort(-found.budgets_nano, kind="stable")[:MOST_BARS], found.has_all
    return {
        "bars": {
            "columns": ["experiment", "strategy", "budget"],
            "rows": [
                [found.portfolio.ids[row], found.strategies[row], f"{found.budgets[row]:.4f}"]
                for row in order
            ],
        },
        "gains": {
            "columns": ["experiment", "budget", "clicks saved by one more nat"],
            "rows": [
                [
                    found.portfolio.ids[row],
                    f"{found.budgets[row]:.4f}",
                    "0" if best[row] else short(found.marginal_gain[row]),
                ]
                for row in order
            ],
        },
        "rules": {
            "columns": ["rule", lost_title(found), "costs", "within the budget"],
            "rows": [
                [
                    RULE_NAMES[o.rule],
                    whole(o.total_regret),
                    f"{o.cost_nano / NANO:.4g}",
                    "yes" if o.affordable else "no",
                ]
                for o in outcomes
            ],
        },
    }


MOST_BARS = 24


def verdict(found: Allocation, by_rule: Mapping[str, float], funded: int) -> str:
    """The outcome in two sentences, beside an equal split and no budget at all."""
    return (
        f"{funded:,} of {found.portfolio.size:,} experiments get budget, "
        f"{found.spent_nano / NANO:.4g} nats in all. {lost(found)}: "
        f"{against(found.total_regret, by_rule['equal split'])} with an equal split, "
        f"{against(found.total_regret, by_rule['zero'])} with none."
    )


def lost(found: Allocation) -> str:
    """The total loss as a clause: what is expected, or the most."""
    unit = "clicks are" if found.portfolio.value is None else "clicks' worth is"
    if found.portfolio.objective == "expected":
        return f"About {whole(found.total_regret)} {unit} expected to be lost"
    return f"At most {whole(found.total_regret)} {unit} lost"


def lost_title(found: Allocation) -> str:
    """The total loss as a column's title."""
    return (
        "clicks lost, expected"
        if found.portfolio.objective == "expected"
        else "clicks lost, at most"
    )


def meaning(found: Allocation) -> str:
    """What the losses of the table are, as a sentence."""
    if found.portfolio.objective == "expected":
        return "Clicks lost and saved are what to expect, for rates like those given."
    return "Clicks lost and saved are bounds."


def against(value: float, other: float) -> str:
    """A loss beside another one; what rounds to no difference is told as none.

    >>> against(50, 100), against(99.99, 100), against(110, 100)
    ('50.0% less than', 'as', '10.0% more than')
    """
    share = (other - value) / other if other else 0.0
    if abs(share) < 0.0005:
        return "as"
    return f"{abs(share):.1%} {'less' if share > 0 else 'more'} than"


def short(value: float) -> str:
    """A number without digits that nobody reads."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def summaries(found: Allocation, by_rule: Mapping[str, float]) -> dict[str, str]:
    """A sentence for each chart."""
    rest = found.portfolio.size - min(MOST_BARS, int((found.budgets_nano > 0).sum()))
    verb = "has" if rest == 1 else "have"
    more = f" {rest:,} more {verb} less, or none." if rest else ""
    return {
        "bars": f"The largest budgets.{more}",
        "gains": "Each curve shows what one more nat would save an experiment. The next nat saves as "
        f"much wherever budget is given: {short(found.shadow_value)} clicks, lambda"
        + (" (a layer counts as one experiment)" if found.portfolio.members else "")
        + ". It would save less where none is."
        + (" Those that have all they can use are left out." if found.has_all.any() else ""),
        "what_if": f"{lost(found)} with {found.firm_budget:.3g} nats; the curve shows other budgets.",
        "rules": f"Equal split: {whole(by_rule['equal split'])}. No budget: {whole(by_rule['zero'])}, "
        f"with random arms for everybody {whole(by_rule['random arms'])}. "
        f"Each experiment's own best, whatever it costs: {whole(by_rule['best budgets'])}.",
    }
