"""The chain of commitments: append to it, read it, and read it only where its links hold."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    func,
    insert,
    select,
    update,
)

from deniable._types import JsonObject
from deniable.errors import BrokenPromiseError
from deniable.storage import actors, times
from deniable.storage.chain import GENESIS, commitment_hash
from deniable.storage.records import Commitment, Experiment
from deniable.storage.schema import (
    COMMITMENT_CHAIN,
    Query,
    StoredRow,
    commitments,
    experiments,
    writers,
)


class Entry(NamedTuple):
    """One entry as code reads it: the experiment by its id, the detail parsed."""

    seq: int
    kind: str
    experiment_id: bytes | None
    amount_nano: int
    detail: JsonObject
    recorded_at: int


# Statements of every publication are made once: to make one takes longer than to run it.
_LOCK = select(writers.c.seq).where(writers.c.id == COMMITMENT_CHAIN).with_for_update()
_NEWEST = select(commitments.c.recorded_at).order_by(commitments.c.seq.desc()).limit(1)
_END = select(writers.c.seq, writers.c.head, _NEWEST.scalar_subquery().label("newest")).where(
    writers.c.id == COMMITMENT_CHAIN
)
_APPEND = insert(commitments)
_encode = json.JSONEncoder(sort_keys=True).encode
_MOVE_END = (
    update(writers)
    .where(writers.c.id == COMMITMENT_CHAIN)
    .values(seq=bindparam("new_seq"), head=bindparam("new_head"))
)


def lock_chain(connection: Connection) -> None:
    """Make every other change of budgets wait until this transaction ends.

    SQLite knows no row locks and needs none: its write transactions take turns anyway.
    """
    if connection.dialect.name != "sqlite":
        connection.execute(_LOCK)


def moment(connection: Connection) -> int:
    """The store's time, which never goes back: the present, or the newest entry's if that is later."""
    return max(times.now(), connection.execute(_NEWEST).scalar() or 0)


def record(
    connection: Connection,
    kind: str,
    experiment: Experiment | None,
    amount_nano: int = 0,
    **detail: object,
) -> None:
    """Append one entry to the chain of commitments; `lock_chain` was called before.

    Where somebody in particular acts, the entry says who, as `by`.
    """
    identity = bytes.fromhex(experiment.id) if experiment else None
    actor = actors.current()
    if actor is not None:
        detail["by"] = actor
    append(connection, kind, identity, amount_nano, detail)


def append(
    connection: Connection,
    kind: str,
    experiment_id: bytes | None,
    amount_nano: int,
    detail: JsonObject,
    recorded_at: int | None = None,
) -> None:
    """Append one entry, given by the experiment's id and with its time, by default the present."""
    row = connection.execute(_END).one()
    if recorded_at is None:
        recorded_at = max(times.now(), row.newest or 0)
    seq, text = row.seq + 1, _encode(detail)
    link = commitment_hash(row.head, seq, kind, experiment_id, amount_nano, text, recorded_at)
    connection.execute(
        _APPEND,
        {
            "seq": seq,
            "kind": kind,
            "experiment_id": experiment_id,
            "amount_nano": amount_nano,
            "detail": text,
            "recorded_at": recorded_at,
            "hash": link,
        },
    )
    connection.execute(_MOVE_END, {"new_seq": seq, "new_head": link})


def entries(
    connection: Connection,
    experiment: Experiment | None = None,
    kinds: Collection[str] | None = None,
    after: int = 0,
    limit: int | None = None,
) -> list[Commitment]:
    """The chain for people, oldest first.

    Args:
        connection: inside a transaction.
        experiment: only what concerns it.
        kinds: only these kinds.
        after: only entries behind this place.
        limit: at most so many.
    """
    query = (
        select(commitments, experiments.c.key)
        .outerjoin(experiments, experiments.c.id == commitments.c.experiment_id)
        .where(commitments.c.seq > after)
        .order_by(commitments.c.seq)
        .limit(limit)
    )
    if experiment is not None:
        query = query.where(commitments.c.experiment_id == bytes.fromhex(experiment.id))
    if kinds is not None:
        query = query.where(commitments.c.kind.in_(list(kinds)))
    return [_commitment(row) for row in connection.execute(query)]


