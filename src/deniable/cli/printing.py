"""How commands print: reports in sections, records as tables or JSON; the options that ask for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from altair.typing import ChartType
    from rich.console import Console

    from deniable.planning.sections import Section

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


def print_sections(sections: Sequence[Section]) -> None:
    """A report: heading, paragraph and table of each section; the first column is a name."""
    for section in sections:
        header = section.header if section.rows else ()
        _print(
            section.title, section.text, header, section.rows, [n > 0 for n in range(len(header))]
        )


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


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows for people; numbers to the right."""
    right = [
        bool(rows) and all(isinstance(row[place], int | float) for row in rows)
        for place in range(len(columns))
    ]
    _print(title, "", columns, rows, right)


def _print(
    title: str,
    text: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    right: Sequence[bool],
) -> None:
    """The one place where tables are printed."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = _console()
    console.print(Text(title, style="bold"))
    if text:
        console.print(Text(text))
    if not columns:
        console.print()
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, is_right in zip(columns, right, strict=True):
        table.add_column(column, justify="right" if is_right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_shown(cell)) for cell in row))
    console.print(table)


def _shown(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, datetime):
        return cell.strftime("%Y-%m-%d %H:%M")
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def _console() -> Console:
    """Plain, and of a fixed width, where the output is not a terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=110)
