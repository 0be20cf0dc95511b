"""Verifies the ledger: every chain from its first entry to its recorded end, and all derived data.

The checks stop at the first problem:

1. the commitments, each linked to the one before;
2. decisions and rewards, interleaved in each writer's chain, each decision drawn from a table that had
   been published by then;
3. heads that were noted outside the store;
4. the fingerprint of the visitor key, stored tables, the rows of experiments, arms and segments, and
   the number of tombstones, against what the commitments say;
5. counters against the rows that they count; each missing row must be an erased one.

This cannot detect that someone with write access recomputed all chains of a store. For
that, keep the heads that `deniable ledger verify` prints in another place, and pass them to
`--head` later.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from sqlalchemy import Connection, func, select, true

from deniable.errors import BrokenPromiseError
from deniable.storage import experiments, promises
from deniable.storage.account import last_hours
from deniable.storage.account_rules import HOUR
from deniable.storage.chain import GENESIS
from deniable.storage.commitments import Entry, link_of
from deniable.storage.promise_entries import table_problem
from deniable.storage.schema import (
    COMMITMENT_CHAIN,
    StoredRow,
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
from deniable.storage.writer_chains import (
    Broken,
    Cell,
    Counted,
    Source,
    Told,
    follow_writers,
    name_of,
)

_PAGE = 2_000


@dataclass(frozen=True)
class Verification:
    """The outcome of a verification.

    Attributes:
        problem: the first problem, in words that name the row; None if there is none.
        chain: the chain of the problem: `commitments`, a writer's number, or `totals`.
        seq: the position in that chain, if the problem has one.
        decision: the id of the faulty decision, if there is one.
        commitments: number of commitments checked.
        decisions: number of decisions checked.
        erased: how many of them belong to erased visitors.
        heads: chain -> its length and newest hash, to be noted outside the store.
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
        """Whether there is no problem."""
        return self.problem is None


