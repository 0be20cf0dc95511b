"""Verifying the ledger: every chain from its first entry to its recorded end, then all that hangs on it.

The checks stop at the first thing that is wrong:

1. the commitments, each linked to the one before;
2. decisions and rewards, interleaved in each writer's chain, each decision drawn from a table that had
   been published by then;
3. heads that were noted outside of the store;
4. the fingerprint of the visitor key, stored tables, the rows of experiments, arms and segments, and
   the number of tombstones, against what the commitments say;
5. counters against the rows that they count; erased rows are missing one by one.

What this cannot see: a store whose chains were all recomputed by somebody who may write to it. For
that, note the heads that `deniable ledger verify` prints somewhere else, and give them back with
`--head`.
"""

from __future__ import annotations

import json
import struct
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeAlias

from sqlalchemy import Connection, func, select, true

from deniable.errors import BrokenPromiseError
from deniable.storage import chain, experiments, promises, scratch
from deniable.storage.account import SKEW
from deniable.storage.chain import GENESIS, pack_decision, pack_erasable
from deniable.storage.commitments import Entry, link_of
from deniable.storage.promises import Promise, PromisedTable
from deniable.storage.records import MICRO
from deniable.storage.schema import (
    COMMITMENT_CHAIN,
    commitments,
    counters,
    decisions,
    facts,
    rewards,
    tables,
    tombstones,
    writers,
)
from deniable.storage.schema import experiments as experiment_rows

_PAGE = 2_000
_ONCE = ("table", "erase", "purge")
"""Kinds of which an experiment has many entries; a promise needs the newest of each."""

_Cell: TypeAlias = tuple[bytes, int, int, int, int, int]
"""Experiment, table, role, segment, arm, metric."""


_Heads: TypeAlias = dict[int | None, tuple[int, bytes]]
"""Writer -> place and hash of the newest row that was followed; None: no writer yet."""


@dataclass(frozen=True)
class Verification:
    """The outcome.

    Attributes:
        problem: what is wrong first, in words that name the row; None where everything holds.
        chain: the chain of the problem: `commitments`, a writer's number, or `totals`.
        seq: the place in that chain, where the problem has one.
        decision: the id of the decision at fault, where there is one.
        commitments: entries of the commitment chain that were checked.
        decisions: decisions that were checked.
        erased: those of them whose visitor was forgotten.
        heads: chain -> its length and newest hash, to be noted outside of the store.
        last_decided: experiment id -> the stored time of its newest decision at a risk.
    """

    problem: str | None
    chain: str | None
    seq: int | None
    decision: str | None
    commitments: int
    decisions: int
    erased: int
    heads: dict[str, str]
    last_decided: dict[str, int]

    @property
    def sound(self) -> bool:
        """Whether everything holds."""
        return self.problem is None


class _Broken(Exception):
    """The first thing that does not hold."""

    def __init__(
        self, problem: str, where: str, seq: int | None = None, decision: bytes | None = None
    ) -> None:
        super().__init__(problem)
        self.chain = where
        self.seq = seq
        self.decision = None if decision is None else decision.hex()


