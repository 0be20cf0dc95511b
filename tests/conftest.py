"""Hypothesis runs the same examples every time; where DENIABLE_NO_SKIPS is set, a skip is a failure."""

from __future__ import annotations

import os
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


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """On CI everything that tests need is installed: what was skipped was not proved."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or "DENIABLE_NO_SKIPS" not in os.environ:
        return
    skipped = len(reporter.stats.get("skipped", []))
    if skipped and session.exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"{skipped} skipped, and DENIABLE_NO_SKIPS is set: failed", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
