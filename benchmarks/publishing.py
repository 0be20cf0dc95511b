"""What publishing costs: its CPU time for each decision, as a share of what a decision takes.

Experiments of 20 segments and 10 arms live through 100,000 visitors each, with rewards. A table is
published when an experiment has grown by 5% and by 1,000 decisions. Counted are the publisher's
own CPU time and that of the writer, where it reads a new table. A service with 1,000 such experiments
pays the same for each decision as one with a single one: a table is due after so many decisions,
whichever experiment they belong to. The share is that of the CPU time of a decision over HTTP, for
which there is one core: cost of publishing a decision x decisions a second / core. Both are measured
in turns, because the machine may become faster or slower meanwhile. The limit is for
experiments that have their 100,000 visitors; of whole lives, whose first tables come after every
1,000 decisions, the share is told.
"""

from __future__ import annotations

import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.service import _prepared, _wrk, served
from benchmarks.timing import row
from deniable.privacy.epochs import due_at, epochs_of
from deniable.service.experiment_state import ExperimentStates
from deniable.service.publisher import Publisher
from deniable.service.service import Deniable
from deniable.strategies import STRATEGIES

SEGMENTS, ARMS = 20, 10
VISITORS = 100_000
JOINT_VISITORS = 5_000
BATCH = 100
EXPERIMENTS = 3
TURNS = 9
MEASURED = ("constant", "dynamic")
"""Strategies with a limit; of the others the cost is only told."""


def tables_until(decisions: int) -> int:
    """Tables that one experiment publishes while it stores so many decisions, after the first.

    >>> tables_until(100), tables_until(100_000)
    (0, 52)
    """
    epochs = epochs_of(ARMS, SEGMENTS)
    count, due = 0, due_at(0, epochs)
    while due <= decisions:
        count, due = count + 1, due_at(due, epochs)
    return count


@contextmanager
def counted(owner: Any, name: str) -> Iterator[list[float]]:
    """CPU seconds of each call of a method, in whichever thread it is called."""
    plain: Callable[..., Any] = getattr(owner, name)
    spent: list[float] = []

    def timed(*arguments: Any) -> Any:
        start = time.thread_time()
        try:
            return plain(*arguments)
        finally:
            spent.append(time.thread_time() - start)

    setattr(owner, name, timed)
    try:
        yield spent
    finally:
        setattr(owner, name, plain)


def lived(
    service: Deniable, strategy: str, visitors: int, between: Callable[[], float]
) -> tuple[float, float]:
    """What a table costs over the lives of some experiments, and in the last third of them.

    In units of what `between` returns, which is called now and then.
    """
    segments, arms = [f"s{i}" for i in range(SEGMENTS)], [f"a{i}" for i in range(ARMS)]
    keys = [f"{strategy}-{number}" for number in range(EXPERIMENTS)]
    chance = random.Random(1)
    for key in keys:
        service.experiments.create(key, arms=arms, segments=segments, budget=1, strategy=strategy)
        service.experiments.start(key)

    def spent() -> tuple[float, int]:
        """CPU seconds and tables so far."""
        tables = sum(service.experiments.get(key).table_number - 1 for key in keys)
        return sum(published) + sum(read), tables

    turns = min(TURNS, visitors // 2_000)  # a table at least in each
    costs: list[tuple[float, float]] = []  # of each turn: a table's CPU seconds, and the unit's
    with counted(Publisher, "_look") as published, counted(ExperimentStates, "reread") as read:
        before = spent()
        for turn in range(turns):
            for start in range(turn * visitors // turns, (turn + 1) * visitors // turns, BATCH):
                for key in keys:
                    names = [(f"v{start + i}", chance.choice(segments)) for i in range(BATCH)]
                    answers = service.decide_batch(key, names)
                    # Every fifth tells a click: what is not told counts as none.
                    service.reward_batch([(answer.id, 1) for answer in answers[::5]])
            service._publisher.close()  # waits for the last table
            seconds, tables = spent()
            each = (seconds - before[0]) / (tables - before[1])
            costs.append((each, between()))
            before = spent()
    print(
        f"      {strategy}: {statistics.median(cost for cost, _ in costs) * 1e3:.1f} ms of CPU a table, "
        f"{statistics.median(unit for _, unit in costs) * 1e6:.0f} us a decision over HTTP"
    )
    ratios = [cost / unit for cost, unit in costs]
    return statistics.mean(ratios), statistics.mean(ratios[-turns // 3 :])


@contextmanager
def _per_decision() -> Iterator[Callable[[], float]]:
    """CPU seconds of a server for a decision over HTTP, one visitor a request, now."""
    if shutil.which("wrk") is None or shutil.which("taskset") is None:
        print("SKIPPED: the capacity needs wrk and taskset; 100 microseconds are assumed")
        yield lambda: 100e-6
        return
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/store.db"
        with _prepared(store) as service:
            secret, _ = service.keys.create("benchmark", ["decide"])
        with served("decide", store) as server:
            yield lambda: 1 / _wrk(server, secret, 1).per_cpu_second


def main() -> bool:
    """Print what publishing costs by strategy; True where constant and dynamic stay below 1%."""
    held = []
    for strategy in STRATEGIES:
        visitors = VISITORS if strategy in MEASURED else JOINT_VISITORS
        with (
            tempfile.TemporaryDirectory() as folder,
            _prepared(f"sqlite:///{folder}/store.db", new=False) as service,
            _per_decision() as decision,
        ):
            service.firm.set(budget=2 * EXPERIMENTS)
            each, last = lived(service, strategy, visitors, decision)
        for size in (10_000, 100_000, 1_000_000):
            share = each * tables_until(size) / size
            print(
                f"        lives of {size:>9,} visitors: {tables_until(size)} tables, "
                f"{share:.2%} of the capacity"
            )
        if strategy in MEASURED:
            share = last / (due_at(visitors, epochs_of(ARMS, SEGMENTS)) - visitors)
            name = f"publishing, {strategy}, experiments with {visitors:,} visitors"
            held.append(row(name, 100 * share, "%", 1.0))
    return all(held)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
