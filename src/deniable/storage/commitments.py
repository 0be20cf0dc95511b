"""The chain of commitments: appending to it, and reading it with its links verified.

Every entry records the acting user, `user:NAME`, `key:LABEL` or `shell:NAME`. The actor belongs to the
context (`contextvars`). It is set where a caller is authenticated and need not be passed on. Work that
the service does on its own has no actor.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    func,
    insert,
    select,
    true,
    update,
)

from deniable._types import JsonObject
from deniable.errors import BrokenPromiseError
from deniable.storage import times
from deniable.storage.chain import GENESIS, commitment_hash
from deniable.storage.records import Commitment, Experiment
from deniable.storage.schema import (
    COMMITMENT_CHAIN,
    Query,
    StoredRow,
    answers,
    commitments,
    experiments,
    writers,
)

REMEMBERED, LONGEST_REMEMBERED = 8_192, 2_000
"""Entries that are not checked and parsed again, because every page reads the account; and how long
their detail may be."""


_HOUR = 3_600_000_000
BEAT = 24 * _HOUR
"""Microseconds after which a running service adds another entry `clock`, with the last answers."""

LONGEST_GAP = 7 * BEAT
"""A longer time without any entry counts as no time at all: nothing says that it has passed.

The service was off, or the clock is wrong. Its whole length is in the entry `clock` that ends it.
"""


BEHIND = "behind"
"""Member of an entry `clock`: microseconds by which the clock is behind the newest entry."""


class Entry(NamedTuple):
    """One entry as code reads it: the experiment by its id, the detail parsed. Do not change it."""

    seq: int
    kind: str
    experiment_id: bytes | None
    amount_nano: int
    detail: JsonObject
    recorded_at: int


# Statements are built once: building takes longer than running.
_LOCK = select(writers.c.seq).where(writers.c.id == COMMITMENT_CHAIN).with_for_update()
_NEWEST = select(commitments.c.recorded_at).order_by(commitments.c.seq.desc()).limit(1)
_LAST = (
    select(commitments.c.recorded_at, commitments.c.kind, commitments.c.detail)
    .order_by(commitments.c.seq.desc())
    .limit(1)
)
_OLDEST = select(commitments.c.recorded_at).order_by(commitments.c.seq).limit(1)
_NEWEST_CLOCK = (
    select(commitments.c.recorded_at)
    .where(commitments.c.experiment_id.is_(None), commitments.c.kind == "clock")
    .order_by(commitments.c.seq.desc())
    .limit(1)
)
_ANSWERED = (
    select(answers.c.experiment_id, func.max(answers.c.hour).label("hour"))
    .where(answers.c.hour >= bindparam("hour"))
    .group_by(answers.c.experiment_id)
)
_END = select(writers.c.seq, writers.c.head, _NEWEST.scalar_subquery().label("newest")).where(
    writers.c.id == COMMITMENT_CHAIN
)
_APPEND = insert(commitments)
_LENGTH = select(
    func.count().label("count"), func.coalesce(func.max(commitments.c.seq), 0).label("last")
).subquery()
_RECORDED_END = (
    select(writers.c.seq, writers.c.head, commitments.c.hash, *_LENGTH.c)
    .select_from(writers)
    .join(_LENGTH, true())
    .outerjoin(commitments, commitments.c.seq == writers.c.seq)
    .where(writers.c.id == COMMITMENT_CHAIN)
)
_encode = json.JSONEncoder(sort_keys=True).encode
_MOVE_END = (
    update(writers)
    .where(writers.c.id == COMMITMENT_CHAIN)
    .values(seq=bindparam("new_seq"), head=bindparam("new_head"))
)


def lock_chain(connection: Connection) -> None:
    """Block all other changes of budgets until this transaction ends.

    SQLite has no row locks and needs none: its write transactions are serialised anyway.
    """
    if connection.dialect.name != "sqlite":
        connection.execute(_LOCK)


def newest(connection: Connection) -> int:
    """Return the time of the newest entry; 0 without any."""
    return int(connection.execute(_NEWEST).scalar() or 0)


def moment(connection: Connection) -> int:
    """Return the store's time: the current time, or the newest entry's if later. It never goes back."""
    return max(times.now(), newest(connection))


def account_time(connection: Connection) -> int:
    """Return the time up to which budgets are released: the store's, but not after a long gap."""
    now, last = times.now(), newest(connection)
    return last if last and now - last > LONGEST_GAP else max(now, last)


