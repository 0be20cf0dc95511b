"""The decision service under load: durable decisions a second, latency, memory, growth.

The server is pinned to one core and wrk to another; traffic stays on the loopback address. Rates depend
on the machine and on what else it does, so the rate of a handler that does nothing is measured in turns
with the real one. DENIABLE_BENCH_FULL=1 takes the sizes of the promise (1,000,000 visitors, 5,000,000
stored rows: minutes) in place of smaller ones.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.timing import row
from deniable.service.service import Deniable
from deniable.service.service import open as open_service

FULL = os.environ.get("DENIABLE_BENCH_FULL") == "1"
SECONDS = 2
ROUNDS = 9  # the speed of a shared machine changes by the second: many short turns
CONNECTIONS = 64
EXPERIMENT = "checkout"
WARM_UP_VISITORS = 250_000  # SQLite's page cache of 64 MiB is full then
MEMORY_VISITORS = 1_000_000 if FULL else 200_000
MANY_ROWS = 5_000_000 if FULL else 200_000
FEW_ROWS = 10_000
SERVER_CORE, LOAD_CORE = "0", "1"

LUA = """
local n, run, size = 0, "%s", %d
local path = "/v1/experiments/checkout/decisions" .. (size > 1 and "/batch" or "")
local headers = {["Content-Type"] = "application/json", ["Authorization"] = "Bearer %s"}
local function one()
  n = n + 1
  return '{"visitor":"' .. run .. n .. '","segment":"' .. (n %% 2 == 0 and "a" or "b") .. '"}'
end
function request()
  if size == 1 then return wrk.format("POST", path, headers, one()) end
  local many = {}
  for i = 1, size do many[i] = one() end
  return wrk.format("POST", path, headers, '{"visitors":[' .. table.concat(many, ",") .. ']}')
end
"""


@dataclass(frozen=True)
class Load:
    """What wrk measured, and the decisions for each second that the server was really running."""

    decisions_per_second: float
    p99_ms: float
    per_cpu_second: float
    decisions: int


@dataclass(frozen=True)
class Server:
    """A server in processes of its own."""

    url: str
    process: psutil.Process

    def cpu_seconds(self) -> float:
        """What all its processes have used."""
        family = [self.process, *self.process.children(recursive=True)]
        return sum(sum(member.cpu_times()[:2]) for member in family)


def main() -> bool:
    """Print every row; True where all limits hold."""
    held = [*_in_process(), *_memory(), *_growth()]
    missing = [tool for tool in ("wrk", "taskset") if shutil.which(tool) is None]
    if missing or (os.cpu_count() or 1) < 2:
        print(f"SKIPPED: the load tests need two cores, wrk and taskset; missing: {missing}")
        return all(held)
    return all([*held, *_over_http(), *_on_postgresql()])


def _in_process() -> list[bool]:
    """Nothing is waited for here, so that CPU time is the time on an idle machine."""
    with _prepared("memory:") as service:
        costs = []
        for number in range(15):
            start = time.process_time()
            for visitor in range(1_000):
                service.decide(EXPERIMENT, f"v-{number}-{visitor}", "a")
            costs.append(time.process_time() - start)
    return [row("decide in process, not durable", statistics.median(costs) * 1e3, "us", 15)]


def _memory() -> list[bool]:
    """State is counters: what a million visitors add is caches, not visitors."""
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as folder, _prepared(f"sqlite:///{folder}/a.db") as service:
        _fill(service, WARM_UP_VISITORS, "first")
        before = process.memory_info().rss
        _fill(service, MEMORY_VISITORS, "then")
        grown = (process.memory_info().rss - before) / 2**20
    return [row(f"memory grown by {MEMORY_VISITORS:,} visitors", grown, "MiB", 16)]


def _growth() -> list[bool]:
    """A durable decision in a store of few rows and in one of many, in turns."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _prepared(f"sqlite:///{folder}/few.db") as few,
        _prepared(f"sqlite:///{folder}/many.db") as many,
    ):
        _fill(few, FEW_ROWS, "few")
        _fill(many, MANY_ROWS, "many")
        times: dict[str, list[float]] = {"few": [], "many": []}
        for number in range(400):
            for name, service in (("few", few), ("many", many)):
                start = time.perf_counter()
                service.decide(EXPERIMENT, f"late-{number}", "a")
                times[name].append(time.perf_counter() - start)
    slower = statistics.median(times["many"]) / statistics.median(times["few"])
    return [row(f"median latency, {MANY_ROWS:,} rows to {FEW_ROWS:,}", slower, "x", 1.5)]


