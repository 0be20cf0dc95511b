"""One batch: everything that waits is looked up, drawn, chained and stored in one transaction.

The order within the transaction: check the experiments' revisions, find what is stored, draw for the
rest, insert decisions (each its own ledger entry), rewards and counters, extend the writer's chain.
No statement depends on a segment or on a draw; only on how many visitors are new.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from deniable.service.entropy import EntropyPool
from deniable.service.identity import LEASE_MICROSECONDS, Identity
from deniable.service.jobs import DecideJob, Job, RewardJob
from deniable.service.runtime import Runtime
from deniable.service.visitors import group_scope, visitor_hash
from deniable.storage.chain import commitment, decision_hash
from deniable.storage.records import UNKNOWN_SEGMENT, Decision
from deniable.storage.store import Chain, DecisionRow, HotTransaction, TryAgain

ENTROPY_PER_DECISION = 8 + 8 + 8 + 16
"""Bytes: the greedy arm's tie, the shown arm, the id, the salt."""

_VISITOR = itemgetter(0, 2)
"""The key on which two writers can meet: experiment and visitor."""


class Batch:
    """The work of one transaction. A failed one is thrown away and made anew.

    Args:
        transaction: the store's.
        identity: which chain is extended.
        chain: its end so far.
        key: of the visitors' HMACs.
        now: the batch's time.
    """

    def __init__(
        self, transaction: HotTransaction, identity: Identity, chain: Chain, key: bytes, now: int
    ) -> None:
        self._tx = transaction
        self._identity = identity
        self._seq, self._head = chain
        self._key = key
        self._now = now
        self._rows: list[DecisionRow] = []
        self._members: list[tuple[str, bytes, bytes]] = []
        self._touched: dict[tuple[bytes, int, int], Runtime] = {}
        self.answers: list[tuple[DecideJob, list[Decision]]] = []

    @property
    def new_decisions(self) -> int:
        """How many were drawn."""
        return len(self._rows)

    @property
    def changed(self) -> bool:
        """Whether there is anything to store."""
        return bool(self._touched)

    def decide(self, runtime: Runtime, jobs: Sequence[DecideJob]) -> None:
        """Draw for all new visitors of one experiment that is running or paused."""
        scope, key, segments = runtime.id, self._key, runtime.segments
        hashes = [[visitor_hash(key, scope, visitor) for visitor in job.visitors] for job in jobs]
        wanted = list({visitor for line in hashes for visitor in line})
        known = self._tx.stored(scope, wanted)
        answers = {
            visitor: Decision(identity.hex(), runtime.arm_keys[shown])
            for visitor, (identity, shown) in known.items()
        }
        missing = len(wanted) - len(known)
        barred = self._barred(runtime, jobs, hashes, answers) if runtime.group else frozenset()
        pool = EntropyPool(4 + missing * ENTROPY_PER_DECISION)
        # Ids begin with the experiment's tag and a mark of the batch: neighbours in the index.
        prefix = scope[:4] + pool(4)
        closed = runtime.closed(self._now)
        for job, line in zip(jobs, hashes, strict=True):
            found: list[Decision] = []
            for visitor, segment in zip(line, job.segments, strict=True):
                answer = answers.get(visitor)
                if answer is None:
                    position = segments.get(segment, UNKNOWN_SEGMENT)
                    answer = self._drawn(
                        runtime, visitor, position, prefix, pool, closed or visitor in barred
                    )
                    answers[visitor] = answer
                found.append(answer)
            self.answers.append((job, found))
        if missing and runtime.shared_clock:
            self._move_clock(runtime)

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
            self._touched[runtime.id, what.segment, what.arm] = runtime

    def store(self) -> Chain:
        """Write everything that was drawn and counted; returns the new end of the chain."""
        # In the order of the keys: two writers with the same visitors then wait, never deadlock.
        if self._members and self._tx.add_members(sorted(self._members)) < len(self._members):
            raise TryAgain("another writer took the same visitor into another experiment")
        self._rows.sort(key=_VISITOR)
        if self._tx.add_decisions(self._rows) < len(self._rows):
            raise TryAgain("another writer decided for the same visitor")
        writer = self._identity.writer
        self._tx.save_counters(
            [
                (
                    experiment,
                    segment,
                    arm,
                    writer,
                    runtime.own_shows[segment][arm],
                    runtime.own_clicks[segment][arm],
                )
                for (experiment, segment, arm), runtime in self._touched.items()
            ]
        )
        chain = Chain(self._seq, self._head)
        if not self._tx.extend(writer, self._identity.owner, chain, self._now + LEASE_MICROSECONDS):
            raise TryAgain("this writer's chain was taken over")
        return chain

    def _drawn(
        self,
        runtime: Runtime,
        visitor: bytes,
        segment: int,
        prefix: bytes,
        pool: EntropyPool,
        closed: bool,
    ) -> Decision:
        greedy, shown, clock, risk = runtime.draw(segment, pool, closed=closed)
        identity, salt = prefix + pool(8), pool(16)
        committed = commitment(salt, visitor, segment, greedy, shown, clock, risk)
        self._seq += 1
        writer = self._identity.writer
        self._head = decision_hash(
            self._head,
            runtime.id,
            identity,
            runtime.version,
            self._now,
            writer,
            self._seq,
            committed,
        )
        self._rows.append(
            DecisionRow(
                runtime.id,
                identity,
                visitor,
                salt,
                segment,
                greedy,
                shown,
                clock,
                risk,
                runtime.version,
                self._now,
                writer,
                self._seq,
                committed,
                self._head,
            )
        )
        self._touched[runtime.id, segment, shown] = runtime
        return Decision(identity.hex(), runtime.arm_keys[shown])

    def _barred(
        self,
        runtime: Runtime,
        jobs: Sequence[DecideJob],
        hashes: Sequence[Sequence[bytes]],
        known: dict[bytes, Decision],
    ) -> frozenset[bytes]:
        """New visitors who belong to another experiment of the group; the rest become members."""
        group = runtime.group or ""
        scope = group_scope(group)
        members = {
            visitor_hash(self._key, scope, name): visitor
            for job, line in zip(jobs, hashes, strict=True)
            for name, visitor in zip(job.visitors, line, strict=True)
            if visitor not in known
        }
        found = self._tx.members(group, list(members))
        for row in self._members:  # those that this batch took into another of its experiments
            if row[0] == group:
                found.setdefault(row[1], row[2])
        self._members += [(group, member, runtime.id) for member in members if member not in found]
        return frozenset(
            members[member] for member in members if found.get(member, runtime.id) != runtime.id
        )

    def _move_clock(self, runtime: Runtime) -> None:
        """Share the experiment's clock once it has moved by a part that changes tables."""
        if runtime.total > runtime.clock + runtime.clock // 64:
            self._tx.set_clock(runtime.id, runtime.total)


def by_experiment(jobs: Sequence[Job]) -> dict[str, list[DecideJob]]:
    """The decide jobs of a batch by their experiment's key, in order."""
    grouped: dict[str, list[DecideJob]] = {}
    for job in jobs:
        if isinstance(job, DecideJob):
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
