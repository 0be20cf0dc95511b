"""`deniable audit firm`: budgets, windows, layers and every experiment's promise, from the chain."""

from __future__ import annotations

import typer

from deniable.cli.stores import DEFAULT_STORE, AsJson, KeyFile, Store, opened, print_json

BROKEN = 1


def audit_firm(
    store: Store = DEFAULT_STORE, key_file: KeyFile = "", as_json: AsJson = False
) -> None:
    """Check the chains."""
    with opened(store, key_file) as service:
        found = service.ledger.verify()
    if as_json:
        print_json({"sound": found.sound, **vars(found)})
    else:
        typer.echo("sound" if found.sound else f"BROKEN: {found.problem}")
    if not found.sound:
        raise typer.Exit(BROKEN)
