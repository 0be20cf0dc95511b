"""Erasing visitors: removes what identifies them, keeps what was counted and chained.

For a decision, the visitor's HMAC, segment, shown arm and salt are deleted, and the values of its
rewards. Their commitments are written in their place, so the chains still verify. Counters keep
their totals and nothing is debited.

While the experiment counts against the firm's budget, a tombstone stays: a keyed hash without arm,
segment or time. A visitor who returns is served from the neutral row, so there is no second draw at
a risk. The entry of the erasure contains a digest of the tombstones that it left. `purge` deletes them
once the experiment no longer counts.

Every transaction is short and complete in itself, so that the service goes on in between, and what
was interrupted is continued by asking again. For the same reason a purge does not wait for the disk
while others wait for it: only every few seconds, and at its end. The next decision brings there what it
did. Where no service runs, nobody waits: transactions are large, and at the end the store gives back the
space that was freed.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, insert, select, update

from deniable.storage import account, commitments, experiments, promises, times
from deniable.storage.chain import reward_salted_hash, salted_hash
from deniable.storage.records import Experiment
from deniable.storage.schema import COMMITMENT_CHAIN, decisions, rewards, tombstones, writers
from deniable.storage.schema import experiments as experiment_rows
from deniable.storage.store import Store

BATCH = 50
"""Rows per transaction, if a caller waits for it."""

HOLD_SECONDS = 0.003
"""How long a transaction of a purge should take: whoever decides meanwhile waits for its end.

SQLite looks for a free file after 1, 3, 8 and 18 milliseconds: beyond 3 a little more costs a lot."""

REST = 9.0
"""Rest between transactions of a purge, in lengths of the transaction before."""

FASTEST = 300.0
"""Decisions purged a second, at most: each changes pages all over the store, and the disk has to write
them while decisions wait for the same disk."""

LASTING_SECONDS = 5.0
"""At most so much of a purge has to be done again after the power failed."""

FEWEST, FIRST, MOST = 20, 20, 500
"""Decisions of one transaction of a purge: at least, at first, at most.

