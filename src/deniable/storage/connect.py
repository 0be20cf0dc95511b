"""Opens a store from a URL, at the current schema; and `memory:`, SQLite without a file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import StaticPool

from deniable.errors import InvalidArgumentError
from deniable.storage.migrate import migrate
from deniable.storage.sqlite_hot import STATEMENTS, SqliteTransaction
from deniable.storage.store import Store

if TYPE_CHECKING:
    from deniable.storage.postgres import PostgresStore
    from deniable.storage.sqlite import SqliteStore

T = TypeVar("T")

ALLOWED = "sqlite:///FILE, postgresql://USER@HOST/DATABASE or memory:"


def connect(url: str) -> Store:
    """Open the store at `url`, creating or migrating its schema if needed."""
    store = _opened(url)
    try:
        migrate(store.engine)
    except BaseException:
        store.close()
        raise
    return store


def _opened(url: str) -> MemoryStore | SqliteStore | PostgresStore:
    if url == "memory:":
        return MemoryStore()
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        from deniable.storage.sqlite import SqliteStore

        return SqliteStore(url.removeprefix("sqlite:///"))
    if url.startswith(("postgresql://", "postgres://")):
        from deniable.storage.postgres import PostgresStore

        return PostgresStore(url)
    raise InvalidArgumentError("url", url.split("@")[-1], ALLOWED)


class MemoryStore:
    """Implements `Store` in memory, with one connection and a lock that serialises transactions."""

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
        """The URL of the store."""
        return "memory:"

    @property
    def engine(self) -> Engine:
        """SQLAlchemy engine for migrations."""
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
    def brief(self) -> Iterator[Connection]:
        """See Store."""
        with self.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """See Store."""
        with self.begin() as connection:
            yield connection

    def retried(self, work: Callable[[Connection], T], *, lasting: bool = True) -> T:
        """See Store; nothing lasts here."""
        with self.begin() as connection:
            return work(connection)

    def close(self) -> None:
        """See Store."""
        with self._lock:  # closing a connection in use would crash the process
            self._engine.dispose()
            self._raw.close()
