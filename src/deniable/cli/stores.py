"""What the commands on a store share: its two options, and opening it."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deniable.cli.printing import print_json
from deniable.errors import WrongStateError
from deniable.service.limits import DEFAULT_STORE

if TYPE_CHECKING:
    from deniable.service.service import Deniable
    from deniable.service.settings import Settings
    from deniable.storage.erasure import Erasure

Store = Annotated[
    str,
    typer.Option(
        envvar="DENIABLE_STORE",
        help="Store: sqlite:///FILE or postgresql://USER@HOST/NAME.",
        show_default=f"from DENIABLE_CONFIG, else {DEFAULT_STORE}",
    ),
]
KeyFile = Annotated[
    str,
    typer.Option(
        envvar="DENIABLE_KEY_FILE",
        help="File with the visitors' HMAC key.",
        show_default="from DENIABLE_CONFIG, else beside the SQLite file",
    ),
]


def opened(store: str, key_file: str) -> Deniable:
    """The service on this store, which must be there: only `init` and `serve` make one."""
    settings = settings_of(store, key_file)
    require_store(settings)
    return _open(settings)


def require_store(settings: Settings) -> None:
    """Refuse a store that is not there."""
    if not exists(settings.store):
        shown = settings.store.split("@")[-1]
        raise WrongStateError(
            f"there is no store at {shown}: set --store, DENIABLE_STORE or DENIABLE_CONFIG, "
            "or create one with `deniable init`"
        )


def made(store: str, key_file: str, *, accept_empty: bool) -> Deniable:
    """The service on this store, made where it is not there."""
    settings = settings_of(store, key_file, accept_empty_store=accept_empty)
    require_expected(settings)
    return _open(settings)


def settings_of(store: str, key_file: str, **more: object) -> Settings:
    """The settings in force, with the store that a command was given."""
    from deniable.service.settings import load

    return load({"store": store or None, "key_file": key_file or None, **more})


def require_expected(settings: Settings) -> None:
    """Ask before an empty store takes the place of one that was there, as its key file shows."""
    from deniable.service.ids import ENVIRONMENT, key_file_of

    if settings.accept_empty_store or ENVIRONMENT in os.environ or settings.store == "memory:":
        return
    path = key_file_of(settings.store, settings.key_file or None)
    if not path.exists() or exists(settings.store):
        return
    question = (
        f"{path} is the key of a store, but {settings.store.split('@')[-1]} is empty. "
        "All visitors would get a new draw and spend their budget twice"
    )
    if sys.stdin.isatty() and typer.confirm(f"{question}. Start on the empty store?"):
        return
    raise WrongStateError(
        f"{question}: restore the store, or give --accept-empty-store if it is really new"
    )


def exists(url: str) -> bool:
    """Whether there is a store: a file with content, or a database with our tables."""
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        return path.is_file() and path.stat().st_size > 0
    if not url.startswith(("postgresql://", "postgres://")):
        return True  # whatever else it is, opening it will tell
    from deniable.storage.connect import revision
    from deniable.storage.postgres import PostgresStore

    store = PostgresStore(url)
    try:
        with store.read() as connection:
            return revision(connection) is not None
    finally:
        store.close()


def _open(settings: Settings) -> Deniable:
    from deniable.service.service import open as open_service
    from deniable.storage.commitments import act_as

    act_as("shell", _shell_user())
    return open_service(settings.store, key_file=settings.key_file or None)


def _shell_user() -> str:
    """Who runs the command, as far as the system knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an id without a name, as in containers
        return str(os.getuid())


def print_erasure(outcome: Erasure, as_json: bool) -> None:
    """Say how many decisions were stripped of their visitor."""
    if as_json:
        print_json(outcome)
        return
    typer.echo(f"{outcome.decisions:,} decisions forgotten; counters and ledger keep their totals")
