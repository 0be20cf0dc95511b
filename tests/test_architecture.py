"""ARCHITECTURE.md names every file that a decision and a reward pass."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRACED = """
import json
from benchmarks.call_trace import Tracer, service_calls

tracer = Tracer()
with service_calls() as calls:
    print(json.dumps([file for call in calls.values() for file in tracer.of(call).files]))
"""


def test_the_way_of_a_decision_is_told_in_full() -> None:
    # In a process of its own: the tracer follows all threads.
    done = subprocess.run(
        [sys.executable, "-c", TRACED], cwd=ROOT, check=True, capture_output=True, text=True
    )
    met = set(json.loads(done.stdout.splitlines()[-1]))
    assert {"service/batch.py", "storage/chain.py"} <= met
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert sorted(file for file in met if f"`{file}`" not in text) == []
