"""Migrates a store to the current schema. Alembic is imported only if there is something to do."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import DBAPIError

from deniable.errors import StoreUnavailableError, WrongStateError
from deniable.storage.schema import HEAD


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
