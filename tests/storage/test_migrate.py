"""Migrations: they end at the declared schema, also when many processes start at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text
from tests.postgres import PostgresServer

from deniable.errors import WrongStateError
from deniable.storage.connect import connect
from deniable.storage.migrate import migrate, revision
from deniable.storage.schema import HEAD, metadata


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
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    store.close()


def test_several_processes_at_once(empty_url: str) -> None:
    code = "import sys; from deniable.storage.connect import connect; connect(sys.argv[1]).close()"
    starting = [subprocess.Popen([sys.executable, "-c", code, empty_url]) for _ in range(4)]
    assert [process.wait(120) for process in starting] == [0] * 4
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
