"""Hypothesis runs the same examples every time, however slow the machine is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.postgres import PostgresServer

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


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new, empty store: the test runs once on each kind."""
    monkeypatch.setenv("DENIABLE_VISITOR_KEY", "5a" * 32)
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()
