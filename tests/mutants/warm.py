"""Pytest without its start-up time: a process imports what most tests import, and forks for each run.

Nothing of the project is imported before the fork, so each run sees the files as they are then.
Run as a script it is that process: one line of JSON comes in for each run, and two lines go out, the
child's process id and its exit status.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

MODULES = (
    *("pytest", "hypothesis", "numpy", "scipy.optimize", "scipy.stats", "sqlalchemy", "psycopg"),
    *("alembic.config", "altair", "fastapi", "granian", "prometheus_client", "typer", "mpmath"),
)
"""Other people's modules that take long to import and start no threads."""

OPTIONS = ("-x", "-q", "--tb=line", "-p", "no:cacheprovider")
PLAIN = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""The tests need no plugin; loading them all takes longer than most tests."""


class Warm:
    """Runs tests in one copy of the project.

    Args:
        copy: the copy's folder.
        environment: more variables for the tests.
        modules: what to import before forking.
    """

    def __init__(
        self,
        copy: Path,
        environment: dict[str, str] | None = None,
        modules: Iterable[str] = MODULES,
    ) -> None:
        self.copy = copy
        self._environment = PLAIN | {"PYTHONPATH": str(copy / "src")} | (environment or {})
        self._output = copy.with_name(f"{copy.name}.output")
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | self._environment,
        )

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def pytest(
        self, tests: Iterable[str], limit: float, environment: dict[str, str] | None = None
    ) -> tuple[int | None, str]:
        """Exit status (None: the time ran out) and output of these tests."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        job = {
            "folder": str(self.copy),
            "arguments": [*OPTIONS, *tests],
            "environment": environment or {},
            "output": str(self._output),
        }
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        child = int(process.stdout.readline())
        ready, _, _ = select.select([process.stdout], [], [], limit)
        if not ready:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        status = int(process.stdout.readline())
        return (status if ready else None), self._output.read_text("utf-8", "replace")


def serve(modules: Iterable[str]) -> None:
    """Import, then fork for every line."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(job)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _run(job: dict[str, Any]) -> NoReturn:
    """In the child: what `python -m pytest` does in this folder."""
    code = 2
    try:
        with contextlib.suppress(PermissionError):
            os.setsid()  # so that what the tests start can be ended with them
        output = os.open(job["output"], os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(job["environment"])
        os.chdir(job["folder"])
        sys.path[:1] = [job["folder"], f"{job['folder']}/src"]
        import pytest

        code = int(pytest.main(job["arguments"]))
        sys.stdout.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1:])
