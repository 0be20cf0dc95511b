"""The ledger as one log: rows from which every chain can be verified without the store.

In order: a description of the file, the chain of commitments, the recorded end of every chain, the
published tables, then the decisions and rewards of each writer's chain, and the number of rows. Visitors
are keyed HMACs. A decision is either open (visitor, salt, segment and arm, from which its salted hash
follows) or closed (only the hash, as `commitment`). Erased decisions are closed, and so are those of
experiments that the log is not about. Their links can still be recomputed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import NamedTuple, TypeAlias

from sqlalchemy import Connection, Table, select

from deniable.storage import chain, times
from deniable.storage.schema import (
    COMMITMENT_CHAIN,
    Query,
    StoredRow,
    commitments,
    decisions,
    rewards,
    tables,
    writers,
)

FORMAT, FORMAT_VERSION = "deniable log", 1

ABOUT, COMMITMENT, CHAIN_END, TABLE, DECISION, REWARD, LOG_END = "FCETDRZ"
"""Kinds of rows."""

_PAGE = 5_000
_SORT_KIB = 8_192


class LogRow(NamedTuple):
    """One row. In text files, bytes are written in hexadecimal.

    Attributes:
        kind: kind of row.
        writer: the chain that it belongs to; 0 is the chain of commitments.
        seq: its position in that chain; in the last row, the number of rows before it.
        experiment: 16 bytes.
        id: id of the decision, or of a reward's decision.
        version: version of the promise.
        table: the number of the table.
        role: selects the row of the table that was drawn from.
        time: microseconds since 1970.
        visitor: keyed HMAC; only if open.
        salt: only if open.
        segment: its index, -1 if not listed; only if open.
        shown: the arm's index; only if open.
        metric: its index.
        value: value of an open reward, in millionths; the nano-nats of a commitment.
        commitment: the salted hash, which closed rows are linked by.
        hash: the link.
        detail: for commitments: kind, a space, JSON; for tables and the first row: JSON.
    """

    kind: str
    writer: int | None = None
    seq: int | None = None
    experiment: bytes | None = None
    id: bytes | None = None
    version: int | None = None
    table: int | None = None
    role: int | None = None
    time: int | None = None
    visitor: bytes | None = None
    salt: bytes | None = None
    segment: int | None = None
    shown: int | None = None
    metric: int | None = None
    value: int | None = None
    commitment: bytes | None = None
    hash: bytes | None = None
    detail: str | None = None


_Rows: TypeAlias = "Generator[LogRow, None, None]"


def log_rows(
    connection: Connection, wanted: Collection[bytes] | None = None, *, with_cells: bool = False
) -> Generator[LogRow, None, None]:
    """Stream all rows.

    Args:
        connection: one consistent state of the store.
        wanted: ids of the experiments that the log is about; None for all.
        with_cells: fill table, role, segment and shown of open rewards from their decisions.
    """
    count = 0
    for part in (
        _about(wanted),
        _commitments(connection),
        _ends(connection),
        _tables(connection, wanted),
        _chained(connection, wanted, with_cells),
    ):
        with closing(part):  # cursors must not outlive the transaction
            for row in part:
                count += 1
                yield row
    yield LogRow(LOG_END, seq=count)


def _about(wanted: Collection[bytes] | None) -> _Rows:
    about = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "experiments": None if wanted is None else sorted(identity.hex() for identity in wanted),
    }
    yield LogRow(ABOUT, time=times.now(), detail=json.dumps(about))


def _commitments(connection: Connection) -> _Rows:
    query = select(commitments).order_by(commitments.c.seq)
    with connection.execute(query.execution_options(yield_per=_PAGE)) as rows:
        for row in rows:
            yield LogRow(
                COMMITMENT,
                writer=COMMITMENT_CHAIN,
                seq=row.seq,
                experiment=row.experiment_id,
                time=row.recorded_at,
                value=row.amount_nano,
                hash=row.hash,
                detail=f"{row.kind} {row.detail}",
            )


def _tables(connection: Connection, wanted: Collection[bytes] | None) -> _Rows:
    query = select(tables).order_by(tables.c.experiment_id, tables.c.number)
    if wanted is not None:
        query = query.where(tables.c.experiment_id.in_(list(wanted)))
    with connection.execute(query.execution_options(yield_per=50)) as rows:
        for row in rows:
            detail = {
                "decisions": row.decisions,
                "strategy": row.strategy,
                "counts": row.counts.decode(),
                "rows": row.rows.hex(),
            }
            yield LogRow(
                TABLE,
                experiment=row.experiment_id,
                version=row.version,
                table=row.number,
                time=row.published_at,
                detail=json.dumps(detail),
            )


def _ends(connection: Connection) -> _Rows:
    for row in connection.execute(select(writers).order_by(writers.c.id)):
        yield LogRow(CHAIN_END, writer=row.id, seq=row.seq, hash=row.head)


def _chained(connection: Connection, wanted: Collection[bytes] | None, with_cells: bool) -> _Rows:
    """Yield decisions and rewards in the order of their chains."""
    open_to = None if wanted is None else frozenset(wanted)
    streams = (
        _stream(connection, decisions, _DECISIONS),
        _stream(connection, rewards, _REWARDS),
    )
    with _small_cache(connection), closing(streams[0]), closing(streams[1]):
        waiting = iter(streams[1])
        reward = next(waiting, None)
        for row in streams[0]:
            (experiment, identity, visitor, salt, segment, shown, version) = row[:7]
            (at, writer, seq, link, table, role, commitment) = row[7:]
            while reward is not None and (reward.writer_id, reward.seq) < (writer, seq):
                yield _reward(reward, open_to, with_cells)
                reward = next(waiting, None)
            if salt is not None:
                commitment = None
                if open_to is not None and experiment not in open_to:
                    commitment = chain.salted_hash(visitor, salt, segment, shown)
                    visitor = salt = segment = shown = None
            kept = (DECISION, writer, seq, experiment, identity, version, table, role, at)
            yield _row((*kept, visitor, salt, segment, shown, None, None, commitment, link, None))
        while reward is not None:
            yield _reward(reward, open_to, with_cells)
            reward = next(waiting, None)


_row = partial(tuple.__new__, LogRow)
"""A LogRow from a tuple, without the cost of its constructor."""

_DECISIONS = select(
    decisions.c.experiment_id,
    decisions.c.id,
    decisions.c.visitor,
    decisions.c.salt,
    decisions.c.segment,
    decisions.c.shown,
    decisions.c.version,
    decisions.c.decided_at,
    decisions.c.writer_id,
    decisions.c.seq,
    decisions.c.hash,
    decisions.c.table_number,
    decisions.c.role,
    decisions.c.commitment,
)
_REWARDS = select(
    rewards,
    decisions.c.salt,
    decisions.c.segment,
    decisions.c.shown,
    decisions.c.table_number,
    decisions.c.role,
).outerjoin(
    decisions,
    (decisions.c.experiment_id == rewards.c.experiment_id)
    & (decisions.c.id == rewards.c.decision_id),
)


def _stream(connection: Connection, table: Table, query: Query) -> Generator[StoredRow, None, None]:
    ordered = query.order_by(table.c.writer_id, table.c.seq)
    with connection.execute(ordered.execution_options(yield_per=_PAGE)) as rows:
        yield from rows


def _reward(row: StoredRow, open_to: Collection[bytes] | None, with_cells: bool) -> LogRow:
    kept = LogRow(
        REWARD,
        writer=row.writer_id,
        seq=row.seq,
        experiment=row.experiment_id,
        id=row.decision_id,
        time=row.rewarded_at,
        metric=row.metric,
        hash=row.hash,
    )
    # What only one of them has lost was not erased; the row lacks a value then.
    if row.value is None or row.salt is None:
        erased = row.value is None and row.salt is None
        return kept._replace(commitment=row.commitment if erased else None)
    if open_to is not None and row.experiment_id not in open_to:
        return kept._replace(commitment=chain.reward_salted_hash(row.salt, row.metric, row.value))
    if not with_cells:
        return kept._replace(salt=row.salt, value=row.value)
    return kept._replace(
        salt=row.salt,
        value=row.value,
        table=row.table_number,
        role=row.role,
        segment=row.segment,
        shown=row.shown,
    )


@contextmanager
def _small_cache(connection: Connection) -> Iterator[None]:
    """Limit SQLite's cache: it sorts in as much memory, although every row is read only once."""
    if connection.dialect.name != "sqlite":
        yield
        return
    usual = connection.exec_driver_sql("PRAGMA cache_size").scalar_one()
    connection.exec_driver_sql(f"PRAGMA cache_size = {-_SORT_KIB}")
    try:
        yield
    finally:
        connection.exec_driver_sql(f"PRAGMA cache_size = {usual}")
