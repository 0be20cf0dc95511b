"""What the commands on a store share: its two options, opening it, and tables and JSON to print."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from deniable.service.service import Deniable

Store = Annotated[
    str,
    typer.Option(envvar="DENIABLE_STORE", help="sqlite:///FILE or postgresql://USER@HOST/NAME."),
]
KeyFile = Annotated[
    str,
    typer.Option(envvar="DENIABLE_KEY_FILE", help="The visitors' HMAC key; made where missing."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]

DEFAULT_STORE = "sqlite:///deniable.db"


def opened(store: str, key_file: str) -> Deniable:
    """The service on this store."""
    from deniable.service.service import open as open_service

    return open_service(store, key_file=key_file or None)


def print_json(value: object) -> None:
    """A record, or a list of them, as JSON."""
    typer.echo(json.dumps(value, indent=2, default=_plain))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows for people; numbers to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=110)
    console.print(Text(title, style="bold"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[number], int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
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
