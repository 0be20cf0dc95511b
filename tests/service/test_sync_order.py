"""The order of system calls: the log is on the disk before a decision is answered.

Looked at from outside, with strace. `synchronous=NORMAL` is the planted fault: it must be caught.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE

CALLS = 30

ANSWERING = """
import os, sys
from deniable.storage import sqlite_connections
sqlite_connections.SYNCHRONOUS = sys.argv[2]
from tests.service.support import running, serving
with serving(sys.argv[1]) as service:
    running(service)
    answered = os.open(sys.argv[3], os.O_CREAT | os.O_WRONLY)
    for number in range(int(sys.argv[4])):
        decision = service.decide("checkout", f"v{number}", "a")
        os.write(answered, b"decision answered\\n")
        service.reward(decision.id, 1)
        os.write(answered, b"reward answered\\n")
"""

EVENT = re.compile(r"(?P<call>pwrite64|write|fdatasync|fsync)\(\d+<(?P<path>[^>]*)>")


def answers_before_sync(folder: Path, synchronous: str) -> tuple[int, int]:
    """How many answers came while the log had unsynced writes, and how many came at all."""
    trace = folder / "trace"
    subprocess.run(
        [
            "strace",
            "-f",
            "-y",
            "-e",
            "trace=pwrite64,write,fdatasync,fsync",
            "-o",
            str(trace),
            sys.executable,
            "-c",
            ANSWERING,
            f"sqlite:///{folder / 'store.db'}",
            synchronous,
            str(folder / "answered"),
            str(CALLS),
        ],
        check=True,
        timeout=PATIENCE,
    )
    unsynced, early, answers = False, 0, 0
    for line in trace.read_text(errors="replace").splitlines():
        event = EVENT.search(line)
        if event is None:
            continue
        path, call = event["path"], event["call"]
        if path.endswith("store.db-wal"):
            unsynced = call == "pwrite64"
        elif path.endswith("/answered"):
            answers += 1
            early += unsynced
    return early, answers


@pytest.fixture(autouse=True)
def _needs_strace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DENIABLE_VISITOR_KEY", "5a" * 32)
    if shutil.which("strace") is None:
        pytest.skip("SYNC ORDER NOT TESTED: strace is not installed")
    if subprocess.run(["strace", "-o", "/dev/null", "true"], check=False).returncode != 0:
        pytest.skip("SYNC ORDER NOT TESTED: this machine does not allow tracing")


def test_every_answer_comes_after_the_sync(tmp_path: Path) -> None:
    assert answers_before_sync(tmp_path, "FULL") == (0, 2 * CALLS)


def test_less_than_full_is_caught(tmp_path: Path) -> None:
    early, answers = answers_before_sync(tmp_path, "NORMAL")
    assert answers == 2 * CALLS
    assert early > CALLS
