"""One batch: everything that waits is looked up, drawn, chained and stored in one transaction.

The order within the transaction: check the experiments' revisions, find what is stored, draw for the
rest and insert decisions (each its own ledger entry) and rewards, then counters and the end of the
writer's chain. No statement depends on a segment or on a draw; only on how many visitors are new.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import itemgetter
from struct import Struct

from deniable.service.entropy import system_bytes
from deniable.service.identity import LEASE_MICROSECONDS, Identity
from deniable.service.jobs import DecideJob, Job, RewardJob
from deniable.service.runtime import Runtime
from deniable.storage.chain import commitment, decision_hash
from deniable.storage.records import UNKNOWN_SEGMENT, Decision
from deniable.storage.store import Chain, HotTransaction, NewDecision, NewDecisions, TryAgain

AT_ONCE = 256
"""Visitors that are drawn and inserted together: few enough to stay in the processor's cache."""

ENTROPY = Struct("<QQ8s16s")
"""What one decision uses of it: the greedy arm's tie, the shown arm, the id's end, the salt."""

_CELL = itemgetter(3, 5)
"""The counter of a decision: segment and shown arm."""


class Batch:
    """The work of one transaction. A failed one is thrown away and made anew.

    Args:
        transaction: the store's.
        identity: which chain is extended.
        chain: its end so far.
        now: the batch's time.
    """

    def __init__(
        self, transaction: HotTransaction, identity: Identity, chain: Chain, now: int
    ) -> None:
        self._tx = transaction
        self._identity = identity
        self._chain = chain
        self._now = now
        self._members: list[tuple[str, bytes, bytes]] = []
        self._touched: set[tuple[Runtime, int, int]] = set()
        self._events: dict[Runtime, int] = {}  # new decisions and rewards
        self.answers: list[tuple[DecideJob, list[Decision]]] = []
        self.new_decisions = 0

    @property
    def changed(self) -> bool:
        """Whether there is anything to store."""
        return bool(self._touched)

    def decide(self, runtime: Runtime, jobs: Sequence[DecideJob]) -> None:
        """Answer for one experiment that is running or paused, drawing for all new visitors."""
        names = [name for job in jobs for name in job.visitors]
        segments = [segment for job in jobs for segment in job.segments]
        visitors = list(map(runtime.visitor_hash, names))
        known = self._tx.stored(runtime.id, list(set(visitors)))
        answers = {
            visitor: Decision(identity.hex(), runtime.arm_keys[shown])
            for visitor, (identity, shown) in known.items()
        }
        new: dict[bytes, int] = {}
        for visitor, segment in zip(visitors, segments, strict=True):
            if visitor not in answers and visitor not in new:
                new[visitor] = runtime.segments.get(segment, UNKNOWN_SEGMENT)
        if new:
            barred = self._barred(runtime, names, visitors, new) if runtime.group else frozenset()
            self._draw(runtime, new, barred, answers)
        start = 0
        for job in jobs:
            end = start + len(job.visitors)
            self.answers.append((job, [answers[visitor] for visitor in visitors[start:end]]))
            start = end

    def reward(self, runtime: Runtime, rewards: dict[bytes, int]) -> None:
        """Count the first reward of each decision of one experiment, within its window."""
        shown = self._tx.shown(runtime.id, list(rewards))
        window, now = runtime.attribution, self._now
        rows = [
            (runtime.id, decision, rewards[decision], now)
            for decision, what in shown.items()
            if window is None or now - what.decided_at <= window
        ]
        for decision in self._tx.add_rewards(sorted(rows)):
            what = shown[decision]
            runtime.click(what.segment, what.arm, rewards[decision])
            self._touched.add((runtime, what.segment, what.arm))
            self._events[runtime] = self._events.get(runtime, 0) + 1

    def store(self) -> Chain:
        """Write what was counted; returns the new end of the chain."""
        if self._members and self._tx.add_members(sorted(self._members)) < len(self._members):
            raise TryAgain("another writer took the same visitor into another experiment")
        writer, owner = self._identity.writer, self._identity.owner
        self._tx.save_counters(
            [
                (
                    runtime.id,
                    segment,
                    arm,
                    writer,
                    runtime.own_shows[segment][arm],
                    runtime.own_clicks[segment][arm],
                )
                for runtime, segment, arm in self._cells()
            ]
        )
        if not self._tx.extend(writer, owner, self._chain, self._now + LEASE_MICROSECONDS):
            raise TryAgain("this writer's chain was taken over")
        return self._chain

    def _draw(
        self,
        runtime: Runtime,
        new: dict[bytes, int],
        barred: frozenset[bytes],
        answers: dict[bytes, Decision],
    ) -> None:
        """Draw, chain, insert and answer for every new visitor (visitor -> segment)."""
        closed, arms, writer = runtime.closed(self._now), runtime.arm_keys, self._identity.writer
        # In the order of the keys: two writers with the same visitors then wait, never deadlock.
        visitors = [(who, segment, closed or who in barred) for who, segment in sorted(new.items())]
        for start in range(0, len(visitors), AT_ONCE):
            part = visitors[start : start + AT_ONCE]
            made = drawn(runtime, part, self._now, writer, self._chain)
            rows = made.rows
            if self._tx.add_decisions(made) < len(rows):
                raise TryAgain("another writer decided for the same visitor")
            self._chain = rows[-1][8:]
            self._touched.update([(runtime, *cell) for cell in set(map(_CELL, rows))])
            answers.update([(row[1], Decision(row[0].hex(), arms[row[5]])) for row in rows])
        self._events[runtime] = self._events.get(runtime, 0) + len(visitors)
        self.new_decisions += len(visitors)
        # The shared clock moves once it has gone far enough to change tables: a row seldom written.
        if runtime.shared_clock and runtime.total > runtime.clock + runtime.clock // 64:
            self._tx.set_clock(runtime.id, runtime.total)

    def _cells(self) -> list[tuple[Runtime, int, int]]:
        """The counters to write, filled up with untouched ones.

        How many there are depends on the number of visitors and rewards, not on segments or arms.
        """
        cells = list(self._touched)
        for runtime, events in self._events.items():
            missing = min(events, len(runtime.own_shows) * len(runtime.arm_keys))
            missing -= sum(cell[0] is runtime for cell in self._touched)
            if missing:
                others = (
                    cell
                    for segment in range(UNKNOWN_SEGMENT, len(runtime.own_shows) - 1)
                    for arm in range(len(runtime.arm_keys))
                    if (cell := (runtime, segment, arm)) not in self._touched
                )
                cells += islice(others, missing)
        return cells

    def _barred(
        self,
        runtime: Runtime,
        names: Sequence[str],
        visitors: Sequence[bytes],
        new: dict[bytes, int],
    ) -> frozenset[bytes]:
        """New visitors who belong to another experiment of the group; the rest become members."""
        group = runtime.group or ""
        hashed = runtime.member_hash
        members = {
            hashed(name): visitor
            for name, visitor in zip(names, visitors, strict=True)
            if visitor in new
        }
        found = self._tx.members(group, list(members))
        for row in self._members:  # those that this batch took into another of its experiments
            if row[0] == group:
                found.setdefault(row[1], row[2])
        self._members += [(group, member, runtime.id) for member in members if member not in found]
        return frozenset(
            visitor
            for member, visitor in members.items()
            if found.get(member, runtime.id) != runtime.id
        )


