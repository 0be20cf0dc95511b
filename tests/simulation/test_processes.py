"""Worker processes do not outlive the program that started them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.patience import PATIENCE

PROGRAM = """
import os, time
from deniable.simulation import workers

if __name__ == "__main__":
    {fault}
    with workers.worker_processes(2) as pool:
        found = {{future.result() for future in [pool.submit(os.getpid) for _ in range(50)]}}
        print(*found, flush=True)
        time.sleep(600)
"""


@pytest.mark.parametrize(
    ("fault", "seconds", "all_end"),
    [("pass", PATIENCE, True), ("workers._end_with_parent = os.getpid", 1, False)],
    ids=["as it is", "without watching the parent"],
)
def test_workers_of_a_killed_program_end(
    fault: str, seconds: float, all_end: bool, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(fault=fault))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        workers = [psutil.Process(int(number)) for number in program.stdout.readline().split()]
        program.kill()
    assert workers
    _, alive = psutil.wait_procs(workers, timeout=seconds)
    for worker in alive:
        worker.kill()
    assert (not alive) == all_end
