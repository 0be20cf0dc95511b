"""Verifies the ledger of a store: its chains, and everything that follows from them.

`verifier` follows every chain from its first entry to its recorded end. Then come the checks that need
the store, until the first problem:

1. the fingerprint of the visitor key, the rows of experiments, arms and segments, last answers, and
   tombstones, against what the commitments say;
2. counters against the rows that they count; each missing row must be an erased one.

This cannot detect that someone with write access recomputed all chains of a store. For
that, keep the heads that `deniable ledger verify` prints in another place, and pass them to
`--head` later.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby

from sqlalchemy import Connection, select

from deniable.errors import BrokenPromiseError
from deniable.storage import experiments, promises
from deniable.storage.account import last_hours
from deniable.storage.account_rules import HOUR, SKEW, chained_hours
from deniable.storage.commitments import Entry, moment
from deniable.storage.erasure import tombstones_digest
from deniable.storage.log_rows import log_rows
from deniable.storage.schema import (
    COMMITMENT_CHAIN,
    StoredRow,
    commitments,
    counters,
    facts,
    tombstones,
    writers,
)
from deniable.storage.schema import experiments as experiment_rows
from deniable.storage.verifier import UNREADABLE, Broken, Cell, Drawn, Verifier, chain_name

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
    query = select(writers).order_by(writers.c.id)
    heads = {chain_name(row.id): f"{row.seq}:{row.head.hex()}" for row in connection.execute(query)}
    verifier = Verifier(noted, with_cells=True)
    broken: Broken | None = None
    try:
        with closing(log_rows(connection, with_cells=True)) as rows:
            verifier.follow(rows)
        _key(connection, verifier)
        _experiments(connection, verifier)
        _totals(connection, verifier)
    except Broken as problem:
        broken = problem
    except UNREADABLE as error:
        broken = Broken(
            f"a row holds what the service never writes ({type(error).__name__}: {error})"
        )
    return Verification(
        problem=None if broken is None else str(broken),
        chain=None if broken is None else broken.chain,
        seq=None if broken is None else broken.seq,
        decision=None if broken is None else broken.decision,
        commitments=verifier.heads[COMMITMENT_CHAIN][0],
        decisions=verifier.decisions,
        erased=verifier.closed.total(),
        heads=heads,
        last_decided={identity.hex(): at for identity, at in verifier.last_decided.items()},
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
    ends = {chain_name(row.id): row.seq for row in connection.execute(select(writers))}
    behind = [name for name, end in noted.items() if int(end.split(":")[0]) > ends.get(name, -1)]
    return behind, {name: end for name, end in noted.items() if name not in behind}


def _key(connection: Connection, verifier: Verifier) -> None:
    """Check the stored fingerprint of the visitor key against the chained one."""
    stored = connection.execute(select(facts.c.value).where(facts.c.name == "visitor_key")).scalar()
    if (None if stored is None else stored.hex()) != verifier.committed.fingerprint:
        raise Broken("the visitor key is not the one that the ledger knows")


def _experiments(connection: Connection, verifier: Verifier) -> None:
    """Check experiments, arms, segments, tombstones and last answers against the chains."""
    stones = _tombstones(connection, verifier)
    hours, decided = last_hours(connection), verifier.last_decided
    chained, latest = chained_hours(verifier.committed.clocks), _latest_hour(connection)
    gone = dict(verifier.committed.promises)
    for identity, tag in connection.execute(select(experiment_rows.c.id, experiment_rows.c.tag)):
        if tag != experiments.tag_of(identity):  # rewards would not find their decisions
            raise _of_experiment(verifier, identity, "the tag of {} was changed")
    for experiment in experiments.everything(connection):
        identity, name = bytes.fromhex(experiment.id), f"experiment {experiment.key!r}"
        answered = hours.get(identity, 0)
        # It counts from its last answer on, which is never before its last decision.
        since = decided.get(identity, 0) // HOUR if experiment.budget_nano else 0
        earliest = max(since, chained.get(identity, 0))
        if answered is None or not earliest <= answered <= latest:
            raise Broken(f"the last answer of {name} was changed")
        promise = gone.pop(identity, None)
        if promise is None:
            raise Broken(f"the ledger does not say what {name} promises")
        wrong = promises.differences(experiment, promise)
        if wrong:
            raise Broken(f"{name} is not what the ledger says: {', '.join(wrong)}")
        if stones[identity] != promise.tombstones:
            raise Broken(f"tombstones of {name} were removed or added")
    if gone:
        raise Broken(f"experiment {min(gone).hex()} was removed")


def _tombstones(connection: Connection, verifier: Verifier) -> Counter[bytes]:
    """Return experiment -> its tombstones, which are those that its erasures left."""
    counts = Counter[bytes]()
    left = dict(verifier.committed.stones)
    keys = (tombstones.c.experiment_id, tombstones.c.entry)
    ordered = select(*keys, tombstones.c.visitor).order_by(*keys)
    with connection.execute(ordered.execution_options(yield_per=_PAGE)) as rows:
        for place, mine in groupby(rows, key=lambda row: (row.experiment_id, row.entry)):
            stones = [row.visitor for row in mine]
            counts[place[0]] += len(stones)
            if tombstones_digest(stones) != left.pop(place, None):
                raise _of_experiment(verifier, place[0], "tombstones of {} were changed")
    for identity, _ in left:
        raise _of_experiment(verifier, identity, "tombstones of {} were removed")
    return counts


def _latest_hour(connection: Connection) -> int:
    """Return the latest hour in which any service can have answered."""
    return (moment(connection) + SKEW) // HOUR


def _totals(connection: Connection, verifier: Verifier) -> None:
    """Check the counters against the rows. Each missing row must be an erased one."""
    missing, missing_rewards = Counter[bytes](), Counter[bytes]()
    uncounted = {place: drawn for place, drawn in verifier.drawn.items() if drawn.cells}
    keys = (counters.c.experiment_id, counters.c.table_number)
    ordered = select(counters).order_by(*keys).execution_options(yield_per=_PAGE)
    with connection.execute(ordered) as rows:
        for place, mine in groupby(rows, key=lambda row: (row.experiment_id, row.table_number)):
            erased = _missing(mine, uncounted.pop(place, None))
            if erased is None:
                raise _mismatch(verifier, place[0])
            missing[place[0]] += erased[0]
            missing_rewards[place[0]] += erased[1]
    for identity, _ in uncounted:
        raise _mismatch(verifier, identity)
    committed = verifier.committed
    for identity in committed.promises:
        erased = committed.erased[identity], committed.erased_rewards[identity]
        if (missing[identity], missing_rewards[identity]) != erased:
            raise _mismatch(verifier, identity)


def _missing(rows: Iterable[StoredRow], drawn: Drawn | None) -> tuple[int, int] | None:
    """Return how many more shows and rewards a table's counters have than rows; None if impossible."""
    stored: dict[tuple[Cell, int], list[int]] = {}
    for row in rows:
        sums = stored.setdefault(((row.role, row.segment, row.arm), row.metric), [0, 0, 0, 0])
        for place, amount in enumerate((row.shows, row.rewarded, row.value, row.square)):
            sums[place] += amount
    shown, given = ({}, {}) if drawn is None else (drawn.cells, drawn.rewards)
    erased, erased_rewards = 0, 0
    for cell, metric in stored.keys() | given.keys() | {(cell, 0) for cell in shown}:
        have = stored.get((cell, metric), [0] * 4)
        need = (0 if metric else shown.get(cell, 0), *given.get((cell, metric), (0, 0, 0)))
        shows, rewarded, value, square = (a - b for a, b in zip(have, need, strict=True))
        gone = stored.get((cell, 0), [0])[0] - shown.get(cell, 0)
        fits = 0 <= rewarded <= gone and (gone > 0 or value == square == 0)
        if shows < 0 or value < 0 or square < 0 or not fits:
            return None
        erased += shows
        erased_rewards += rewarded
    return erased, erased_rewards


def _mismatch(verifier: Verifier, identity: bytes) -> Broken:
    return _of_experiment(verifier, identity, "the counters of {} do not match")


def _of_experiment(verifier: Verifier, identity: bytes, problem: str) -> Broken:
    promise = verifier.committed.promises.get(identity)
    name = identity.hex() if promise is None else repr(promise.key)
    return Broken(problem.format(f"experiment {name}"))