def _over_http() -> list[bool]:
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/store.db"
        with _prepared(store) as service:
            secret, _ = service.keys.create("benchmark", ["decide"])
        decide: list[Load] = []
        nothing: list[Load] = []
        with served("decide", store) as real, served("nothing", store) as idle:
            for _ in range(ROUNDS):
                nothing.append(_wrk(idle, secret, 1))
                decide.append(_wrk(real, secret, 1))
            batches = [_wrk(real, secret, 100) for _ in range(ROUNDS)]
        with _prepared(store, new=False) as service:
            assert service.ledger.verify().sound
    share = statistics.median(
        real.decisions_per_second / idle.decisions_per_second
        for real, idle in zip(decide, nothing, strict=True)
    )
    print(f"      a handler that does nothing: {_rate(nothing):,.0f} a second")
    # On a busy machine the server waits for its core; this is what it does while it has it.
    done, idle_done, batched = (
        statistics.median(load.per_cpu_second for load in loads)
        for loads in (decide, nothing, batches)
    )
    print(
        f"      for each second of the server's CPU: {done:,.0f}, doing nothing {idle_done:,.0f}"
        f" (share {done / idle_done:.2f}), in batches {batched:,.0f}"
    )
    return [
        row("durable decisions a second, one core", _rate(decide), "/s", 6_000, at_least=True),
        row("99% of them within", statistics.median(x.p99_ms for x in decide), "ms", 30),
        row("share of the rate of doing nothing", share, "", 0.7, at_least=True),
        row("durable decisions in batches of 100", _rate(batches), "/s", 60_000, at_least=True),
    ]


def _on_postgresql() -> list[bool]:
    try:
        from tests.postgres import PostgresServer

        database = PostgresServer()
    except (ImportError, FileNotFoundError, PermissionError) as error:
        print(f"SKIPPED: no PostgreSQL to measure ({error})")
        return []
    try:
        database.start(fsync="on", synchronous_commit="on")
        store = database.new_database()
        with _prepared(store) as service:
            secret, _ = service.keys.create("benchmark", ["decide"])
        with served("decide", store, workers=2) as server:
            loads = [_wrk(server, secret, 1, pinned=False) for _ in range(ROUNDS)]
    finally:
        database.remove()
    name = "PostgreSQL, synchronous_commit=on, 2 processes"
    return [row(name, _rate(loads), "/s", 4_000, at_least=True)]


def _rate(loads: list[Load]) -> float:
    return statistics.median(load.decisions_per_second for load in loads)


@contextmanager
def _prepared(store: str, *, new: bool = True) -> Iterator[Deniable]:
    os.environ["DENIABLE_VISITOR_KEY"] = "00" * 32
    with open_service(store) as service:
        if new:
            service.firm.set(budget=3.0)
            arms, segments = ["old", "new"], ["a", "b"]
            service.experiments.create(EXPERIMENT, arms=arms, segments=segments, budget=1.0)
            service.experiments.start(EXPERIMENT)
        yield service


def _fill(service: Deniable, visitors: int, name: str) -> None:
    for start in range(0, visitors, 2_000):
        batch = [(f"{name}-{n}", "ab"[n % 2]) for n in range(start, start + 2_000)]
        service.decide_batch(EXPERIMENT, batch)


@contextmanager
def served(
    mode: str,
    store: str,
    workers: int = 1,
    *,
    pinned: bool = True,
    queue_seconds: float | None = None,
) -> Iterator[Server]:
    """A server in a process of its own, pinned to one core where it is one process."""
    pin = ["taskset", "-c", SERVER_CORE] if workers == 1 and pinned else []
    command = [*pin, sys.executable, "-m", "benchmarks._service_server", mode, store, str(workers)]
    command += [] if queue_seconds is None else [str(queue_seconds)]
    if mode == "plain":
        command = [*pin, sys.executable, "-m", "benchmarks._plain_server", store]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        deadline = time.monotonic() + 60
        while not _answers(url):
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError("the server did not start")
        yield Server(url, psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait(60)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        time.sleep(0.05)
        return False


def _wrk(
    server: Server,
    secret: str,
    size: int,
    *,
    pinned: bool = True,
    connections: int = CONNECTIONS,
) -> Load:
    """Some seconds of decisions for new visitors on so many connections."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "load.lua"
        script.write_text(LUA % (f"{time.time_ns():x}-", size, secret))
        pin = ["taskset", "-c", LOAD_CORE] if pinned else []
        options = ["-t1", f"-c{connections}", f"-d{SECONDS}s", "--timeout", "60s"]
        options += ["--latency", "-s", str(script)]
        command = [*pin, "wrk", *options, server.url]
        cpu = server.cpu_seconds()
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        cpu = server.cpu_seconds() - cpu
    if "Non-2xx" in told or "Socket errors" in told:
        raise RuntimeError(told)
    rate = float(_found(r"Requests/sec:\s+([\d.]+)", told))
    requests = int(_found(r"(\d+) requests in", told))
    number, unit = re.findall(r"99%\s+([\d.]+)(us|ms|s)", told)[0]
    p99_ms = float(number) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]
    return Load(rate * size, p99_ms, requests * size / cpu, requests * size)


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise RuntimeError(text)
    return match[1]
