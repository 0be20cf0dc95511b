"""Prints reports and tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from deniable.report.content import Block, Bullets, Fields, Paragraph, Section, Table

if TYPE_CHECKING:
    from rich.console import Console


def print_sections(sections: Sequence[Section]) -> None:
    """Print heading, text and tables of each section; charts and signature lines are left out."""
    console = _console()
    for section in sections:
        _heading(console, section.title)
        for block in section.blocks:
            _print_block(console, block)
        if not isinstance(section.blocks[-1] if section.blocks else None, Table):
            console.print()


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows for people; numbers to the right."""
    right = [
        bool(rows) and all(isinstance(row[place], int | float) for row in rows)
        for place in range(len(columns))
    ]
    console = _console()
    _heading(console, title)
    _print_rows(console, columns, rows, right)


def _heading(console: Console, title: str) -> None:
    from rich.text import Text

    console.print(Text(title, style="bold"))


def _print_block(console: Console, block: Block) -> None:
    from rich.text import Text

    if isinstance(block, Paragraph):
        console.print(Text(block.text))
    elif isinstance(block, Bullets):
        console.print(Text("\n".join(f"- {item}" for item in block.items)))
    elif isinstance(block, Fields):
        lines = (f"{row.label}: {row.value or row.hint}" for row in block.rows)
        console.print(Text("\n".join(lines)))
    elif isinstance(block, Table):
        right = [place >= block.words for place in range(len(block.header))]
        _print_rows(console, block.header, block.rows, right)


def _print_rows(
    console: Console,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    right: Sequence[bool],
) -> None:
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    if not columns:
        console.print()
        return
    table = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
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


def _console() -> Console:
    """Return a plain console of a fixed width where the output is not a terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=110)
