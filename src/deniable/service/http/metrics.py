"""`/metrics` for Prometheus, from the tally. No label says anything about a segment, arm or visitor."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from deniable.service.http.tally import BUCKETS_SECONDS, COUNTERS, GAUGES, ROUTES, Tally, Totals

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

HELP = {
    "decisions": "Decisions answered, known visitors included.",
    "new_decisions": "Decisions that were drawn and stored.",
    "unstored": "Decisions answered with a uniform arm because the store did not take them.",
    "rewards": "Rewards answered.",
    "refused": "Calls refused because the queue was full.",
    "batches": "Transactions of the writers.",
    "queued": "Decisions and rewards waiting now.",
    "in_flight": "Requests being answered now.",
}
"""What each counter and gauge of the writers is, for people."""


def exposition(tally: Tally) -> bytes:
    """The metrics as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(tally.total()))
    return generate_latest(registry)


class _Collector:
    def __init__(self, totals: Totals) -> None:
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "deniable_requests", "Requests answered.", labels=["route", "status"]
        )
        seconds = HistogramMetricFamily(
            "deniable_request_seconds", "Time to the answer.", labels=["route"]
        )
        for position, route in enumerate(ROUTES):
            for status, count in self._totals.requests(position).items():
                requests.add_metric([route, status], count)
            counts, total = self._totals.durations(position)
            seconds.add_metric([route], _cumulated(counts), sum_value=total)
        yield requests
        yield seconds
        figures = self._totals.figures()
        for name in COUNTERS:
            yield CounterMetricFamily(f"deniable_{name}", HELP[name], value=figures[name])
        for name in GAUGES:
            yield GaugeMetricFamily(f"deniable_{name}", HELP[name], value=figures[name])


def _cumulated(counts: list[int]) -> list[tuple[str, float]]:
    bounds = [*(str(bound) for bound in BUCKETS_SECONDS), "+Inf"]
    cumulated, total = [], 0
    for bound, count in zip(bounds, counts, strict=True):
        total += count
        cumulated.append((bound, float(total)))
    return cumulated
