"""Counters of the requests, shared by all worker processes: plain integers in small mapped files.

Each process adds to its own file and whoever is asked for the metrics sums all files, so that every
process answers for the whole service and adding costs a fraction of a microsecond. A file outlives
its process: counters only go up. Gauges count only while their process is alive.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from deniable.service.figures import Figures

ROUTES = ("decide", "decide_batch", "reward", "reward_batch", "ofrep", "administration", "other")
"""What requests are counted by; the route is the only label besides the class of the status."""

STATUS_CLASSES = ("2xx", "3xx", "4xx", "5xx")
BUCKETS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
COUNTERS = ("decisions", "new_decisions", "unstored", "rewards", "refused", "batches")
GAUGES = ("queued", "in_flight")

_PER_ROUTE = len(STATUS_CLASSES) + len(BUCKETS_SECONDS) + 1 + 1  # and beyond the last; microseconds
_SLOTS = len(ROUTES) * _PER_ROUTE + len(COUNTERS) + len(GAUGES)
_FIGURES = len(ROUTES) * _PER_ROUTE


class Tally:
    """What this process counted, and what all processes of the folder counted together.

    Args:
        folder: shared by the processes of one service; None: this process is alone.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._slots = memoryview(_mapped(folder)).cast("q")

    def request(self, route: int, status: int, seconds: float) -> None:
        """Count one answered request of `ROUTES[route]`."""
        slots, start = self._slots, route * _PER_ROUTE
        slots[start + status // 100 - 2] += 1
        start += len(STATUS_CLASSES)
        slots[start + bisect_left(BUCKETS_SECONDS, seconds)] += 1
        slots[start + len(BUCKETS_SECONDS) + 1] += int(seconds * 1e6)

    def observe(self, figures: Figures, in_flight: int) -> None:
        """Take over the writer's figures; called about every second."""
        values = [*(getattr(figures, name) for name in COUNTERS), figures.queued, in_flight]
        for position, value in enumerate(values, _FIGURES):
            self._slots[position] = value

    def total(self) -> Totals:
        """The sums over all processes."""
        sums = [0] * _SLOTS
        for alive, slots in self._all():
            for position, value in enumerate(slots):
                if alive or position < _FIGURES + len(COUNTERS):
                    sums[position] += value
        return Totals(sums)

    def _all(self) -> Iterator[tuple[bool, list[int]]]:
        if self._folder is None:
            yield True, self._slots.tolist()
            return
        for path in sorted(self._folder.glob("*.tally")):
            raw = path.read_bytes()
            if len(raw) == _SLOTS * 8:
                yield _alive(int(path.stem)), memoryview(raw).cast("q").tolist()


class Totals:
    """Sums, by name."""

    def __init__(self, sums: list[int]) -> None:
        self._sums = sums

    def requests(self, route: int) -> dict[str, int]:
        """Class of the status -> requests."""
        start = route * _PER_ROUTE
        return dict(zip(STATUS_CLASSES, self._sums[start:], strict=False))

    def durations(self, route: int) -> tuple[list[int], float]:
        """Requests in each bucket (the last is beyond the last bound), and all their seconds."""
        start = route * _PER_ROUTE + len(STATUS_CLASSES)
        end = start + len(BUCKETS_SECONDS) + 1
        return self._sums[start:end], self._sums[end] / 1e6

    def figures(self) -> dict[str, int]:
        """Name of a counter or gauge -> its value."""
        return dict(zip((*COUNTERS, *GAUGES), self._sums[_FIGURES:], strict=True))


def _mapped(folder: Path | None) -> mmap.mmap:
    if folder is None:
        return mmap.mmap(-1, _SLOTS * 8)
    with (folder / f"{os.getpid()}.tally").open("w+b") as file:
        file.truncate(_SLOTS * 8)
        return mmap.mmap(file.fileno(), _SLOTS * 8)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
