"""`deniable restore`: put a backup into place, check it, and commit what may be spent twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from deniable.cli.ledger import noted_heads
from deniable.cli.stores import KeyFile, Store, exists, opened, settings_of
from deniable.errors import NANO, InvalidArgumentError, WrongStateError

app = typer.Typer(add_completion=False)


@app.command()
def restore(
    file: Annotated[
        Path | None,
        typer.Argument(help="Backup file. Omit it if you restored the store by other means."),
    ] = None,
    head: Annotated[
        list[str] | None,
        typer.Option(help="CHAIN=LENGTH:HASH noted after the backup. Can be repeated."),
    ] = None,
    heads: Annotated[
        Path | None, typer.Option(help="FILE.heads of a later backup, or a copy of it.")
    ] = None,
    nothing_since: Annotated[
        bool, typer.Option(help="Nothing was decided since the backup, so commit nothing.")
    ] = False,
    store: Store = "",
    key_file: KeyFile = "",
) -> None:
    """Restore a store. Stop every service on it first.

    Decisions since the backup are lost, so their visitors get a new draw. Everything that counts is
    therefore committed once more, for one window from now on.
    """
    noted = {**_of_file(heads), **noted_heads(head or [])}
    url = settings_of(store, key_file).store
    if file is not None:
        _put_into_place(file, url)
    with opened(store, key_file) as service:
        found = service.ledger.verify(noted=noted if nothing_since else None)
        if not found.sound:
            raise WrongStateError(f"this store cannot be used: {found.problem}")
        typer.echo(f"sound: {found.commitments:,} commitments, {found.decisions:,} decisions")
        if nothing_since:
            typer.echo("no later head is known: nothing is committed again")
            return
        again = service.ledger.restored(noted=noted)
        firm = service.firm.current()
    typer.echo(
        f"recorded in the ledger: {again / NANO:g} nats are committed once more, for "
        f"{firm.window_days} days; {firm.committed_nano / NANO:g} of {firm.budget:g} nats count now"
    )
    typer.echo("next: start the service, run `deniable ledger verify`, and note its heads")


def _put_into_place(file: Path, url: str) -> None:
    from deniable.storage.sqlite_files import copy_sqlite

    if not url.startswith("sqlite:///"):
        raise WrongStateError(
            "only SQLite stores are put into place: use pg_restore for PostgreSQL, then call this "
            "command without a file"
        )
    target = Path(url.removeprefix("sqlite:///"))
    if exists(url):
        raise WrongStateError(f"{target} is there already: move it away, and keep it")
    copy_sqlite(file, target)


def _of_file(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidArgumentError("heads", str(path), "a file that `deniable backup` wrote")
    return noted_heads([f"{chain}={end}" for chain, end in found.items()])