def beat(connection: Connection) -> None:
    """Record once a day that the service is running, and the last answers.

    Record also, once, that the clock was set back: entries and decisions keep the newest entry's time
    until the clock has passed it.
    """
    if _is_due(connection):
        lock_chain(connection)
        if _is_due(connection):  # still: another process may have been faster
            _append_clock(connection)


def _is_due(connection: Connection) -> bool:
    since = _last_clock(connection)
    return (since > 0 and times.now() - since > BEAT) or _was_set_back(connection)


def _was_set_back(connection: Connection) -> bool:
    """Whether the clock is behind the newest entry by more than clocks may differ, unrecorded."""
    last = connection.execute(_LAST).one_or_none()
    if last is None or last.recorded_at - times.now() <= _HOUR:
        return False
    return last.kind != "clock" or BEHIND not in json.loads(last.detail)


def _last_clock(connection: Connection) -> int:
    """Return the time of the newest entry `clock`, or else of the first entry; 0 without any."""
    newest = connection.execute(_NEWEST_CLOCK).scalar()
    return int(newest or connection.execute(_OLDEST).scalar() or 0)


def _append_clock(connection: Connection) -> None:
    """Append an entry that says how long nothing was recorded, and how much of that does not count.

    If the clock was set back, it says by how much it is behind the newest entry, whose time it has.

    It contains the last hours in which experiments answered at a risk, of all that answered since the
    entry before: `answers` itself can be changed by anyone with write access to the store.
    """
    row, now = connection.execute(_END).one(), times.now()
    silent = now - row.newest
    skipped = silent if silent > LONGEST_GAP else 0
    since = {"hour": _last_clock(connection) // _HOUR - 1}  # again, where it is in doubt
    hours = {
        answered.experiment_id.hex(): answered.hour
        for answered in connection.execute(_ANSWERED, since)
        if isinstance(answered.hour, int)  # SQLite stores text in any column
    }
    detail = {"since": row.newest, "skipped": skipped, "answers": hours}
    if row.newest - now > _HOUR:
        detail[BEHIND] = row.newest - now
    append(connection, "clock", None, 0, detail, max(now, row.newest))


def record(
    connection: Connection,
    kind: str,
    experiment: Experiment | bytes | None,
    amount_nano: int = 0,
    **detail: object,
) -> int:
    """Append one entry to the chain of commitments; return its number.

    `lock_chain` must have been called. If there is an actor, the entry records it as `by`. A mask is
    given by its id.
    """
    identity = bytes.fromhex(experiment.id) if isinstance(experiment, Experiment) else experiment
    actor = current_actor()
    if actor is not None:
        detail["by"] = actor
    return append(connection, kind, identity, amount_nano, detail)


def append(
    connection: Connection,
    kind: str,
    experiment_id: bytes | None,
    amount_nano: int,
    detail: JsonObject,
    recorded_at: int | None = None,
) -> int:
    """Append one entry, given by the experiment's id and with its time, by default the present.

    Returns:
        Its number.
    """
    row = connection.execute(_END).one()
    if recorded_at is None:
        recorded_at = max(times.now(), row.newest or 0)
        if row.newest and recorded_at - row.newest > LONGEST_GAP:
            _append_clock(connection)
            row = connection.execute(_END).one()
            recorded_at = max(recorded_at, row.newest)
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
    return int(seq)


def entries(
    connection: Connection,
    experiment: Experiment | None = None,
    kinds: Collection[str] | None = None,
    after: int = 0,
    limit: int | None = None,
) -> list[Commitment]:
    """Return the chain in readable form, oldest first.

    Args:
        connection: inside a transaction.
        experiment: only entries about this experiment.
        kinds: only these kinds.
        after: only entries after this sequence number.
        limit: maximum number of entries.
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
    """Return some entries, newest first, and the total number, in one statement.

    Args:
        connection: inside a transaction.
        experiment: only entries about the experiment with this key.
        kinds: only these kinds.
        without: exclude these kinds.
        spends: only entries that spent budget.
        first: number of newest entries to skip.
        limit: maximum number of entries.
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
    """Return the number of entries per kind."""
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
    """Return entries that match the conditions, oldest first, each checked against its link.

    A changed entry no longer has its stored hash. A removed one leaves the chain shorter than its
    recorded end.

    Args:
        connection: inside a transaction.
        conditions: on the table of commitments.
        newest: only this many of the newest.

    Raises:
        BrokenPromiseError: names the first broken entry.
    """
    return checked(connection, linked_query(*conditions, newest=newest))


def linked_query(*conditions: ColumnElement[bool], newest: int | None = None) -> Query:
    """Build the statement of `linked`, for conditions with parameters: built once, run often."""
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
    return [_entry(*row) for row in reversed(connection.execute(query, parameters).all())]


def _entry(*row: Any) -> Entry:
    """An entry that holds; BrokenPromiseError where it does not."""
    kind, detail = row[1], row[4]
    # Tables are read once each and would push out what is read again and again.
    once = kind == "table" or len(detail) > LONGEST_REMEMBERED
    found = _holding.__wrapped__(*row) if once else _holding(*row)
    if found is None:
        raise BrokenPromiseError(
            f"commitment {row[0]} was changed: `deniable ledger verify` tells more"
        )
    return found


@lru_cache(maxsize=REMEMBERED)
def _holding(
    seq: int,
    kind: str,
    experiment_id: bytes | None,
    amount_nano: int,
    detail: str,
    recorded_at: int,
    link: bytes,
    previous: bytes | None,
) -> Entry | None:
    """An entry, or None where its link is not what its content and the link before it give.

    A function of all that is stored of it, so a remembered answer is as good as a new one.
    """
    before = GENESIS if seq == 1 else previous
    if before is None or link != commitment_hash(
        before, seq, kind, experiment_id, amount_nano, detail, recorded_at
    ):
        return None
    return Entry(seq, kind, experiment_id, amount_nano, json.loads(detail), recorded_at)


def check_complete(connection: Connection) -> None:
    """Raise BrokenPromiseError if the chain does not end as recorded."""
    seq, head, link, count, last = connection.execute(_RECORDED_END).one()
    if not count == last == seq or head != (link if last else GENESIS):
        raise BrokenPromiseError(
            "commitments were removed or added by hand: `deniable ledger verify` tells more"
        )


def link_of(previous: bytes, row: StoredRow) -> bytes:
    """Return the hash that a row must have after the previous hash."""
    return commitment_hash(
        previous,
        row.seq,
        row.kind,
        row.experiment_id,
        row.amount_nano,
        row.detail,
        row.recorded_at,
    )


# -- who acts --------------------------------------------------------------------------------------

ActorKind: TypeAlias = Literal["user", "key", "shell"]

_actor: ContextVar[str | None] = ContextVar("deniable_actor", default=None)
_WORDS = {"user": "{}", "key": "API key {}", "shell": "{} on the command line"}


def current_actor() -> str | None:
    """Return the current actor; None if there is none."""
    return _actor.get()


def act_as(kind: ActorKind, name: str) -> None:
    """Set the actor for the rest of this context."""
    _actor.set(f"{kind}:{name}")


@contextmanager
def acting(kind: ActorKind, name: str) -> Iterator[None]:
    """Set the actor within this block.

    >>> with acting("user", "ada"):
    ...     current_actor()
    'user:ada'
    >>> current_actor() is None
    True
    """
    token = _actor.set(f"{kind}:{name}")
    try:
        yield
    finally:
        _actor.reset(token)


def actor_in_words(actor: str | None) -> str:
    """Format an actor for people.

    >>> [actor_in_words(one) for one in ("user:ada", "key:shop", "shell:root", None)]
    ['ada', 'API key shop', 'root on the command line', '']
    """
    if actor is None:
        return ""
    kind, _, name = actor.partition(":")
    return _WORDS.get(kind, "{}").format(name) if name else actor
