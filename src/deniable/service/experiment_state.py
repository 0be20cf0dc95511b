"""The writer's view of experiments: the table in force, and which row each visitor is drawn from.

A state is read once and replaced when the experiment's revision or table changes. Every batch
checks both inside its transaction, so changes by another process (pause, stop, publish) apply from
the next decision on, and all processes draw from the same table.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from sqlalchemy import Connection

from deniable.errors import BrokenPromiseError, EntropyError
from deniable.masks.mask import Mask, key_fingerprint
from deniable.privacy.tables import Row, Table, draw, thresholds
from deniable.service.ids import (
    DecisionIds,
    VisitorHash,
    holdout_scope,
    layer_scope,
    visitor_scopes,
)
from deniable.storage import commitments, experiments, masks, promises
from deniable.storage.masks import StoredMask
from deniable.storage.records import SLOTS, UNKNOWN_SEGMENT, Decision, Experiment, Role
from deniable.storage.store import HotTransaction, Store

_serial = count()


def system_bytes(count: int) -> bytes:
    """Return `count` bytes from `os.urandom`, or raise EntropyError."""
    try:
        return os.urandom(count)
    except (OSError, NotImplementedError) as error:
        raise EntropyError("the operating system returned no random bytes") from error


def no_key() -> None:
    """Stand for the key of the firm's masks where no label is drawn."""


class OutOfDate(Exception):
    """States must be reread before the batch can run."""

    def __init__(self, ids: list[bytes]) -> None:
        super().__init__("an experiment changed")
        self.ids = ids


class MaskState:
    """A mask, with everything needed to label its next visitor.

    Args:
        stored: what the chain says about it.
        mask: the same with its key; None if this process does not have it.
        key: key for visitor HMACs.
    """

    def __init__(self, stored: StoredMask, mask: Mask | None, key: bytes) -> None:
        self.stored = stored
        self.id = stored.id
        self.name = stored.name
        self.ended = stored.ended_at is not None
        self.mask = mask
        self.labels = stored.labels
        self.numbers: dict[str | None, int] = {name: i for i, name in enumerate(self.labels)}
        self.visitor_hash = VisitorHash(key, stored.id)
        self.answered_hour = -1  # the last hour that this process recorded

    def first(self, visitor: str, segment: str | None) -> tuple[int, int]:
        """Return the number of a label, and 1 if it was drawn for a known segment, else 0.

        A label that was made elsewhere is kept. A segment that is not listed is not known.
        """
        assert self.mask is not None
        if segment in self.numbers:
            return self.numbers[segment], 1
        group = self.mask.group_or_null(segment)
        label = self.numbers[self.mask.label_of_group(visitor, group)]
        return label, int(group < len(self.labels))

    def null(self, visitor: str) -> int:
        """Return the number of a label from equal chances, which depends on no segment."""
        return self.first(visitor, None)[0]


