"""`deniable leak`: what an exposure log tells a tracker today."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from deniable._numbers import numbers
from deniable.cli.printing import AsJson, ChartFile, check_chart, write_chart
from deniable.errors import InvalidArgumentError
from deniable.report.terminal import print_sections

app = typer.Typer(add_completion=False)

_COLUMN = "Column of the"


@app.command()
def leak(
    file: Annotated[Path, typer.Argument(help="Exposure log: CSV, Parquet or JSON lines.")],
    segment: Annotated[
        str | None, typer.Option(help=f"{_COLUMN} segment; several are joined: tier,country")
    ] = None,
    variant: Annotated[str | None, typer.Option(help=f"{_COLUMN} shown variant.")] = None,
    visitor: Annotated[
        str | None, typer.Option(help=f"{_COLUMN} visitor id; - to read none.")
    ] = None,
    time: Annotated[str | None, typer.Option(help=f"{_COLUMN} time; - to read none.")] = None,
    count: Annotated[
        str | None, typer.Option(help=f"{_COLUMN} exposures that a row stands for; - for one.")
    ] = None,
    reward: Annotated[
        str | None, typer.Option(help=f"{_COLUMN} reward, such as clicks; - to read none.")
    ] = None,
    propensity: Annotated[
        str | None,
        typer.Option(help=f"{_COLUMN} probability with which the variant was drawn; - for none."),
    ] = None,
    experiment: Annotated[
        str | None, typer.Option(help=f"{_COLUMN} experiment; - for a single one.")
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(help=f"{_COLUMN} context, such as the device: what is told beyond it."),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Probability with which all limits hold together.")
    ] = 0.95,
    budgets: Annotated[str, typer.Option(help="Budgets to compare, in nats.")] = ".1,.5,1,2,3",
    rows: Annotated[int, typer.Option(help="Maximum number of rows per table.", min=1)] = 10,
    as_json: AsJson = False,
    chart: ChartFile = None,
    out: Annotated[Path | None, typer.Option(help="Write a report to FILE.html.")] = None,
) -> None:
    """Measure what a tracker that sees the shown variants learns about visitors' segments.

    Column names are guessed and printed; name them if the guess is wrong. Needs no service.
    """
    from deniable.leak.report import measure_leak
    from deniable.leak.words import leak_sections

    check_chart(chart)
    if out is not None and (out.suffix.lower() != ".html" or not out.parent.is_dir()):
        raise InvalidArgumentError(
            "out", str(out), "a file that ends in .html, in a folder that exists"
        )
    with _rows_read() as progress:
        found = measure_leak(
            file,
            columns={
                "segment": segment,
                "variant": variant,
                "visitor": visitor,
                "time": time,
                "count": count,
                "reward": reward,
                "propensity": propensity,
                "experiment": experiment,
                "context": context,
            },
            confidence=confidence,
            budgets=numbers("budgets", budgets),
            progress=progress,
        )
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    else:
        print_sections(leak_sections(found, rows))
    write_chart(found.chart, chart)
    if out is not None:
        out.write_text(found.html(), encoding="utf-8")
        typer.echo(f"report: {out}", err=True)


@contextmanager
def _rows_read() -> Iterator[Callable[[int], None]]:
    """A line on standard error with the rows read so far, where that is a terminal."""
    from rich.console import Console

    with Console(stderr=True).status("reading") as line:
        yield lambda rows: line.update(f"{rows:,} rows read")
