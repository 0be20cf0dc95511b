"""How commands print records, as tables or JSON; the options that ask for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from deniable.report.terminal import print_table

if TYPE_CHECKING:
    from altair.typing import ChartType

T = TypeVar("T")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]
ChartFile = Annotated[Path | None, typer.Option(help="Write a chart to FILE.(svg|png|pdf|html).")]


def check_chart(path: str | Path | None) -> None:
    """Refuse a file that a chart cannot be written to, before the work begins."""
    if path is not None:
        from deniable.charts.save import check_chart_path

        check_chart_path(path)


def write_chart(draw: Callable[[], ChartType], path: Path | None) -> None:
    """Write what `draw` returns, if a chart was asked for, and say so."""
    if path is not None:
        from deniable.charts.save import save_chart

        save_chart(draw(), path)
        typer.echo(f"chart: {path}", err=True)


def print_json(value: object) -> None:
    """A record, or a list of them, as JSON."""
    typer.echo(json.dumps(value, indent=2, default=_plain))


def print_found(
    found: Sequence[T],
    title: str,
    columns: Sequence[str],
    row: Callable[[T], Sequence[object]],
    *,
    as_json: bool,
) -> None:
    """Records as JSON, or as a table for people."""
    if as_json:
        print_json(found)
    else:
        print_table(title, columns, [row(one) for one in found])


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")