class ExperimentState:
    """One experiment, with everything needed to draw for its next visitor.

    Args:
        experiment: the stored experiment.
        table: the table in force; None before the first.
        neutral: the neutral row; None before the start.
        key: key for visitor HMACs.
        mask: the mask whose labels its rows are, or None.
        differences: where the stored row disagrees with the chain; if anywhere, nothing is served.
        chained_at: the time of the chain's newest entry, which no decision may come before.
    """

    def __init__(
        self,
        experiment: Experiment,
        table: Table | None,
        neutral: Row | None,
        key: bytes,
        *,
        mask: MaskState | None = None,
        differences: list[str],
        chained_at: int = 0,
    ) -> None:
        self.id = bytes.fromhex(experiment.id)
        self.key = experiment.key
        self.revision = experiment.revision
        self.version = experiment.version
        self.table_number = experiment.table_number
        self.differences = differences
        self.chained_at = chained_at
        self.serves_draws = experiment.status in ("running", "paused")
        self.closed = experiment.status != "running"
        self.at_risk = experiment.budget_nano > 0
        self.mask = mask
        self.lacks_key = mask is not None and mask.mask is None
        self.sticky = experiment.sticky
        self.has_tombstones = experiment.has_tombstones
        self.holdout = experiment.holdout
        self.attribution = (
            None
            if experiment.attribution_seconds is None
            else experiment.attribution_seconds * 1_000_000
        )
        self.metrics = experiment.metrics
        self.metric_positions: dict[str | None, int] = {
            metric.name: position for position, metric in enumerate(experiment.metrics)
        }
        self.metric_positions[None] = 0
        self.arm_keys = tuple(arm.key for arm in experiment.arms)
        self.longest_arm = max(map(len, self.arm_keys))
        self.segments: dict[str | None, int] = {
            name: position for position, name in enumerate(experiment.segments)
        }
        self.contexts: dict[str | None, int] = {
            name: position for position, name in enumerate(experiment.contexts)
        }
        self.observed = experiment.observed
        self.fixed_arm = experiment.winner or experiment.default_arm
        self.visitor_hashes = [
            VisitorHash(key, scope) for scope in visitor_scopes(self.id, experiment.contexts)
        ]
        self.ids = DecisionIds(key, self.id)
        self._holdout_hash = VisitorHash(key, holdout_scope(self.id))
        self._layer_hash = (
            None if experiment.layer is None else VisitorHash(key, layer_scope(experiment.layer))
        )
        self._slots = int.from_bytes(experiment.slots or b"", "little")
        self.takes_everybody = self._layer_hash is None and not self.holdout
        self.neutral = None if neutral is None else thresholds(neutral)
        self.unlisted: list[int] | None = None
        self.rows: list[list[int]] = []
        self.answered_hour = -1  # the last hour that this process recorded
        self.new_decisions = 0  # since this table came into force
        self.look_after = 0  # number of new decisions before the publisher looks again
        if table is not None:
            self.unlisted = thresholds(table.unlisted)
            self.rows = [thresholds(row) for row in table.rows]

    def row(self, context: int, segment: str | None) -> int:
        """Return the index of a visitor's row: context x segments + segment."""
        if not self.segments:
            return context
        place = self.segments.get(segment, UNKNOWN_SEGMENT)
        return place if place < 0 else context * len(self.segments) + place

    def take_over(self, before: ExperimentState) -> None:
        """Carry over the counters of the previous state."""
        if before.version == self.version:
            # The publisher counts from the table that is in force now.
            self.look_after = max(0, before.look_after - before.new_decisions)

    def role(self, visitor: str) -> Role:
        """Return a new visitor's role, which selects the row. It depends on keyed hashes only."""
        if self._layer_hash is not None:
            slot = int.from_bytes(self._layer_hash(visitor)[:8], "big") % SLOTS
            if not self._slots >> slot & 1:
                return Role.OTHER_SLOT
        if self.holdout:
            place = int.from_bytes(self._holdout_hash(visitor)[:8], "big") % 1000
            if place < self.holdout:
                return Role.HOLDOUT
        return Role.MEMBER

    def unstored(self, key: bytes) -> Decision:
        """Return an answer that is not stored: an arm from the neutral row.

        This costs no privacy, because the neutral row depends on no data. We draw the visitor's
        lasting arm once the store is back. Without entropy, or if nothing is drawn, the answer is
        `fixed_arm`.
        """
        try:
            random = system_bytes(24)
        except EntropyError:
            serial = next(_serial).to_bytes(8, "big")
            random = hmac.digest(key, b"unstored" + serial, "sha256")
            return Decision(random[:16].hex(), self.fixed_arm)
        if not self.serves_draws or self.neutral is None:
            return Decision(random[8:].hex(), self.fixed_arm)
        arm = draw(self.neutral, int.from_bytes(random[:8], "little"))
        return Decision(random[8:].hex(), self.arm_keys[arm])


