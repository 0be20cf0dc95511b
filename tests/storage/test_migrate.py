"""Migrations: they end at the declared schema, also when many processes start at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Select, select, text
from tests.patience import PATIENCE
from tests.postgres import PostgresServer

from deniable.errors import StoreUnavailableError, WrongStateError
from deniable.storage.connect import connect, migrate, revision
from deniable.storage.schema import HEAD, decisions, metadata

pytestmark = pytest.mark.usefixtures("real_migrations")


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


def test_the_migrations_make_the_declared_schema(empty_url: str) -> None:
    store = connect(empty_url)
    with store.begin() as connection:
        assert revision(connection) == HEAD
        dialect = connection.dialect.name

        def declared_here(thing: Any, *_others: object) -> bool:
            """Alembic does not look at what `ddl_if` says."""
            condition = getattr(thing, "_ddl_if", None)
            return condition is None or condition.dialect == dialect

        options = {"compare_type": True, "include_object": declared_here}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []
    store.close()


@pytest.mark.parametrize("visitors", [1, 30, 200])
def test_visitors_are_found_by_their_index(tmp_path: Path, visitors: int) -> None:
    """SQLite would rather read the whole experiment, if nobody told it how large that is."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    connect(url).close()
    wanted = select(decisions.c.id).where(
        decisions.c.experiment_id == bytes(16), decisions.c.visitor.in_([bytes(16)] * visitors)
    )
    with connect(url).read() as connection:
        assert "decisions_visitor" in _plan(connection, wanted)
    with connect(url).begin() as connection:
        connection.execute(text("DELETE FROM sqlite_stat1"))
    with connect(url).read() as connection:
        assert ("decisions_visitor" in _plan(connection, wanted)) == (visitors == 1)


def _plan(connection: Connection, query: Select[Any]) -> str:
    literal = query.compile(connection.engine, compile_kwargs={"render_postcompile": True})
    statement = f"EXPLAIN QUERY PLAN {literal}"
    values = tuple(literal.params[name] for name in literal.positiontup or ())
    return str(connection.exec_driver_sql(statement, values).one()[3])


def test_several_processes_at_once(empty_url: str) -> None:
    code = "import sys; from deniable.storage.connect import connect; connect(sys.argv[1]).close()"
    starting = [subprocess.Popen([sys.executable, "-c", code, empty_url]) for _ in range(4)]
    assert [process.wait(PATIENCE) for process in starting] == [0] * 4
    store = connect(empty_url)
    with store.read() as connection:
        chains = connection.execute(text("SELECT count(*) FROM writers")).scalar()
    assert chains == 1
    store.close()


def test_a_newer_store_is_left_alone(empty_url: str) -> None:
    store = connect(empty_url)
    with store.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(WrongStateError, match="newer version"):
        migrate(store.engine)  # type: ignore[attr-defined]
    store.close()


def test_a_store_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match=r"nowhere/x\.db: unable to open"):
        connect(f"sqlite:///{tmp_path}/nowhere/x.db")
