"""A store that keeps nothing after the process: SQLite in memory, through the same transactions."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import StaticPool

from deniable.storage.sqlite_hot import STATEMENTS, SqliteTransaction

T = TypeVar("T")


class MemoryStore:
    """Implements `Store` without a disk. One connection, one lock: transactions take turns."""

    durable = False

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._raw = sqlite3.connect(
            ":memory:",
            isolation_level=None,
            check_same_thread=False,
            cached_statements=STATEMENTS,
        )
        self._engine = create_engine("sqlite://", creator=lambda: self._raw, poolclass=StaticPool)
        event.listen(self._engine, "begin", lambda c: c.exec_driver_sql("BEGIN"))
        self._transaction = SqliteTransaction(self._raw)

    @property
    def url(self) -> str:
        """Nowhere."""
        return "memory:"

    @property
    def engine(self) -> Engine:
        """For migrations."""
        return self._engine

    @contextmanager
    def hot(self) -> Iterator[SqliteTransaction]:
        """See Store."""
        with self._lock:
            self._raw.execute("BEGIN")
            try:
                yield self._transaction
                self._raw.execute("COMMIT")
            except BaseException:
                self._raw.execute("ROLLBACK")
                raise

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """See Store."""
        with self._lock, self._engine.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """See Store."""
        with self.begin() as connection:
            yield connection

    def retried(self, work: Callable[[Connection], T]) -> T:
        """See Store."""
        with self.begin() as connection:
            return work(connection)

    def close(self) -> None:
        """See Store."""
        self._engine.dispose()
        self._raw.close()