def page(
    connection: Connection,
    *,
    experiment: str = "",
    kinds: Collection[str] = (),
    without: Collection[str] = (),
    spends: bool = False,
    first: int = 0,
    limit: int,
) -> tuple[list[Commitment], int]:
    """Some entries, newest first, in one statement; and how many there are altogether.

    Args:
        connection: inside a transaction.
        experiment: only what concerns the one with this key.
        kinds: only these kinds.
        without: all but these kinds.
        spends: only what took budget.
        first: how many of the newest to leave out.
        limit: at most so many.
    """
    conditions: list[ColumnElement[bool]] = []
    if experiment:
        conditions.append(experiments.c.key == experiment)
    if kinds:
        conditions.append(commitments.c.kind.in_(list(kinds)))
    if without:
        conditions.append(commitments.c.kind.not_in(list(without)))
    if spends:
        conditions.append(commitments.c.amount_nano > 0)
    query = (
        select(commitments, experiments.c.key, func.count().over().label("matching"))
        .outerjoin(experiments, experiments.c.id == commitments.c.experiment_id)
        .where(*conditions)
        .order_by(commitments.c.seq.desc())
        .limit(limit)
        .offset(first)
    )
    rows = connection.execute(query).all()
    return [_commitment(row) for row in rows], rows[0].matching if rows else 0


def kinds_of(connection: Connection) -> dict[str, int]:
    """Kind -> how many entries of the chain are of it."""
    query = select(commitments.c.kind, func.count()).group_by(commitments.c.kind)
    return {row[0]: row[1] for row in connection.execute(query)}


def _commitment(row: StoredRow) -> Commitment:
    return Commitment(
        seq=row.seq,
        kind=row.kind,
        experiment=row.key,
        amount_nano=row.amount_nano,
        detail=row.detail,
        recorded_at=times.as_datetime(row.recorded_at),
    )


def linked(
    connection: Connection, *conditions: ColumnElement[bool], newest: int | None = None
) -> list[Entry]:
    """Entries that `conditions` on the table hold for, oldest first, each checked against its link.

    An entry that was changed no longer has the hash that it was stored with. One that was removed
    leaves the chain shorter than its recorded end.

    Args:
        connection: inside a transaction.
        conditions: on the table of commitments.
        newest: only so many of the newest.

    Raises:
        BrokenPromiseError: naming the first entry that does not hold.
    """
    return checked(connection, linked_query(*conditions, newest=newest))


def linked_query(*conditions: ColumnElement[bool], newest: int | None = None) -> Query:
    """The statement of `linked`, for conditions with parameters: made once, run often."""
    before = commitments.alias("before")
    return (
        select(commitments, before.c.hash.label("previous"))
        .outerjoin(before, before.c.seq == commitments.c.seq - 1)
        .where(*conditions)
        .order_by(commitments.c.seq.desc())
        .limit(newest)
    )


def checked(connection: Connection, query: Query, **parameters: object) -> list[Entry]:
    """The entries that a `linked_query` finds; see `linked`."""
    found = []
    for row in reversed(connection.execute(query, parameters).all()):
        previous = GENESIS if row.seq == 1 else row.previous
        if previous is None or row.hash != link_of(previous, row):
            raise BrokenPromiseError(
                f"commitment {row.seq} was changed: `deniable ledger verify` tells more"
            )
        found.append(
            Entry(
                row.seq,
                row.kind,
                row.experiment_id,
                row.amount_nano,
                json.loads(row.detail),
                row.recorded_at,
            )
        )
    return found


def check_complete(connection: Connection) -> None:
    """BrokenPromiseError where the chain is shorter than its end says, or ends otherwise."""
    count, last = connection.execute(
        select(func.count(), func.coalesce(func.max(commitments.c.seq), 0))
    ).one()
    end = connection.execute(
        select(writers.c.seq, writers.c.head, commitments.c.hash)
        .outerjoin(commitments, commitments.c.seq == writers.c.seq)
        .where(writers.c.id == COMMITMENT_CHAIN)
    ).one()
    if not count == last == end.seq or end.head != (end.hash if last else GENESIS):
        raise BrokenPromiseError(
            "commitments were removed or added by hand: `deniable ledger verify` tells more"
        )


def link_of(previous: bytes, row: StoredRow) -> bytes:
    """The hash that a row of the table must have behind this one."""
    return commitment_hash(
        previous,
        row.seq,
        row.kind,
        row.experiment_id,
        row.amount_nano,
        row.detail,
        row.recorded_at,
    )
