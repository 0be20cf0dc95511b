"""Where DENIABLE_NO_SKIPS is set, only missing public data or npm packages excuse a skip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.node import NO_PACKAGES
from tests.public_data import LEFT_OUT

ROOT = Path(__file__).parents[1]
WITHOUT_DATA = f"""
import pytest

@pytest.mark.skipif(True, reason={LEFT_OUT!r})
def test_data():
    raise AssertionError

def test_other():
    pass
"""
WITHOUT_PACKAGES = WITHOUT_DATA.replace(LEFT_OUT, NO_PACKAGES)
WITHOUT_BROWSER = f"""{WITHOUT_DATA}
def test_browser():
    pytest.skip("no browser: {LEFT_OUT}")
"""


@pytest.mark.parametrize(
    ("tests", "strict", "code"),
    [
        (WITHOUT_DATA, True, 0),
        (WITHOUT_PACKAGES, True, 0),
        (WITHOUT_BROWSER, True, 1),
        (WITHOUT_BROWSER, False, 0),
    ],
)
def test_a_skip_is_a_failure_unless_data_is_missing(
    tmp_path: Path, tests: str, strict: bool, code: int
) -> None:
    (tmp_path / "test_some.py").write_text(tests)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # others take longer to load than to run
    environment.pop("DENIABLE_NO_SKIPS", None)
    if strict:
        environment["DENIABLE_NO_SKIPS"] = "1"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-q"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "NOT TESTED  test_some.py::test_data" in done.stdout
    assert ("1 skipped, and DENIABLE_NO_SKIPS is set" in done.stdout) == (code == 1)
