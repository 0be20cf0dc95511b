"""`python -m benchmarks.capacity`: durable decisions a second by processes and store, as a table.

wrk and the service share the machine, and whatever else runs on it. So each row has two rates: what was
answered in a second of the clock, and what is answered for each second that processors work, those of
the database included. The second one depends less on the load of the machine, and is what to plan cores
with: twice the rate needs twice the cores, until the disk or (SQLite) the one writer at a time is the
limit. On a busy machine transactions are small and both are too low: measure on one of your own.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.service import Load, Server, _prepared, _wrk, served

ROUNDS = 3
CONNECTIONS = {1: 32, 100: 4}
"""Visitors of one request -> connections: enough to keep the service busy, too few to be refused."""
WANTED = (1_000, 10_000, 100_000)
"""Decisions a second for which cores are counted."""


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        store: which.
        size: visitors of one request.
        processes: of the service.
        rate: decisions in a second of the clock.
        per_core: decisions for each second of CPU, service and database together.
        database: the database's part of that CPU time.
    """

    store: str
    size: int
    processes: int
    rate: float
    per_core: float
    database: float


@dataclass(frozen=True)
class Place:
    """A store, and the CPU time that its own server has used."""

    url: str
    cpu_seconds: Callable[[], float]


def main() -> bool:
    """Print the tables. Nothing here has a limit: `benchmarks.service` has them."""
    missing = [tool for tool in ("wrk", "taskset") if shutil.which(tool) is None]
    if missing:
        print(f"SKIPPED: the load tests need {', '.join(missing)}")
        return True
    cores = os.cpu_count() or 1
    counts = sorted({1, 2, cores})
    print(f"{cores} cores, shared with wrk; {ROUNDS} rounds each, medians\n")
    print("| store | visitors a request | processes | decisions/s | per CPU second | database |")
    print("|---|---:|---:|---:|---:|---:|")
    rows = []
    for name, place in (("SQLite", _sqlite), ("PostgreSQL", _postgresql)):
        with place() as found:
            if found is None:
                continue
            for row in _measured(name, found, counts):
                rows.append(row)
                print(
                    f"| {row.store} | {row.size} | {row.processes} | {row.rate:,.0f} "
                    f"| {row.per_core:,.0f} | {row.database:.0%} |",
                    flush=True,
                )
    _cores(rows)
    return True


def _cores(rows: list[Row]) -> None:
    """How many cores a rate needs, from the cheapest row of each store and size."""
    print("\nCores (service and database together) for so many decisions a second, computed:\n")
    print("| store | visitors a request |" + "".join(f" {wanted:,} |" for wanted in WANTED))
    print("|---|---:|" + "---:|" * len(WANTED))
    for store, size in dict.fromkeys((row.store, row.size) for row in rows):
        best = max(row.per_core for row in rows if (row.store, row.size) == (store, size))
        shown = "".join(f" {wanted / best:.2g} |" for wanted in WANTED)
        print(f"| {store} | {size} |{shown}")


def _measured(name: str, place: Place, counts: list[int]) -> Iterator[Row]:
    with _prepared(place.url) as service:
        secret, _ = service.keys.create("benchmark", ["decide"])
    for processes in counts:
        with _patient(place.url, processes) as server:
            for size in CONNECTIONS:
                _load(server, secret, size)  # caches, connections, plans
                yield _row(name, place, server, secret, processes, size)
    with _prepared(place.url, new=False) as service:
        assert service.ledger.verify().sound


def _row(name: str, place: Place, server: Server, secret: str, processes: int, size: int) -> Row:
    loads: list[tuple[Load, float]] = []
    for _ in range(ROUNDS):
        before = place.cpu_seconds()
        load = _load(server, secret, size)
        loads.append((load, (place.cpu_seconds() - before) / load.decisions))
    rate = statistics.median(load.decisions_per_second for load, _ in loads)
    ours = statistics.median(1 / load.per_cpu_second for load, _ in loads)
    theirs = statistics.median(database for _, database in loads)
    return Row(name, size, processes, rate, 1 / (ours + theirs), theirs / (ours + theirs))


@contextmanager
def _patient(store: str, processes: int) -> Iterator[Server]:
    """A server that lets requests wait: on a busy machine it would refuse some, and nothing be told."""
    with served("decide", store, processes, pinned=False, queue_seconds=60) as server:
        yield server


def _load(server: Server, secret: str, size: int) -> Load:
    return _wrk(server, secret, size, pinned=False, connections=CONNECTIONS[size])


@contextmanager
def _sqlite() -> Iterator[Place | None]:
    with tempfile.TemporaryDirectory() as folder:
        yield Place(f"sqlite:///{folder}/store.db", lambda: 0.0)


@contextmanager
def _postgresql() -> Iterator[Place | None]:
    try:
        from tests.postgres import PostgresServer

        database: Any = PostgresServer()
    except (ImportError, FileNotFoundError, PermissionError) as error:
        print(f"SKIPPED: no PostgreSQL to measure ({error})")
        yield None
        return
    try:
        database.start(fsync="on", synchronous_commit="on", autovacuum="on")
        yield Place(database.new_database(), database.cpu_seconds)
    finally:
        database.remove()


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