class ExperimentStates:
    """The states that a writer caches, by key and by the tag of their decision ids.

    Args:
        store: the store to read from.
        key: key for visitor HMACs.
        mask_key: returns the key of the firm's masks, if this process has it.

    Attributes:
        by_key: the cached states, current or not.
    """

    def __init__(
        self, store: Store, key: bytes, mask_key: Callable[[], bytes | None] = no_key
    ) -> None:
        self._store = store
        self._key = key
        self._mask_key = mask_key
        self.by_key: dict[str, ExperimentState] = {}
        self._by_tag: dict[bytes, ExperimentState] = {}
        self._masks: dict[bytes, MaskState] = {}

    def masks(self, names: Iterable[str]) -> dict[str, MaskState]:
        """Return the masks of these names, as they are now; those that do not exist are left out."""
        with self._store.read() as connection:
            return {
                stored.name: self._mask(stored)
                for stored in masks.everything_masked(connection)
                if stored.name in names
            }

    def labels_of(self, name: str) -> Sequence[str]:
        """Return all labels of a mask; none if it was never read."""
        found = [mask.labels for mask in [*self._masks.values()] if mask.name == name]
        return found[-1] if found else ()

    def _mask(self, stored: StoredMask) -> MaskState:
        known = self._masks.get(stored.id)
        ended = stored.ended_at is not None
        if known is None or known.mask is None or known.ended != ended:
            key = self._mask_key()
            mask = stored.with_key(key) if key and key_fingerprint(key) == stored.key else None
            known = self._masks[stored.id] = MaskState(stored, mask, self._key)
        return known

    def learn(self, keys: Iterable[str], tags: Iterable[bytes]) -> None:
        """Read the requested experiments that are not cached yet."""
        new_keys = [key for key in keys if key not in self.by_key]
        new_tags = [tag for tag in tags if tag not in self._by_tag]
        if new_keys or new_tags:
            numbers = [experiments.tag_of(tag) for tag in new_tags]
            with self._store.read() as connection:
                self._keep(connection, experiments.by_names(connection, new_keys, numbers))

    def reread(self, ids: list[bytes]) -> None:
        """Read these experiments again."""
        with self._store.read() as connection:
            self._keep(connection, experiments.by_ids(connection, ids))

    def current(
        self, transaction: HotTransaction, keys: Iterable[str], tags: Iterable[bytes]
    ) -> list[ExperimentState]:
        """Return the known ones of these states in order of their ids, locked for this transaction.

        Raises OutOfDate if any of them has changed since it was read.
        """
        wanted = {
            state.id: state
            for state in (
                *(self.by_key.get(key) for key in keys),
                *(self._by_tag.get(tag) for tag in tags),
            )
            if state is not None
        }
        heads = transaction.heads(sorted(wanted)) if wanted else {}
        stale = [
            identity
            for identity, head in heads.items()
            if head != (wanted[identity].revision, wanted[identity].table_number)
        ]
        if len(heads) != len(wanted):  # removed meanwhile: a discarded draft
            for state in (state for identity, state in wanted.items() if identity not in heads):
                del self.by_key[state.key], self._by_tag[state.id[:4]]
            raise OutOfDate(stale)
        if stale:
            raise OutOfDate(stale)
        return [wanted[identity] for identity in sorted(heads)]

    def _keep(self, connection: Connection, found: Iterable[Experiment]) -> None:
        for experiment in found:
            state = self._state(connection, experiment)
            before = self.by_key.get(state.key)
            if before is not None:
                state.take_over(before)
            self.by_key[state.key] = state
            self._by_tag[state.id[:4]] = state

    def _state(self, connection: Connection, experiment: Experiment) -> ExperimentState:
        differences, table, neutral = _checked(connection, experiment)
        mask = None
        if experiment.mask is not None and not differences:
            mask = self._mask(masks.named(connection, experiment.mask))
        return ExperimentState(
            experiment,
            table,
            neutral,
            self._key,
            mask=mask,
            differences=differences,
            chained_at=commitments.newest(connection),
        )


def _checked(
    connection: Connection, experiment: Experiment
) -> tuple[list[str], Table | None, Row | None]:
    """Return where the stored row or table differs from the chain, and the rows to draw from."""
    table: Table | None = None
    try:
        promise = promises.promise_of(connection, experiment)
        if promise.last_table is not None:
            table = promises.chained_table(connection, experiment, promise, promise.last_table)
            promises.check_table(promise, table)
    except BrokenPromiseError:
        return ["ledger entries"], None, None
    differences = promises.differences(experiment, promise)
    if differences:
        return differences, None, None
    return [], table, promise.neutral[-1] if promise.neutral else None
