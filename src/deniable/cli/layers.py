"""`deniable layers`: which experiments should exclude each other, on the command line."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deniable.cli.printing import AsJson, ChartFile, check_chart, write_chart
from deniable.errors import InvalidArgumentError

if TYPE_CHECKING:
    from deniable.planning.sections import Section
    from deniable.portfolio.layers import LayerDesign

app = typer.Typer(add_completion=False)


@app.command()
def layers(
    portfolio: Annotated[
        Path, typer.Argument(help="File of experiments with base_rate (.csv, .parquet or .toml).")
    ],
    firm_budget: Annotated[float, typer.Option(help="The firm's budget in nats.")],
    meets: Annotated[
        int | None, typer.Option(help="Maximum number of experiments that a visitor meets.")
    ] = None,
    together: Annotated[
        list[str] | None,
        typer.Option(help="Experiments that share visitors, such as a,b,c. Can be repeated."),
    ] = None,
    regime: Annotated[
        str, typer.Option(help="flexible (the best for each), or a strategy.")
    ] = "flexible",
    out: Annotated[Path | None, typer.Option(help="Write to FILE.(csv|json).")] = None,
    as_json: AsJson = False,
    chart: ChartFile = None,
) -> None:
    """Propose layers: experiments of one layer share no visitor and cost their largest budget."""
    from deniable.cli.printing import print_sections
    from deniable.portfolio.layers import design_layers
    from deniable.portfolio.table import check_out_path, read_portfolio

    check_chart(chart)
    if out is not None:
        check_out_path(out)
    experiments = read_portfolio(portfolio)
    if experiments.objective != "expected":
        raise InvalidArgumentError("portfolio", str(portfolio), "a file with a column base_rate")
    sets = None if together is None else [_names(text) for text in together]
    design = design_layers(experiments, firm_budget, meets=meets, together=sets, regime=regime)
    if as_json:
        typer.echo(json.dumps(design.to_dict(), indent=2))
    else:
        print_sections(layer_sections(design))
    if out is not None:
        _write(design, out)
        typer.echo(f"layers: {out}", err=True)
    write_chart(design.chart, chart)


def layer_sections(design: LayerDesign) -> list[Section]:
    """The layers, told to a person."""
    from deniable.planning.sections import Section

    shown = design.rows()
    body = tuple(
        (
            row["layer"],
            row["id"],
            f"{row['share']:.0%}",
            f"{row['visitors']:,}",
            row["strategy"],
            f"{row['budget']:.4f}",
        )
        for row in shown
    )
    curve = tuple(
        (f"{count}", _number(loss), _number(design.one_sum_loss - loss, "+"))
        for count, loss in zip(design.n_layers, design.losses.tolist(), strict=True)
    )
    count = f"{len(design.layers)} layer{'s' if len(design.layers) > 1 else ''}"
    return [
        Section(
            f"{len(shown)} experiments, firm budget {design.firm_budget:g}: {count}",
            f"{_verdict(design)} Budgets within the layers are "
            f"{'certified' if design.certified else 'NOT certified'}; which experiments go together "
            "was searched for, not proven.",
        ),
        Section(
            "Layers",
            "A visitor enters one experiment of a layer, by a keyed hash. Those outside an experiment "
            f"see its arms at random: {design.outside:,.0f} of the loss.",
            ("layer", "experiment", "share", "visitors", "strategy", "budget"),
            body,
        ),
        Section(
            "What if there were more, or fewer",
            "",
            ("layers", "expected loss", "saved against one big sum"),
            curve,
        ),
    ]


def _number(value: float, sign: str = "") -> str:
    return f"{round(value):{sign},d}" if math.isfinite(value) else "-"


def _verdict(design: LayerDesign) -> str:
    if all(len(layer.experiments) == 1 for layer in design.layers):
        return (
            "Let every visitor meet every experiment: budgets add up, and still no layer loses less. "
            f"Expected loss {design.total_loss:,.0f}."
        )
    if math.isinf(design.one_sum_loss):
        return (
            f"Expected loss {design.total_loss:,.0f}. Every visitor in every experiment is impossible: "
            "the least budgets add up to more than the firm's."
        )
    return (
        f"Expected loss {design.total_loss:,.0f} instead of {design.one_sum_loss:,.0f} with every "
        f"visitor in every experiment: {design.saved:,.0f} less."
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _write(design: LayerDesign, path: Path) -> None:
    if path.suffix.lower() == ".json":
        path.write_text(json.dumps(design.to_dict(), indent=2) + "\n", encoding="utf-8")
        return
    rows = design.rows()
    with path.open("w", newline="", encoding="utf-8") as target:
        writer = csv.DictWriter(target, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