Fewer would hardly be shorter: statements take most of the time, however few rows they have."""

MOST_ALONE = 5_000
"""Decisions of one transaction where no service runs."""

ERASABLE = ("visitor", "salt", "segment", "shown")

_Hashes = Callable[[Experiment], Sequence[bytes]]


@dataclass
class Pace:
    """How much of a purge is done at once, and how long it then rests, so that the service goes on.

    Transactions become smaller where they take longer than they should, and larger where they do not:
    what one takes depends on the machine, the store and its size.

    Attributes:
        size: decisions of the next transaction.
        ended, settled: when a transaction last ended, and when one did that is on the disk for certain.
        clock: tells the time, in seconds.
        sleep: rests for so many seconds.
        alone: whether no service runs, so that there is no reason to rest.

    >>> pace = Pace(size=100, clock=lambda: 2 * HOLD_SECONDS, sleep=lambda seconds: None)
    >>> pace.rest(began=0.0)
    >>> pace.size
    50
    """

    size: int = FIRST
    ended: float = 0.0
    settled: float = 0.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    alone: bool = False

    def lasting(self, last: bool) -> bool:
        """Whether the next transaction, perhaps the last one, has to be on the disk when it ends."""
        return last or self.ended - self.settled >= LASTING_SECONDS

    def rest(self, began: float, *, lasting: bool = False) -> None:
        """Adapt to the transaction that had its turn at this time and has just ended; then rest."""
        self.ended = self.clock()
        if lasting:
            self.settled = self.ended
        if self.alone:
            return
        took = self.ended - began
        rest = max(REST * took, self.size / FASTEST - took)
        change = min(2.0, max(0.5, HOLD_SECONDS / max(took, 1e-9)))
        self.size = min(MOST, max(FEWEST, round(self.size * change)))
        self.sleep(rest)


@dataclass
class Erasure:
    """The result of an erasure.

    Attributes:
        decisions: number of decisions that were stripped of their visitor.
    """

    decisions: int = 0


class _Done(NamedTuple):
    """What a transaction did.

    Attributes:
        decisions: how many it stripped that had not been stripped before.
        began: when it had its turn. That it waited for others disturbs nobody, so that does not count.
    """

    decisions: int
    began: float


def tombstone(key: bytes, visitor_hash: bytes) -> bytes:
    """Return what stays of an erased visitor: HMAC-SHA256 of the stored HMAC, under a derived key.

    >>> tombstone(b"k" * 32, bytes(16)).hex()
    '518d453a579aac0002da2d8cb77bb5c1'
    """
    derived = hmac.digest(key, b"deniable tombstone", "sha256")
    return hmac.digest(derived, visitor_hash, "sha256")[:16]


def tombstones_digest(stones: Iterable[bytes]) -> str:
    """Return what the chain holds of the tombstones that one entry left.

    >>> tombstones_digest([b"b" * 16, b"a" * 16]) == tombstones_digest([b"a" * 16, b"b" * 16])
    True
    """
    return sha256(b"".join(sorted(stones))).hexdigest()


def erase(store: Store, key: bytes, visitors: _Hashes) -> Erasure:
    """Erase visitors in every experiment.

    Args:
        store: the store.
        key: key for visitor HMACs, for the tombstones.
        visitors: experiment -> the visitor hashes in its decisions.
    """
    outcome = Erasure()
    known, counting = _experiments(store)
    for experiment in known:
        hashes, counts = list(visitors(experiment)), experiment.id in counting
        for ids in _decisions_of(store, experiment, hashes):
            forget = partial(_forget, "erase", experiment, key, ids, counts)
            outcome.decisions += store.retried(forget).decisions
    return outcome


def purge(
    store: Store,
    key: bytes,
    *,
    before: int,
    running: bool,
    progress: Callable[[int, int], None] | None = None,
    pace: Pace | None = None,
) -> Erasure:
    """Erase all visitors decided before a time.

    Args:
        store: the store.
        key: key for visitor HMACs, for the tombstones.
        before: the time, in the stored format.
        running: include experiments that run or are paused.
        progress: callback that receives the number of decisions done and the total.
        pace: how fast; as the service bears it if not given, or without rest if none runs.
    """
    if pace is None:
        pace = Pace(size=MOST_ALONE, alone=True) if _no_service(store) else Pace()
    outcome = Erasure()
    known, counting = _experiments(store)
    chosen = [e for e in known if e.status == "stopped" or (running and e.status != "draft")]
    total = sum(_old_decisions(store, experiment, before) for experiment in chosen)
    for experiment in chosen:
        for ids, last in _old_pages(store, experiment, before, pace):
            counts, lasting = experiment.id in counting, pace.lasting(last)
            forget = partial(_forget, "purge", experiment, key, ids, counts, clock=pace.clock)
            done = store.retried(forget, lasting=lasting)
            pace.rest(done.began, lasting=lasting)
            outcome.decisions += done.decisions
            if progress is not None:
                progress(outcome.decisions, max(total, outcome.decisions))
    for experiment in known:
        if experiment.id not in counting and experiment.has_tombstones:
            while store.retried(partial(_clear_tombstones, experiment)):
                pass
    if pace.alone and outcome.decisions:
        store.shrink()
    return outcome


def _no_service(store: Store) -> bool:
    """Whether no process has the right to decide now."""
    deciding = select(func.count()).where(
        writers.c.id != COMMITMENT_CHAIN, writers.c.lease_until > times.now()
    )
    with store.read() as connection:
        return connection.execute(deciding).scalar_one() == 0


def _experiments(store: Store) -> tuple[list[Experiment], set[str]]:
    """Return all experiments, and the ids of those that count."""
    with store.read() as connection:
        found = account.counting(connection, commitments.account_time(connection))
        return experiments.everything(connection), {one.experiment_id.hex() for one in found}


def _decisions_of(
    store: Store, experiment: Experiment, hashes: Sequence[bytes]
) -> Iterator[list[bytes]]:
    """Yield ids of these visitors' decisions, in pages."""
    identity = bytes.fromhex(experiment.id)
    for start in range(0, len(hashes), BATCH):
        which = {"identity": identity, "visitors": hashes[start : start + BATCH]}
        with store.read() as connection:
            ids = list(connection.execute(_OF_VISITORS, which).scalars())
        if ids:
            yield ids


def _old_decisions(store: Store, experiment: Experiment, before: int) -> int:
    query = select(func.count()).where(*_old(experiment, before))
    with store.read() as connection:
        return connection.execute(query).scalar_one()


def _old_pages(
    store: Store, experiment: Experiment, before: int, pace: Pace
) -> Iterator[tuple[list[bytes], bool]]:
    """Ids of decisions from before a time, in pages, and whether the page is the last one."""
    behind = b""
    while True:
        size = pace.size
        query = (
            select(decisions.c.id)
            .where(*_old(experiment, before), decisions.c.id > behind)
            .order_by(decisions.c.id)
            .limit(size + 1)
        )
        with store.read() as connection:
            ids = list(connection.execute(query).scalars())
        last = len(ids) <= size
        if ids:
            yield ids[:size], last
        if last:
            return
        behind = ids[size - 1]


def _old(experiment: Experiment, before: int) -> tuple[ColumnElement[bool], ...]:
    return (
        decisions.c.experiment_id == bytes.fromhex(experiment.id),
        decisions.c.salt.is_not(None),
        decisions.c.decided_at < before,
    )


