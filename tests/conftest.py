"""Hypothesis runs the same examples every time, however slow the machine is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.postgres import PostgresServer, emptied

from deniable.storage.connect import connect

settings.register_profile("deniable", deadline=None, derandomize=True, database=None)
settings.load_profile("deniable")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL, or a loud skip where none can be started."""
    try:
        server = PostgresServer()
    except (FileNotFoundError, PermissionError) as reason:
        pytest.skip(f"POSTGRESQL NOT TESTED: {reason}")
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def postgres_database(postgres: PostgresServer) -> str:
    """The URL of a database at the present schema; `emptied` before each use."""
    url = postgres.new_database()
    connect(url).close()
    return url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "store.db"
    connect(f"sqlite:///{path}").close()
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The URL of a new store without content: the test runs once on each kind."""
    monkeypatch.setenv("DENIABLE_VISITOR_KEY", "5a" * 32)
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "store.db")
        return f"sqlite:///{tmp_path / 'store.db'}"
    return emptied(request.getfixturevalue("postgres_database"))