def drawn(
    runtime: Runtime,
    visitors: Sequence[tuple[bytes, int, bool]],
    now: int,
    writer: int,
    chain: Chain,
) -> NewDecisions:
    """New decisions, drawn and chained in order.

    Args:
        runtime: the experiment; its counters go on.
        visitors: each as stored, with the position of the segment and whether to serve uniformly.
        now: the time.
        writer: whose chain.
        chain: its end so far.
    """
    rows: list[NewDecision] = []
    draw, experiment, version = runtime.draw, runtime.id, runtime.version
    seq, head = chain
    random = system_bytes(4 + ENTROPY.size * len(visitors))
    # Ids begin with the experiment's tag and a mark of the batch: neighbours in the index.
    prefix = experiment[:4] + random[:4]
    for (visitor, segment, closed), (tie_point, shown_point, ending, salt) in zip(
        visitors, ENTROPY.iter_unpack(random[4:]), strict=True
    ):
        greedy, shown, clock, risk = draw(segment, tie_point, shown_point, closed)
        identity = prefix + ending
        seq += 1
        committed = commitment(visitor, salt, segment, greedy, shown, clock, risk)
        head = decision_hash(head, experiment, identity, version, now, writer, seq, committed)
        rows.append((identity, visitor, salt, segment, greedy, shown, clock, risk, seq, head))
    return NewDecisions(experiment, version, now, writer, rows)


def by_experiment(jobs: Sequence[Job]) -> dict[str, list[DecideJob]]:
    """The decide jobs of a batch by their experiment's key, in order."""
    grouped: dict[str, list[DecideJob]] = {}
    for job in jobs:
        if isinstance(job, DecideJob) and job.visitors:
            grouped.setdefault(job.experiment, []).append(job)
    return grouped


def by_tag(jobs: Sequence[Job]) -> dict[bytes, dict[bytes, int]]:
    """The first reward of each decision in a batch, by the tag that its id begins with."""
    grouped: dict[bytes, dict[bytes, int]] = {}
    for job in jobs:
        if isinstance(job, RewardJob):
            for decision, value in zip(job.decisions, job.values, strict=True):
                grouped.setdefault(decision[:4], {}).setdefault(decision, value)
    return grouped
