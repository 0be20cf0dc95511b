"""Opens a store from a URL, creates the schema of an empty one, and migrates an older one.

Only `migrate` changes a schema. Processes of two versions may be running while a service is updated, so
opening a store that is older or newer than this version is refused.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, insert, inspect, text
from sqlalchemy.exc import DBAPIError

from deniable.errors import (
    InvalidArgumentError,
    MigrationNeededError,
    StoreUnavailableError,
    WrongStateError,
)
from deniable.storage.chain import GENESIS
from deniable.storage.schema import COMMITMENT_CHAIN, HEAD, metadata, writers
from deniable.storage.sqlite import MemoryStore, SqliteStore
from deniable.storage.store import Store

if TYPE_CHECKING:
    from deniable.storage.postgres import PostgresStore


ALLOWED = "sqlite:///FILE, postgresql://USER@HOST/DATABASE or memory:"
MIGRATIONS = Path(__file__).parent / "migrations"

ATTEMPTS = 20
"""How often a process tries to create a schema that others are creating too."""


class Revisions(NamedTuple):
    """The revision a store was at, None if it was empty, and the one this version needs."""

    stored: str | None
    needed: str


def connect(url: str) -> Store:
    """Open the store at `url`, and create its schema if it is empty.

    Raises:
        MigrationNeededError: its schema is older than this version of Deniable.
        WrongStateError: its schema is newer, or a pooler gives each transaction another connection.
    """
    store = _opened(url)
    try:
        _at_head(store, upgrade=False)
    except BaseException:
        store.close()
        raise
    return store


def migrate(url: str, *, check: bool = False) -> Revisions:
    """Bring the schema of the store at `url` to the one of this version, in one transaction.

    Args:
        url: the store.
        check: change nothing.
    """
    store = _opened(url)
    try:
        if not check:
            return Revisions(_at_head(store, upgrade=True), HEAD)
        with store.read() as connection:
            stored = revision(connection)
        _refuse_newer(stored)
        return Revisions(stored, HEAD)
    finally:
        store.close()


def _opened(url: str) -> MemoryStore | SqliteStore | PostgresStore:
    if url == "memory:":
        return MemoryStore()
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return SqliteStore(url.removeprefix("sqlite:///"))
    if url.startswith(("postgresql://", "postgres://")):
        from deniable.storage.postgres import PostgresStore

        store = PostgresStore(url)
        store.check_sessions()
        return store
    raise InvalidArgumentError("url", url.split("@")[-1], ALLOWED)


def revision(connection: Connection) -> str | None:
    """Return the store's revision; None if it is empty."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def schema_problem(connection: Connection) -> str | None:
    """Return why this version cannot use the schema of a store that it has opened; None if it can."""
    stored = revision(connection)
    if stored == HEAD:
        return None
    return f"the store is at revision {stored}, this process needs {HEAD}: use the newer version"


def _refuse_newer(stored: str | None) -> None:
    if stored is not None and stored > HEAD:
        raise WrongStateError(
            f"the store is at revision {stored}, this version of Deniable needs {HEAD}: "
            "use the newer version"
        )


def _at_head(store: MemoryStore | SqliteStore | PostgresStore, *, upgrade: bool) -> str | None:
    """Create the schema of an empty store; upgrade another one if wanted. Return what it was.

    Safe if several processes start at once.
    """
    for attempt in range(ATTEMPTS):
        try:
            with store.engine.begin() as connection:
                stored = revision(connection)
                if stored == HEAD:
                    return stored
                _refuse_newer(stored)
                if stored is not None and not upgrade:
                    raise MigrationNeededError(stored, HEAD)
                _upgrade(connection)
                return stored
        except DBAPIError as error:  # another process was creating the same tables
            if attempt == ATTEMPTS - 1:
                raise StoreUnavailableError(f"cannot open {store.url}: {error.orig}") from error
            time.sleep(0.02 * attempt)
    raise AssertionError("the last attempt returns or raises")


def _upgrade(connection: Connection) -> None:
    # Imported here, because there is seldom something to do.
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(MIGRATIONS))
    context = MigrationContext.configure(connection)
    stored = context.get_current_revision()
    if stored is None:
        _create(connection)
    else:
        with Operations.context(context):
            for step in reversed(list(scripts.iterate_revisions("head", stored))):
                step.module.upgrade()
    context.stamp(scripts, "head")


def _create(connection: Connection) -> None:
    """Create all tables, and the empty chain of commitments."""
    metadata.create_all(connection)
    chain = {"id": COMMITMENT_CHAIN, "lease_until": 0, "seq": 0, "head": GENESIS}
    connection.execute(insert(writers), chain)
    if connection.dialect.name == "sqlite":
        # Without statistics, SQLite assumes ten rows per experiment, and scans all of them when
        # looking up more than a few visitors.
        connection.exec_driver_sql("ANALYZE")
        connection.exec_driver_sql("DELETE FROM sqlite_stat1 WHERE tbl = 'decisions'")
        connection.exec_driver_sql(
            "INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES "
            "('decisions', 'sqlite_autoindex_decisions_1', '1000000 100000 1'), "
            "('decisions', 'decisions_visitor', '1000000 1')"
        )
