"""Hypothesis runs the same examples every time, and the tests see no setting of the machine's user.

Where DENIABLE_NO_SKIPS is set, a skip is a failure, unless it is public data, npm packages or Java
that are missing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests import thrift
from tests.java import NO_JAVA
from tests.node import NO_PACKAGES
from tests.portable_sql import watching
from tests.postgres import PostgresServer, emptied
from tests.public_data import LEFT_OUT

from deniable.storage import connect as connecting
from deniable.storage.connect import connect

FOR_TESTS = {"DENIABLE_CACHE", "DENIABLE_DATA", "DENIABLE_NO_SKIPS"}
"""Settings that are meant for the tests; any other would change what they test."""

for name in [name for name in os.environ if name.startswith("DENIABLE_")]:
    if name not in FOR_TESTS:
        del os.environ[name]

# Workers, and processes that tests start, find their modules compiled: half a second less for each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

thrift.garbage_not_collected()
thrift.note_whether_compiled()
thrift.scratch_in_memory()
thrift.no_authorities()
thrift.tables_from_a_copy()
thrift.statements_compiled_once()

settings.register_profile(
    "deniable",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # on a busy machine everything is
)
settings.load_profile("deniable")


collect_ignore = ["mutants"]  # lists of faults: tests/test_mutants.py reads them

SLOW = (
    "audit",
    "cli/test_allocate.py",
    "cli/test_leak.py",
    "cli/test_simulate.py",
    "cli/test_store_commands.py",
    "client/test_end_to_end.py",
    "inference",
    "leak",
    "portfolio",
    "privacy/test_serving_timing.py",
    "service",
    "simulation",
    "storage",
    "strategies/test_a_new_strategy.py",
    "strategies/test_joint_lp.py",
    "strategies/test_joint_rule.py",
    "test_docs.py",
    "test_examples.py",
    "test_guides.py",
    "web",
)
"""Folders and files whose tests take long together: `make check` leaves them out."""

LONG = (
    "client/test_javascript.py",
    "portfolio/test_allocation.py",
    "service/http/test_schema.py",
    "service/test_crashes.py",
    "service/test_races.py",
    "service/test_state_machine.py",
    "test_site.py",
    "web/test_demo_pages.py",
)
"""Tests that take long by themselves: workers begin with them."""

TOGETHER = ("client/test_javascript.py", "test_site.py", "web/test_demo_pages.py")
"""Those of them whose tests share what takes long to make: one worker has all of a file."""

FIXTURES = {"browser": "browser", "postgres": "postgres", "postgres_database": "postgres"}
"""Fixture -> the marker of the tests that use it."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: some tests wait for a process, a browser or a timer."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    with thrift.one_compiles():
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by where they are and by the fixtures that they use; the long ones come first."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            place = item.path.relative_to(here).as_posix()
            if any(place == slow or place.startswith(f"{slow}/") for slow in SLOW):
                item.add_marker("slow")
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in FIXTURES:
                item.add_marker(FIXTURES[fixture])
        chosen = getattr(item, "callspec", None)
        if chosen is not None and chosen.params.get("store_url") == "postgresql":
            item.add_marker("postgres")
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    if workers > 1:
        items[:] = thrift.long_ones_first(items, _long_kind, workers)


def _long_kind(item: pytest.Item) -> str | None:
    place = item.nodeid.removeprefix("tests/")
    if not place.startswith(LONG):
        return None
    return place.partition("::")[0] if place.startswith(TOGETHER) else place


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    thrift.garbage_collected_rarely()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL, or a loud skip where none can be started."""
    try:
        server = PostgresServer()
    except (FileNotFoundError, PermissionError) as reason:
        pytest.skip(f"POSTGRESQL NOT TESTED: {reason}")
    server.start()
    with watching() as watch:
        yield server
    server.remove()
    assert watch.problems == [], "statements that other engines lack"


@pytest.fixture(scope="session")
def postgres_database(postgres: PostgresServer) -> str:
    """The URL of a database at the present schema; `emptied` before each use."""
    url = postgres.new_database()
    connect(url).close()
    return url


@pytest.fixture
def real_migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores are made as in production, not by a copy of what that makes."""
    monkeypatch.setattr(connecting, "_upgrade", thrift.real_upgrade)


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The URL of a new store without content: the test runs once on each kind."""
    monkeypatch.setenv("DENIABLE_VISITOR_KEY", "5a" * 32)
    if request.param == "memory":  # for tests that ask for it: what is closed is gone
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    return emptied(request.getfixturevalue("postgres_database"))


@pytest.fixture
def strict_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that audit sound services: they are never accused by chance."""
    from tests.audit.levels import strict

    strict(monkeypatch)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """On CI everything that tests need is installed: what was skipped was not proved."""
    skipped = _skipped(session.config)
    unproved = [report for report in skipped if not _left_out(report)]
    if unproved and "DENIABLE_NO_SKIPS" in os.environ and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    thrift.garbage_collected_once_more()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    skipped = _skipped(config)
    left_out = [report for report in skipped if _left_out(report)]
    if left_out:
        terminalreporter.section("LEFT OUT", yellow=True, bold=True)
        for report in left_out:
            told = f"NOT TESTED  {report.nodeid}: {_reason(report)}"
            terminalreporter.write_line(told, yellow=True)
    if "DENIABLE_NO_SKIPS" in os.environ and len(skipped) > len(left_out):
        count = len(skipped) - len(left_out)
        terminalreporter.write_line(
            f"{count} skipped, and DENIABLE_NO_SKIPS is set: failed", red=True
        )


def _skipped(config: pytest.Config) -> list[pytest.TestReport]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return [] if reporter is None else list(reporter.stats.get("skipped", []))


def _left_out(report: pytest.TestReport) -> bool:
    return _reason(report) in (LEFT_OUT, NO_PACKAGES, NO_JAVA)


def _reason(report: pytest.TestReport) -> str:
    return report.longrepr[2].removeprefix("Skipped: ") if type(report.longrepr) is tuple else ""
