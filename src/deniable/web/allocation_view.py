"""What the portfolio page shows for one set of experiments and one firm budget, as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from deniable._formatting import short, whole
from deniable._types import JsonObject, Record
from deniable.charts.portfolio import (
    MOST_BARS,
    PANELS,
    RULE_NAMES,
    allocation_data,
    what_if_records,
)
from deniable.charts.theme import specification
from deniable.errors import NANO, InvalidArgumentError, InvalidTableError
from deniable.portfolio.allocation import Allocation, allocate, gap_words
from deniable.portfolio.problem import OBJECTIVES, Portfolio
from deniable.portfolio.rows import COLUMNS, in_columns
from deniable.portfolio.rules import RuleOutcome, compare_rules
from deniable.portfolio.words import (
    lost,
    lost_title,
    meaning,
    next_gain,
    next_nat,
    verdict,
)

MOST_EXPERIMENTS = 2_000

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
def portfolio_of(text: str) -> Portfolio:
    """The portfolio for what `question` returned; the same object, so it is tabulated once."""
    rows, objective = json.loads(text)
    return Portfolio.of(rows, objective=objective)


def view(found: Allocation) -> JsonObject:
    """Numbers, sentences and chart data of one allocation."""
    outcomes = compare_rules(found)
    by_rule = {outcome.rule: outcome.total_regret for outcome in outcomes}
    # The curve over firm budgets comes apart, because it takes longer.
    datasets = {
        name: data for name, data in allocation_data(found, outcomes).items() if name != "what_if"
    }
    return {
        "lines": [_line(found, row, gain) for row, gain in enumerate(next_gain(found))],
        "funded": int((found.budgets_nano > 0).sum()),
        "spent": found.spent_nano / NANO,
        "total": found.total_regret,
        "price": found.shadow_value,
        "gap": gap_words(found.relative_gap),
        "certified": found.certified,
        "certificate": found.certificate,
        "next_nat": next_nat(found),
        "objective": found.portfolio.objective,
        "lost_title": lost_title(found).capitalize(),
        "meaning": meaning(found),
        "verdict": verdict(found, outcomes),
        "datasets": datasets,
        "summaries": summaries(found, by_rule),
        "tables": _tables(found, outcomes),
    }


@lru_cache(maxsize=32)
def what_if(text: str, regime: str, points: int = 13) -> list[Record]:
    """Least loss over firm budgets from the least possible to the largest useful."""
    portfolio = portfolio_of(text)
    least = portfolio.cost(portfolio.min_nano) / NANO
    return what_if_records(allocate(portfolio, least, regime=regime).what_if(n_points=points))


def filled(name: str, datasets: Mapping[str, Sequence[Row]]) -> JsonObject:
    """One chart with its data; what is not known yet is empty."""
    known = {dataset: datasets.get(dataset, []) for dataset in PANELS[name].datasets}
    return {**specification(PANELS[name].make), "datasets": known}


def _line(found: Allocation, row: int, gain: str) -> JsonObject:
    return {
        "id": found.portfolio.ids[row],
        "strategy": found.strategies[row],
        "budget": round(float(found.budgets[row]), 9),
        "regret": float(found.regret[row]),
        "saved": float(found.saved[row]),
        "gain": gain,
    }


def _tables(found: Allocation, outcomes: Sequence[RuleOutcome]) -> JsonObject:
    order, gains = np.argsort(-found.budgets_nano, kind="stable")[:MOST_BARS], next_gain(found)
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
                    gains[row],
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


def summaries(found: Allocation, by_rule: Mapping[str, float]) -> dict[str, str]:
    """A sentence for each chart."""
    funded = int((found.budgets_nano > 0).sum())
    rest = found.portfolio.size - min(MOST_BARS, funded)
    who = "One more experiment gets" if rest == 1 else f"{rest:,} more experiments get"
    what = "less budget, or none" if funded > MOST_BARS else "no budget"
    more = f" {who} {what}." if rest else ""
    return {
        "bars": f"The largest budgets.{more}",
        "gains": _gains_summary(found),
        "what_if": f"{lost(found)} with {found.firm_budget:.3g} nats; the curve shows other budgets.",
        "rules": f"Equal split: {whole(by_rule['equal split'])}. No budget: {whole(by_rule['zero'])}, "
        f"with random variants for everybody {whole(by_rule['random arms'])}. "
        f"Each experiment's own best, whatever it costs: {whole(by_rule['best budgets'])}.",
    }


def _gains_summary(found: Allocation) -> str:
    words = "Each curve shows what one more nat would save an experiment. "
    if found.shadow_value == 0:
        return words + next_nat(found)
    words += f"The firm's next nat saves {short(found.shadow_value)} clicks, lambda"
    words += " (a layer counts as one experiment)." if found.portfolio.members else "."
    full, limited = found.has_all.any(), (found.at_limit & ~found.has_all).any()
    if full or limited:
        kinds = ["have all they can use"] * bool(full) + ["are at their limit"] * bool(limited)
        words += f" Experiments that {' or '.join(kinds)} are left out."
    return words
