"""Verifying the ledger: every chain from its first entry to its recorded end, then the totals.

The checks go through the rows in order and stop at the first that is wrong. What they cannot see: a
store whose chains were all recomputed by somebody who may write to it. For that, note the heads that
`deniable ledger verify` prints somewhere else, and give them back with `--head`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from deniable.storage.chain import GENESIS, commitment, commitment_hash, decision_hash
from deniable.storage.schema import (
    COMMITMENT_CHAIN,
    commitments,
    counters,
    decisions,
    experiments,
    periods,
    rewards,
    writers,
)

_PAGE = 2_000


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
    """

    problem: str | None
    chain: str | None
    seq: int | None
    decision: str | None
    commitments: int
    decisions: int
    erased: int
    heads: dict[str, str]

    @property
    def sound(self) -> bool:
        """Whether everything holds."""
        return self.problem is None


class _Broken(Exception):
    """The first thing that does not hold."""

    def __init__(self, problem: str, chain: str, seq: int | None = None, row: Any = None) -> None:
        super().__init__(problem)
        self.chain = chain
        self.seq = seq
        self.decision: str | None = row.id.hex() if row is not None else None


def verify(connection: Connection, noted: Mapping[str, str]) -> Verification:
    """Check all chains and totals of one consistent state of the store.

    Args:
        connection: that state.
        noted: chain -> `length:hash`, noted outside of the store at an earlier time.
    """
    found = {"commitments": 0, "decisions": 0, "erased": 0}
    heads: dict[str, str] = {}
    broken: _Broken | None = None
    try:
        ends = {row.id: row for row in connection.execute(select(writers).order_by(writers.c.id))}
        for writer, row in ends.items():
            heads[_name(writer)] = f"{row.seq}:{row.head.hex()}"
        owed, erased = _commitment_chain(connection, ends[COMMITMENT_CHAIN], found)
        _decision_chains(connection, ends, found)
        _noted_heads(connection, noted)
        _account(connection, owed)
        _totals(connection, erased)
    except _Broken as problem:
        broken = problem
    return Verification(
        problem=None if broken is None else str(broken),
        chain=None if broken is None else broken.chain,
        seq=None if broken is None else broken.seq,
        decision=None if broken is None else broken.decision,
        heads=heads,
        **found,
    )


def _name(writer: int) -> str:
    return "commitments" if writer == COMMITMENT_CHAIN else str(writer)


def _commitment_chain(
    connection: Connection, end: Any, found: dict[str, int]
) -> tuple[int, Counter[bytes]]:
    """Check it; returns what the current period owes by it, and erasures by experiment."""
    previous, place = GENESIS, 0
    owed, erased = 0, Counter[bytes]()
    for row in connection.execute(select(commitments).order_by(commitments.c.seq)):
        place += 1
        if row.seq != place:
            raise _Broken(f"commitment {place} was removed", "commitments", place)
        link = commitment_hash(
            previous,
            row.seq,
            row.kind,
            row.experiment_id,
            row.amount_nano,
            row.detail,
            row.recorded_at,
        )
        if link != row.hash:
            raise _Broken(f"commitment {place} was changed or reordered", "commitments", place)
        previous = link
        found["commitments"] = place
        owed = row.amount_nano + (0 if row.kind == "period" else owed)
        if row.kind in ("erase", "purge"):
            erased[row.experiment_id] += json.loads(row.detail)["decisions"]
    if (place, previous) != (end.seq, end.head):
        raise _Broken(f"commitment {place + 1} was removed", "commitments", place + 1)
    return owed, erased


def _decision_chains(connection: Connection, ends: dict[int, Any], found: dict[str, int]) -> None:
    heads = dict.fromkeys(ends, (0, GENESIS))
    query = select(decisions).order_by(decisions.c.writer_id, decisions.c.seq)
    with connection.execution_options(yield_per=_PAGE).execute(query) as rows:
        for row in rows:
            if row.writer_id not in heads:
                raise _Broken(
                    f"decision {row.id.hex()} was added under an unknown writer",
                    _name(row.writer_id),
                    row.seq,
                    row,
                )
            place, previous = heads[row.writer_id]
            heads[row.writer_id] = (place + 1, _followed(previous, place + 1, row))
            found["decisions"] += 1
            found["erased"] += row.salt is None
    for writer, end in ends.items():
        place, head = heads[writer]
        if writer != COMMITMENT_CHAIN and (place, head) != (end.seq, end.head):
            raise _Broken(
                f"decision {place + 1} of writer {writer} was removed", _name(writer), place + 1
            )


