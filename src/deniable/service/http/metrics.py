"""`/metrics` for Prometheus: counters in memory shared by all worker processes.

Each process updates its own row of plain integers, which costs a fraction of a microsecond, and any
process can report the sums for the whole service. The memory has no name in the file system, so
nothing is left behind however the service ends. A replacement process continues its predecessor's
row, so counters never decrease. No label reveals a segment, an arm or a visitor.
"""

from __future__ import annotations

import mmap
import os
import platform
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Iterator
from importlib.metadata import version

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric

from deniable.service.writer import Figures

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

ROUTES = ("decide", "decide_batch", "reward", "reward_batch", "ofrep", "administration", "other")
"""Routes by which requests are counted. Besides the status class, the route is the only label."""

STATUS_CLASSES = ("2xx", "3xx", "4xx", "5xx")
REWARD_STEP = 100
"""Counts that depend on rewards are rounded to this step, so single clicks cannot be observed."""

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
_SLOTS = _AGE + 1


class Tally:
    """Counters of this process, and sums over all processes of the service.

    Args:
        shared: file descriptor from `shared_memory`; None if this process is the only one.
        row: index of this process's row.
    """

    def __init__(self, shared: int | None = None, row: int = 0) -> None:
        size = _SLOTS * 8 if shared is None else os.fstat(shared).st_size
        self._all = memoryview(mmap.mmap(-1 if shared is None else shared, size)).cast("q")
        self._own = self._all[row * _SLOTS : (row + 1) * _SLOTS]
        self._before = self._own[_COUNTERS:_GAUGES].tolist()

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
            value = _in_steps(sums[position]) if name in COARSE else sums[position]
            yield CounterMetricFamily(f"deniable_{name}", meaning, value=value)
        for position, (name, meaning) in enumerate(SUMMED_GAUGES.items(), _GAUGES):
            yield GaugeMetricFamily(f"deniable_{name}", meaning, value=sums[position])
        oldest = max(row[_AGE] for row in rows) / 1e6
        meaning = "How long the oldest waiting decision or reward has waited."
        yield GaugeMetricFamily(QUEUE_AGE, meaning, value=oldest)


def shared_memory(processes: int) -> int:
    """Create memory for this many processes' tallies; return its inheritable file descriptor."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("deniable-tally")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, processes * _SLOTS * 8)
    return descriptor


def _in_steps(count: int) -> int:
    return count - count % REWARD_STEP


def _request_metrics(sums: list[int]) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "deniable_requests", "Requests answered.", labels=["route", "status"]
    )
    seconds = HistogramMetricFamily(
        "deniable_request_seconds", "Time to the answer.", labels=["route"]
    )
    bounds = [*(str(bound) for bound in BUCKETS_SECONDS), "+Inf"]
    for position, route in enumerate(ROUTES):
        mine = sums[position * _PER_ROUTE : (position + 1) * _PER_ROUTE]
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
