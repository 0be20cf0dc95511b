"""Fair timing on a noisy machine: interleaved, repeated, medians; and one way to print a row."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path


def seconds(work: Callable[[], object], repeats: int = 15) -> float:
    """The median wall-clock time of one call, after one call to warm up."""
    work()
    return statistics.median(_once(work) for _ in range(repeats))


def ratio(work: Callable[[], object], rival: Callable[[], object], repeats: int = 15) -> float:
    """Median of work's time over its rival's, measured in turns so that noise hits both."""
    work()
    rival()
    return statistics.median(_once(work) / _once(rival) for _ in range(repeats))


def peak_megabytes() -> float:
    """The largest resident memory of this process, on Linux.

    `getrusage` is of no use here: its figure survives exec, and so is that of the parent at least.
    """
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line[:6] == "VmHWM:").split()[1]) / 1024


def row(name: str, value: float, unit: str, limit: float, *, at_least: bool = False) -> bool:
    """Print one measurement beside its limit and return whether it holds."""
    good = value >= limit if at_least else value <= limit
    sign = ">=" if at_least else "<="
    print(f"{'ok  ' if good else 'MISS'}  {name:<58} {value:>12,.4g} {unit:<4} ({sign} {limit:g})")
    return good


def _once(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
