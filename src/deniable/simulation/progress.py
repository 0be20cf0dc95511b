"""Progress of a run: nothing, or a bar on standard error that appears once a run takes a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


def no_progress(done: int, total: int) -> None:
    """Say nothing."""


@contextmanager
def progress_bar(title: str = "simulating") -> Iterator[Callable[[int, int], None]]:
    """A bar for `simulate(progress=...)`.

    ::

        with progress_bar() as progress:
            simulate(environment, policies, progress=progress)
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield update
