"""`deniable init`: make a store, its key file, the firm's budget and a first admin key."""

from __future__ import annotations

from typing import Annotated

import typer

from deniable.cli.printing import AsJson, print_json
from deniable.cli.stores import KeyFile, Store, made, settings_of

app = typer.Typer(add_completion=False)


@app.command()
def init(
    budget: Annotated[float, typer.Option(help="The firm's privacy budget in nats.")],
    window_days: Annotated[
        int, typer.Option(help="Length in days of the window in which at most the budget is spent.")
    ] = 90,
    reason: Annotated[str, typer.Option(help="Reason, required to raise a budget.")] = "",
    store: Store = "",
    key_file: KeyFile = "",
    accept_empty_store: Annotated[
        bool,
        typer.Option(
            help="Start on an empty store even if a key file shows that there was another one."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create the store, set the firm's budget and print an admin API key (shown once)."""
    with made(store, key_file, accept_empty=accept_empty_store) as service:
        firm = service.firm.set(budget=budget, window_days=window_days, reason=reason)
        secret = None
        if not any(key.revoked_at is None and "admin" in key.scopes for key in service.keys.all()):
            secret, _ = service.keys.create("admin", ("decide", "reward", "read", "admin"))
    if as_json:
        print_json({"store": settings_of(store, key_file).store, "firm": firm, "admin_key": secret})
        return
    typer.echo(
        f"store ready; at most {firm.budget:g} nats in any {firm.window_days} days, "
        f"{firm.committed:g} of them count now"
    )
    typer.echo(
        f"admin key (shown once): {secret}" if secret else "admin key: kept the existing one"
    )