def _forget(
    kind: str,
    experiment: Experiment,
    key: bytes,
    ids: Sequence[bytes],
    counts: bool,
    connection: Connection,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> _Done:
    """Strip decisions of one experiment."""
    # Nobody else strips decisions or leaves tombstones while this holds the chain.
    commitments.lock_chain(connection)
    began = clock()
    identity = bytes.fromhex(experiment.id)
    rows = connection.execute(_UNSTRIPPED, {"identity": identity, "ids": list(ids)}).all()
    if not rows:
        return _Done(0, began)
    stones = {tombstone(key, row.visitor) for row in rows} if counts else set()
    if stones:
        known = connection.execute(_STONES, {"identity": identity, "stones": list(stones)})
        stones -= set(known.scalars())
    in_all = promises.tombstones_of(connection, experiment) + len(stones)
    # Whoever decides or rewards waits for this row, so it is taken late: no reward comes from here on.
    asked = clock()
    had_tombstones = connection.execute(_HELD, {"identity": identity}).scalar_one()
    began += clock() - asked
    given = _strip_rewards(connection, identity, {row.id: row.salt for row in rows})
    connection.execute(
        _STRIP,
        [
            {
                "identity": identity,
                "which": row.id,
                "committed": salted_hash(row.visitor, row.salt, row.segment, row.shown),
            }
            for row in rows
        ],
    )
    if kind == "erase" or bool(in_all) != had_tombstones:
        experiments.change(connection, experiment, has_tombstones=bool(in_all))
    entry = commitments.record(
        connection,
        kind,
        experiment,
        decisions=len(rows),
        rewards=given,
        tombstones=in_all,
        digest=tombstones_digest(stones) if stones else None,
    )
    if stones:
        new = [{"experiment_id": identity, "visitor": stone, "entry": entry} for stone in stones]
        connection.execute(insert(tombstones), new)
    return _Done(len(rows), began)


# Statements are built once: building takes longer than running.
_OF_DECISION = decisions.c.experiment_id == bindparam("identity")
_OF_REWARD = rewards.c.experiment_id == bindparam("identity")
_OF_VISITORS = select(decisions.c.id).where(
    _OF_DECISION, decisions.c.visitor.in_(bindparam("visitors", expanding=True))
)
_UNSTRIPPED = select(decisions).where(
    _OF_DECISION,
    decisions.c.id.in_(bindparam("ids", expanding=True)),
    decisions.c.salt.is_not(None),
)
_HELD = (
    select(experiment_rows.c.has_tombstones)
    .where(experiment_rows.c.id == bindparam("identity"))
    .with_for_update()
)
_STRIP = (
    update(decisions)
    .where(_OF_DECISION, decisions.c.id == bindparam("which"))
    .values({**dict.fromkeys(ERASABLE), "commitment": bindparam("committed")})
)
_REWARDS = select(rewards.c.decision_id, rewards.c.metric, rewards.c.value).where(
    _OF_REWARD,
    rewards.c.decision_id.in_(bindparam("ids", expanding=True)),
    rewards.c.value.is_not(None),
)
_STRIP_REWARD = (
    update(rewards)
    .where(
        _OF_REWARD,
        rewards.c.decision_id == bindparam("which"),
        rewards.c.metric == bindparam("of_metric"),
    )
    .values(value=None, commitment=bindparam("committed"))
)
_STONES = select(tombstones.c.visitor).where(
    tombstones.c.experiment_id == bindparam("identity"),
    tombstones.c.visitor.in_(bindparam("stones", expanding=True)),
)


def _strip_rewards(connection: Connection, identity: bytes, salts: dict[bytes, bytes]) -> int:
    """Delete the values of these decisions' rewards; return their number."""
    rows = connection.execute(_REWARDS, {"identity": identity, "ids": list(salts)}).all()
    if rows:
        connection.execute(
            _STRIP_REWARD,
            [
                {
                    "identity": identity,
                    "which": row.decision_id,
                    "of_metric": row.metric,
                    "committed": reward_salted_hash(salts[row.decision_id], row.metric, row.value),
                }
                for row in rows
            ],
        )
    return len(rows)


def _clear_tombstones(experiment: Experiment, connection: Connection) -> bool:
    """Delete the tombstones of one entry; return whether more are left."""
    commitments.lock_chain(connection)
    here = tombstones.c.experiment_id == bytes.fromhex(experiment.id)
    oldest = connection.execute(select(func.min(tombstones.c.entry)).where(here)).scalar()
    removed = connection.execute(
        delete(tombstones).where(here, tombstones.c.entry == oldest)
    ).rowcount
    left = 0 if oldest is None else promises.tombstones_of(connection, experiment) - removed
    if not left:
        experiments.change(connection, experiment, has_tombstones=False)
    commitments.record(
        connection,
        "purge",
        experiment,
        decisions=0,
        rewards=0,
        tombstones=left,
        digest=None,
        cleared=oldest,
    )
    return left > 0
