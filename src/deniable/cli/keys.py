"""`deniable keys`: API keys of the HTTP service."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from deniable.cli.printing import AsJson, print_found, print_json
from deniable.cli.stores import KeyFile, Store, opened
from deniable.errors import WrongStateError

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Manage API keys and their scopes."
)


@app.command()
def create(
    label: Annotated[str, typer.Argument(help="Label that says what the key is for.")],
    scope: Annotated[
        list[str],
        typer.Option(
            help="decide, reward, read, draft, run, audit, privacy or admin. Can be repeated."
        ),
    ],
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Create a key; its secret is printed once and never stored."""
    from deniable.storage.records import Scope

    with opened(store, key_file) as service:
        secret, key = service.keys.create(label, cast(list[Scope], scope))
    if as_json:
        print_json({"secret": secret, "key": key})
    else:
        typer.echo(secret)


@app.command("list")
def list_all(store: Store = "", key_file: KeyFile = "", as_json: AsJson = False) -> None:
    """List all keys, without their secrets."""
    with opened(store, key_file) as service:
        found = service.keys.all()
    print_found(
        found,
        "API keys",
        ("id", "label", "scopes", "created", "last used", "revoked"),
        lambda k: (k.id, k.label, " ".join(k.scopes), k.created_at, k.last_used_at, k.revoked_at),
        as_json=as_json,
    )


@app.command()
def rotate_visitor_key() -> None:
    """Not possible yet: a new key would cause a new draw for every visitor."""
    raise WrongStateError(
        "the visitor key cannot be rotated while anything counts: with another key everybody is drawn "
        "for again, so everything would be spent twice. Stop the experiments, wait for the window to "
        "pass, and begin a new store with a new key"
    )


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="Id of the key, from `deniable keys list`.")],
    store: Store = "",
    key_file: KeyFile = "",
) -> None:
    """Revoke a key."""
    with opened(store, key_file) as service:
        key = service.keys.revoke(key_id)
    typer.echo(f"{key.id} ({key.label}) is revoked")
