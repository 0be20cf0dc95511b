"""Audits at size: exact tables, and a firm of 1,000 experiments and 5 million decisions.

The store is filled by bulk inserts, with sound chains and counters, so that the audit has to follow
every row. `DENIABLE_AUDIT_DECISIONS` makes it smaller, and its limit with it. Times are CPU seconds.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from sqlalchemy import Connection

from benchmarks.timing import row
from deniable.audit.exact import exact_proof
from deniable.audit.promise import AuditedTable, Promise
from deniable.privacy.tables import Table
from deniable.service.drafts import draft
from deniable.service.service import open as open_service
from deniable.service.table_making import first_neutral, recipe_of
from deniable.storage import (
    account_rules,
    commitments,
    experiments,
    promise_entries,
    times,
)
from deniable.storage.chain import GENESIS, decision_hash, salted_hash
from deniable.storage.connect import connect
from deniable.storage.records import Experiment, Metric, PublishedTable

EXPERIMENTS = 1_000
WHOLE = 5_000_000
DECISIONS = int(os.environ.get("DENIABLE_AUDIT_DECISIONS", WHOLE))
TABLES = 10
SEGMENTS, ARMS = 4, 3
WRITERS = (1001, 1002)
PAGE = 50_000

COLUMNS = (
    "experiment_id, id, visitor, salt, segment, shown, role, version, table_number, decided_at, "
    "writer_id, seq, hash"
)


def main() -> bool:
    """Both limits."""
    return exact_tables() & whole_firm()


def exact_tables() -> bool:
    """1,000 published tables of 20 segments and 20 arms, each also made again from its counts."""
    rng = random.Random(1)
    arms, segments = (tuple(f"{what}-{i}" for i in range(20)) for what in ("arm", "segment"))
    promise = Promise("large", arms, segments, (10**9,) * 20, "dynamic")
    tables = []
    for number in range(1, 1001):
        shows = tuple(tuple(rng.randrange(50, 5_000) for _ in range(20)) for _ in range(20))
        rewards = tuple(tuple(rng.randrange(n) for n in shown) for shown in shows)
        tables.append(AuditedTable(number, 1, promise.made(1, shows, rewards), shows, rewards))
    audited = replace(promise, tables=tuple(tables))
    started = time.process_time()
    proof = exact_proof(audited)[0]
    spent = time.process_time() - started
    assert proof.holds
    assert proof.n_tables == 1_000
    return row("exact audit, 1,000 tables x 20 segments x 20 arms", spent, "s", 10)


def whole_firm() -> bool:
    """`audit firm` on a tenth of a large store, then on all of it: time, and memory that stays flat."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "firm.db")
        ids, tables = fill(f"sqlite:///{path}", EXPERIMENTS)
        decide(path, ids, tables, DECISIONS // 10, WRITERS[0])
        _, before = _audited_apart(f"sqlite:///{path}", DECISIONS // 10)
        decide(path, ids, tables, DECISIONS - DECISIONS // 10, WRITERS[1])
        spent, peak = _audited_apart(f"sqlite:///{path}", DECISIONS)
    limit = 60 * max(DECISIONS / WHOLE, 0.2)
    good = row(f"audit firm, 1,000 experiments, {DECISIONS:,} decisions", spent, "s", limit)
    return good & row("its memory, over that with a tenth of them", peak / before, "x", 1.5)


AUDIT = """
import json, sys, time
from benchmarks.timing import peak_megabytes
from deniable.service.service import open

with open(sys.argv[1]) as service:
    found = service.audits.firm()
spent = time.process_time()
print(json.dumps([found.sound, found.decisions, spent, peak_megabytes(), found.verdict]))
"""


def _audited_apart(url: str, decisions: int) -> tuple[float, float]:
    """CPU seconds and largest resident memory (MB) of one audit, in a process that does nothing else."""
    command = [sys.executable, "-c", AUDIT, url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    sound, found, spent, peak, verdict = json.loads(done.stdout)
    assert sound, verdict
    assert found == decisions
    print(f"      {verdict} {peak:.0f} MB")
    return spent, peak


def fill(url: str, n_experiments: int) -> tuple[list[bytes], list[Table]]:
    """A firm and started experiments with their tables; the ids, and the tables, which all share."""
    with open_service(url) as service:
        service.firm.set(budget=10 * n_experiments)
    store = connect(url)
    tables: list[Table] = []
    with store.begin() as connection:
        commitments.lock_chain(connection)
        made = [_started(connection, f"e{place:04}", tables) for place in range(n_experiments)]
    store.close()
    return made, tables


def _started(connection: Connection, key: str, tables: list[Table]) -> bytes:
    """A running experiment with its tables, which are made once and used by all."""
    planned = draft(
        key,
        arms=[f"arm-{i}" for i in range(ARMS)],
        segments=[f"segment-{i}" for i in range(SEGMENTS)],
        budget=1,
        strategy="constant",
        planned_visitors=None,
        layer=None,
        holdout=0.0,
        default_arm=None,
        attribution_seconds=None,
        metrics=(Metric(),),
    )
    created = experiments.insert_draft(connection, planned)
    commitments.record(connection, "create", created, **promise_entries.create_detail(created))
    recipe = recipe_of(created)
    detail = promise_entries.commit_detail(created, None) | promise_entries.rows_detail(
        recipe.fixed_band(), first_neutral(created)
    )
    commitments.record(connection, "start", created, created.budget_nano, **detail)
    now = times.now()
    running = experiments.change(
        connection, created, status="running", started_at=times.as_datetime(now)
    )
    for number in range(1, TABLES + 1):
        shows = [[100] * ARMS] * SEGMENTS
        rewards = [
            [10 * (arm == (number + segment) % ARMS) for arm in range(ARMS)]
            for segment in range(SEGMENTS)
        ]
        if len(tables) < number:
            tables.append(recipe.table(recipe.counts(shows, rewards)))
        _publish(connection, running, number, tables[number - 1], shows, rewards)
    return bytes.fromhex(running.id)


def _publish(
    connection: Connection,
    experiment: Experiment,
    number: int,
    table: Table,
    shows: list[list[int]],
    rewards: list[list[int]],
) -> None:
    counts = json.dumps({"shows": shows, "rewards": rewards}).encode()
    strategy, version = experiment.strategy, experiment.version
    now = times.now()
    stored = PublishedTable(
        number, version, strategy, times.as_datetime(now), 0, counts, table.encoded()
    )
    experiments.add_table(connection, experiment, stored)
    detail = promise_entries.table_detail(number, version, table, counts, 0, strategy, now)
    commitments.record(connection, "table", experiment, **detail)


def decide(path: str, ids: Sequence[bytes], tables: Sequence[Table], total: int, by: int) -> None:
    """Decisions of one writer, experiment after experiment and table after table."""
    rng = random.Random(by)
    ends = [[list(accumulate(row)) for row in table.rows] for table in tables]
    database = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -500000"):
        database.execute(f"PRAGMA {pragma}")
    database.execute("BEGIN")
    database.execute("DROP INDEX decisions_visitor")
    at, each = times.now() + 3_600_000_000, total // len(ids)
    seq, head = 0, GENESIS
    counts: Counter[tuple[object, ...]] = Counter()
    page: list[tuple[object, ...]] = []
    for experiment in ids:
        prefix, drawn = experiment[:4] + by.to_bytes(4, "big"), os.urandom(32 * each)
        for number in range(each):
            table, segment = number * TABLES // each, number % SEGMENTS
            point = rng.getrandbits(64)
            shown = sum(point >= end for end in ends[table][segment])
            visitor, salt = (
                drawn[32 * number : 32 * number + 16],
                drawn[32 * number + 16 : 32 * number + 32],
            )
            identity = prefix + number.to_bytes(8, "big")
            seq += 1
            key = (experiment, identity, 1, table + 1, 0, at + seq, by, seq)
            head = decision_hash(head, *key, salted_hash(visitor, salt, segment, shown))
            own = (experiment, identity, visitor, salt, segment, shown, 0, 1, table + 1)
            page.append((*own, at + seq, by, seq, head))
            counts[experiment, table + 1, 0, segment, shown, 0, by] += 1
        if len(page) >= PAGE:
            _insert(database, page)
    _insert(database, page)
    database.executemany(
        "INSERT INTO counters VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0)",
        [(*key, count) for key, count in counts.items()],
    )
    database.execute(
        "INSERT INTO writers (id, lease_until, seq, head) VALUES (?, 0, ?, ?)", (by, seq, head)
    )
    hour = (at + seq) // account_rules.HOUR
    database.executemany("INSERT INTO answers VALUES (?, ?, ?)", [(one, by, hour) for one in ids])
    database.execute("CREATE UNIQUE INDEX decisions_visitor ON decisions (visitor)")
    database.execute("COMMIT")
    database.close()


def _insert(database: sqlite3.Connection, page: list[tuple[object, ...]]) -> None:
    marks = ", ".join("?" * 13)
    database.executemany(f"INSERT INTO decisions ({COLUMNS}) VALUES ({marks})", page)
    page.clear()
