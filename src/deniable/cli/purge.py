"""`deniable purge`: retention, forgetting everybody who was decided for long ago."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated

import typer

from deniable.cli.printing import AsJson
from deniable.cli.progress import progress_bar
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
    with opened(store, key_file) as service, progress_bar("decisions") as progress:
        done = service.visitors.purge(
            before=before, running=running, progress=partial(progress, "erasing")
        )
    print_erasure(done, as_json)
