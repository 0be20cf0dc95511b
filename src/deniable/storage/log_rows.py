"""The ledger as one log: rows from which every chain can be verified without the store.

In order: a description of the file, the chain of commitments, the published tables, then the
decisions and rewards of each writer's chain, the recorded end of every chain, and the number of
rows. Visitors are keyed HMACs. A decision is either open (visitor, salt, segment and arm, from
which its salted hash follows) or closed (only the hash, as `commitment`). Erased decisions are
closed, and so are those of experiments that the log is not about. Their links can still be recomputed.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Collection, Generator, Iterator
from contextlib import closing
from typing import NamedTuple

from sqlalchemy import Connection, Table, select

from deniable.storage import chain, scratch, times
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

ABOUT, COMMITMENT, TABLE, DECISION, REWARD, OLD, CHAIN_END, LOG_END = "FCTDROEZ"
"""Kinds of rows. OLD is a decision from before tables were published; it is always closed."""

_PAGE = 5_000


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


def log_rows(
    connection: Connection, wanted: Collection[bytes] | None = None
) -> Generator[LogRow, None, None]:
    """Stream all rows.

    Args:
        connection: one consistent state of the store.
        wanted: ids of the experiments that the log is about; None for all.
    """
    count = 0
    for part in (
        _about(wanted),
        _commitments(connection),
        _tables(connection, wanted),
        _chained(connection, wanted),
        _ends(connection),
    ):
        for row in part:
            count += 1
            yield row
    yield LogRow(LOG_END, seq=count)


def _about(wanted: Collection[bytes] | None) -> Iterator[LogRow]:
    about = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "experiments": None if wanted is None else sorted(one.hex() for one in wanted),
    }
    yield LogRow(ABOUT, time=times.now(), detail=json.dumps(about))


def _commitments(connection: Connection) -> Iterator[LogRow]:
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


def _tables(connection: Connection, wanted: Collection[bytes] | None) -> Iterator[LogRow]:
    query = select(tables).order_by(tables.c.experiment_id, tables.c.number)
    if wanted is not None:
        query = query.where(tables.c.experiment_id.in_(list(wanted)))
    with connection.execute(query.execution_options(yield_per=50)) as rows:
        for row in rows:
            detail = {
                "decisions": row.decisions,
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


def _chained(connection: Connection, wanted: Collection[bytes] | None) -> Iterator[LogRow]:
    """Yield decisions and rewards in the order of their chains."""
    open_to = None if wanted is None else frozenset(wanted)
    streams = (
        _stream(connection, decisions, select(decisions).where(scratch.in_force())),
        _stream(connection, rewards, _rewards()),
    )
    with closing(streams[0]), closing(streams[1]):
        for row in heapq.merge(*streams, key=lambda row: (row.writer_id, row.seq)):
            is_open = open_to is None or row.experiment_id in open_to
            yield _decision(row, is_open) if hasattr(row, "visitor") else _reward(row, is_open)


def _stream(connection: Connection, table: Table, query: Query) -> Generator[StoredRow, None, None]:
    ordered = query.order_by(table.c.writer_id, table.c.seq)
    with connection.execute(ordered.execution_options(yield_per=_PAGE)) as rows:
        yield from rows


def _rewards() -> Query:
    mine = (decisions.c.experiment_id == rewards.c.experiment_id) & (
        decisions.c.id == rewards.c.decision_id
    )
    return select(rewards, decisions.c.salt).outerjoin(decisions, mine)


def _decision(row: StoredRow, is_open: bool) -> LogRow:
    old = row.table_number is None
    kept = LogRow(
        OLD if old else DECISION,
        writer=row.writer_id,
        seq=row.seq,
        experiment=row.experiment_id,
        id=row.id,
        version=row.version,
        table=row.table_number,
        role=row.role,
        time=row.decided_at,
        hash=row.hash,
    )
    if row.salt is None:
        return kept._replace(commitment=row.commitment)
    committed = (row.visitor, row.salt, row.segment)
    if old:
        values = (*committed, row.greedy, row.shown, row.clock, row.risk_nano)
        return kept._replace(commitment=chain.old_salted_hash(*values))
    if not is_open:
        return kept._replace(commitment=chain.salted_hash(*committed, row.shown))
    return kept._replace(visitor=row.visitor, salt=row.salt, segment=row.segment, shown=row.shown)


def _reward(row: StoredRow, is_open: bool) -> LogRow:
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
    if row.value is None or row.salt is None:
        return kept._replace(commitment=row.commitment)
    if not is_open:
        return kept._replace(commitment=chain.reward_salted_hash(row.salt, row.metric, row.value))
    return kept._replace(salt=row.salt, value=row.value)


def _ends(connection: Connection) -> Iterator[LogRow]:
    for row in connection.execute(select(writers).order_by(writers.c.id)):
        yield LogRow(CHAIN_END, writer=row.id, seq=row.seq, hash=row.head)
