"""`deniable init`: make a store, its key file, the firm's budget and a first admin key."""

from __future__ import annotations

from typing import Annotated

import typer

from deniable.cli.stores import DEFAULT_STORE, AsJson, KeyFile, Store, made, print_json, settings_of

app = typer.Typer(add_completion=False)


@app.command()
def init(
    budget: Annotated[float, typer.Option(help="The firm's privacy budget in nats.")],
    days: Annotated[
        float | None, typer.Option(help="How long it must last; open if left out.")
    ] = None,
    store: Store = DEFAULT_STORE,
    key_file: KeyFile = "",
    accept_empty_store: Annotated[
        bool, typer.Option(help="Although a key file says that there was another one.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the tables, open a budget period and print an admin API key (shown once)."""
    with made(store, key_file, accept_empty=accept_empty_store) as service:
        firm = service.set_firm(budget=budget, days=days)
        secret = None
        if not any(key.revoked_at is None and "admin" in key.scopes for key in service.api_keys()):
            secret, _ = service.create_api_key("admin", ("decide", "reward", "read", "admin"))
    if as_json:
        print_json({"store": settings_of(store, key_file).store, "firm": firm, "admin_key": secret})
        return
    until = "open-ended" if firm.ends_at is None else f"until {firm.ends_at:%Y-%m-%d %H:%M} UTC"
    typer.echo(f"store ready; budget {firm.budget:g} nats, {firm.committed:g} committed, {until}")
    typer.echo(
        f"admin key (shown once): {secret}" if secret else "admin key: kept the existing one"
    )
