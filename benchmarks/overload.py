"""Three times the load that the service can store: what is refused, and how long the rest waits.

Three callers, each with an API key of its own, send single visitors, batches of 50 and batches of 500.
First as fast as the service answers, which gives its capacity; then at fixed times, at three times
that rate, whether the service answers or not. A request's latency counts from the moment at which it
was to be sent. The server is pinned to one core and the load to another.

    python -m benchmarks.overload                  # 60 seconds
    python -m benchmarks.overload --seconds 600    # the ten minutes of the promise
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from benchmarks._load import Caller, Told
from benchmarks.service import LOAD_CORE, Server, _prepared, served
from benchmarks.timing import row

SECONDS = 60.0
CAPACITY_SECONDS = 5.0
FACTOR = 3.0
CALLERS = {"singles": (1, 0.01), "batches of 50": (50, 0.33), "batches of 500": (500, 0.66)}
"""Visitors of a request, and the caller's share of all decisions.

Requests cost more than decisions. The shares are such that one process can send three times the
service's capacity in time; a row of the result says whether it did."""

LOOKS = 6
"""How often memory is looked at."""


async def capacity(callers: dict[str, Caller]) -> float:
    """Decisions a second that are stored when everybody waits for the answer before asking again."""
    told = {name: Told() for name in callers}
    end = time.perf_counter() + CAPACITY_SECONDS

    async def keep_asking(name: str) -> None:
        while (now := time.perf_counter()) < end:
            await callers[name].send(now, told[name])

    await asyncio.gather(*(keep_asking(name) for name in callers for _ in range(4)))
    stored = sum(len(told[name].served) * caller.size for name, caller in callers.items())
    return stored / CAPACITY_SECONDS


async def overload(
    callers: dict[str, Caller], rate: float, seconds: float, server: Server
) -> tuple[dict[str, Told], list[float]]:
    """Send at fixed times; returns what became of it, and the server's memory in MiB."""
    told = {name: Told() for name in callers}
    waiting: set[asyncio.Task[None]] = set()
    memory: list[float] = []
    begin = time.perf_counter()
    looks = iter(np.linspace(seconds / LOOKS, seconds, LOOKS) - 1e-3)
    look = next(looks)
    for due, name in _schedule(callers, rate, seconds):
        while (wait := begin + due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        task = asyncio.ensure_future(callers[name].send(begin + due, told[name]))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
        if due >= look:
            memory.append(server.process.memory_info().rss / 2**20)
            look = next(looks, float("inf"))
            print(f"      {due:5.0f} s: memory {memory[-1]:.0f} MiB", flush=True)
    await asyncio.gather(*waiting)
    return told, memory


def _schedule(
    callers: dict[str, Caller], rate: float, seconds: float
) -> Iterator[tuple[float, str]]:
    """The times at which each caller sends, in order."""
    gaps = {name: CALLERS[name][0] / (CALLERS[name][1] * rate) for name in callers}
    due = {name: gap * (number + 1) / len(gaps) for number, (name, gap) in enumerate(gaps.items())}
    while True:
        name = min(due, key=due.__getitem__)
        if due[name] >= seconds:
            return
        yield due[name], name
        due[name] += gaps[name]


async def _run(server: Server, secrets: dict[str, str], seconds: float) -> bool:
    callers = {
        name: Caller(server.url, secrets[name], size, f"{time.time_ns():x}{size}")
        for name, (size, _) in CALLERS.items()
    }
    stored = await capacity(callers)
    rate = FACTOR * stored
    print(f"      capacity {stored:,.0f} decisions a second; offered {rate:,.0f} for {seconds:g} s")
    told, memory = await overload(callers, rate, seconds, server)
    return _report(callers, told, memory, seconds)


def _report(
    callers: dict[str, Caller], told: dict[str, Told], memory: list[float], seconds: float
) -> bool:
    shares: dict[str, float] = defaultdict(float)
    print(
        f"      {'caller':<16}{'offered':>9}{'stored':>9}{'refused':>9}{'unsent':>8}{'failed':>8}"
        f"{'p50 ms':>9}{'p99 ms':>9}{'refusal p99':>13}"
    )
    for name, one in told.items():
        p50, p99 = np.percentile(one.served or [float("nan")], (50, 99)) * 1e3
        late = np.percentile(one.refused or [float("nan")], 99) * 1e3
        shares[name] = len(one.served) * callers[name].size
        print(
            f"      {name:<16}{one.offered:>9,}{len(one.served):>9,}{len(one.refused):>9,}"
            f"{one.unsent:>8,}{one.failed:>8,}{p50:>9.0f}{p99:>9.0f}{late:>13.0f}"
        )
    for name, one in told.items():
        if one.failures:
            print(f"      other answers to {name}: {sorted(set(one.failures))}")
    admitted = np.concatenate([one.served for one in told.values()]) * 1e3
    total = sum(shares.values())
    print(
        f"      stored {total / seconds:,.0f} decisions a second: "
        + ", ".join(f"{name} {share / total:.0%}" for name, share in shares.items())
    )
    singles = told["singles"]
    sent_late = float(np.percentile(np.concatenate([one.late for one in told.values()]), 99)) * 1e3
    batches = shares["batches of 50"] / shares["batches of 500"]
    return all(
        [
            row(
                "overload: 99% of those admitted within",
                float(np.percentile(admitted, 99)),
                "ms",
                250,
            ),
            row("  and half of them", float(np.percentile(admitted, 50)), "ms", 250),
            row(
                "  of the singles, who send little, stored",
                len(singles.served) / singles.offered,
                "",
                0.9,
                at_least=True,
            ),
            row("  the two who send batches: stored, small to large", batches, "x", 1.5),
            row("  and large to small", 1 / batches, "x", 1.5),
            row("  memory at the end to a sixth of the time", memory[-1] / memory[0], "x", 1.1),
            row("  99% of the requests were sent late by at most", sent_late, "ms", 20),
            row("  requests without an answer", sum(one.failed for one in told.values()), "", 0),
        ]
    )


def main(seconds: float = SECONDS) -> bool:
    """Print what happened; True where all limits hold."""
    if (os.cpu_count() or 1) < 2:
        print("SKIPPED: needs two cores")
        return True
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/store.db"
        with _prepared(store) as service:
            secrets = {name: service.keys.create(name, ["decide"])[0] for name in CALLERS}
        with served("decide", store) as server:
            before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {int(LOAD_CORE)})
            gc.disable()
            try:
                held = asyncio.run(_run(server, secrets, seconds))
            finally:
                gc.enable()
                os.sched_setaffinity(0, before)
        with _prepared(store, new=False) as service:
            assert service.ledger.verify().sound
    return held


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long (default 60)")
    sys.exit(0 if main(parser.parse_args().seconds) else 1)
