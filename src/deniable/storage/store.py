"""The `Store` protocol: what the service needs from a database, independent of which one it is.

It has two halves. `hot()` is a short transaction of the writer, in which a whole batch of decisions
and rewards is looked up, drawn and stored with a few bulk statements. `begin()` is a SQLAlchemy
connection in a write transaction, for administration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from sqlalchemy import Connection

T = TypeVar("T")


class TryAgain(Exception):
    """The transaction was rolled back but may succeed if retried: a lost race or connection."""


class Head(NamedTuple):
    """What a writer checks about an experiment in every batch."""

    revision: int
    table_number: int


class NewDecision(NamedTuple):
    """A new row of `decisions`: the values that differ within a batch."""

    id: bytes
    visitor: bytes
    salt: bytes
    segment: int
    shown: int
    role: int
    seq: int
    hash: bytes


class NewDecisions(NamedTuple):
    """New rows of `decisions` of one experiment and batch: common values, then the rows."""

    experiment_id: bytes
    version: int
    table_number: int
    decided_at: int
    writer_id: int
    rows: Sequence[NewDecision]


SHARED_COLUMNS = NewDecisions._fields[:-1]
OWN_COLUMNS = NewDecision._fields


class Stored(NamedTuple):
    """A visitor's decision."""

    id: bytes
    shown: int


class Shown(NamedTuple):
    """What a reward needs to know about its decision."""

    salt: bytes
    segment: int
    shown: int
    decided_at: int
    table_number: int
    role: int


class FirstLabel(NamedTuple):
    """A visitor's first label.

    Attributes:
        label: its number; None once the visitor is erased.
        known: 1 if it was drawn for a known segment, else 0.
    """

    label: int | None
    known: int


class NewLabel(NamedTuple):
    """A new row of `mask_labels`."""

    mask_id: bytes
    visitor: bytes
    label: int
    known: int


class NewReward(NamedTuple):
    """A new row of `rewards`."""

    experiment_id: bytes
    decision_id: bytes
    metric: int
    value: int
    rewarded_at: int
    writer_id: int
    seq: int
    hash: bytes


class Count(NamedTuple):
    """An increment of one row of `counters`; the first seven values are its key."""

    experiment_id: bytes
    table_number: int
    role: int
    segment: int
    arm: int
    metric: int
    writer_id: int
    shows: int
    rewarded: int
    value: int
    square: int


PUT_LABELS = (
    "ON CONFLICT (mask_id, visitor) DO UPDATE SET label = excluded.label, known = excluded.known "
    "WHERE mask_labels.known = 0 AND excluded.known = 1 AND mask_labels.label IS NOT NULL"
)
"""How `put_labels` ends: only the label of an unknown segment is replaced, by that of a known one."""

Chain: TypeAlias = tuple[int, bytes]
"""The end of a writer's chain: its length and its newest hash."""


class HotTransaction(Protocol):
    """A writer's transaction. Every method is one bulk statement (or a few, for long batches)."""

    def heads(self, experiments: Sequence[bytes]) -> dict[bytes, Head]:
        """Return revision and table in force of these experiments, locked until the commit."""

    def stored(self, experiment: bytes, visitors: Sequence[bytes]) -> dict[bytes, Stored]:
        """Return visitor -> decision, for those who have one."""

    def erased(self, experiment: bytes, tombstones: Sequence[bytes]) -> set[bytes]:
        """Return those of these tombstones that exist."""

    def labels(self, mask: bytes, visitors: Sequence[bytes]) -> dict[bytes, FirstLabel]:
        """Return visitor -> first label, for those who have one."""

    def put_labels(self, rows: Sequence[NewLabel]) -> int:
        """Insert labels, or replace those of unknown segments; return how many it did.

        If fewer than given, another writer was first.
        """

    def add_decisions(self, new: NewDecisions) -> int:
        """Insert rows; return how many were new. If fewer than given, another writer was first."""

    def shown(self, experiment: bytes, decisions: Sequence[bytes]) -> dict[bytes, Shown]:
        """Return decision id -> what was shown, for those that exist and are not erased."""

    def rewarded(self, experiment: bytes, decisions: Sequence[bytes]) -> set[tuple[bytes, int]]:
        """Return the (decision, metric) pairs of these decisions that have a reward."""

    def add_rewards(self, rows: Sequence[NewReward]) -> int:
        """Insert rows; return how many were new. If fewer than given, another writer was first."""

    def answered(self, experiment: bytes, writer: int, hour: int) -> None:
        """Record that the experiment answered in this hour."""

    def extend(
        self,
        writer: int,
        owner: bytes,
        before: bytes,
        chain: Chain,
        lease_until: int,
        counts: Sequence[Count],
    ) -> bool:
        """Store the end of the writer's chain after the hash `before`, and add to its counters.

        Returns False if the chain does not end there, or another process owns it now; the transaction
        must then be rolled back.
        """

    def chain(self, writer: int, owner: bytes) -> Chain | None:
        """Return the end of the writer's chain; None if another process owns this writer now."""


class Store(Protocol):
    """One database."""

    durable: bool
    """Whether a commit survives the process. If not, the caller's own thread writes."""

    @property
    def url(self) -> str:
        """The URL without the password."""

    def hot(self) -> AbstractContextManager[HotTransaction]:
        """The writer's transaction: committed durably on exit, rolled back on an exception.

        Only one thread may use it at a time. Raises StoreUnavailableError after retries.
        """

    def begin(self) -> AbstractContextManager[Connection]:
        """A write transaction for administration, from any thread."""

    def read(self) -> AbstractContextManager[Connection]:
        """A read-only view of one consistent state, from any thread."""

    def retried(self, work: Callable[[Connection], T], *, lasting: bool = True) -> T:
        """`work` in `begin()`, again where the database asks for it (serialization, lost connection).

        Args:
            work: given the connection.
            lasting: whether to return only once it is on the disk. What is not lasting is there before
                anything lasting that is committed after it; only the loss of power can undo it.
        """

    def shrink(self) -> None:
        """Give freed space back to the disk, where that does not need the database's administrator."""

    def free_bytes(self) -> int | None:
        """Return the free space of the store's disk; None if that is unknown."""

    def close(self) -> None:
        """Close all connections."""
