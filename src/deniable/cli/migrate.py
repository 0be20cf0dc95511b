"""`deniable migrate`: the only command that changes the schema of a store."""

from __future__ import annotations

from typing import Annotated

import typer

from deniable.cli.stores import KeyFile, Store, require_store, settings_of

app = typer.Typer(add_completion=False)

NEEDED = 1


@app.command()
def migrate(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with 1 if a migration is needed.")
    ] = False,
    store: Store = "",
    key_file: KeyFile = "",
) -> None:
    """Bring the store's schema to the one of this version, in one transaction. Back it up before.

    A service of this version that was started before waits for it. One of the earlier version that is
    still running is no longer ready.
    """
    from deniable.storage.connect import migrate as migrate_store

    settings = settings_of(store, key_file)
    require_store(settings)
    stored, needed = migrate_store(settings.store, check=check)
    if stored == needed:
        typer.echo(f"the store is at revision {needed}, which this version needs: nothing to do")
    elif check:
        typer.echo(f"the store is at revision {stored}, this version needs {needed}: migrate it")
        raise typer.Exit(NEEDED)
    else:
        typer.echo(f"the store was at revision {stored} and is at {needed} now")