def verify(connection: Connection, noted: Mapping[str, str]) -> Verification:
    """Check all chains and totals of one consistent state of the store.

    Args:
        connection: that state.
        noted: chain -> `length:hash`, noted outside the store at an earlier time.
    """
    told, counted = Told(), Counted()
    heads: dict[str, str] = {}
    broken: Broken | None = None
    try:
        ends = {row.id: row for row in connection.execute(select(writers).order_by(writers.c.id))}
        for writer, row in ends.items():
            heads[name_of(writer)] = f"{row.seq}:{row.head.hex()}"
        _commitment_chain(connection, ends[COMMITMENT_CHAIN], told)
        caps = _caps(connection, told)
        follow_writers(connection, ends, told, caps, counted)
        _noted_heads(connection, noted)
        _key(connection, told)
        _tables(connection, told)
        _experiments(connection, told, counted)
        _totals(connection, told, counted)
    except Broken as problem:
        broken = problem
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        struct.error,
    ) as error:
        broken = Broken(
            f"a row holds what the service never writes ({type(error).__name__}: {error})", "totals"
        )
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
    """Yield the chain of commitments, oldest first, without checking it; see `verify`.

    Raises:
        BrokenPromiseError: an entry cannot have been written by the service.
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
    """Return chains that end before their noted head, and the heads that can still be compared."""
    ends = {name_of(row.id): row.seq for row in connection.execute(select(writers))}
    behind = [name for name, end in noted.items() if int(end.split(":")[0]) > ends.get(name, -1)]
    return behind, {name: end for name, end in noted.items() if name not in behind}


def _commitment_chain(connection: Connection, end: StoredRow, told: Told) -> None:
    """Check the chain of commitments, and collect what it says."""
    previous, place = GENESIS, 0
    query = select(commitments).order_by(commitments.c.seq)
    with connection.execute(query.execution_options(yield_per=_PAGE)) as rows:
        for row in rows:
            place += 1
            if row.seq != place:
                raise Broken(f"commitment {place} was removed", "commitments", place)
            previous = link_of(previous, row)
            if previous != row.hash:
                raise Broken(f"commitment {place} was changed or reordered", "commitments", place)
            detail = json.loads(row.detail)
            identity, amount = row.experiment_id, row.amount_nano
            told.add(Entry(place, row.kind, identity, amount, detail, row.recorded_at))
    if (place, previous) != (end.seq, end.head):
        raise Broken(f"commitment {place + 1} was removed", "commitments", place + 1)


def _caps(connection: Connection, told: Told) -> dict[bytes, tuple[int, ...]]:
    """Return the largest value of each metric of each experiment, according to the commitments."""
    found = {}
    for identity in list(told.entries):
        try:
            metrics = told.promise(identity, "").metrics
        except BrokenPromiseError:
            continue
        found[identity] = tuple(metric.cap_micro for metric in metrics)
    return found


def _noted_heads(connection: Connection, noted: Mapping[str, str]) -> None:
    """Check that each noted head is still the hash at that length of its chain."""
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
            raise Broken(f"chain {name} no longer holds the head noted at {seq}", name, seq)


def _key(connection: Connection, told: Told) -> None:
    """Check the stored fingerprint of the visitor key against the chained one."""
    stored = connection.execute(select(facts.c.value).where(facts.c.name == "visitor_key")).scalar()
    if (None if stored is None else stored.hex()) != told.fingerprint:
        raise Broken("the visitor key is not the one that the ledger knows", "totals")


def _tables(connection: Connection, told: Told) -> None:
    """Check that every stored table has the chained digests, and that none is missing."""
    missing = dict(told.tables)
    query = select(tables).order_by(tables.c.experiment_id, tables.c.number)
    with connection.execute(query.execution_options(yield_per=50)) as rows:
        for row in rows:
            problem = table_problem(row, missing.pop((row.experiment_id, row.number), None))
            if problem is not None:
                raise Broken(
                    f"table {row.number} of experiment {row.experiment_id.hex()} {problem}",
                    "totals",
                )
    for identity, number in missing:
        raise Broken(f"table {number} of experiment {identity.hex()} was removed", "totals")


def _experiments(connection: Connection, told: Told, counted: Counted) -> None:
    """Check experiments, arms, segments, tombstones and last answers against the chains."""
    query = select(tombstones.c.experiment_id, func.count()).group_by(tombstones.c.experiment_id)
    stones: dict[bytes, int] = {row[0]: row[1] for row in connection.execute(query)}
    hours = last_hours(connection)
    known = experiments.matching(connection, true())  # including scratch copies
    for experiment in known:
        decided = counted.last.get(bytes.fromhex(experiment.id), 0) // HOUR
        answered = hours.get(bytes.fromhex(experiment.id), 0)
        counts = experiment.cost_nano and experiment.status != "scratch"
        # It counts from its last answer on, which is never before its last decision.
        if answered is None or (counts and answered < decided):
            raise Broken(f"the last answer of experiment {experiment.key!r} was changed", "totals")
        try:
            promise = told.promise(bytes.fromhex(experiment.id), experiment.key)
        except BrokenPromiseError as problem:
            raise Broken(str(problem), "totals") from None
        wrong = promises.differences(experiment, promise)
        if wrong:
            raise Broken(
                f"experiment {experiment.key!r} is not what the ledger says: {', '.join(wrong)}",
                "totals",
            )
        if stones.get(bytes.fromhex(experiment.id), 0) != promise.tombstones:
            raise Broken(
                f"tombstones of experiment {experiment.key!r} were removed or added", "totals"
            )
    gone = set(told.entries) - {bytes.fromhex(experiment.id) for experiment in known}
    if gone:
        raise Broken(f"experiment {min(gone).hex()} was removed", "totals")


def _totals(connection: Connection, told: Told, counted: Counted) -> None:
    """Check the counters against the rows. Each missing row must be an erased one."""
    missing, missing_rewards = Counter[bytes](), Counter[bytes]()
    keys = (counters.c.experiment_id, counters.c.table_number)
    ordered = select(counters).order_by(*keys).execution_options(yield_per=_PAGE)
    with connection.execute(ordered) as rows:
        for source, mine in groupby(rows, key=lambda row: (row.experiment_id, row.table_number)):
            shows, rewarded = _missing(connection, source, mine, counted)
            missing[source[0]] += shows
            missing_rewards[source[0]] += rewarded
    for cells in (counted.shows, counted.rewards):  # the remaining ones have no counter
        for (identity, _), sums in cells.items():
            if sums:
                raise _mismatch(connection, identity)
    for identity in told.entries:
        lost, lost_rewards = counted.erased[identity], counted.erased_rewards[identity]
        if (lost, lost_rewards) != (told.erased[identity], told.erased_rewards[identity]):
            raise Broken(f"erasures of {_named(connection, identity)} were not recorded", "totals")
        if (missing[identity], missing_rewards[identity]) != (lost, lost_rewards):
            raise _mismatch(connection, identity)


def _missing(
    connection: Connection, source: Source, rows: Iterable[StoredRow], counted: Counted
) -> tuple[int, int]:
    """Return how many more shows and rewards a table's counters have than rows: the erased ones."""
    stored: dict[tuple[Cell, int], list[int]] = {}
    for row in rows:
        sums = stored.setdefault(((row.role, row.segment, row.arm), row.metric), [0, 0, 0, 0])
        for place, amount in enumerate((row.shows, row.rewarded, row.value, row.square)):
            sums[place] += amount
    shown, given = counted.shows.pop(source, {}), counted.rewards.pop(source, {})
    erased, erased_rewards = 0, 0
    for cell, metric in stored.keys() | given.keys() | {(cell, 0) for cell in shown}:
        have = stored.get((cell, metric), [0] * 4)
        need = (0 if metric else shown.get(cell, 0), *given.get((cell, metric), (0, 0, 0)))
        shows, rewarded, value, square = (a - b for a, b in zip(have, need, strict=True))
        gone = stored.get((cell, 0), [0])[0] - shown.get(cell, 0)
        fits = 0 <= rewarded <= gone and (gone > 0 or value == square == 0)
        if shows < 0 or value < 0 or square < 0 or not fits:
            raise _mismatch(connection, source[0])
        erased += shows
        erased_rewards += rewarded
    return erased, erased_rewards


def _mismatch(connection: Connection, identity: bytes) -> Broken:
    return Broken(f"the counters of {_named(connection, identity)} do not match", "totals")


def _named(connection: Connection, identity: bytes) -> str:
    query = select(experiment_rows.c.key).where(experiment_rows.c.id == identity)
    key = connection.execute(query).scalar()
    return f"experiment {identity.hex() if key is None else repr(key)}"
