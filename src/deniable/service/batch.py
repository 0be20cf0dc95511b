"""One batch: look up, draw, chain and store all waiting jobs in one transaction.

The order within the transaction is: check the experiments' revisions and tables, find stored
decisions, draw the missing ones, insert decisions and rewards (each is its own ledger entry), then
update the counters and the end of the writer's chain. Statements depend on how many visitors are
new, but never on a segment or a draw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from struct import Struct

from deniable.errors import DeniableError, InvalidArgumentError
from deniable.masks.mask import visitor_bytes
from deniable.privacy.tables import draw
from deniable.service.experiment_state import ExperimentState, MaskState, system_bytes
from deniable.service.ids import normalised
from deniable.service.jobs import DecideJob, Job, LabelJob, RewardJob
from deniable.service.lease import LEASE_MICROSECONDS, Identity
from deniable.storage.chain import (
    decision_hash,
    reward_hash,
    reward_salted_hash,
    salted_hash,
)
from deniable.storage.erasure import tombstone
from deniable.storage.records import MICRO, UNKNOWN_SEGMENT, Decision, Role
from deniable.storage.store import (
    Chain,
    Count,
    HotTransaction,
    NewDecision,
    NewDecisions,
    NewLabel,
    NewReward,
    Shown,
    TryAgain,
)

AT_ONCE = 256
"""Visitors drawn and inserted together: few enough to stay in the CPU cache."""

ENTROPY = Struct("<Q8s16s")
"""Entropy used per decision: the shown arm, the end of the id, and the salt."""

MARK_BYTES = 4
"""Length of the part that ids of decisions inserted together share (see `ids`)."""

HOUR = 3_600_000_000

_CELL = itemgetter(3, 4, 5)
"""Segment, shown arm and role of a new decision."""

_NOTHING = (0, 0, 0, 0)


class JobBatch:
    """The work of one transaction. A failed batch is discarded and rebuilt.

    Args:
        transaction: the store's transaction.
        identity: identifies the chain to extend.
        chain: the current end of the chain.
        now: the time of the batch.
        key: key for visitor HMACs.
        random: returns what so many decisions need; None takes it from the operating system.
    """

    def __init__(
        self,
        transaction: HotTransaction,
        identity: Identity,
        chain: Chain,
        now: int,
        key: bytes,
        random: Callable[[int], bytes] | None = None,
    ) -> None:
        self._tx = transaction
        self._identity = identity
        self._chain, self._before = chain, chain[1]
        self._now = now
        self._key = key
        self._random = random or randomness
        self._counts: dict[tuple[ExperimentState, int, int, int, int, int], list[int]] = {}
        self._events: Counter[ExperimentState] = Counter()
        self._touched = False  # whether something was stored that is no event
        self.answers: list[tuple[DecideJob, list[Decision]]] = []
        self.labels: list[tuple[LabelJob, list[str]]] = []
        self.new_decisions: Counter[ExperimentState] = Counter()

    @property
    def changed(self) -> bool:
        """Whether there is anything to store."""
        return bool(self._events) or self._touched

    def decide(self, state: ExperimentState, jobs: Sequence[DecideJob]) -> None:
        """Answer the jobs of one running or paused experiment, drawing arms for new visitors."""
        names = [normalised(name) for job in jobs for name in job.visitors]
        contexts = _contexts(state, jobs)
        segments = [segment for job in jobs for segment in job.segments]
        answers: dict[bytes, Decision] = {}
        if state.sticky:
            hashes = state.visitor_hashes
            visitors = [hashes[place](name) for place, name in zip(contexts, names, strict=True)]
            answers = self._known(state, visitors)
        else:  # each request is a decision of its own, and the visitor is not stored
            random = system_bytes(16 * len(names))
            visitors = [random[start : start + 16] for start in range(0, len(random), 16)]
        asked: dict[bytes, tuple[str, int, str | None]] = {}
        for visitor, visit in zip(
            visitors, zip(names, contexts, segments, strict=True), strict=True
        ):
            if visitor not in answers:
                asked.setdefault(visitor, visit)
        if asked:
            self._draw(state, self._rows(state, asked), answers)
        self._answered(state)
        start = 0
        for job in jobs:
            end = start + len(job.visitors)
            self.answers.append((job, [answers[visitor] for visitor in visitors[start:end]]))
            start = end

    def label(self, mask: MaskState, jobs: Sequence[LabelJob]) -> None:
        """Answer the jobs of one mask, putting labels for new visitors."""
        pairs = [pair for job in jobs for pair in zip(job.visitors, job.segments, strict=True)]
        labels = iter([mask.labels[number] for number in self._labels(mask, pairs)])
        self._mask_answered(mask)
        for job in jobs:
            self.labels.append((job, list(islice(labels, len(job.visitors)))))

    def _rows(
        self, state: ExperimentState, asked: dict[bytes, tuple[str, int, str | None]]
    ) -> dict[bytes, tuple[str, int]]:
        """Return each new visitor's row, by context and segment or label (hash -> name, row)."""
        segments: Sequence[str | None] = [segment for _, _, segment in asked.values()]
        if state.mask is not None:
            pairs = [(name, segment) for name, _, segment in asked.values()]
            segments = [state.mask.labels[number] for number in self._labels(state.mask, pairs)]
        return {
            visitor: (name, state.row(context, segment))
            for (visitor, (name, context, _)), segment in zip(asked.items(), segments, strict=True)
        }

    def _labels(self, mask: MaskState, pairs: Sequence[tuple[str, str | None]]) -> list[int]:
        """Return each visitor's first label, by number; put it if there is none.

        No second segment of a visitor is ever evaluated.
        """
        visitors = [mask.visitor_hash(name) for name, _ in pairs]
        stored = self._tx.labels(mask.id, list(set(visitors)))
        new: dict[bytes, NewLabel] = {}
        labels = []
        for visitor, (name, segment) in zip(visitors, pairs, strict=True):
            first = new.get(visitor) or stored.get(visitor)
            if first is None or (first.label is not None and not first.known):
                label, known = mask.first(name, segment)
                if first is None or known:
                    first = new[visitor] = NewLabel(mask.id, visitor, label, known)
            labels.append(mask.null(name) if first.label is None else first.label)
        # Sorted by key, like new decisions.
        if new and self._tx.put_labels([new[visitor] for visitor in sorted(new)]) < len(new):
            raise TryAgain("another writer labelled the same visitor")
        self._touched |= bool(new)
        return labels

    def reward(
        self,
        state: ExperimentState,
        rewards: dict[tuple[bytes, int], int],
        told: dict[tuple[bytes, int], str] | None = None,
    ) -> None:
        """Count the first reward per decision and metric of one experiment, within its window.

        Args:
            state: the experiment.
            rewards: (decision id as shown, metric) -> value in millionths.
            told: collects the outcome of each known reward; None if it is not needed.
        """
        known = self._shown(state, {decision for decision, _ in rewards})
        before = self._tx.rewarded(state.id, sorted(stored for stored, _ in known.values()))
        window, now, writer = state.attribution, self._now, self._identity.writer
        seq, head = self._chain
        rows = []
        # Sorted by key, like new decisions.
        for decision, metric, given, value in sorted(
            (known[given][0], metric, given, value)
            for (given, metric), value in rewards.items()
            if given in known
        ):
            what = known[given][1]
            if (decision, metric) in before:
                outcome = "duplicate"
            elif window is not None and now - what.decided_at > window:
                outcome = "late"
            else:
                outcome = "applied"
            if told is not None:
                told[given, metric] = outcome
            if outcome != "applied":
                continue
            seq += 1
            committed = reward_salted_hash(what.salt, metric, value)
            head = reward_hash(head, state.id, decision, metric, now, writer, seq, committed)
            rows.append(NewReward(state.id, decision, metric, value, now, writer, seq, head))
            share = value / state.metrics[metric].cap_micro
            cell = (state, what.table_number, what.role, what.segment, what.shown, metric)
            self._count(cell, 0, 1, value, round(share * share * MICRO))
        if not rows:
            return
        if self._tx.add_rewards(rows) < len(rows):
            raise TryAgain("another writer took the same reward")
        self._chain = (seq, head)
        self._events[state] += len(rows)

    def store(self) -> Chain:
        """Write the counters and the end of the chain; return the new end."""
        writer, owner = self._identity.writer, self._identity.owner
        counts = list(self._padded_counts(writer))
        lease_until = self._now + LEASE_MICROSECONDS
        if not self._tx.extend(writer, owner, self._before, self._chain, lease_until, counts):
            raise TryAgain("this writer's chain was taken over, or is not as it left it")
        return self._chain

    def _shown(self, state: ExperimentState, given: set[bytes]) -> dict[bytes, tuple[bytes, Shown]]:
        """Map decision ids as shown to their stored id and row, where one exists."""
        places = {state.ids.stored(shown): shown for shown in given}
        rows = self._tx.shown(state.id, sorted(places))
        return {places[stored]: (stored, row) for stored, row in rows.items()}

    def _known(self, state: ExperimentState, visitors: Sequence[bytes]) -> dict[bytes, Decision]:
        arms, as_shown = state.arm_keys, state.ids.shown
        return {
            visitor: Decision(as_shown(known.id), arms[known.shown])
            for visitor, known in self._tx.stored(state.id, list(set(visitors))).items()
        }

    def _draw(
        self,
        state: ExperimentState,
        new: dict[bytes, tuple[str, int]],
        answers: dict[bytes, Decision],
    ) -> None:
        """Draw, chain, insert and answer decisions for all new visitors (hash -> name, row)."""
        roles = self._roles(state, new)
        # Sorted by key: two writers with the same visitors wait for each other instead of
        # deadlocking.
        visitors = sorted(new)
        for start in range(0, len(visitors), AT_ONCE):
            part = [(who, new[who][1], roles[who]) for who in visitors[start : start + AT_ONCE]]
            random = self._random(len(part))
            made = drawn(state, part, random, self._now, self._identity.writer, self._chain)
            if self._tx.add_decisions(made) < len(part):
                raise TryAgain("another writer decided for the same visitor")
            self._chain = (made.rows[-1].seq, made.rows[-1].hash)
            for (segment, shown, role), shows in Counter(map(_CELL, made.rows)).items():
                cell = (state, state.table_number, role, segment, shown, 0)
                self._count(cell, shows, 0, 0, 0)
            arms, as_shown = state.arm_keys, state.ids.shown
            answers.update(
                [(row[1], Decision(as_shown(row[0]), arms[row[4]])) for row in made.rows]
            )
        self._events[state] += len(visitors)
        self.new_decisions[state] += len(visitors)

    def _roles(
        self,
        state: ExperimentState,
        new: dict[bytes, tuple[str, int]],
    ) -> dict[bytes, int]:
        """Return each new visitor's role, which selects the row to draw from, whatever the segment."""
        if state.closed:
            return dict.fromkeys(new, int(Role.CLOSED))
        if state.takes_everybody:
            roles = dict.fromkeys(new, int(Role.MEMBER))
        else:
            roles = {visitor: int(state.role(name)) for visitor, (name, _) in new.items()}
        if state.has_tombstones:
            stones = {tombstone(self._key, visitor): visitor for visitor in new}
            for stone in self._tx.erased(state.id, list(stones)):
                roles[stones[stone]] = int(Role.ERASED)
        return roles

    def _answered(self, state: ExperimentState) -> None:
        """Record, once an hour, that the experiment answered: it counts until a window after that."""
        hour = self._now // HOUR
        if state.at_risk and state.answered_hour < hour:
            self._tx.answered(state.id, self._identity.writer, hour)
            self._touched = True
        if state.mask is not None:
            self._mask_answered(state.mask)

    def _mask_answered(self, mask: MaskState) -> None:
        hour = self._now // HOUR
        if mask.answered_hour < hour:
            self._tx.answered(mask.id, self._identity.writer, hour)
            self._touched = True

    def _count(
        self,
        cell: tuple[ExperimentState, int, int, int, int, int],
        shows: int,
        rewarded: int,
        value: int,
        square: int,
    ) -> None:
        sums = self._counts.setdefault(cell, [0, 0, 0, 0])
        sums[0] += shows
        sums[1] += rewarded
        sums[2] += value
        sums[3] += square

    def _padded_counts(self, writer: int) -> Iterator[Count]:
        """Yield the counter updates, padded with zeros.

        Their number depends on the number of visitors and rewards, not on segments or arms.
        """
        for (state, table, role, segment, arm, metric), sums in self._counts.items():
            yield Count(state.id, table, role, segment, arm, metric, writer, *sums)
        for state, events in self._events.items():
            mine = sum(cell[0] is state for cell in self._counts)
            most = (len(state.rows) + 1) * len(state.arm_keys)
            others = (
                Count(state.id, state.table_number, Role.MEMBER, segment, arm, 0, writer, *_NOTHING)
                for segment in range(UNKNOWN_SEGMENT, len(state.rows))
                for arm in range(len(state.arm_keys))
                if (state, state.table_number, Role.MEMBER, segment, arm, 0) not in self._counts
            )
            yield from islice(others, max(0, min(events, most) - mine))


