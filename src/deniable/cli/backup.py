"""`deniable backup`: the store as one file, and the heads of its ledger beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from deniable.cli.stores import KeyFile, Store, opened, settings_of
from deniable.errors import WrongStateError

app = typer.Typer(add_completion=False)


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="File to create; FILE.heads is written beside it.")],
    store: Store = "",
    key_file: KeyFile = "",
) -> None:
    """Copy a SQLite store, which may be in use. The copy contains segments: protect it like the store.

    It does not contain the visitor key. Keep a copy of the key elsewhere: the backup is useless without
    it.
    """
    from deniable.storage.ledger import verify
    from deniable.storage.sqlite import SqliteStore
    from deniable.storage.sqlite_files import copy_sqlite

    url = settings_of(store, key_file).store
    if not url.startswith("sqlite:///"):
        raise WrongStateError(
            "only SQLite stores are copied: use pg_dump for PostgreSQL, and note the heads that "
            "`deniable ledger verify` prints"
        )
    opened(store, key_file).close()  # at this version's schema, and the key is the right one
    copy_sqlite(Path(url.removeprefix("sqlite:///")), file)
    copied = SqliteStore(file)
    try:
        with copied.read() as connection:
            found = verify(connection, {})
    finally:
        copied.close()
    heads = file.with_name(f"{file.name}.heads")
    heads.write_text(json.dumps(found.heads, indent=2) + "\n", "utf-8")
    if not found.sound:
        raise WrongStateError(f"{file} is a copy of a ledger that does not hold: {found.problem}")
    typer.echo(f"{file}: {found.commitments:,} commitments, {found.decisions:,} decisions")
    typer.echo(f"{heads}: the heads of its chains; keep a copy of it outside of this machine")
