"""A log from somebody else is read with limits, outside of the process that decides."""

from __future__ import annotations

import gzip
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from deniable.errors import InvalidArgumentError
from deniable.leak import confined
from deniable.leak.confined import confined_report
from deniable.leak.page import report
from deniable.leak.report import measure_leak

LOG = "segment,variant,count\nnew,grey,900\nnew,green,100\nold,grey,300\nold,green,700\n"


def test_it_measures_the_same(tmp_path: Path) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(LOG.encode()))
    assert confined_report(path, {}).report == report(measure_leak(path))


def test_errors_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InvalidArgumentError) as direct:
        measure_leak(path)
    with pytest.raises(InvalidArgumentError) as apart:
        confined_report(path, {})
    assert str(apart.value) == str(direct.value)


def test_a_small_file_with_one_huge_line_takes_no_memory(tmp_path: Path) -> None:
    """0.78 MB that decompress to 800 MB."""
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb") as file:
        file.write(b"segment,variant\n")
        for _ in range(800):
            file.write(b"a" * 1_000_000)
    assert path.stat().st_size < 1_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidArgumentError, match="lines of up to 16 MB"):
        confined_report(path, {})
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100_000  # kilobytes


def test_many_lines_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "MOST_BYTES", 1_000_000)
    path = tmp_path / "long.csv.gz"
    path.write_bytes(gzip.compress(b"segment,variant\n" + b"a,b\n" * 300_000))
    with pytest.raises(InvalidArgumentError, match="up to 1 GB"):
        confined_report(path, {})


def test_the_operating_system_refuses_more_memory() -> None:
    program = (
        "from deniable.leak.confined import MEMORY_BYTES, confine\n"
        "confine(MEMORY_BYTES)\n"
        "try:\n    bytearray(MEMORY_BYTES)\n"
        "except MemoryError:\n    print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"refused\n"


def test_a_process_that_runs_out_of_memory_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined, "MEMORY_BYTES", 60_000_000)
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    with pytest.raises(InvalidArgumentError, match="4 GB"):
        confined_report(path, {})