@dataclass
class _Told:
    """What the commitments say, gathered while their chain is checked."""

    count: int = 0
    migrated: bool = False
    fingerprint: str | None = None
    entries: defaultdict[bytes, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    newest: dict[tuple[bytes, str], Entry] = field(default_factory=dict)
    tables: dict[tuple[bytes, int], PromisedTable] = field(default_factory=dict)
    erased: Counter[bytes] = field(default_factory=Counter)
    erased_rewards: Counter[bytes] = field(default_factory=Counter)

    def add(self, entry: Entry) -> None:
        """Take in one more entry, oldest first."""
        self.count = entry.seq
        self.migrated |= entry.kind == "migrate"
        identity = entry.experiment_id
        if entry.kind == "key":
            self.fingerprint = entry.detail["fingerprint"]
        if identity is None:
            return
        if entry.kind == "scratch_end":
            self._forget(identity)
        elif entry.kind == "table":
            table = promises.promised_table(entry)
            self.tables[identity, table.number] = table
        elif entry.kind in ("erase", "purge"):
            self.erased[identity] += entry.detail["decisions"]
            self.erased_rewards[identity] += entry.detail.get("rewards", 0)
        if entry.kind in _ONCE:
            self.newest[identity, "table" if entry.kind == "table" else "erase"] = entry
        elif entry.kind in promises.ACTS:
            self.entries[identity].append(entry)

    def _forget(self, identity: bytes) -> None:
        """A scratch copy ended: nothing of it is left. An experiment that ends so was removed."""
        if [entry.kind for entry in self.entries[identity]] == ["scratch"]:
            del self.entries[identity]
            self.tables = {at: table for at, table in self.tables.items() if at[0] != identity}

    def promise(self, identity: bytes, key: str) -> Promise:
        """What an experiment promises."""
        newest = [self.newest.get((identity, kind)) for kind in ("table", "erase")]
        return promises.promise_from(key, [*self.entries[identity], *filter(None, newest)])


@dataclass
class _Counted:
    """What rows add up to, gathered while their chains are checked."""

    decisions: int = 0
    erased: Counter[bytes] = field(default_factory=Counter)
    erased_rewards: Counter[bytes] = field(default_factory=Counter)
    shows: dict[tuple[bytes, int, int, int, int], int] = field(default_factory=dict)
    rewards: dict[_Cell, tuple[int, int, int]] = field(default_factory=dict)
    last: dict[bytes, int] = field(default_factory=dict)

    def sums(self, cell: _Cell) -> tuple[int, int, int, int]:
        """Shows, which count under the first metric alone, rewarded, value and square."""
        shows = 0 if cell[5] else self.shows.get(cell[:5], 0)
        return (shows, *self.rewards.get(cell, (0, 0, 0)))

    def cells(self) -> set[_Cell]:
        """All that something was added to."""
        return {(*cell, 0) for cell in self.shows} | self.rewards.keys()


def verify(connection: Connection, noted: Mapping[str, str]) -> Verification:
    """Check all chains and totals of one consistent state of the store.

    Args:
        connection: that state.
        noted: chain -> `length:hash`, noted outside of the store at an earlier time.
    """
    told, counted = _Told(), _Counted()
    heads: dict[str, str] = {}
    broken: _Broken | None = None
    try:
        ends = {row.id: row for row in connection.execute(select(writers).order_by(writers.c.id))}
        for writer, row in ends.items():
            heads[_name(writer)] = f"{row.seq}:{row.head.hex()}"
        _commitment_chain(connection, ends[COMMITMENT_CHAIN], told)
        caps = _caps(connection, told)
        _writer_chains(connection, ends, told, caps, counted)
        _noted_heads(connection, noted)
        _key(connection, told)
        _tables(connection, told)
        _experiments(connection, told)
        _totals(connection, told, counted)
    except _Broken as problem:
        broken = problem
    return Verification(
        problem=None if broken is None else str(broken),
        chain=None if broken is None else broken.chain,
        seq=None if broken is None else broken.seq,
        decision=None if broken is None else broken.decision,
        commitments=told.count,
        decisions=counted.decisions,
        erased=counted.erased.total(),
        heads=heads,
        last_decided={identity.hex(): at for identity, at in counted.last.items()},
    )


def chained(connection: Connection) -> Generator[Entry, None, None]:
    """The chain of commitments, oldest first; whether it holds is for `verify` to say.

    Raises:
        BrokenPromiseError: an entry is not one that was ever written.
    """
    query = select(commitments).order_by(commitments.c.seq)
    with connection.execute(query.execution_options(yield_per=_PAGE)) as rows:
        for row in rows:
            try:
                detail = json.loads(row.detail)
            except ValueError:
                raise BrokenPromiseError(f"commitment {row.seq} was changed") from None
            identity, amount = row.experiment_id, row.amount_nano
            yield Entry(row.seq, row.kind, identity, amount, detail, row.recorded_at)


def chains_behind(
    connection: Connection, noted: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Chains that end before their noted head, and the noted heads that can still be compared."""
    ends = {_name(row.id): row.seq for row in connection.execute(select(writers))}
    behind = [name for name, end in noted.items() if int(end.split(":")[0]) > ends.get(name, -1)]
    return behind, {name: end for name, end in noted.items() if name not in behind}


def _name(writer: int) -> str:
    return "commitments" if writer == COMMITMENT_CHAIN else str(writer)


def _commitment_chain(connection: Connection, end: Any, told: _Told) -> None:
    """Check it, and gather what it says."""
    previous, place = GENESIS, 0
    query = select(commitments).order_by(commitments.c.seq)
    with connection.execute(query.execution_options(yield_per=_PAGE)) as rows:
        for row in rows:
            place += 1
            if row.seq != place:
                raise _Broken(f"commitment {place} was removed", "commitments", place)
            previous = link_of(previous, row)
            if previous != row.hash:
                raise _Broken(f"commitment {place} was changed or reordered", "commitments", place)
            detail = json.loads(row.detail)
            identity, amount = row.experiment_id, row.amount_nano
            told.add(Entry(place, row.kind, identity, amount, detail, row.recorded_at))
    if (place, previous) != (end.seq, end.head):
        raise _Broken(f"commitment {place + 1} was removed", "commitments", place + 1)


def _caps(connection: Connection, told: _Told) -> dict[bytes, tuple[int, ...]]:
    """The largest value of each metric of each experiment, by what the commitments say."""
    found = {}
    for identity in list(told.entries):
        try:
            metrics = told.promise(identity, "").metrics
        except BrokenPromiseError:
            continue
        found[identity] = tuple(metric.cap_micro for metric in metrics)
    return found


def _writer_chains(
    connection: Connection,
    ends: dict[int, Any],
    told: _Told,
    caps: Mapping[bytes, tuple[int, ...]],
    counted: _Counted,
) -> None:
    """Follow decisions and rewards of all writers, in order, a page at a time."""
    decided = select(*_decision_columns()).where(scratch.in_force())
    streams = (
        _stream(connection, decisions.c.writer_id, decisions.c.seq, decided),
        _stream(connection, rewards.c.writer_id, rewards.c.seq, _rewards()),
    )
    # Closed also where a row is wrong: the cursors must not outlive the transaction.
    with closing(streams[0]), closing(streams[1]):
        heads: _Heads = dict.fromkeys(ends, (0, GENESIS))
        del heads[COMMITMENT_CHAIN]  # no writer has its number
        _follow(*streams, heads, told, caps, counted)
    for writer, end in ends.items():
        if writer != COMMITMENT_CHAIN and heads[writer] != (end.seq, end.head):
            place = heads[writer][0] + 1
            raise _Broken(f"entry {place} of writer {writer} was removed", _name(writer), place)


def _follow(
    decided: Iterable[Any],
    rewarded: Iterable[Any],
    heads: _Heads,
    told: _Told,
    caps: Mapping[bytes, tuple[int, ...]],
    counted: _Counted,
) -> None:
    """Both streams are in the order of writer and place; a decision that is sound stays in this loop.

    Most rows are decisions of today's form behind the row that they should follow. Those are checked
    here, without a function call for each part; whatever else a row may be, `_follow_one` tells.
    """
    waiting = iter(rewarded)
    reward = next(waiting, None)
    writer: int | None = None
    place, previous = 0, GENESIS
    published = {known: table.recorded_at - SKEW for known, table in told.tables.items()}
    cells, last = counted.shows, counted.last
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
            except struct.error:  # a missing value, or one that does not belong in its column
                found = b""
            since = published.get((experiment, table))
            if found == link and since is not None and at >= since:
                place, previous = seq, link
                cell = (experiment, table, role, segment, shown)
                cells[cell] = cells.get(cell, 0) + 1
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
    row: Any,
    heads: _Heads,
    told: _Told,
    caps: Mapping[bytes, tuple[int, ...]],
    counted: _Counted,
) -> None:
    """Check one row of any form against the end of its chain so far, and move that end."""
    is_decision = hasattr(row, "visitor")
    decision = row.id if is_decision else row.decision_id
    what, where = "decision" if is_decision else "reward of decision", _name(row.writer_id)
    if row.writer_id not in heads:
        raise _Broken(
            f"{what} {decision.hex()} was added under an unknown writer", where, row.seq, decision
        )
    place, previous = heads[row.writer_id]
    place += 1
    if row.seq > place:
        raise _Broken(f"entry {place} of writer {where} was removed", where, place)
    try:
        link = (_decision_link if is_decision else _reward_link)(previous, row)
    except struct.error:  # SQLite takes any value in any column
        link = None
    if row.seq < place or link != row.hash:
        raise _Broken(
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


def _decision_columns() -> tuple[Any, ...]:
    """Those of every decision, in the order in which `_follow` reads them; then those of few."""
    c = decisions.c
    return (
        *(c.experiment_id, c.id, c.visitor, c.salt, c.segment, c.shown),
        *(c.version, c.decided_at, c.writer_id, c.seq, c.hash, c.table_number, c.role),
        *(c.commitment, c.greedy, c.clock, c.risk_nano),
    )


def _stream(
    connection: Connection, writer: Any, seq: Any, query: Any
) -> Generator[Any, None, None]:
    ordered = query.order_by(writer, seq).execution_options(yield_per=_PAGE)
    with connection.execute(ordered) as rows:
        yield from rows


def _rewards() -> Any:
    """Rewards with what is needed of their decisions."""
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


def _decision_link(previous: bytes, row: Any) -> bytes | None:
    """The hash that a decision must have; None where values are missing."""
    old = row.table_number is None
    committed = row.commitment
    if row.salt is not None:
        values = (row.greedy, row.shown, row.clock, row.risk_nano) if old else (row.shown,)
        values = (row.visitor, row.salt, row.segment, *values)
        committed = None if None in values else _committed(old, values)
    if committed is None or (not old and row.role is None):
        return None
    kept = (row.experiment_id, row.id, row.version)
    where = (row.decided_at, row.writer_id, row.seq, committed)
    if old:
        return chain.old_decision_hash(previous, *kept, *where)
    return chain.decision_hash(previous, *kept, row.table_number, row.role, *where)


def _committed(old: bool, values: tuple[Any, ...]) -> bytes:
    return chain.old_commitment(*values) if old else chain.commitment(*values)


def _reward_link(previous: bytes, row: Any) -> bytes | None:
    """The hash that a reward must have; None where it and its decision do not fit together."""
    if (row.value is None) != (row.salt is None):
        return None
    committed = row.commitment
    if row.value is not None:
        committed = chain.reward_commitment(row.salt, row.metric, row.value)
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


def _check_table(row: Any, told: _Told, place: int) -> None:
    """A decision was drawn from a table of its experiment that had been published by then."""
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
        raise _Broken(f"decision {row.id.hex()} {problem}", _name(row.writer_id), place, row.id)


def _count_decision(row: Any, counted: _Counted) -> None:
    counted.decisions += 1
    if row.salt is None:
        counted.erased[row.experiment_id] += 1
    else:
        cell = _cell(row, 0)[:5]
        counted.shows[cell] = counted.shows.get(cell, 0) + 1
    if row.role == 0:
        last = counted.last.get(row.experiment_id, 0)
        counted.last[row.experiment_id] = max(last, row.decided_at)


def _count_reward(row: Any, caps: Mapping[bytes, tuple[int, ...]], counted: _Counted) -> None:
    if row.value is None:
        counted.erased_rewards[row.experiment_id] += 1
        return
    limits = caps.get(row.experiment_id, ())
    share = row.value / limits[row.metric] if row.metric < len(limits) else 0.0
    cell = _cell(row, row.metric)
    rewarded, value, square = counted.rewards.get(cell, (0, 0, 0))
    added = round(share * share * MICRO)
    counted.rewards[cell] = (rewarded + 1, value + row.value, square + added)


def _cell(row: Any, metric: int) -> _Cell:
    return (
        row.experiment_id,
        row.table_number or 0,
        row.role or 0,
        row.segment,
        row.shown,
        metric,
    )


def _noted_heads(connection: Connection, noted: Mapping[str, str]) -> None:
    """Each head that was noted once is still the hash at that length of its chain."""
    for name, end in noted.items():
        length, _, head = end.partition(":")
        seq = int(length) if length.isdecimal() else -1
        writer = int(name) if name.isdecimal() else -1
        queries = [
            select(table.c.hash).where(table.c.writer_id == writer, table.c.seq == seq)
            for table in (decisions, rewards)
        ]
        if name == "commitments":
            queries = [select(commitments.c.hash).where(commitments.c.seq == seq)]
        found = [GENESIS] if not seq else []
        for query in queries:
            found += connection.execute(query).scalars()
        if [one.hex() for one in found] != [head]:
            raise _Broken(f"chain {name} no longer holds the head noted at {seq}", name, seq)


def _key(connection: Connection, told: _Told) -> None:
    """The stored fingerprint of the visitor key is the one that was chained."""
    stored = connection.execute(select(facts.c.value).where(facts.c.name == "visitor_key")).scalar()
    if (None if stored is None else stored.hex()) != told.fingerprint:
        raise _Broken("the visitor key is not the one that the ledger knows", "totals")


def _tables(connection: Connection, told: _Told) -> None:
    """Every stored table has the digests that were chained, and none is missing."""
    missing = dict(told.tables)
    query = select(tables).order_by(tables.c.experiment_id, tables.c.number)
    with connection.execute(query.execution_options(yield_per=50)) as rows:
        for row in rows:
            problem = promises.table_problem(
                row, missing.pop((row.experiment_id, row.number), None)
            )
            if problem is not None:
                raise _Broken(
                    f"table {row.number} of experiment {row.experiment_id.hex()} {problem}",
                    "totals",
                )
    for identity, number in missing:
        raise _Broken(f"table {number} of experiment {identity.hex()} was removed", "totals")


def _experiments(connection: Connection, told: _Told) -> None:
    """Experiments, arms, segments and tombstones are what the commitments say."""
    query = select(tombstones.c.experiment_id, func.count()).group_by(tombstones.c.experiment_id)
    stones: dict[bytes, int] = {row[0]: row[1] for row in connection.execute(query)}
    known = experiments.matching(connection, true())  # scratch copies too
    for experiment in known:
        try:
            promise = told.promise(bytes.fromhex(experiment.id), experiment.key)
        except BrokenPromiseError as problem:
            raise _Broken(str(problem), "totals") from None
        wrong = promises.differences(experiment, promise)
        if wrong:
            raise _Broken(
                f"experiment {experiment.key!r} is not what the ledger says: {', '.join(wrong)}",
                "totals",
            )
        if stones.get(bytes.fromhex(experiment.id), 0) != promise.tombstones:
            raise _Broken(
                f"tombstones of experiment {experiment.key!r} were removed or added", "totals"
            )
    gone = set(told.entries) - {bytes.fromhex(experiment.id) for experiment in known}
    if gone:
        raise _Broken(f"experiment {min(gone).hex()} was removed", "totals")


def _totals(connection: Connection, told: _Told, counted: _Counted) -> None:
    """Counters are what the rows add up to; erased rows are missing in them one by one."""
    stored: dict[_Cell, list[int]] = {}
    query = select(counters).execution_options(yield_per=_PAGE)
    with connection.execute(query) as rows:
        for row in rows:
            sums = stored.setdefault(tuple(row[:6]), [0, 0, 0, 0])
            for place, amount in enumerate(row[7:]):
                sums[place] += amount
    missing, missing_rewards = Counter[bytes](), Counter[bytes]()
    for cell in stored.keys() | counted.cells():
        have, need = stored.get(cell, [0] * 4), counted.sums(cell)
        shows, rewarded, value, square = (a - b for a, b in zip(have, need, strict=True))
        base = (*cell[:5], 0)
        gone = stored.get(base, [0])[0] - counted.shows.get(base[:5], 0)
        fits = 0 <= rewarded <= gone and (gone > 0 or value == square == 0)
        if shows < 0 or value < 0 or square < 0 or not fits:
            raise _Broken(f"the counters of {_named(connection, cell[0])} do not match", "totals")
        missing[cell[0]] += shows
        missing_rewards[cell[0]] += rewarded
    for identity in told.entries:
        lost, told_lost = counted.erased[identity], told.erased[identity]
        if lost != told_lost or counted.erased_rewards[identity] != told.erased_rewards[identity]:
            raise _Broken(f"erasures of {_named(connection, identity)} were not recorded", "totals")
        if (missing[identity], missing_rewards[identity]) != (
            lost,
            counted.erased_rewards[identity],
        ):
            raise _Broken(f"the counters of {_named(connection, identity)} do not match", "totals")


def _named(connection: Connection, identity: bytes) -> str:
    query = select(experiment_rows.c.key).where(experiment_rows.c.id == identity)
    key = connection.execute(query).scalar()
    return f"experiment {identity.hex() if key is None else repr(key)}"
