"""The writers' chains: decisions and rewards interleaved, verified link by link and added up.

This is the second step of the checks listed in `ledger`, which reads every row.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeAlias

from sqlalchemy import Column, Connection, select

from deniable.storage import chain, promises, scratch
from deniable.storage.account_rules import SKEW
from deniable.storage.chain import GENESIS, pack_decision, pack_erasable
from deniable.storage.commitments import Entry
from deniable.storage.promise_entries import PromisedTable, promised_table
from deniable.storage.promises import Promise
from deniable.storage.records import MICRO
from deniable.storage.schema import (
    COMMITMENT_CHAIN,
    Query,
    StoredRow,
    decisions,
    rewards,
)

_PAGE = 2_000
_SORT_KIB = 8_192
_ONCE = ("table", "erase", "purge")
"""Kinds with many entries per experiment; a promise needs only the newest of each."""

Source: TypeAlias = tuple[bytes, int]
"""Experiment and table."""

Cell: TypeAlias = tuple[int, int, int]
"""Role, segment and arm."""

_Heads: TypeAlias = dict[int | None, tuple[int, bytes]]
"""Writer -> sequence number and hash of the last verified row; None before the first writer."""


class Broken(Exception):
    """The first problem found."""

    def __init__(
        self, problem: str, where: str, seq: int | None = None, decision: bytes | None = None
    ) -> None:
        super().__init__(problem)
        self.chain = where
        self.seq = seq
        self.decision = None if decision is None else decision.hex()


@dataclass
class Told:
    """What the commitments say, collected while their chain is verified."""

    count: int = 0
    migrated: bool = False
    fingerprint: str | None = None
    entries: defaultdict[bytes, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    newest: dict[tuple[bytes, str], Entry] = field(default_factory=dict)
    tables: dict[tuple[bytes, int], PromisedTable] = field(default_factory=dict)
    erased: Counter[bytes] = field(default_factory=Counter)
    erased_rewards: Counter[bytes] = field(default_factory=Counter)

    def add(self, entry: Entry) -> None:
        """Add one entry, oldest first."""
        self.count = entry.seq
        self.migrated |= entry.kind == "migrate"
        identity = entry.experiment_id
        if entry.kind == "key":
            self.fingerprint = entry.detail["fingerprint"]
        if identity is None:
            return
        if entry.kind == "scratch_end":
            self._forget(identity)
        elif entry.kind == "discard":
            self._forget_draft(identity)
        elif entry.kind == "table":
            table = promised_table(entry)
            self.tables[identity, table.number] = table
        elif entry.kind in ("erase", "purge"):
            self.erased[identity] += entry.detail["decisions"]
            self.erased_rewards[identity] += entry.detail.get("rewards", 0)
        if entry.kind in _ONCE:
            self.newest[identity, "table" if entry.kind == "table" else "erase"] = entry
        elif entry.kind in promises.ACTS:
            self.entries[identity].append(entry)

    def _forget(self, identity: bytes) -> None:
        """Forget a scratch copy that ended. An experiment that ends this way was removed."""
        if [entry.kind for entry in self.entries[identity]] == ["scratch"]:
            del self.entries[identity]
            self.tables = {at: table for at, table in self.tables.items() if at[0] != identity}

    def _forget_draft(self, identity: bytes) -> None:
        """Forget a discarded draft, whose rows are gone. One that was started must still exist."""
        kinds = [entry.kind for entry in self.entries[identity]]
        if promises.discarded([*kinds, "discard"]):
            del self.entries[identity]

    def promise(self, identity: bytes, key: str) -> Promise:
        """Return what an experiment promises."""
        newest = [self.newest.get((identity, kind)) for kind in ("table", "erase")]
        return promises.promise_from(key, [*self.entries[identity], *filter(None, newest)])


@dataclass
class Counted:
    """Sums over the rows, collected while their chains are verified.

    A firm may have a million cells, so they are stored by table, and all tables share the keys of
    their cells.
    """

    decisions: int = 0
    erased: Counter[bytes] = field(default_factory=Counter)
    erased_rewards: Counter[bytes] = field(default_factory=Counter)
    shows: defaultdict[Source, dict[Cell, int]] = field(default_factory=lambda: defaultdict(dict))
    rewards: defaultdict[Source, dict[tuple[Cell, int], tuple[int, int, int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """By cell and metric: number of rewards, sum of values, sum of squares."""
    last: dict[bytes, int] = field(default_factory=dict)
    names: dict[Cell, Cell] = field(default_factory=dict)


def name_of(writer: int) -> str:
    """Return a chain's name: `commitments`, or the writer's number."""
    return "commitments" if writer == COMMITMENT_CHAIN else str(writer)


def follow_writers(
    connection: Connection,
    ends: dict[int, StoredRow],
    told: Told,
    caps: Mapping[bytes, tuple[int, ...]],
    counted: Counted,
) -> None:
    """Verify decisions and rewards of all writers, in order, a page at a time."""
    decided = select(*_decision_columns()).where(scratch.in_force())
    streams = (
        _stream(connection, decisions.c.writer_id, decisions.c.seq, decided),
        _stream(connection, rewards.c.writer_id, rewards.c.seq, _rewards()),
    )
    # Close even if a row is wrong: the cursors must not outlive the transaction.
    with _small_cache(connection), closing(streams[0]), closing(streams[1]):
        heads: _Heads = dict.fromkeys(ends, (0, GENESIS))
        del heads[COMMITMENT_CHAIN]  # not a writer
        _follow(*streams, heads, told, caps, counted)
    for writer, end in ends.items():
        if writer != COMMITMENT_CHAIN and heads[writer] != (end.seq, end.head):
            place = heads[writer][0] + 1
            raise Broken(f"entry {place} of writer {writer} was removed", name_of(writer), place)


@contextmanager
def _small_cache(connection: Connection) -> Generator[None, None, None]:
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


def _follow(
    decided: Iterable[StoredRow],
    rewarded: Iterable[StoredRow],
    heads: _Heads,
    told: Told,
    caps: Mapping[bytes, tuple[int, ...]],
    counted: Counted,
) -> None:
    """Verify both streams, which are ordered by writer and sequence number.

    Most rows are decisions in the current format that follow the previous row. They are checked
    inline, without function calls; `_follow_one` handles everything else.
    """
    waiting = iter(rewarded)
    reward = next(waiting, None)
    writer: int | None = None
    place, previous = 0, GENESIS
    published = {
        source: (table.recorded_at - SKEW, counted.shows[source])
        for source, table in told.tables.items()
    }
    unknown: tuple[float, dict[Cell, int]] = (float("inf"), {})
    names, last = counted.names, counted.last
    for row in decided:
        (experiment, identity, visitor, salt, segment, shown) = row[:6]
        (version, at, by, seq, link, table, role) = row[6:13]
        while reward is not None and (reward.writer_id, reward.seq) < (by, seq):
            heads[writer] = (place, previous)
            _follow_one(reward, heads, told, caps, counted)
            writer = reward.writer_id
            place, previous = heads[writer]
            reward = next(waiting, None)
        if by != writer:
            heads[writer] = (place, previous)
            if by in heads:
                writer = by
                place, previous = heads[by]
        if seq == place + 1 and by == writer and salt is not None and table is not None:
            try:
                committed = sha256(pack_erasable(visitor, salt, segment, shown)).digest()
                packed = pack_decision(
                    previous,
                    b"D",
                    experiment,
                    identity,
                    version,
                    table,
                    role,
                    at,
                    by,
                    seq,
                    committed,
                )
                found = sha256(packed).digest()
            except struct.error:  # a missing or invalid value
                found = b""
            since, cells = published.get((experiment, table), unknown)
            if found == link and at >= since:
                place, previous = seq, link
                cell = (role, segment, shown)
                if cell in cells:
                    cells[cell] += 1
                else:
                    cells[names.setdefault(cell, cell)] = 1
                if role == 0 and at > last.get(experiment, 0):
                    last[experiment] = at
                counted.decisions += 1
                continue
        heads[writer] = (place, previous)
        _follow_one(row, heads, told, caps, counted)
        writer = by
        place, previous = heads[by]
    heads[writer] = (place, previous)
    while reward is not None:
        _follow_one(reward, heads, told, caps, counted)
        reward = next(waiting, None)


def _follow_one(
    row: StoredRow,
    heads: _Heads,
    told: Told,
    caps: Mapping[bytes, tuple[int, ...]],
    counted: Counted,
) -> None:
    """Check one row of any format against the current end of its chain, and advance that end."""
    is_decision = hasattr(row, "visitor")
    decision = row.id if is_decision else row.decision_id
    what, where = "decision" if is_decision else "reward of decision", name_of(row.writer_id)
    if row.writer_id not in heads:
        raise Broken(
            f"{what} {decision.hex()} was added under an unknown writer", where, row.seq, decision
        )
    place, previous = heads[row.writer_id]
    place += 1
    if row.seq > place:
        raise Broken(f"entry {place} of writer {where} was removed", where, place)
    try:
        link = (_decision_link if is_decision else _reward_link)(previous, row)
    except struct.error:  # SQLite accepts any value in any column
        link = None
    if row.seq < place or link != row.hash:
        raise Broken(
            f"{what} {decision.hex()}, entry {place} of writer {where}, was changed or reordered",
            where,
            place,
            decision,
        )
    heads[row.writer_id] = (place, row.hash)
    if is_decision:
        _check_table(row, told, place)
        _count_decision(row, counted)
    else:
        _count_reward(row, caps, counted)


def _decision_columns() -> tuple[Column[Any], ...]:
    """Columns of every decision, in the order in which `_follow` reads them, then the rare ones."""
    c = decisions.c
    return (
        *(c.experiment_id, c.id, c.visitor, c.salt, c.segment, c.shown),
        *(c.version, c.decided_at, c.writer_id, c.seq, c.hash, c.table_number, c.role),
        *(c.commitment, c.greedy, c.clock, c.risk_nano),
    )


def _stream(
    connection: Connection, writer: Column[int], seq: Column[int], query: Query
) -> Generator[StoredRow, None, None]:
    ordered = query.order_by(writer, seq).execution_options(yield_per=_PAGE)
    with connection.execute(ordered) as rows:
        yield from rows


def _rewards() -> Query:
    """Query rewards with the required columns of their decisions."""
    return select(
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


def _decision_link(previous: bytes, row: StoredRow) -> bytes | None:
    """Return the hash that a decision must have; None if values are missing."""
    old = row.table_number is None
    committed = row.commitment
    if row.salt is not None:
        who = (row.visitor, row.salt, row.segment)
        if old:
            then = (*who, row.greedy, row.shown, row.clock, row.risk_nano)
            committed = None if None in then else chain.old_salted_hash(*then)
        else:
            now = (*who, row.shown)
            committed = None if None in now else chain.salted_hash(*now)
    if committed is None or (not old and row.role is None):
        return None
    kept = (row.experiment_id, row.id, row.version)
    where = (row.decided_at, row.writer_id, row.seq, committed)
    if old:
        return chain.old_decision_hash(previous, *kept, *where)
    return chain.decision_hash(previous, *kept, row.table_number, row.role, *where)


def _reward_link(previous: bytes, row: StoredRow) -> bytes | None:
    """Return the hash that a reward must have; None if it does not fit its decision."""
    if (row.value is None) != (row.salt is None):
        return None
    committed = row.commitment
    if row.value is not None:
        committed = chain.reward_salted_hash(row.salt, row.metric, row.value)
    if committed is None:
        return None
    return chain.reward_hash(
        previous,
        row.experiment_id,
        row.decision_id,
        row.metric,
        row.rewarded_at,
        row.writer_id,
        row.seq,
        committed,
    )


def _check_table(row: StoredRow, told: Told, place: int) -> None:
    """Check that a decision was drawn from a table that had been published by then."""
    if row.table_number is None:
        problem = None if told.migrated else "has the form of an older store"
    else:
        table = told.tables.get((row.experiment_id, row.table_number))
        problem = None
        if table is None:
            problem = f"names table {row.table_number}, which was never published"
        elif row.decided_at + SKEW < table.recorded_at:
            problem = f"is older than its table {row.table_number}"
    if problem is not None:
        raise Broken(f"decision {row.id.hex()} {problem}", name_of(row.writer_id), place, row.id)


def _count_decision(row: StoredRow, counted: Counted) -> None:
    counted.decisions += 1
    if row.salt is None:
        counted.erased[row.experiment_id] += 1
    else:
        source, cell = _placed(row, counted)
        cells = counted.shows[source]
        cells[cell] = cells.get(cell, 0) + 1
    if row.role == 0:
        last = counted.last.get(row.experiment_id, 0)
        counted.last[row.experiment_id] = max(last, row.decided_at)


def _count_reward(row: StoredRow, caps: Mapping[bytes, tuple[int, ...]], counted: Counted) -> None:
    if row.value is None:
        counted.erased_rewards[row.experiment_id] += 1
        return
    limits = caps.get(row.experiment_id, ())
    share = row.value / limits[row.metric] if row.metric < len(limits) else 0.0
    source, cell = _placed(row, counted)
    cells = counted.rewards[source]
    rewarded, value, square = cells.get((cell, row.metric), (0, 0, 0))
    added = round(share * share * MICRO)
    cells[cell, row.metric] = (rewarded + 1, value + row.value, square + added)


def _placed(row: StoredRow, counted: Counted) -> tuple[Source, Cell]:
    cell = (row.role or 0, row.segment, row.shown)
    return (row.experiment_id, row.table_number or 0), counted.names.setdefault(cell, cell)
