"""`/metrics` for Prometheus: counters in memory shared by all worker processes.

Each process updates its own row of plain integers, which costs a fraction of a microsecond, and any
process can report the sums for the whole service. The memory has no name in the file system, so
nothing is left behind however the service ends. A replacement process continues the row of one that
has died, so counters never decrease. No label reveals a segment, an arm or a visitor.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric

from deniable.service.service import StoreFigures
from deniable.service.writer import Figures

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

ROUTES = (
    "decide",
    "decide_batch",
    "reward",
    "reward_batch",
    "label",
    "label_batch",
    "ofrep",
    "administration",
    "other",
)
"""Routes by which requests are counted. Besides the status class, the route is the only label."""

STATUS_CLASSES = ("2xx", "3xx", "4xx", "5xx")
REWARD_STEP = 100
"""Counts that depend on rewards are rounded down to this step, and released once an hour.

Rounding alone would let somebody who sends 99 rewards see the next one.
"""
RELEASE_SECONDS = 3_600

COARSE = ("rewards", "batches")
COARSE_ROUTES = ("reward", "reward_batch")

BUCKETS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

COUNTERS = {
    "decisions": "Decisions answered, known visitors included.",
    "new_decisions": "Decisions that were drawn and stored.",
    "unstored": "Decisions answered without the store, because it failed or took too long.",
    "rewards": "Rewards answered.",
    "refused": "Calls refused because the queue was full or they waited for too long.",
    "batches": "Transactions of the writers.",
}
SUMMED_GAUGES = {
    "queued": "Decisions and rewards waiting now.",
    "in_flight": "Requests being answered now, besides decide and reward.",
    "store_failing": "Processes whose store does not take decisions now; 0 is healthy.",
}
QUEUE_AGE = "deniable_queue_age_seconds"

# Plus overflow bucket and total microseconds.
_PER_ROUTE = len(STATUS_CLASSES) + len(BUCKETS_SECONDS) + 1 + 1
_COUNTERS = len(ROUTES) * _PER_ROUTE
_GAUGES = _COUNTERS + len(COUNTERS)
_AGE = _GAUGES + len(SUMMED_GAUGES)  # microseconds
_MEMORY, _FILES, _CPU, _FREE, _TABLE_AGE = range(_AGE + 1, _AGE + 6)
_RELEASED = _TABLE_AGE + 1  # request and other counters as of the last release
_SLOTS = _RELEASED + _GAUGES


class Tally:
    """Counters of this process, and sums over all processes of the service.

    Args:
        shared: memory of all processes, from `Rows`; None if this process is the only one.
        row: index of this process's row.
        clock: the time in seconds; replaced in tests.
    """

    def __init__(
        self, shared: Any = None, row: int = 0, clock: Callable[[], float] = time.time
    ) -> None:
        memory = multiprocessing.RawArray("q", _SLOTS) if shared is None else shared
        self._all = memoryview(memory).cast("B").cast("q")
        self._own = self._all[row * _SLOTS : (row + 1) * _SLOTS]
        self._before = self._own[_COUNTERS:_GAUGES].tolist()
        self._cpu_before = self._own[_CPU]
        self._own[_FREE] = self._own[_TABLE_AGE] = -1  # unknown
        self._clock = clock
        self._hour = int(clock() // RELEASE_SECONDS)

    def request(self, route: int, status: int, seconds: float) -> None:
        """Count one answered request of `ROUTES[route]`."""
        slots, start = self._own, route * _PER_ROUTE
        slots[start + status // 100 - 2] += 1
        start += len(STATUS_CLASSES)
        slots[start + bisect_left(BUCKETS_SECONDS, seconds)] += 1
        slots[start + len(BUCKETS_SECONDS) + 1] += int(seconds * 1e6)

    def observe(self, figures: Figures, in_flight: int) -> None:
        """Copy the writer's figures. Called about once a second."""
        for position, name in enumerate(COUNTERS):
            self._own[_COUNTERS + position] = self._before[position] + getattr(figures, name)
        gauges = (figures.queued, in_flight, int(figures.store_failing))
        for position, value in enumerate((*gauges, int(figures.queue_age * 1e6)), _GAUGES):
            self._own[position] = value
        hour = int(self._clock() // RELEASE_SECONDS)
        if hour > self._hour:
            self._hour = hour
            self._own[_RELEASED:_SLOTS] = self._own[:_GAUGES]

    def measure(self, store: StoreFigures) -> None:
        """Note what this process uses, and what is known of the store. Called every few seconds."""
        self._own[_MEMORY], self._own[_FILES] = _process()
        self._own[_CPU] = self._cpu_before + int(time.process_time() * 1e6)
        self._own[_FREE] = -1 if store.free_bytes is None else store.free_bytes
        self._own[_TABLE_AGE] = -1 if store.table_age is None else int(store.table_age)

    def exposition(self) -> bytes:
        """Return the metrics of the whole service in Prometheus text format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client.registry.Collector."""
        slots = self._all.tolist()
        rows = [slots[start : start + _SLOTS] for start in range(0, len(slots), _SLOTS)]
        sums = [sum(column) for column in zip(*rows, strict=True)]
        build = {"version": version("deniable"), "python": platform.python_version()}
        yield InfoMetricFamily("deniable_build", "Versions of what is running.", value=build)
        yield from _request_metrics(sums)
        for position, (name, meaning) in enumerate(COUNTERS.items(), _COUNTERS):
            value = _in_steps(sums[_RELEASED + position]) if name in COARSE else sums[position]
            yield CounterMetricFamily(f"deniable_{name}", meaning, value=value)
        for position, (name, meaning) in enumerate(SUMMED_GAUGES.items(), _GAUGES):
            yield GaugeMetricFamily(f"deniable_{name}", meaning, value=sums[position])
        oldest = max(row[_AGE] for row in rows) / 1e6
        meaning = "How long the oldest waiting decision or reward has waited."
        yield GaugeMetricFamily(QUEUE_AGE, meaning, value=oldest)
        yield from _machine_metrics(rows, sums)


class Rows:
    """Memory for the tallies of this many processes, made by their parent."""

    def __init__(self, processes: int) -> None:
        self._memory = multiprocessing.RawArray("q", processes * _SLOTS)
        self._owners = multiprocessing.Array("q", processes)

    def claim(self) -> Tally:
        """Return this process's tally, in a row that is new or whose process has died."""
        with self._owners.get_lock():
            owners: list[int] = self._owners[:]
            row = next((row for row, pid in enumerate(owners) if not _alive(pid)), 0)
            self._owners[row] = os.getpid()
        return Tally(self._memory, row)


def _alive(pid: int) -> bool:
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _in_steps(count: int) -> int:
    return count - count % REWARD_STEP


def _machine_metrics(rows: list[list[int]], sums: list[int]) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "deniable_resident_bytes", "Memory of all worker processes.", value=sums[_MEMORY]
    )
    yield GaugeMetricFamily(
        "deniable_open_files", "Files and connections that they have open.", value=sums[_FILES]
    )
    yield CounterMetricFamily(
        "deniable_cpu_seconds", "Processor time that they have used.", value=sums[_CPU] / 1e6
    )
    # Nothing where it is unknown: a 0 would be an alarm.
    free = GaugeMetricFamily("deniable_disk_free_bytes", "Free space of a SQLite store's disk.")
    if (known := max(row[_FREE] for row in rows)) >= 0:
        free.add_metric([], known)
    age = GaugeMetricFamily(
        "deniable_table_age_seconds",
        "Age of the oldest table that a running experiment draws from.",
    )
    if (known := max(row[_TABLE_AGE] for row in rows)) >= 0:
        age.add_metric([], known)
    yield from (free, age)


def _process() -> tuple[int, int]:
    """Return the memory and the number of open files of this process; zeros if not on Linux."""
    try:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0, 0


def _request_metrics(sums: list[int]) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "deniable_requests", "Requests answered.", labels=["route", "status"]
    )
    seconds = HistogramMetricFamily(
        "deniable_request_seconds", "Time to the answer.", labels=["route"]
    )
    bounds = [*(str(bound) for bound in BUCKETS_SECONDS), "+Inf"]
    for position, route in enumerate(ROUTES):
        start = position * _PER_ROUTE + (_RELEASED if route in COARSE_ROUTES else 0)
        mine = sums[start : start + _PER_ROUTE]
        counts = iter(map(_in_steps, mine) if route in COARSE_ROUTES else mine)
        for status in STATUS_CLASSES:
            requests.add_metric([route, status], next(counts))
        total, buckets = 0, []
        for bound in bounds:
            total += next(counts)
            buckets.append((bound, float(total)))
        # The sum of durations would change with every single reward.
        spent = None if route in COARSE_ROUTES else next(counts) / 1e6
        seconds.add_metric([route], buckets, sum_value=spent)
    yield requests
    yield seconds
