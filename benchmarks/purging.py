"""A purge of a store that serves: the latency of decisions while it runs and while it does not.

200,000 decisions are stored. Single visitors come at a steady rate. `deniable purge --running` is
started and interrupted in turns, as it may be. A disk changes its pace by the minute, so each turn with
a purge is compared with the turns before and after it, and the median of these comparisons counts.

    python -m benchmarks.purging                      # 8 comparisons on each store: 4 minutes
    python -m benchmarks.purging --store postgresql
    python -m benchmarks.purging --turns 2 --stored 20000
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from sqlalchemy import func, select

from benchmarks._load import Caller, Told
from benchmarks.service import _fill, _prepared, served
from benchmarks.timing import row
from deniable.storage.schema import decisions

STORED = 200_000
RATE = 300.0
"""Visitors a second: a load that leaves the service time to rest."""

TURNS = 8
TURN_SECONDS = 4.0
STORES = ("sqlite", "postgresql")


@contextmanager
def _purging(store: str, really: bool) -> Iterator[subprocess.Popen[bytes] | None]:
    """The command, for as long as this block takes; it is interrupted like by Ctrl-C."""
    if not really:
        yield None
        return
    command = [sys.executable, "-m", "deniable", "purge", "--running", "--older-than-days", "0"]
    purge = subprocess.Popen(
        [*command, "--store", store], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield purge
    finally:
        purge.send_signal(signal.SIGINT)
        purge.wait()


def purged(store: str) -> int:
    """Decisions that were stripped of their visitor."""
    query = select(func.count()).select_from(decisions).where(decisions.c.salt.is_(None))
    with _prepared(store, new=False) as service, service._store.read() as connection:
        return int(connection.execute(query).scalar_one())


async def _steady(caller: Caller, seconds: float) -> Told:
    """One visitor after the other, each at its time."""
    told, waiting = Told(), []
    begin = time.perf_counter()
    for number in range(int(seconds * RATE)):
        due = begin + number / RATE
        while (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        waiting.append(asyncio.ensure_future(caller.send(due, told)))
    await asyncio.gather(*waiting)
    return told


async def _turns(url: str, secret: str, store: str, turns: int) -> tuple[list[list[float]], int]:
    """Latencies (seconds) of turns without and with the purge, and the decisions purged a second.

    There is one more turn without: every turn with the purge stands between two without.
    """
    caller = Caller(url, secret, 1, f"{time.time_ns():x}")
    await _steady(caller, TURN_SECONDS)  # to warm up
    found: list[list[float]] = []
    done = 0
    for turn in range(2 * turns + 1):
        purging = turn % 2 == 1
        with _purging(store, purging) as command:
            before = purged(store) if purging else -1
            while purged(store) <= before:  # the command needs a moment to start
                await _steady(caller, 0.5)
            before = purged(store)
            told = await _steady(caller, TURN_SECONDS)
            done += purged(store) - before
            if command is not None and command.poll() is not None:
                raise RuntimeError("the purge was over before the turn: store more decisions")
        if told.failed or told.unsent:
            raise RuntimeError("a decision was not answered")
        found.append(told.served + told.refused)
    return found, round(done / (turns * TURN_SECONDS))


def compared(turns: list[float]) -> list[float]:
    """Each turn with a purge to the mean of the turns around it, in order.

    >>> compared([1.0, 3.0, 2.0, 5.0, 3.0])
    [2.0, 2.0]
    """
    return [2 * b / (a + c) for a, b, c in zip(turns[::2], turns[1::2], turns[2::2], strict=False)]


def _run(store: str, turns: int, stored: int) -> bool:
    with _prepared(store) as service:
        _fill(service, stored, "old")
        secret, _ = service.keys.create("benchmark", ["decide"])
    os.sync()  # else the disk still writes what was filled in during the first turns
    with served("decide", store, pinned=False) as server:
        gc.collect()
        gc.freeze()
        gc.disable()  # a pause of this process would count as one of the service
        found, rate = asyncio.run(_turns(server.url, secret, store, turns))
        gc.enable()
    with _prepared(store, new=False) as service:
        assert service.ledger.verify().sound
    quiet, busy = (
        np.percentile(np.concatenate(turns_of), (50, 99)) * 1e3
        for turns_of in (found[::2], found[1::2])
    )
    ratios = compared([float(np.percentile(turn, 99)) for turn in found])
    name = store.partition(":")[0]
    print(
        f"      {name}: p50 {quiet[0]:.1f} -> {busy[0]:.1f} ms, p99 {quiet[1]:.1f} -> {busy[1]:.1f} ms; "
        f"{rate:,} decisions purged a second; ratios of p99 {', '.join(f'{r:.2f}' for r in ratios)}"
    )
    return all(
        [
            row(
                f"p99 during a purge to p99 without, {name}, median",
                float(np.median(ratios)),
                "x",
                2.0,
            ),
            row("  decisions purged a second", rate, "/s", 100, at_least=True),
        ]
    )


def main(stores: tuple[str, ...] = STORES, turns: int = TURNS, stored: int = STORED) -> bool:
    """Print both latencies; True where the limit holds."""
    held = []
    if "sqlite" in stores:
        with tempfile.TemporaryDirectory() as folder:
            held.append(_run(f"sqlite:///{folder}/store.db", turns, stored))
    if "postgresql" in stores:
        try:
            from tests.postgres import PostgresServer

            database = PostgresServer()
        except (ImportError, FileNotFoundError, PermissionError) as error:
            print(f"SKIPPED: no PostgreSQL to measure ({error})")
        else:
            try:
                database.start(fsync="on", synchronous_commit="on")
                held.append(_run(database.new_database(), turns, stored))
            finally:
                database.remove()
    return all(held)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--store", choices=STORES, help="only this one")
    parser.add_argument("--turns", type=int, default=TURNS, help="with a purge, of 4 s (default 8)")
    parser.add_argument("--stored", type=int, default=STORED, help="decisions (default 200,000)")
    given = parser.parse_args()
    chosen = (given.store,) if given.store else STORES
    sys.exit(0 if main(chosen, given.turns, given.stored) else 1)
