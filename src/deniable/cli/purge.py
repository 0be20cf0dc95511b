"""`deniable purge`: retention, forgetting everybody who was decided for long ago."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from deniable.cli.printing import AsJson
from deniable.cli.stores import KeyFile, Store, opened, print_erasure
from deniable.errors import InvalidArgumentError

app = typer.Typer(add_completion=False)


@app.command()
def purge(
    older_than_days: Annotated[
        float, typer.Option(help="Erase visitors of decisions older than this many days.")
    ],
    running: Annotated[bool, typer.Option(help="Include running and paused experiments.")] = False,
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Erase visitors of old decisions in stopped (or all) experiments."""
    if not 0 <= older_than_days <= 36_600:
        raise InvalidArgumentError("older_than_days", older_than_days, "0 to 36600")
    before = datetime.now(UTC) - timedelta(days=older_than_days)
    with opened(store, key_file) as service, _progress() as told:
        done = service.visitors.purge(before=before, running=running, progress=told)
    print_erasure(done, as_json)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, so that standard output stays the result."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("decisions"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
