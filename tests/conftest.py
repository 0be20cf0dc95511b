"""Hypothesis runs the same examples every time; where DENIABLE_NO_SKIPS is set, a skip is a failure."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("deniable", deadline=None, derandomize=True, database=None)
settings.load_profile("deniable")


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
