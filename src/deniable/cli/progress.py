"""The progress bar of long commands, on standard error so that standard output stays the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import TaskID


@contextmanager
def progress_bar(unit: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for each step of a command, if standard error is a terminal.

    Args:
        unit: what is counted, such as "rows".

    Yields:
        A function to call with the step, how much of it is done, and the total.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(f"{{task.completed:,}} of {{task.total:,}} {unit}"),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as bar:

        def update(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bar.add_task(step, total=total)
            bar.update(tasks[step], completed=done, total=total)

        yield update
