"""This checkout against another one, in the same run: CPU time of a decision, rate and latency.

    git worktree add ../old 5a78510
    python -m benchmarks.against ../old

Both take turns, many and short, so that what else the machine does meets both. Ratios are this one to
the other: below 1 is better for CPU time and latency, above 1 for rates. CPU time hardly depends on
what else runs; rates and latencies do, and are worth looking at on a quiet machine only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from benchmarks.service import SERVER_CORE, Load, Server, _answers, _wrk
from benchmarks.timing import row

HERE = Path(__file__).resolve().parent.parent
TURNS = 11
STORED = 200_000
"""Decisions that are there before: only then indexes have more pages than a batch changes."""

WORKLOADS = {
    "30 single visitors at once": (30, 1, 60),
    "a batch of 100": (1, 100, 40),
    "a batch of 1,000": (1, 1_000, 6),
}
"""Requests of one transaction, visitors of a request, transactions of a turn."""

LOADS = (
    ("single visitors", 1, 64, True),
    ("batches of 100", 100, 8, True),
    ("batches of 100 in overload", 100, 64, False),
)
"""Name, visitors of a request, connections, and whether there is a limit.

6,400 waiting decisions are overload: they take a quarter of a second. One transaction takes about 25 ms
of work if single visitors are waiting, so that they do not wait long, and 100 ms if only batches are. An
earlier version stored up to 5,000 decisions in one transaction, cheaper while the store is small.
"""

ROUNDING = 1.05
"""How far a ratio may be off on a machine that is not quiet."""


PATIENCE = "10"
"""Seconds that a request may wait: on a busy machine none should be refused."""


class Turns:
    """A checkout that decides in a process of its own, when it is told to."""

    def __init__(self, checkout: Path, store: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "benchmarks" / "_decide_turns.py"), store],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(checkout),
        )
        self.secret = self._line()

    def cpu_us(self, jobs: int, size: int, batches: int) -> float:
        """CPU time of one decision, in microseconds."""
        assert self._process.stdin is not None
        print(jobs, size, batches, file=self._process.stdin, flush=True)
        return float(self._line()) / (jobs * size * batches) * 1e6

    def close(self) -> None:
        """End the process; its store stays."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError("a checkout could not decide; its message is above")
        return line


def _environment(checkout: Path) -> dict[str, str]:
    path = os.pathsep.join((str(checkout / "src"), str(checkout)))
    return {**os.environ, "PYTHONPATH": path, "DENIABLE_VISITOR_KEY": "00" * 32}