def _contexts(state: ExperimentState, jobs: Sequence[DecideJob]) -> list[int]:
    """Return the position of each visitor's context; 0 where it is missing or not listed."""
    places: list[int] = []
    for job in jobs:
        if job.contexts is None or len(state.contexts) < 2:
            places += [0] * job.size
        else:
            places += [state.contexts.get(context, 0) for context in job.contexts]
    return places


def randomness(visitors: int) -> bytes:
    """Return what so many decisions need, from the operating system."""
    return system_bytes(MARK_BYTES + ENTROPY.size * visitors)


def drawn(
    state: ExperimentState,
    visitors: Sequence[tuple[bytes, int, int]],
    random: bytes,
    now: int,
    writer: int,
    chain: Chain,
) -> NewDecisions:
    """Draw new decisions from the table in force and chain them in order.

    Args:
        state: the experiment.
        visitors: visitor hashes with the index of the row and the role.
        random: of `randomness`.
        now: the time of the batch.
        writer: the writer that owns the chain.
        chain: the current end of the chain.
    """
    rows: list[NewDecision] = []
    experiment, version, table = state.id, state.version, state.table_number
    neutral, unlisted = state.neutral, state.unlisted
    assert neutral is not None
    assert unlisted is not None
    # The last entry is for unlisted segments, whose index is -1.
    by_role = [[neutral] * (len(state.rows) + 1) for _ in Role]
    by_role[Role.MEMBER] = [*state.rows, unlisted]
    seq, head = chain
    beginning = experiment[:4] + random[:MARK_BYTES]
    for (visitor, segment, role), (point, ending, salt) in zip(
        visitors, ENTROPY.iter_unpack(random[MARK_BYTES:]), strict=True
    ):
        shown = draw(by_role[role][segment], point)
        identity = beginning + ending
        seq += 1
        salted = salted_hash(visitor, salt, segment, shown)
        head = decision_hash(
            head, experiment, identity, version, table, role, now, writer, seq, salted
        )
        rows.append(NewDecision(identity, visitor, salt, segment, shown, role, seq, head))
    return NewDecisions(experiment, version, table, now, writer, rows)


