"""`memory:`, the store that ends with its process: SQLite without a file, for tests and short trials.

One connection is shared by all threads, and a lock gives them turns.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.pool import StaticPool

from deniable.storage.sqlite import STATEMENTS, SqliteTransaction

T = TypeVar("T")


class MemoryStore:
    """Implements `Store` in memory, with one connection and a lock that serialises transactions.

    Attributes:
        engine: for migrations.
    """

    durable = False
    url = "memory:"

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._raw = sqlite3.connect(
            ":memory:",
            isolation_level=None,
            check_same_thread=False,
            cached_statements=STATEMENTS,
        )
        self.engine = create_engine("sqlite://", creator=lambda: self._raw, poolclass=StaticPool)
        event.listen(self.engine, "begin", lambda _connection: self._raw.execute("BEGIN"))
        self._transaction = SqliteTransaction(self._raw)

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
        with self._lock, self.engine.begin() as connection:
            yield connection

    brief = read = begin

    def retried(self, work: Callable[[Connection], T], *, lasting: bool = True) -> T:
        """See Store; nothing lasts here."""
        with self.begin() as connection:
            return work(connection)

    def close(self) -> None:
        """See Store."""
        with self._lock:  # closing a connection in use would crash the process
            self.engine.dispose()
            self._raw.close()
