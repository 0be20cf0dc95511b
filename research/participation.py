"""Visitors who meet only some experiments: realized against worst-case firm risk."""

from __future__ import annotations

import altair as alt
import numpy as np
import polars as pl
from altair.typing import ChartType

from deniable import allocate
from deniable.charts.theme import ACCENT, themed, values
from deniable.portfolio import RealizedRisk, equal_split, realized_risk, sampled_risk
from research.charts import RULE_COLOURS
from research.firm_clicks import load_firm
from research.study import Claim, Context, Figure, StudyResult, judged

FIRM_BUDGET = 20.0
SHARES = (0.1, 0.25, 0.5)


def run(context: Context) -> StudyResult:
    """Compute the distribution of a visitor's total risk if experiments are met at random."""
    firm = load_firm(context)
    portfolio = firm.portfolio
    given = {
        "regret-based": allocate(portfolio, FIRM_BUDGET).budgets_nano,
        "equal split": equal_split(portfolio, FIRM_BUDGET).budgets_nano,
    }
    risks = {
        (rule, share): realized_risk(portfolio, budgets, share)
        for rule, budgets in given.items()
        for share in SHARES
    }
    rng = np.random.default_rng(context.seed)
    met = rng.random((context.scale(200_000, 5_000), portfolio.size)) < SHARES[0]
    sampled = sampled_risk(portfolio, given["regret-based"], met)
    curve = pl.concat(_curve(rule, share, risk) for (rule, share), risk in risks.items())
    caption = (
        f"Part of visitors whose total risk is at most so large, firm budget {FIRM_BUDGET:g}, where a "
        "visitor meets each experiment with the probability given." + firm.mark
    )
    return StudyResult(
        headline=_headline(risks),
        paragraphs=(
            "The firm budget bounds the visitor who meets every experiment. Most meet a few. Under an "
            "equal split a visitor's total risk is near the share of experiments met. Regret-based "
            "allocation puts the budget into few experiments: most visitors who meet a tenth of all "
            "have no or little risk, and a few have several times the mean.",
            firm.source,
        ),
        figures=(Figure("realized_risk", caption, risk_distributions(curve, FIRM_BUDGET), curve),),
        claims=(_below(risks), _spread(risks), _agrees(risks["regret-based", SHARES[0]], sampled)),
        tables={"quantiles": _quantiles(risks)},
    )


def _curve(rule: str, share: float, risk: RealizedRisk) -> pl.DataFrame:
    """Return the distribution function at 201 evenly spaced risks."""
    grid = np.linspace(0, FIRM_BUDGET, 201)
    index = np.searchsorted(risk.risk, grid + 1e-12, side="right") - 1
    part = np.where(index >= 0, risk.probability[np.maximum(index, 0)], 0.0)
    return pl.DataFrame(
        {
            "rule": [rule] * grid.size,
            "share": np.full(grid.size, share),
            "risk": grid,
            "part": part,
        }
    )


def _quantiles(risks: dict[tuple[str, float], RealizedRisk]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "rule": rule,
                "share": share,
                "worst_case": risk.worst_case,
                "mean": risk.mean,
                "median": risk.quantile(0.5),
                "q90": risk.quantile(0.9),
                "q99": risk.quantile(0.99),
            }
            for (rule, share), risk in risks.items()
        ]
    )


def _headline(risks: dict[tuple[str, float], RealizedRisk]) -> str:
    risk = risks["regret-based", 0.1]
    return (
        f"Of a firm budget of {FIRM_BUDGET:g}, 99 of 100 visitors who meet a tenth of the experiments "
        f"are exposed to {risk.quantile(0.99):.1f} or less."
    )


def _below(risks: dict[tuple[str, float], RealizedRisk]) -> Claim:
    risk = risks["regret-based", 0.1]
    return Claim(
        "A customer exposed to 10% of the experiments generally faces a risk below the worst case",
        "generally below",
        f"mean {risk.mean:.2f}, 99% at most {risk.quantile(0.99):.2f}, worst case {risk.worst_case:g}",
        judged(risk.quantile(0.99) < risk.worst_case),
        "Each experiment is met with probability .1, independently. The promise remains the worst case.",
    )


def _spread(risks: dict[tuple[str, float], RealizedRisk]) -> Claim:
    best, even = (risks[rule, 0.1] for rule in ("regret-based", "equal split"))
    return Claim(
        "Both rules expose a visitor of 10% of the experiments alike",
        "not studied",
        f"means {best.mean:.2f} and {even.mean:.2f}; 99% at most {best.quantile(0.99):.2f} and "
        f"{even.quantile(0.99):.2f}",
        judged(
            abs(best.quantile(0.99) - even.quantile(0.99)) < 0.5,
            partly=abs(best.mean - even.mean) < 0.1,
        ),
        "On average alike, because both spend the same. In the tail not: regret-based allocation "
        "concentrates risk in few experiments.",
    )


def _agrees(exact: RealizedRisk, sampled: RealizedRisk) -> Claim:
    off = max(abs(exact.quantile(part) - sampled.quantile(part)) for part in (0.5, 0.9, 0.99))
    return Claim(
        "The computed distribution is that of sampled visitors",
        "check",
        f"quantiles differ by {off:.3f} nats at most; means {exact.mean:.3f} and {sampled.mean:.3f}",
        judged(off < 0.3 and abs(exact.mean - sampled.mean) < 0.1),
        "The distribution is computed on a grid and rounded up; visitors are drawn one by one.",
    )


def risk_distributions(curve: pl.DataFrame, firm_budget: float) -> ChartType:
    """Chart one panel per share of experiments met, one line per rule, the worst case in red.

    Args:
        curve: columns rule, share, risk, part.
        firm_budget: the worst case.
    """
    panels = []
    for (share,), rows in curve.group_by("share", maintain_order=True):
        lines = (
            alt.Chart(values(rows.to_dicts()), title=f"{share:.0%} of experiments met")
            .mark_line(interpolate="step-after")
            .encode(
                x=alt.X("risk:Q", title="total risk of a visitor"),
                y=alt.Y("part:Q", title="part of visitors", axis=alt.Axis(format=".0%")),
                color=alt.Color(
                    "rule:N",
                    title="rule",
                    scale=alt.Scale(domain=list(RULE_COLOURS), range=list(RULE_COLOURS.values())),
                ),
                strokeDash=alt.StrokeDash(
                    "rule:N",
                    title="rule",
                    scale=alt.Scale(domain=list(RULE_COLOURS), range=[[1, 0], [5, 3]]),
                ),
            )
        )
        worst = alt.Chart(values([{"risk": firm_budget, "text": "worst case"}])).encode(
            x=alt.X("risk:Q")
        )
        word = worst.mark_text(align="right", dx=-4, color=ACCENT, fontSize=11)
        layers = (
            lines,
            worst.mark_rule(color=ACCENT, strokeWidth=1.5),
            word.encode(y=alt.value(195), text=alt.Text("text:N")),
        )
        panels.append(alt.layer(*layers).properties(width=215, height=210))
    return themed(alt.hconcat(*panels))