def checked_ids(
    state: ExperimentState, jobs: Sequence[DecideJob]
) -> tuple[Sequence[DecideJob], dict[Job, DeniableError]]:
    """Return the jobs with ids that the experiment takes, and why the others are refused.

    On a mask, ids are compared as they are, as in every other engine that computes its labels.
    """
    if state.mask is None:
        return jobs, {}
    refused: dict[Job, DeniableError] = {}
    for job in jobs:
        try:
            for visitor in job.visitors:
                visitor_bytes(visitor)
        except InvalidArgumentError as error:
            refused[job] = error
    return [job for job in jobs if job not in refused], refused


def checked_rewards(
    states: Sequence[ExperimentState], rewarding: dict[bytes, list[RewardJob]]
) -> tuple[dict[bytes, dict[tuple[bytes, int], int]], dict[Job, DeniableError]]:
    """Return the first reward per decision and metric by tag, and the invalid jobs.

    A job with one invalid reward is rejected as a whole.
    """
    refused: dict[Job, DeniableError] = {}
    for state in states:
        for job in rewarding.get(state.id[:4], ()):
            error = _refusal(state, job)
            if error is not None:
                refused.setdefault(job, error)
    wanted: dict[bytes, dict[tuple[bytes, int], int]] = {}
    for state in states:
        tag = state.id[:4]
        for job in rewarding.get(tag, ()):
            if job not in refused:
                for decision, metric, value in job.rewards:
                    if decision[:4] == tag:
                        place = (decision, state.metric_positions[metric])
                        wanted.setdefault(tag, {}).setdefault(place, value)
    return wanted, refused


def _refusal(state: ExperimentState, job: RewardJob) -> InvalidArgumentError | None:
    for decision, metric, value in job.rewards:
        if decision[:4] != state.id[:4]:
            continue
        position = state.metric_positions.get(metric)
        if position is None:
            names = ", ".join(known.name for known in state.metrics)
            return InvalidArgumentError("metric", metric, f"one of {names}")
        if value > state.metrics[position].cap_micro:
            cap = state.metrics[position].cap
            return InvalidArgumentError("value", value / MICRO, f"0 to {cap:g}")
    return None


def outcomes_of(
    job: RewardJob, states: Sequence[ExperimentState], told: dict[tuple[bytes, int], str]
) -> dict[str, int]:
    """Count the outcomes of a job's rewards."""
    positions = {state.id[:4]: state.metric_positions for state in states}
    counted: Counter[str] = Counter()
    left = dict(told)
    for decision, metric, _ in job.rewards:
        known = positions.get(decision[:4])
        if known is None:
            counted["unknown"] += 1
        else:  # a repeated reward of the same decision and metric
            place = (decision, known[metric])
            outcome = left.get(place, "unknown")
            counted[outcome] += 1
            if outcome == "applied":
                left[place] = "duplicate"
    return dict(counted)
