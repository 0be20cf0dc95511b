"""`deniable allocate`: the firm's budget over its experiments, on the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deniable._formatting import short
from deniable._types import JsonObject
from deniable.cli.printing import AsJson, ChartFile, check_chart, write_chart
from deniable.errors import NANO, InvalidArgumentError
from deniable.expectations.prior import SEGMENTS
from deniable.portfolio.allocation import Allocation, WhatIf
from deniable.portfolio.labels import LabelComparison, compare_label, label_words
from deniable.portfolio.participation import RealizedRisk, realized_risk
from deniable.portfolio.rules import RuleOutcome, compare_rules
from deniable.portfolio.words import next_gain, next_nat, verdict
from deniable.report.content import Section, section
from deniable.strategies import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from altair.typing import ChartType

app = typer.Typer(add_completion=False)


@app.command()
def allocate(
    portfolio: Annotated[
        Path | None, typer.Argument(help="File of experiments (.csv, .parquet or .toml).")
    ] = None,
    firm_budget: Annotated[float | None, typer.Option(help="The firm's budget in nats.")] = None,
    regime: Annotated[
        str, typer.Option(help=f"flexible (the best for each), or one of {', '.join(STRATEGIES)}.")
    ] = "flexible",
    form: Annotated[
        str,
        typer.Option(help="Bounds: summed, or paper (as printed, the paper's strategies only)."),
    ] = "summed",
    objective: Annotated[
        str | None,
        typer.Option(
            help="What to minimize: expected (clicks lost; default if the file has base_rate) or bound."
        ),
    ] = None,
    reserve: Annotated[float, typer.Option(help="Nats to keep back for later experiments.")] = 0.0,
    gap: Annotated[
        float, typer.Option(help="Share of the possible saving that may be missed.")
    ] = 1e-4,
    compare: Annotated[bool, typer.Option("--compare", help="Compare with other rules.")] = False,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="Show the optimum for other firm budgets.")
    ] = False,
    share: Annotated[
        float | None,
        typer.Option(
            help="Show the smallest firm budget for this share of the largest gain, such as .9."
        ),
    ] = None,
    participation: Annotated[
        float | None,
        typer.Option(help="Share of experiments a visitor meets, to show the realized risk."),
    ] = None,
    label: Annotated[
        bool,
        typer.Option(
            "--label", help="Compare with one label for all experiments; needs base rates."
        ),
    ] = False,
    rows: Annotated[int, typer.Option(help="Number of experiments to list; 0 lists all.")] = 25,
    illustration: Annotated[
        bool,
        typer.Option("--illustration", help="Use the paper's two experiments; no file needed."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write to FILE.(csv|json).")] = None,
    as_json: AsJson = False,
    chart: ChartFile = None,
) -> None:
    """Divide a firm's privacy budget over its experiments, with a proof of how good it is."""
    from deniable.portfolio.allocation import allocate as solve
    from deniable.portfolio.problem import Portfolio
    from deniable.report.terminal import print_sections

    check_chart(chart)
    if out is not None:
        from deniable.portfolio.table import check_out_path, write_allocation

        check_out_path(out)
    if rows < 0:
        raise InvalidArgumentError("rows", rows, "a whole number, 0 or more")
    assumed = 0
    if illustration:
        from deniable.portfolio.problem import TWO_EXPERIMENTS

        experiments, firm_budget, regime = TWO_EXPERIMENTS, firm_budget or 4.0, "dynamic"
    elif portfolio is None:
        raise InvalidArgumentError("portfolio", None, "a file, or --illustration")
    else:
        from deniable.portfolio.table import read_rows

        given = read_rows(portfolio)
        assumed = sum(not (row.get("segments") or row.get("shares")) for row in given)
        experiments = Portfolio.of(given, form=form, objective=objective)  # type: ignore[arg-type]
    if firm_budget is None:
        raise InvalidArgumentError(
            "firm_budget", None, "--firm-budget, a number of nats, 0 or more"
        )
    found = solve(experiments, firm_budget, regime=regime, reserve=reserve, gap=gap)
    extras = Extras.of(
        found,
        compare=compare,
        what_if=what_if,
        share=share,
        participation=participation,
        label=label,
    )
    if as_json:
        typer.echo(json.dumps({**found.to_dict(), **extras.to_dict()}, indent=2))
    else:
        print_sections(allocation_sections(found, extras, rows, assumed))
    if out is not None:
        write_allocation(found, out)
        typer.echo(f"allocation: {out}", err=True)
    write_chart(lambda: _drawing(None if illustration else found, extras), chart)


