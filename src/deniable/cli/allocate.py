"""`deniable allocate`: the firm's budget over its experiments, on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from deniable.errors import InvalidArgumentError
from deniable.strategies import STRATEGIES

app = typer.Typer(add_completion=False)


@app.command()
def allocate(
    portfolio: Annotated[
        Path | None, typer.Argument(help="Experiments: a .csv, .parquet or .toml file.")
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
            help="expected (clicks that will be lost; where the file has base_rate) or bound."
        ),
    ] = None,
    reserve: Annotated[float, typer.Option(help="Nats kept back for later experiments.")] = 0.0,
    gap: Annotated[
        float, typer.Option(help="The part of the possible saving that may be missed.")
    ] = 1e-4,
    time_limit: Annotated[float, typer.Option(help="Seconds before the best found is told.")] = 10,
    compare: Annotated[bool, typer.Option("--compare", help="Every rule in one table.")] = False,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="The optimum over other firm budgets.")
    ] = False,
    share: Annotated[
        float | None,
        typer.Option(help="Tell the least firm budget for this share of the largest gain: .9"),
    ] = None,
    participation: Annotated[
        float | None,
        typer.Option(help="Share of experiments a visitor meets: tells the realized risk."),
    ] = None,
    rows: Annotated[int, typer.Option(help="Experiments listed; 0 lists all.")] = 25,
    illustration: Annotated[
        bool, typer.Option("--illustration", help="The paper's two experiments; no file needed.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write to FILE.(csv|json).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    chart: Annotated[Path | None, typer.Option(help="Draw to FILE.(svg|png|pdf|html).")] = None,
) -> None:
    """Divide a firm's privacy budget over its experiments, with a proof of how good it is."""
    from deniable.cli.allocation_report import Extras, allocation_sections
    from deniable.cli.sections import print_sections
    from deniable.portfolio.allocation import allocate as solve
    from deniable.portfolio.problem import Portfolio

    if chart is not None:
        from deniable.charts.save import check_chart_path, save_chart

        check_chart_path(chart)
    if out is not None:
        from deniable.portfolio.table import check_out_path, write_allocation

        check_out_path(out)
    if rows < 0:
        raise InvalidArgumentError("rows", rows, "a whole number, 0 or more")
    assumed = 0
    if illustration:
        from deniable.portfolio.illustration import TWO_EXPERIMENTS

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
    found = solve(
        experiments, firm_budget, regime=regime, reserve=reserve, gap=gap, time_limit=time_limit
    )
    extras = Extras.of(
        found, compare=compare, what_if=what_if, share=share, participation=participation
    )
    if as_json:
        typer.echo(json.dumps({**found.to_dict(), **extras.to_dict()}, indent=2))
    else:
        print_sections(allocation_sections(found, extras, rows, assumed))
    if out is not None:
        write_allocation(found, out)
        typer.echo(f"allocation: {out}", err=True)
    if chart is not None:
        if illustration:
            from deniable.charts.illustration import two_experiments

            drawing = two_experiments()
        else:
            from deniable.charts.portfolio import allocation_chart

            drawing = allocation_chart(found, compared=compare)
        save_chart(drawing, chart)
        typer.echo(f"chart: {chart}", err=True)
