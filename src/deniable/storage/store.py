"""The `Store` protocol: what the use-cases need from a database, and nothing about which one it is.

Two halves. `hot()` is one short transaction of the writer, in which a whole batch of decisions and
rewards is looked up, drawn and stored with a handful of bulk statements. `begin()` is a SQLAlchemy
connection in one write transaction, for administration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from sqlalchemy import Connection

T = TypeVar("T")


class TryAgain(Exception):
    """The transaction was rolled back and may succeed when run again: a lost race or connection."""


class Head(NamedTuple):
    """What a writer checks of an experiment in every batch."""

    revision: int
    table_number: int


class NewDecision(NamedTuple):
    """A new row of `decisions`: what differs within a batch."""

    id: bytes
    visitor: bytes
    salt: bytes
    segment: int
    shown: int
    role: int
    seq: int
    hash: bytes


class NewDecisions(NamedTuple):
    """New rows of `decisions` of one experiment and batch: what they share, then the rows."""

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
    older: bool  # from before migration 0004


class Shown(NamedTuple):
    """What a reward needs to know of its decision."""

    salt: bytes
    segment: int
    shown: int
    decided_at: int
    table_number: int
    role: int


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
    """What a batch adds to one row of `counters`; the first seven are its key."""

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


Chain: TypeAlias = tuple[int, bytes]
"""The end of a writer's chain: its length and its newest hash."""


class HotTransaction(Protocol):
    """A writer's transaction; every method is one bulk statement (or few, for long batches)."""

    def heads(self, experiments: Sequence[bytes]) -> dict[bytes, Head]:
        """Revision and table in force of these experiments, held still until the commit."""

    def stored(self, experiment: bytes, visitors: Sequence[bytes]) -> dict[bytes, Stored]:
        """Visitor -> decision of those who have one."""

    def erased(self, experiment: bytes, tombstones: Sequence[bytes]) -> set[bytes]:
        """Those of these tombstones that exist."""

    def members(self, group: str, visitors: Sequence[bytes]) -> dict[bytes, bytes]:
        """Visitor -> the experiment that took the visitor in before groups became layers."""

    def add_decisions(self, new: NewDecisions) -> int:
        """Insert; returns how many were new. Fewer than given: another writer was first."""

    def shown(self, experiment: bytes, decisions: Sequence[bytes]) -> dict[bytes, Shown]:
        """Decision id -> what it showed, of those that exist and are not erased."""

    def rewarded(self, experiment: bytes, decisions: Sequence[bytes]) -> set[tuple[bytes, int]]:
        """The (decision, metric) pairs of these decisions that have a reward."""

    def add_rewards(self, rows: Sequence[NewReward]) -> int:
        """Insert; returns how many were new. Fewer than given: another writer was first."""

    def answered(self, experiment: bytes, writer: int, hour: int) -> None:
        """Remember that the experiment was answered from in this hour."""

    def extend(
        self, writer: int, owner: bytes, chain: Chain, lease_until: int, counts: Sequence[Count]
    ) -> bool:
        """Store the end of the writer's chain, and add to its counters.

        False: somebody else owns this writer now; the transaction is to be undone.
        """

    def chain(self, writer: int, owner: bytes) -> Chain | None:
        """The end of the writer's chain; None: somebody else owns this writer now."""


class Store(Protocol):
    """One database."""

    durable: bool
    """Whether a commit survives the process; what does not is written by the caller's own thread."""

    @property
    def url(self) -> str:
        """Where it is, without a password."""

    def hot(self) -> AbstractContextManager[HotTransaction]:
        """The writer's transaction: committed durably on leaving, rolled back on an exception.

        Only one thread may be inside. Raises StoreUnavailableError after retries.
        """

    def begin(self) -> AbstractContextManager[Connection]:
        """A write transaction for administration, from any thread."""

    def read(self) -> AbstractContextManager[Connection]:
        """A read-only look at one consistent state, from any thread."""

    def retried(self, work: Callable[[Connection], T], *, lasting: bool = True) -> T:
        """`work` in `begin()`, again where the database asks for it (serialization, lost connection).

        Args:
            work: given the connection.
            lasting: whether to return only once it is on the disk. What is not lasting is there before
                anything lasting that is committed after it; only the loss of power can undo it.
        """

    def close(self) -> None:
        """Give back every connection."""
