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
    clock: int


SHARED_COLUMNS = ("experiment_id", "version", "decided_at", "writer_id")
OWN_COLUMNS = (
    "id",
    "visitor",
    "salt",
    "segment",
    "greedy",
    "shown",
    "clock",
    "risk_nano",
    "seq",
    "hash",
)

NewDecision: TypeAlias = tuple[bytes, bytes, bytes, int, int, int, int, int, int, bytes]
"""One new row of `decisions`: its OWN_COLUMNS; a plain tuple, for speed."""


class NewDecisions(NamedTuple):
    """New rows of `decisions` of one experiment and batch: their SHARED_COLUMNS, then the rows."""

    experiment: bytes
    version: int
    decided_at: int
    writer: int
    rows: list[NewDecision]


class Shown(NamedTuple):
    """What a reward needs to know of its decision."""

    segment: int
    arm: int
    decided_at: int


Chain: TypeAlias = tuple[int, bytes]
"""The end of a writer's chain of decisions: its length and its newest hash."""


class HotTransaction(Protocol):
    """A writer's transaction; every method is one bulk statement (or few, for long batches)."""

    def heads(self, experiments: Sequence[bytes]) -> dict[bytes, Head]:
        """Revision and shared clock of these experiments, held still until the commit."""

    def stored(
        self, experiment: bytes, visitors: Sequence[bytes]
    ) -> dict[bytes, tuple[bytes, int]]:
        """Visitor -> (decision id, shown arm) of those who have one."""

    def add_decisions(self, new: NewDecisions) -> int:
        """Insert; returns how many were new. Fewer than given: another writer was first."""

    def shown(self, experiment: bytes, decisions: Sequence[bytes]) -> dict[bytes, Shown]:
        """Decision id -> what it showed, of those that exist and are not erased."""

    def add_rewards(self, rows: Sequence[tuple[bytes, bytes, int, int]]) -> set[bytes]:
        """Insert (experiment, decision, value, time); returns the decisions not rewarded before."""

    def save_counters(self, rows: Sequence[tuple[bytes, int, int, int, int, int]]) -> None:
        """Set (experiment, segment, arm, writer) to (shows, clicks): this writer's own totals."""

    def members(self, group: str, visitors: Sequence[bytes]) -> dict[bytes, bytes]:
        """Visitor -> the experiment of this group that the visitor belongs to."""

    def add_members(self, rows: Sequence[tuple[str, bytes, bytes]]) -> int:
        """Insert (group, visitor, experiment); returns how many were new."""

    def set_clock(self, experiment: bytes, clock: int) -> None:
        """Move the shared clock forward, never back."""

    def extend(self, writer: int, owner: bytes, chain: Chain, lease_until: int) -> bool:
        """Store the end of the writer's chain; False: somebody else owns this writer now."""

    def counts(self, experiment: bytes) -> list[tuple[int, int, int, int, int]]:
        """All counters of one experiment: segment, arm, writer, shows, clicks."""

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

    def retried(self, work: Callable[[Connection], T]) -> T:
        """`work` in `begin()`, again where the database asks for it (serialization, lost connection)."""

    def close(self) -> None:
        """Give back every connection."""