def _drawing(found: Allocation | None, extras: Extras) -> ChartType:
    """The chart of an allocation; of the paper's two experiments if there is none."""
    from deniable.charts.portfolio import allocation_chart, two_experiments

    if found is None:
        return two_experiments()
    return allocation_chart(found, compared=extras.compared, label=extras.label)


_JUDGED = {"expected": "expected loss", "bound": "regret bound"}
QUANTILES = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True)
class Extras:
    """What is printed besides the allocation: the rules always, the rest on request."""

    outcomes: list[RuleOutcome]
    compared: bool
    curve: WhatIf | None
    share: float | None
    share_budget: float | None
    risk: RealizedRisk | None
    label: LabelComparison | None

    @classmethod
    def of(
        cls,
        found: Allocation,
        *,
        compare: bool,
        what_if: bool,
        share: float | None,
        participation: float | None,
        label: bool,
    ) -> Extras:
        """Compute what was asked for."""
        return cls(
            compare_rules(found),
            compare,
            found.what_if(n_points=13) if what_if else None,
            share,
            None if share is None else found.budget_for_share(share),
            None
            if participation is None
            else realized_risk(found.portfolio, found.budgets_nano, participation),
            compare_label(found) if label else None,
        )

    def to_dict(self) -> JsonObject:
        """As plain numbers, for JSON."""
        told: JsonObject = {}
        if self.compared:
            told["rules"] = [
                {
                    "rule": outcome.rule,
                    "total_regret": outcome.total_regret,
                    "cost": outcome.cost_nano / NANO,
                    "affordable": outcome.affordable,
                }
                for outcome in self.outcomes
            ]
        if self.curve is not None:
            told["what_if"] = {
                "firm_budget": self.curve.firm_budgets.tolist(),
                "total_regret": self.curve.total_regret.tolist(),
                "shadow_value": self.curve.shadow_value.tolist(),
            }
        if self.share_budget is not None:
            told["budget_for_share"] = {"share": self.share, "firm_budget": self.share_budget}
        if self.risk is not None:
            told["realized_risk"] = {
                "worst_case": self.risk.worst_case,
                "mean": self.risk.mean,
                "quantiles": {str(q): self.risk.quantile(q) for q in QUANTILES},
            }
        if self.label is not None:
            told["label"] = {
                "firm_budget": self.label.firm_budgets.tolist(),
                "divided_loss": self.label.divided.tolist(),
                "label_loss": self.label.label.tolist(),
                "pooled_loss": self.label.pooled,
            }
        return told


def allocation_sections(
    found: Allocation, extras: Extras, rows: int, assumed: int = 0
) -> list[Section]:
    """The allocation, told to a person; `assumed` experiments named no segments."""
    total = "expected loss" if found.portfolio.objective == "expected" else "total regret"
    return [
        section(
            f"{found.portfolio.size:,} experiments, firm budget {found.firm_budget:g}, "
            f"{found.regime} regime, judged by the {_JUDGED[found.portfolio.objective]}",
            f"{verdict(found, extras.outcomes)} {next_nat(found)}",
        ),
        _experiments(found, rows, assumed),
        _rules(extras, total),
        *_optional(extras, total),
        *(
            []
            if extras.label is None
            else [section("One label for life", label_words(found, extras.label))]
        ),
        section("Certificate", _certificate(found)),
    ]


