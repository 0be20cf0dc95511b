"""`deniable erase`: forget visitors, keep the totals and the promise."""

from __future__ import annotations

from typing import Annotated

import typer

from deniable.cli.printing import AsJson
from deniable.cli.stores import KeyFile, Store, opened, print_erasure

app = typer.Typer(add_completion=False)


@app.command()
def erase(
    visitor: Annotated[list[str], typer.Argument(help="Visitor ids, as sent to `decide`.")],
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Erase these visitors everywhere. A visitor who comes back gets an arm that reveals nothing."""
    with opened(store, key_file) as service:
        print_erasure(service.visitors.erase(visitor), as_json)
