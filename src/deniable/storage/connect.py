"""Opens a store from a URL, and migrates it to the current schema if it is at an older one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import DBAPIError

from deniable.errors import InvalidArgumentError, StoreUnavailableError, WrongStateError
from deniable.storage.schema import HEAD
from deniable.storage.sqlite import MemoryStore, SqliteStore
from deniable.storage.store import Store

if TYPE_CHECKING:
    from deniable.storage.postgres import PostgresStore


ALLOWED = "sqlite:///FILE, postgresql://USER@HOST/DATABASE or memory:"


def connect(url: str) -> Store:
    """Open the store at `url`, creating or migrating its schema if needed."""
    store = _opened(url)
    try:
        migrate(store.engine)
    except BaseException:
        store.close()
        raise
    return store


def _opened(url: str) -> MemoryStore | SqliteStore | PostgresStore:
    if url == "memory:":
        return MemoryStore()
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return SqliteStore(url.removeprefix("sqlite:///"))
    if url.startswith(("postgresql://", "postgres://")):
        from deniable.storage.postgres import PostgresStore

        return PostgresStore(url)
    raise InvalidArgumentError("url", url.split("@")[-1], ALLOWED)


def revision(connection: Connection) -> str | None:
    """Return the store's migration; None if it is empty."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def migrate(engine: Engine) -> None:
    """Create or upgrade the schema. Safe if several processes start at once."""
    for attempt in range(10):
        try:
            with engine.begin() as connection:
                found = revision(connection)
                if found == HEAD:
                    return
                if found is not None and found > HEAD:
                    raise WrongStateError(
                        f"the store is at migration {found}, this version of Deniable knows {HEAD}: "
                        "use the newer version"
                    )
                _upgrade(connection)
        except DBAPIError as error:  # another process was creating the same tables
            if attempt == 9:
                where = engine.url.render_as_string(hide_password=True)
                raise StoreUnavailableError(f"cannot open {where}: {error.orig}") from error


def _upgrade(connection: Connection, target: str = "head") -> None:
    # Imported here, because there is seldom something to do.
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(Path(__file__).parent / "migrations"))
    context = MigrationContext.configure(connection)
    found = context.get_current_revision() or "base"
    steps = list(scripts.iterate_revisions(target, found))
    with Operations.context(context):
        for step in reversed(steps):
            step.module.upgrade()
    context.stamp(scripts, target)
