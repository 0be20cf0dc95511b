"""Sections of a report on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from deniable.planning.report import Section


def print_sections(sections: Sequence[Section]) -> None:
    """Heading, paragraph, table; plain where the output is not a terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=110)
    for section in sections:
        console.print(Text(section.title, style="bold"))
        if section.text:
            console.print(Text(section.text))
        if section.rows:
            table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
            for i, cell in enumerate(section.header):
                table.add_column(cell, justify="right" if i else "left")
            for row in section.rows:
                table.add_row(*(Text(cell) for cell in row))
            console.print(table)
        else:
            console.print()
