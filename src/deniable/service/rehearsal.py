"""Rehearses decisions for an audit: the code that serves, on a transaction that is only in memory.

Some faults leave no trace in stored rows. Whoever makes a visitor's hash from the segment, too, stores
two visitors; draws with 16 random bits show nearly the same arms as draws with 64. So an audit
lets `batch` decide for made-up visitors, with the table in force, and looks at the result. Nothing is
stored. This tests the code of the auditing process: run the audit with the release that serves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice, product
from operator import attrgetter
from typing import cast

from deniable.audit.checks import Check
from deniable.audit.labels import expected_label
from deniable.audit.promise import AuditedTable, Promise
from deniable.privacy.exact import SPACE
from deniable.service import batch
from deniable.service.experiment_state import ExperimentState, ExperimentStates, MaskState
from deniable.service.ids import normalised
from deniable.service.jobs import DecideJob, LabelJob
from deniable.service.lease import Identity
from deniable.storage import times
from deniable.storage.chain import GENESIS
from deniable.storage.erasure import tombstone
from deniable.storage.records import Decision, Role
from deniable.storage.store import (
    FirstLabel,
    HotTransaction,
    NewDecision,
    NewDecisions,
    NewLabel,
    Store,
    Stored,
)

LABELLED = 200
"""Made-up visitors of each group. A channel 5% off gives one of them another label, but for a
chance below 1e-4 at the smallest budgets, and much less at larger ones."""

VISITORS = 16
"""Made-up visitors who come again, and who were erased. A second draw has another id, so that it is
noticed even where the arm is the same."""

ENTROPY_DRAWS = 256
"""So many points that every bit is 0 in one and 1 in another, but for a chance of 2^-249."""


class _Memory:
    """What `JobBatch.decide` needs of a transaction. Nothing leaves it."""

    def __init__(self, stones: Sequence[bytes] = ()) -> None:
        self.rows: dict[bytes, NewDecision] = {}
        self.first: dict[bytes, FirstLabel] = {}
        self._stones = set(stones)

    def labels(self, _mask: bytes, visitors: Sequence[bytes]) -> dict[bytes, FirstLabel]:
        return {visitor: self.first[visitor] for visitor in visitors if visitor in self.first}

    def put_labels(self, rows: Sequence[NewLabel]) -> int:
        self.first.update({row.visitor: FirstLabel(row.label, row.known) for row in rows})
        return len(rows)

    def stored(self, _experiment: bytes, visitors: Sequence[bytes]) -> dict[bytes, Stored]:
        known = {visitor: self.rows[visitor] for visitor in visitors if visitor in self.rows}
        return {visitor: Stored(row.id, row.shown) for visitor, row in known.items()}

    def erased(self, _experiment: bytes, tombstones: Sequence[bytes]) -> set[bytes]:
        return self._stones & set(tombstones)

    def add_decisions(self, new: NewDecisions) -> int:
        self.rows.update({row.visitor: row for row in new.rows})
        return len(new.rows)

    def answered(self, _experiment: bytes, _writer: int, _hour: int) -> None:
        """Nobody is answered."""


class Rehearsal:
    """The state from which an experiment's next visitors would be drawn.

    Args:
        store: read from, never written to.
        key: key for visitor HMACs.
        experiment: the experiment's key.
    """

    def __init__(self, store: Store, key: bytes, experiment: str) -> None:
        states = ExperimentStates(store, key)
        states.learn((experiment,), ())
        self._key = key
        self._state = states.by_key.get(experiment)
        self._mask_key = os.urandom(32)  # its labels are of made-up visitors
        if self._state is not None and self._state.mask is not None:
            stored = self._state.mask.stored
            self._state.mask = MaskState(stored, stored.drawn_by(self._mask_key), key)

    def checks(self, promise: Promise) -> Iterator[Check]:
        """Yield what the rehearsals show.

        Args:
            promise: the experiment's promise and tables, read after this object was made.
        """
        state = self._state
        tables = {table.number: table for table in promise.tables}
        if (
            state is None
            or not state.serves_draws
            or state.differences
            or state.table_number not in tables
        ):
            yield Check("rehearsed visits", "not tested", "The experiment draws for nobody.")
            return
        # This state is the rehearsal's own: all its visitors are members until it says otherwise.
        state.takes_everybody, state.closed, state.has_tombstones = True, False, True
        if state.mask is not None:
            problems = [*self._labels(state, state.mask)]
            yield Check(
                "rehearsed labels",
                "broken" if problems else "kept",
                " ".join(problems)
                or "Made-up visitors get the label that the chained channel gives to their first "
                "segment, keep it whatever is sent, and decisions hold nothing but the label.",
            )
        if state.sticky:
            problems = [*self._second_draws(state), *self._erased(state)]
            yield Check(
                "rehearsed visits",
                "broken" if problems else "kept",
                " ".join(problems)
                or "Made-up visitors keep their arm whatever the segment, and erased ones get the "
                "neutral row.",
            )
        problems = [*self._ranges(state, promise, tables[state.table_number]), *_entropy()]
        yield Check(
            "ranges of draws",
            "broken" if problems else "kept",
            " ".join(problems)
            or "Every arm is drawn from the first to the last of its points, out of 2^64, in every "
            "row of the table in force.",
        )

    def _second_draws(self, state: ExperimentState) -> Iterator[str]:
        memory, names = _Memory(), _names(VISITORS)
        segments = [*state.segments, f"unlisted {names[0]}", None]
        known: set[str] = set()
        for context in state.contexts or (None,):
            first = self._decide(state, memory, names, segments[0], context)
            for segment in segments[1:]:
                if self._decide(state, memory, names, segment, context) != first:
                    yield "Visitors who come again with another segment are drawn for again."
                    return
            ids = {decision.id for decision in first}
            if ids & known:
                yield "Visitors keep their arm when their context changes."
                return
            known |= ids

    def _labels(self, state: ExperimentState, mask: MaskState) -> Iterator[str]:
        """Label visitors of every group, then of every other one, then after an erasure."""
        groups = list(mask.stored.groups.values())
        names = _names(LABELLED)
        for number, members in enumerate(groups):
            memory = _Memory()
            self._decide(state, memory, names, members[0])
            expected = [
                expected_label(mask.stored.definition, self._mask_key, name, number)
                for name in names
            ]
            hashes = [mask.visitor_hash(name) for name in names]
            if [memory.first[visitor].label for visitor in hashes] != expected:
                yield "Labels are not those of the chained channel."
                return
            stored = [row.segment for row in sorted(memory.rows.values(), key=attrgetter("seq"))]
            if sorted(stored) != sorted(expected):
                yield "Decisions hold another number than the label's."
                return
            for others in (*groups, (None,)):
                memory.rows.clear()
                self._decide(state, memory, names, others[0])
                asked = LabelJob(mask.name, names, [others[0]] * len(names), lambda _job: None)
                work = self._work(memory)
                work.label(mask, [asked])
                told = [mask.labels.index(label) for label in work.labels[0][1]]
                kept = [memory.first[visitor].label for visitor in hashes]
                if not kept == told == expected:
                    yield "Another segment changes the label: a second value was evaluated."
                    return
            null = [
                expected_label(mask.stored.definition, self._mask_key, name, None) for name in names
            ]
            memory.first = {visitor: FirstLabel(None, 1) for visitor in hashes}
            memory.rows.clear()
            self._decide(state, memory, names, members[0])
            stored = [row.segment for row in memory.rows.values()]
            erased = all(first.label is None for first in memory.first.values())
            if not erased or sorted(stored) != sorted(null):
                yield "Erased visitors are labelled by their segment again."
                return

    def _erased(self, state: ExperimentState) -> Iterator[str]:
        names = _names(VISITORS)
        memory = _Memory(self._tombstones(state, names))
        self._decide(state, memory, names, next(iter(state.segments), None))
        if any(row.role != Role.ERASED for row in memory.rows.values()):
            yield "Visitors who were erased are drawn for at a risk."

    def _ranges(
        self, state: ExperimentState, promise: Promise, published: AuditedTable
    ) -> Iterator[str]:
        """Draw the first and the last point of every arm, in every row."""
        visits: list[tuple[str | None, str | None]] = [
            *product(state.contexts or (None,), state.segments or (None,))
        ]
        rows = list(published.table.rows)
        # Whose context or segment is not listed has the row `other`, or that of unlisted segments.
        # Behind a mask everybody has a label.
        if state.mask is None:
            visits.append((None, None))
            rows.append(rows[0] if state.contexts else published.table.unlisted)
        neutral = promise.neutral_row(state.version)
        if state.sticky:  # else nobody is known to be erased but to the mask
            visits.append(visits[0])
            rows.append(neutral)
        for (context, segment), row in zip(visits, rows, strict=True):
            ends = list(accumulate(row))
            arms = [arm for arm, entry in enumerate(row) if entry]
            points = [point for arm in arms for point in (ends[arm] - row[arm], ends[arm] - 1)]
            names = _names(len(points))
            memory = _Memory(self._tombstones(state, names) if row is neutral else ())
            self._decide(state, memory, names, segment, context, points)
            drawn = [made.shown for made in sorted(memory.rows.values(), key=attrgetter("seq"))]
            if drawn != [arm for arm in arms for _ in range(2)]:
                yield f"Draws do not follow table {published.number} point by point."
                return

    def _tombstones(self, state: ExperimentState, names: Sequence[str]) -> list[bytes]:
        hashed = state.visitor_hashes[0]
        return [tombstone(self._key, hashed(normalised(name))) for name in names]

    def _decide(
        self,
        state: ExperimentState,
        memory: _Memory,
        names: Sequence[str],
        segment: str | None,
        context: str | None = None,
        points: Sequence[int] | None = None,
    ) -> list[Decision]:
        """Decide for visitors of one row, with these points in the order of their draws."""
        left = None if points is None else iter(points)

        def chosen(visitors: int) -> bytes:
            assert left is not None
            return os.urandom(batch.MARK_BYTES) + b"".join(
                batch.ENTROPY.pack(point, os.urandom(8), os.urandom(16))
                for point in islice(left, visitors)
            )

        work = self._work(memory, None if left is None else chosen)
        places = ((segment,) * len(names), lambda _job: None, None, [context] * len(names))
        job = DecideJob(state.key, tuple(names), *places)
        work.decide(state, (job,))
        return work.answers[0][1]

    def _work(
        self, memory: _Memory, random: Callable[[int], bytes] | None = None
    ) -> batch.JobBatch:
        transaction = cast("HotTransaction", memory)
        return batch.JobBatch(
            transaction, Identity(0, bytes(16)), (0, GENESIS), times.now(), self._key, random
        )


def _entropy() -> Iterator[str]:
    """Look whether all 64 bits of points vary."""
    random = batch.randomness(ENTROPY_DRAWS)[batch.MARK_BYTES :]
    points = [point for point, _, _ in batch.ENTROPY.iter_unpack(random)]
    ever, always = 0, SPACE - 1
    for point in points:
        ever |= point
        always &= point
    if ever != SPACE - 1 or always:
        yield "Some of the 64 bits of draws never vary."


def _names(count: int) -> list[str]:
    return [f"rehearsal-{os.urandom(16).hex()}" for _ in range(count)]