def _experiments(found: Allocation, rows: int, assumed: int) -> Section:
    frame = found.frame()
    shown = frame if rows == 0 else frame.head(rows)
    layered = any(layer is not None for layer in found.portfolio.groups)
    expected = found.portfolio.objective == "expected"
    lost = "expected loss" if expected else "regret bound"
    header = ("experiment", "arms", "visitors", "segments", *(("layer",) if layered else ()),
              "strategy", "budget", lost, "saved", "next nat saves")  # fmt: skip
    gains = dict(zip(found.portfolio.ids, next_gain(found), strict=True))
    body = tuple(
        (
            row["id"],
            f"{row['arms']}",
            f"{row['visitors']:,}",
            f"{row['segments']}",
            *((row["layer"] or "",) if layered else ()),
            row["strategy"],
            f"{row['budget']:.6f}",
            f"{row['regret']:,.0f}",
            f"{row['saved']:,.0f}",
            gains[row["id"]],
        )
        for row in shown.iter_rows(named=True)
    )
    hidden = frame.height - shown.height
    text = f"The {rows} largest budgets; {hidden:,} more with --rows 0. " if hidden else ""
    alone = int((found.portfolio.segments == 1).sum()) if found.portfolio.form == "summed" else 0
    if alone:
        have = "experiment has" if alone == 1 else "experiments have"
        text += f"{alone:,} {have} one segment: nothing can leak there and no budget is needed."
    if assumed and found.portfolio.form == "summed":
        name = "experiment names" if assumed == 1 else "experiments name"
        text += f"{assumed:,} {name} no segments: {SEGMENTS} of one size are assumed."
    if "limit" in gains.values():
        text += " “limit”: it could use more than it may have."
    return section("Budgets", text.strip(), header, body)


def _rules(extras: Extras, title: str) -> Section:
    shown = extras.outcomes
    if not extras.compared:
        shown = [o for o in shown if o.rule in ("optimal", "equal split", "zero", "random arms")]
    zero = next(o.total_regret for o in extras.outcomes if o.rule == "zero")
    body = tuple(
        (
            outcome.rule,
            f"{outcome.total_regret:,.0f}",
            f"{(zero - outcome.total_regret) / zero:.2%}" if zero else "0%",
            f"{outcome.cost_nano / NANO:.6g}",
            "yes" if outcome.affordable else "no",
        )
        for outcome in shown
    )
    header = ("rule", title, "saved against zero", "costs", "within the budget")
    words = "; ".join(f"{name}, {kind.at_zero}" for name, kind in STRATEGIES.items())
    text = f"Zero is budget 0 with the best strategy there ({words}); random arms is the paper's sense."
    return section("Against other rules", text, header, body)


def _optional(extras: Extras, total: str) -> Iterator[Section]:
    if extras.curve is not None:
        curve = extras.curve
        columns = (curve.firm_budgets, curve.total_regret, curve.share_of_gain, curve.shadow_value)
        body = tuple(
            (f"{budget:.4g}", f"{regret:,.0f}", f"{part:.1%}", short(price, 4))
            for budget, regret, part, price in zip(*columns, strict=True)
        )
        header = ("firm budget", total, "share of the largest gain", "lambda")
        text = f"Beyond {curve.unlimited_cost:.6g} nats nothing is gained."
        yield section("What if", text, header, body)
    if extras.share_budget is not None:
        yield section(
            "Least budget",
            f"{extras.share_budget:g} nats reach {extras.share:.4g} of what an unlimited firm "
            "budget saves.",
        )
    if extras.risk is not None:
        risk = extras.risk
        told = ", ".join(f"{q:.1%} stay at or below {risk.quantile(q):.4g}" for q in QUANTILES)
        yield section(
            "Realized risk",
            f"Worst case {risk.worst_case:.6g} nats, for a visitor who meets every experiment. Of "
            f"visitors who meet this share at random: mean {risk.mean:.4g}; {told}.",
        )


def _certificate(found: Allocation) -> str:
    named = (
        "an expected loss" if found.portfolio.objective == "expected" else "a total regret bound"
    )
    return (
        f"{found.certificate} No allocation has {named} below {found.lower_bound:,.3f}; this one has "
        f"{found.total_regret:,.3f} and saves {found.total_saved:,.3f}. "
        f"{found.seconds * 1000:,.0f} ms."
    )
