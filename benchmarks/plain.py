"""Durable decisions a second beside a plain FastAPI application (`_plain_server.py`), in turns.

Both have the same server, kind of store and disk, one process, and 64 connections of new visitors. CPU
time includes the database's. On a busy machine, rates depend on the scheduler: look at the CPU time.
"""

from __future__ import annotations

import os
import shutil
import statistics
from contextlib import AbstractContextManager
from dataclasses import dataclass

from benchmarks.capacity import Place, _patient, _postgresql, _sqlite
from benchmarks.service import Server, _prepared, _wrk, served
from benchmarks.timing import row

ROUNDS = 7


@dataclass(frozen=True)
class Round:
    """Decisions for a second of the clock, and of CPU time."""

    rate: float
    per_cpu_second: float


def main() -> bool:
    """Print a row for each store; True where both limits hold."""
    if shutil.which("wrk") is None:
        print("SKIPPED: the load tests need wrk")
        return True
    held = [
        _compared("SQLite", 5, _sqlite(), _sqlite()),
        _compared("PostgreSQL", 2, _postgresql(), _postgresql()),
    ]
    return all(held)


def _compared(
    name: str,
    at_least: float,
    ours: AbstractContextManager[Place | None],
    theirs: AbstractContextManager[Place | None],
) -> bool:
    with ours as place, theirs as plain_place:
        if place is None or plain_place is None:
            return True
        with _prepared(place.url) as service:
            secret, _ = service.keys.create("benchmark", ["decide"])
        with (
            _patient(place.url, 1) as server,
            served("plain", plain_place.url, pinned=False) as plain,
        ):
            rounds = [
                (_round(place, server, secret), _round(plain_place, plain, secret))
                for _ in range(ROUNDS)
            ]
        with _prepared(place.url, new=False) as service:
            assert service.ledger.verify().sound
    for kind, column in (("Deniable", 0), ("plain", 1)):
        rate = statistics.median(pair[column].rate for pair in rounds)
        cpu = statistics.median(pair[column].per_cpu_second for pair in rounds)
        print(f"      {name}, {kind}: {rate:,.0f} a second, {cpu:,.0f} for a second of CPU time")
    rate = statistics.median(mine.rate / other.rate for mine, other in rounds)
    cpu = statistics.median(mine.per_cpu_second / other.per_cpu_second for mine, other in rounds)
    print(f"      {rate:.2g} times the rate, at a load average of {os.getloadavg()[0]:.0f}")
    return row(f"{name}: decisions for the same CPU time", cpu, "x", at_least, at_least=True)


def _round(place: Place, server: Server, secret: str) -> Round:
    before = place.cpu_seconds()
    load = _wrk(server, secret, 1, pinned=False)
    database = (place.cpu_seconds() - before) / load.decisions
    return Round(load.decisions_per_second, 1 / (1 / load.per_cpu_second + database))
