"""A store that keeps nothing after the process: for trying out, simulations and unit tests.

The writer finds decisions, rewards and counters in dictionaries. Whoever looks on or administers sees
them in a SQLite database in memory, into which what is new is written just before.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import StaticPool

from deniable.storage.sqlite_hot import SqliteTransaction
from deniable.storage.store import Chain, Head, NewDecisions, Shown

T = TypeVar("T")


class MemoryStore:
    """Implements `Store` without a disk."""

    durable = False

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._raw = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._engine = create_engine("sqlite://", creator=lambda: self._raw, poolclass=StaticPool)
        event.listen(self._engine, "begin", lambda c: c.exec_driver_sql("BEGIN"))
        self._transaction = MemoryTransaction(self._raw, self._lock)

    @property
    def url(self) -> str:
        """Nowhere."""
        return "memory:"

    @property
    def engine(self) -> Engine:
        """For migrations."""
        return self._engine

    def hot(self) -> MemoryTransaction:
        """See Store."""
        return self._transaction

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """See Store."""
        with self.read() as connection:
            yield connection
            self._transaction.stale = True

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """See Store."""
        with self._lock:
            self._transaction.write_behind()
            with self._engine.begin() as connection:
                yield connection

    def retried(self, work: Callable[[Connection], T]) -> T:
        """See Store."""
        with self.begin() as connection:
            return work(connection)

    def close(self) -> None:
        """See Store."""
        self._engine.dispose()
        self._raw.close()


class MemoryTransaction:
    """Implements `HotTransaction` on dictionaries, in front of SQLite in memory."""

    def __init__(self, connection: sqlite3.Connection, lock: threading.RLock) -> None:
        self._connection = connection
        self._behind = SqliteTransaction(connection)
        self.lock = lock
        self.stale = True
        self._heads: dict[bytes, Head] = {}
        self._stored: dict[bytes, dict[bytes, tuple[bytes, int]]] = defaultdict(dict)
        self._shown: dict[bytes, dict[bytes, tuple[int, int, int]]] = defaultdict(dict)
        self._rewarded: set[bytes] = set()
        self._counters: dict[tuple[bytes, int, int, int], tuple[int, int]] = {}
        self._members: dict[str, dict[bytes, bytes]] = {}
        self._new_decisions: list[NewDecisions] = []
        self._new_rewards: list[tuple[bytes, bytes, int, int]] = []
        self._new_members: list[tuple[str, bytes, bytes]] = []
        self._new_end: tuple[int, bytes, Chain, int] | None = None
        self._before = (0, 0)

    def __enter__(self) -> Self:
        self.lock.acquire()
        if self.stale:
            self._reread()
        self._before = (len(self._new_decisions), len(self._new_rewards))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            # Counters, members and the end of the chain come last, when nothing can fail any more.
            decisions, rewards = self._before
            del self._new_decisions[decisions:], self._new_rewards[rewards:]
            self.stale = True
        self.lock.release()

    def heads(self, experiments: Sequence[bytes]) -> dict[bytes, Head]:
        """See HotTransaction."""
        return {i: self._heads[i] for i in experiments if i in self._heads}

    def stored(
        self, experiment: bytes, visitors: Sequence[bytes]
    ) -> dict[bytes, tuple[bytes, int]]:
        """See HotTransaction."""
        known = self._stored[experiment]
        return {visitor: known[visitor] for visitor in visitors if visitor in known}

    def known(self, experiment: bytes, visitor: bytes) -> tuple[bytes, int] | None:
        """Decision id and shown arm of one visitor who has one."""
        return self._stored[experiment].get(visitor)

    def add_decisions(self, new: NewDecisions) -> int:
        """See HotTransaction."""
        experiment, _version, decided_at, _writer, rows = new
        self._new_decisions.append(new)
        stored, shown = self._stored[experiment], self._shown[experiment]
        for identity, visitor, _salt, segment, _greedy, arm, _clock, _risk, _seq, _hash in rows:
            stored[visitor] = (identity, arm)
            shown[identity] = (segment, arm, decided_at)
        return len(rows)

    def shown(self, experiment: bytes, decisions: Sequence[bytes]) -> dict[bytes, Shown]:
        """See HotTransaction."""
        known = self._shown[experiment]
        return {decision: Shown(*known[decision]) for decision in decisions if decision in known}

    def add_rewards(self, rows: Sequence[tuple[bytes, bytes, int, int]]) -> set[bytes]:
        """See HotTransaction."""
        fresh = [row for row in rows if row[1] not in self._rewarded]
        self._new_rewards += fresh
        added = {row[1] for row in fresh}
        self._rewarded |= added
        return added

    def save_counters(self, rows: Sequence[tuple[bytes, int, int, int, int, int]]) -> None:
        """See HotTransaction."""
        for experiment, segment, arm, writer, shows, clicks in rows:
            self._counters[experiment, segment, arm, writer] = (shows, clicks)

    def members(self, group: str, visitors: Sequence[bytes]) -> dict[bytes, bytes]:
        """See HotTransaction."""
        known = self._members.get(group, {})
        return {visitor: known[visitor] for visitor in visitors if visitor in known}

    def add_members(self, rows: Sequence[tuple[str, bytes, bytes]]) -> int:
        """See HotTransaction."""
        self._new_members += rows
        for group, visitor, experiment in rows:
            self._members.setdefault(group, {})[visitor] = experiment
        return len(rows)

    def set_clock(self, experiment: bytes, clock: int) -> None:
        """See HotTransaction."""
        self._behind.set_clock(experiment, clock)
        self._heads[experiment] = self._heads[experiment]._replace(clock=clock)

    def extend(self, writer: int, owner: bytes, chain: Chain, lease_until: int) -> bool:
        """See HotTransaction."""
        self._new_end = (writer, owner, chain, lease_until)
        return True

    def counts(self, experiment: bytes) -> list[tuple[int, int, int, int, int]]:
        """See HotTransaction."""
        return [
            (segment, arm, writer, shows, clicks)
            for (identity, segment, arm, writer), (shows, clicks) in self._counters.items()
            if identity == experiment
        ]

    def chain(self, writer: int, owner: bytes) -> Chain | None:
        """See HotTransaction."""
        self.write_behind()
        return self._behind.chain(writer, owner)

    def write_behind(self) -> None:
        """Write everything new to SQLite."""
        if self._new_end is None:
            return
        self._connection.execute("BEGIN")
        self._behind.add_members(self._new_members)
        for new in self._new_decisions:
            self._behind.add_decisions(new)
        self._behind.add_rewards(self._new_rewards)
        self._behind.save_counters([(*key, *value) for key, value in self._counters.items()])
        self._behind.extend(*self._new_end)
        self._connection.execute("COMMIT")
        for written in (self._new_members, self._new_decisions, self._new_rewards):
            written.clear()
        self._new_end = None

    def _reread(self) -> None:
        """Somebody administered, or a batch failed: take everything from SQLite again."""
        self.write_behind()
        execute = self._connection.execute
        heads = "SELECT id, revision, clock FROM experiments JOIN clocks ON experiment_id = id"
        self._heads = {row[0]: Head(row[1], row[2]) for row in execute(heads)}
        self._stored.clear()
        self._shown.clear()
        self._members.clear()
        for experiment, identity, visitor, segment, arm, decided_at in execute(
            "SELECT experiment_id, id, visitor, segment, shown, decided_at FROM decisions "
            "WHERE salt IS NOT NULL"
        ):
            self._stored[experiment][visitor] = (identity, arm)
            self._shown[experiment][identity] = (segment, arm, decided_at)
        for group, visitor, experiment in execute("SELECT * FROM memberships"):
            self._members.setdefault(group, {})[visitor] = experiment
        self._rewarded = {row[0] for row in execute("SELECT decision_id FROM rewards")}
        self.stale = False
