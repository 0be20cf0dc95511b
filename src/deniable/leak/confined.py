"""Measures a log that somebody sent, in a process of its own with little memory.

A file of a few megabytes can decompress to gigabytes, and a reader may hold all of a line at once. The
process that decides must not run out of memory for it. So the size and the longest line of a
compressed file are checked first, a piece at a time, and a separate process reads the log under a limit
of the operating system. If the process dies, the file is refused.
"""

from __future__ import annotations

import gzip
import multiprocessing
import os
import zlib
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from deniable.errors import InvalidArgumentError
from deniable.report.html import Page

MOST_BYTES = 1 << 30
"""Largest file, decompressed."""

LONGEST_LINE = 1 << 24

MEMORY_BYTES = 4 << 30
"""What the process may write to. Not its address space, of which drawing charts reserves far more."""

NICENESS = 10
"""How much the process gives way to others."""

_PIECE = 1 << 20
_ALLOWED = "a log that can be read in 4 GB of memory"


@dataclass(frozen=True)
class Measured:
    """What the pages show of a log.

    Attributes:
        report: the report.
        arms: variants of the experiment that provably tells most.
        segments: its segments.
        visitors: its visitors.
    """

    report: Page
    arms: int
    segments: int
    visitors: int


def confined_report(path: Path, columns: Mapping[str, str | None]) -> Measured:
    """Return the report on a file from somebody else.

    Raises:
        InvalidArgumentError: the file is too large, or cannot be used.
    """
    check_size(path)
    spawning = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(1, spawning, confine, (MEMORY_BYTES,)) as process:
            return process.submit(_measured, path, columns).result()
    except (BrokenProcessPool, MemoryError):
        raise InvalidArgumentError("file", path.name, _ALLOWED) from None


def check_size(path: Path) -> None:
    """Raise InvalidArgumentError if a gzip file is too large, or has too long a line."""
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            return
    size = line = 0
    try:
        with gzip.open(path) as file:
            while piece := file.read(_PIECE):
                size += len(piece)
                first, newline, _ = piece.partition(b"\n")
                longest = line + len(first)
                line = len(piece) - piece.rfind(b"\n") - 1 if newline else longest
                if size > MOST_BYTES or longest > LONGEST_LINE:
                    allowed = "up to 1 GB when decompressed, with lines of up to 16 MB"
                    raise InvalidArgumentError("file", path.name, allowed)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise InvalidArgumentError("file", path.name, "a gzip file that is whole") from None


def confine(most: int) -> None:
    """Give way to other processes, and let the operating system refuse more memory, where it can."""
    os.nice(NICENESS)
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _measured(path: Path, columns: Mapping[str, str | None]) -> Measured:
    from deniable.leak.page import report
    from deniable.leak.report import measure_leak

    found = measure_leak(path, columns=columns)
    n_segments, n_arms = found.worst.table.shape
    return Measured(report(found), n_arms, n_segments, found.worst.visitors)