def _followed(previous: bytes, place: int, row: Any) -> bytes:
    """The hash of a row that is the next of its chain, or the reason why it is not."""
    chain = _name(row.writer_id)
    if row.seq > place:
        raise _Broken(f"decision {place} of writer {chain} was removed", chain, place)
    committed = row.commitment
    if row.salt is not None:
        erasable = (row.visitor, row.salt, row.segment, row.greedy, row.shown)
        values = (*erasable, row.clock, row.risk_nano)
        committed = None if None in values else commitment(*values)
    kept = (row.experiment_id, row.id, row.version, row.decided_at, row.writer_id, row.seq)
    if (
        row.seq < place
        or committed is None
        or decision_hash(previous, *kept, committed) != row.hash
    ):
        raise _Broken(
            f"decision {place} of writer {chain} ({row.id.hex()}) was changed or reordered",
            chain,
            place,
            row,
        )
    return bytes(row.hash)


def _noted_heads(connection: Connection, noted: Mapping[str, str]) -> None:
    """Each head that was noted once is still the hash at that length of its chain."""
    for chain, end in noted.items():
        length, _, head = end.partition(":")
        seq = int(length) if length.isdecimal() else -1
        query = select(decisions.c.hash).where(
            decisions.c.writer_id == (int(chain) if chain.isdecimal() else -1),
            decisions.c.seq == seq,
        )
        if chain == "commitments":
            query = select(commitments.c.hash).where(commitments.c.seq == seq)
        found = connection.execute(query).scalar() if seq else GENESIS
        if found is None or found.hex() != head:
            raise _Broken(f"chain {chain} no longer holds the head noted at {seq}", chain, seq)


def _account(connection: Connection, owed: int) -> None:
    """The current period has committed exactly what the chain says."""
    committed = connection.execute(select(periods.c.committed_nano).where(periods.c.current))
    if (committed.scalar() or 0) != owed:
        raise _Broken("the firm's account is not what the commitments add up to", "totals")


def _totals(connection: Connection, recorded: Counter[bytes]) -> None:
    """Counters are what the rows add up to; erased rows are missing in them one by one."""
    counted = _cells(
        connection,
        select(
            counters.c.experiment_id,
            counters.c.segment,
            counters.c.arm,
            func.sum(counters.c.shows),
            func.sum(counters.c.clicks),
        ).group_by(counters.c.experiment_id, counters.c.segment, counters.c.arm),
    )
    stored = _cells(
        connection,
        select(
            decisions.c.experiment_id,
            decisions.c.segment,
            decisions.c.shown,
            func.count(),
            func.coalesce(func.sum(rewards.c.value), 0),
        )
        .outerjoin(
            rewards,
            (rewards.c.experiment_id == decisions.c.experiment_id)
            & (rewards.c.decision_id == decisions.c.id),
        )
        .where(decisions.c.salt.is_not(None))
        .group_by(decisions.c.experiment_id, decisions.c.segment, decisions.c.shown),
    )
    gone = connection.execute(
        select(decisions.c.experiment_id, func.count())
        .where(decisions.c.salt.is_(None))
        .group_by(decisions.c.experiment_id)
    )
    erased: dict[bytes, int] = {row[0]: row[1] for row in gone}
    for identity, key in connection.execute(select(experiments.c.id, experiments.c.key)).all():
        if erased.get(identity, 0) != recorded[identity]:
            raise _Broken(f"erasures of experiment {key!r} were not recorded", "totals")
        _experiment_totals(identity, key, counted, stored, erased.get(identity, 0))


def _experiment_totals(
    identity: bytes,
    key: str,
    counted: dict[tuple[bytes, int, int], tuple[int, int]],
    stored: dict[tuple[bytes, int, int], tuple[int, int]],
    erased: int,
) -> None:
    missing = 0
    for cell in {cell for cell in (*counted, *stored) if cell[0] == identity}:
        shows, clicks = counted.get(cell, (0, 0))
        rows, successes = stored.get(cell, (0, 0))
        gone = shows - rows
        if gone < 0 or not 0 <= clicks - successes <= gone:
            raise _Broken(f"the counters of experiment {key!r} do not match its rows", "totals")
        missing += gone
    if missing != erased:
        raise _Broken(f"the counters of experiment {key!r} do not match its rows", "totals")


def _cells(connection: Connection, query: Any) -> dict[tuple[bytes, int, int], tuple[int, int]]:
    return {(row[0], row[1], row[2]): (row[3], row[4]) for row in connection.execute(query)}