@contextmanager
def _served(checkout: Path, store: str, workers: int) -> Iterator[Server]:
    """The checkout's own server, pinned to one core where it is one process."""
    pin = ["taskset", "-c", SERVER_CORE] if workers == 1 else []
    server = [sys.executable, "-m", "benchmarks._service_server", "decide", store, str(workers)]
    if "[SECONDS]" in (checkout / "benchmarks" / "_service_server.py").read_text():
        server.append(PATIENCE)
    process = subprocess.Popen(
        [*pin, *server], stdout=subprocess.PIPE, text=True, cwd=checkout, env=_environment(checkout)
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        while not _answers(url):
            if process.poll() is not None:
                raise RuntimeError("a server did not start")
        running = Server(url, psutil.Process(process.pid))
        _wait_until_idle(running)
        yield running
    finally:
        process.terminate()
        process.wait(60)


def _wait_until_idle(server: Server) -> None:
    """A server prepares its pages after it answers; that is not the cost of a decision."""
    spent, before = server.cpu_seconds(), -1.0
    while spent - before > 0.02:
        time.sleep(0.5)
        spent, before = server.cpu_seconds(), spent


def _compare(
    other: Path, new_store: Callable[[], str], name: str, workers: int, n_turns: int
) -> list[bool]:
    stores = {checkout: new_store() for checkout in (HERE, other)}
    turns = {checkout: Turns(checkout, store) for checkout, store in stores.items()}
    # Who begins changes: the database may still be busy with what the first of a turn asked for.
    orders = [((HERE, other), (other, HERE))[turn % 2] for turn in range(n_turns)]
    held = []
    try:
        for one in turns.values():
            one.cpu_us(1, 2_000, STORED // 2_000)
        for workload, sizes in WORKLOADS.items():
            costs = [{one: turns[one].cpu_us(*sizes) for one in order} for order in orders]
            pairs = [(found[HERE], found[other]) for found in costs]
            mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
            print(f"      {name}, {workload}: {mine:.1f} us, the other {theirs:.1f} us a decision")
            ratio = statistics.median(mine / theirs for mine, theirs in pairs)
            held.append(row(f"CPU of a decision, {name}, {workload}", ratio, "x", ROUNDING))
    finally:
        for one in turns.values():
            one.close()
    if shutil.which("wrk") is None or shutil.which("taskset") is None:
        print("SKIPPED: turns over HTTP need wrk and taskset")
        return held
    with ExitStack() as stack:
        servers = {
            checkout: stack.enter_context(_served(checkout, store, workers))
            for checkout, store in stores.items()
        }
        for what, size, connections, limited in LOADS:
            loads = [
                {
                    one: _wrk(
                        servers[one],
                        turns[one].secret,
                        size,
                        pinned=workers == 1,
                        connections=connections,
                    )
                    for one in order
                }
                for order in orders
            ]
            pairs_of_loads = [(found[HERE], found[other]) for found in loads]
            rows = _rows(f"{name} over HTTP, {what}", pairs_of_loads)
            held += rows if limited else []
    return held


def _rows(name: str, loads: list[tuple[Load, Load]]) -> list[bool]:
    def ratio(measure: Callable[[Load], float]) -> float:
        return statistics.median(measure(mine) / measure(theirs) for mine, theirs in loads)

    rates = [
        statistics.median(load.decisions_per_second for load in side)
        for side in zip(*loads, strict=True)
    ]
    print(f"      {name}: {rates[0]:,.0f} a second, the other {rates[1]:,.0f}")
    return [
        row(
            f"CPU of a decision, {name}", ratio(lambda load: 1 / load.per_cpu_second), "x", ROUNDING
        ),
        row(
            f"rate, {name}",
            ratio(lambda load: load.decisions_per_second),
            "x",
            1 / ROUNDING,
            at_least=True,
        ),
        row(f"p99, {name}", ratio(lambda load: load.p99_ms), "x", ROUNDING),
    ]


def main(other: str | None = None, *, postgresql: bool = True, turns: int = TURNS) -> bool:
    """Print the ratios; True where this checkout is not slower."""
    if other is None:
        print("SKIPPED: python -m benchmarks.against CHECKOUT compares with another checkout")
        return True
    checkout = Path(other).resolve()
    if not (checkout / "src" / "deniable").is_dir():
        print(f"{other} is no checkout of Deniable: it has no src/deniable")
        return False
    with tempfile.TemporaryDirectory() as folder:
        names = iter(range(9))
        held = _compare(
            checkout, lambda: f"sqlite:///{folder}/{next(names)}.db", "SQLite", 1, turns
        )
    if postgresql:
        from tests.postgres import PostgresServer

        database = PostgresServer()
        try:
            database.start(fsync="on", synchronous_commit="on")
            held += _compare(checkout, database.new_database, "PostgreSQL", 2, turns)
        finally:
            database.remove()
    return all(held)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", help="the folder of the other checkout")
    parser.add_argument("--no-postgresql", action="store_true", help="SQLite only")
    parser.add_argument("--turns", type=int, default=TURNS, help=f"of each kind (default {TURNS})")
    given = parser.parse_args()
    held = main(given.checkout, postgresql=not given.no_postgresql, turns=given.turns)
    sys.exit(0 if held else 1)
