"""`deniable audit log` on ten million rows: processor seconds and peak memory, in its own process.

The log is that of one experiment with three arms and two segments, a tenth of its decisions rewarded.
It is made here, linked as the service links it, because filling a store takes longer than the audit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import polars as pl

from benchmarks.timing import row
from deniable.audit.log_blocks import COLUMNS, TEXT, WIDTHS
from deniable.privacy.tables import Table, decoded_table, draw, thresholds
from deniable.service.service import open as open_service
from deniable.storage.chain import (
    GENESIS,
    decision_hash,
    reward_hash,
    reward_salted_hash,
    salted_hash,
)
from deniable.storage.log_rows import CHAIN_END, DECISION, LOG_END, REWARD, LogRow, log_rows

ROWS = 10_000_000
MOST_SECONDS = 60
MOST_MEGABYTES = 1_000

_BLOCK = 1 << 17
_WRITER = 7
_CHILD = """
import sys, time
from benchmarks.timing import peak_megabytes
from deniable.audit.log import audit_log
assert audit_log(sys.argv[1]).sound
print(time.process_time(), round(peak_megabytes()))
"""


def make_log(path: Path, n_rows: int) -> None:
    """A sound log of so many decisions and rewards."""
    kinds: dict[str, type[pl.DataType] | pl.DataType] = dict.fromkeys(COLUMNS, pl.Int64())
    kinds |= dict.fromkeys(TEXT, pl.String()) | dict.fromkeys(WIDTHS, pl.Binary())
    schema = pl.Schema(kinds)
    with open_service("memory:") as service:
        service.firm.set(budget=3)
        service.experiments.create("e", arms=["x", "y", "z"], segments=["a", "b"], budget=1)
        experiment = service.experiments.start("e")
        table = decoded_table(service.experiments.tables("e")[0].rows, 3)
        with service._store.read() as connection:
            start = list(log_rows(connection))[:-1]
    heads = [GENESIS]

    def frames(*_ignored: object) -> Iterator[pl.DataFrame]:
        rows = _chained(bytes.fromhex(experiment.id), table, n_rows)
        while page := list(islice(rows, _BLOCK)):
            assert page[-1].hash
            heads.append(page[-1].hash)
            yield pl.DataFrame(page, schema=schema, orient="row")

    chained = path.with_name("chained.parquet")
    source = pl.io.plugins.register_io_source(frames, schema=schema)
    source.sink_parquet(chained, row_group_size=_BLOCK)
    # The recorded ends stand before the rows that lead to them.
    place = 1 + max(i for i, row in enumerate(start) if row.kind == CHAIN_END)
    start.insert(place, LogRow(CHAIN_END, _WRITER, n_rows, hash=heads[-1]))
    end = [LogRow(LOG_END, seq=len(start) + n_rows)]
    parts = [pl.LazyFrame(some, schema=schema, orient="row") for some in (start, end)]
    whole = pl.concat([parts[0], pl.scan_parquet(chained), parts[1]])
    whole.sink_parquet(path, row_group_size=_BLOCK)


def _chained(identity: bytes, table: Table, n_rows: int) -> Iterator[LogRow]:
    now = time.time_ns() // 1000
    ends = [thresholds(row) for row in table.rows]
    head, last = GENESIS, LogRow(DECISION)
    for seq in range(1, n_rows + 1):
        if seq % 11 == 0:
            assert last.id
            assert last.salt
            committed = reward_salted_hash(last.salt, 0, 1_000_000)
            head = reward_hash(head, identity, last.id, 0, now, _WRITER, seq, committed)
            kept = LogRow(REWARD, _WRITER, seq, identity, last.id, time=now, hash=head)
            yield kept._replace(salt=last.salt, metric=0, value=1_000_000)
            continue
        random = os.urandom(52)
        who, salt, new = random[:16], random[16:32], identity[:4] + random[32:44]
        segment = seq & 1
        shown = draw(ends[segment], int.from_bytes(random[44:], "little"))
        committed = salted_hash(who, salt, segment, shown)
        head = decision_hash(head, identity, new, 1, 1, 0, now, _WRITER, seq, committed)
        last = LogRow(
            DECISION,
            _WRITER,
            seq,
            identity,
            new,
            1,
            1,
            0,
            now,
            who,
            salt,
            segment,
            shown,
            hash=head,
        )
        yield last


def main(n_rows: int = ROWS) -> bool:
    """Print both figures; True where they stay below their limits."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        make_log(path, n_rows)
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, str(path)], capture_output=True, text=True, check=True
        )
    seconds, peak = map(float, done.stdout.split())
    name = f"audit log, {n_rows:,} rows"
    held = [
        row(f"{name}, processor time", seconds, "s", MOST_SECONDS),
        row(f"{name}, peak memory", peak, "MB", MOST_MEGABYTES),
    ]
    return all(held)


if __name__ == "__main__":
    sys.exit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS))
