"""SQLite, the embedded store: one file, with a write-ahead log, every commit synced to disk.

Writers of any process take turns by BEGIN IMMEDIATE. `synchronous=FULL` makes a commit return only
after the log is on the disk, so an answered decision survives the loss of power. A commit that need not
last (NORMAL) leaves that to the next one: the log is one file, whose sync brings all that stands before.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar, cast

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from deniable.errors import StoreUnavailableError
from deniable.storage.sqlite_direct import DirectConnection
from deniable.storage.sqlite_hot import STATEMENTS, SqliteTransaction

T = TypeVar("T")

BUSY_SECONDS = 10.0
"""How long a writer waits for its turn before the store counts as unavailable."""

SYNCHRONOUS = "FULL"
NOT_LASTING = "NORMAL"

LONG_LOG, LONGEST_LOG = 32_000, 64_000
"""Pages of the log (128 and 256 MiB) at which it is begun anew, and at which a commit does that.

Whoever decides waits for two syncs of the disk when it is begun anew. At 32 MiB, with a purge beside the
decisions, that was often enough to be felt by one decision in a hundred. A commit that copies a log of
256 MiB takes a third of a second."""

EVERY_SECONDS = 5.0
"""Each pass copies every page that has changed since the last one, mostly the same pages again. With 2
seconds, batches of 100 took a fifth more CPU time and came at .84 of the rate."""

LOOK_SECONDS = 0.1
"""How often the length of the log is looked at. An overload makes it long in a second."""

PASSES, FEW_PAGES = 4, 500
"""A long log is copied up to this often, until a pass finds only few pages, before writers must wait."""

_PRAGMAS = {
    "journal_mode": "WAL",
    "foreign_keys": "ON",
    "cache_size": "-65536",  # 64 MiB
    "wal_autocheckpoint": str(LONGEST_LOG),
}

RETRY_SECONDS = 0.0005
"""Between two tries for the turn of a writer. SQLite itself would try after 1, 3, 8 and 18 milliseconds
and so on up to 100, so that a short transaction of another process would cost a long wait: also the
decisions that queue behind a writer of their own process."""


class SqliteStore:
    """Implements `Store` on one file."""

    durable = True

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        _create_private(self._path)
        self._engine = _made_engine(self._path)
        self._file: tuple[int, int] | None = None
        self._turn = threading.Lock()
        self._hot: sqlite3.Connection | None = None
        self._transaction: SqliteTransaction | None = None
        self._checkpointer: Checkpointer | None = None

    @property
    def url(self) -> str:
        """The URL of the store."""
        return f"sqlite:///{self._path}"

    @property
    def engine(self) -> Engine:
        """SQLAlchemy engine for migrations."""
        return self._engine

    @contextmanager
    def hot(self) -> Iterator[SqliteTransaction]:
        """See Store."""
        self._check_file()
        with self._turn:
            try:
                if self._hot is None or self._transaction is None:
                    self._hot = self._connected()
                    self._transaction = SqliteTransaction(self._hot)
                if self._checkpointer is None:
                    self._checkpointer = Checkpointer(self._path, self._connected, self._turn)
                    self._checkpointer.start()
                _take_turn(self._hot)
                try:
                    yield self._transaction
                    self._hot.execute("COMMIT")
                except BaseException:
                    self._undo()
                    raise
            except sqlite3.Error as error:
                self._shorten_log()
                self._drop()
                raise StoreUnavailableError(f"SQLite: {error}") from error

    @contextmanager
    def brief(self) -> Iterator[Connection]:
        """See Store."""
        with self.hot():
            assert self._hot is not None
            yield cast(Connection, DirectConnection(self._hot))

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """See Store."""
        # Threads of one process queue here, because SQLite waits by polling.
        with self._turn, self._connection(write=True) as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """See Store."""
        with self._connection(write=False) as connection:
            yield connection

    def retried(self, work: Callable[[Connection], T], *, lasting: bool = True) -> T:
        """See Store; BEGIN IMMEDIATE already waited for its turn."""
        with self._turn, self._connection(write=True, lasting=lasting) as connection:
            return work(connection)

    def close(self) -> None:
        """See Store."""
        if self._checkpointer is not None:
            self._checkpointer.stop()
            self._checkpointer = None
        self._drop()
        self._engine.dispose()

    def _check_file(self) -> None:
        """Fail if the file was deleted or replaced, because anything written to it would be lost."""
        try:
            status = os.stat(self._path)
            found = (status.st_dev, status.st_ino)
        except OSError:
            found = None
        if self._file is None:
            self._file = found  # does not exist yet, or seen for the first time
        elif found != self._file:
            raise StoreUnavailableError("SQLite: the file was deleted or replaced")

    def _shorten_log(self) -> None:
        """Checkpoint and truncate the write-ahead log, which may be what filled the disk."""
        if self._hot is not None:
            with suppress(sqlite3.Error):
                self._undo()
                self._hot.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def _connection(self, *, write: bool, lasting: bool = True) -> Iterator[Connection]:
        self._check_file()
        try:
            with self._engine.connect() as plain:
                connection = plain.execution_options(write=write, lasting=lasting)
                with connection.begin():
                    yield connection
        except DBAPIError as error:
            if isinstance(error.orig, sqlite3.IntegrityError):
                raise
            raise StoreUnavailableError(f"SQLite: {error.orig}") from error
        except sqlite3.Error as error:  # while it waited for its turn
            raise StoreUnavailableError(f"SQLite: {error}") from error

    def _undo(self) -> None:
        if self._hot is not None and self._hot.in_transaction:
            self._hot.execute("ROLLBACK")

    def _connected(self) -> sqlite3.Connection:
        """Return a connection that never waits for another process; callers retry."""
        # Transactions are started explicitly, and the connection may be closed by another thread.
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=rw",  # do not recreate a deleted file
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=STATEMENTS,
        )
        _prepare(connection)
        connection.execute("PRAGMA busy_timeout = 0")
        return connection

    def _drop(self) -> None:
        """Close the writer's connection. The next transaction opens a new one."""
        connection, self._hot, self._transaction = self._hot, None, None
        if connection is not None:
            connection.close()


def _create_private(path: Path) -> None:
    """Create a missing file readable only by its owner; SQLite's log gets the same mode."""
    with suppress(OSError):  # it exists, or cannot be created, which opening it will report
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _made_engine(path: Path) -> Engine:
    engine = create_engine(
        f"sqlite:///{path}", poolclass=QueuePool, connect_args={"check_same_thread": False}
    )
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: sqlite3.Connection, _record: object = None) -> None:
    connection.isolation_level = None
    cursor = connection.cursor()
    # The timeout first: switching to the write-ahead log may have to wait for another process.
    _wait_for_others(connection)
    for name, value in _PRAGMAS.items():
        cursor.execute(f"PRAGMA {name} = {value}")
    cursor.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
    cursor.close()


def _wait_for_others(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA busy_timeout = {round(1000 * BUSY_SECONDS)}")


def _take_turn(connection: sqlite3.Connection) -> None:
    """Start a write transaction as soon as no other process has one."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_SECONDS)


def _begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    if not options.get("write", True):
        connection.exec_driver_sql("BEGIN")
        return
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    lasting = options.get("lasting", True)
    driver.execute(f"PRAGMA synchronous = {SYNCHRONOUS if lasting else NOT_LASTING}")
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        _take_turn(driver)
    finally:
        _wait_for_others(driver)


class Checkpointer:
    """Checkpoints the write-ahead log between commits and not within one, until it is stopped.

    A commit that finds a long log checkpoints it before it returns, which delays decisions. A process
    that decides therefore has this thread, which checkpoints while others read and write. The log
    restarts from its beginning only if nothing was written since the checkpoint. Under load that never
    happens on its own, so a long log is checkpointed again, at last while the thread holds the writers'
    lock. Little is left to copy then.

    A purge, or any other process that writes at the same time, leaves its log to the service. If there
    is no service, or if the thread falls behind, a commit checkpoints at `LONGEST_LOG`.

    Args:
        path: the file.
        connect: opens a connection to it.
        turn: the lock held by writers in this process.
    """

    def __init__(
        self, path: Path, connect: Callable[[], sqlite3.Connection], turn: threading.Lock
    ) -> None:
        self._path = path
        self._connect = connect
        self._turn = turn
        self._restarting: bytes | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Waits for a limited time, so a hanging disk does not block the process."""
        self._stopped.set()
        self._thread.join(EVERY_SECONDS)

    def _run(self) -> None:
        while self._waited():
            # Commits report a missing, damaged or full file; they depend on it more.
            with suppress(sqlite3.Error), closing(self._connect()) as connection:
                while True:
                    self._checkpoint(connection)
                    if not self._waited():
                        return

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        salt = long_log(self._path)
        self._restarting = salt if copy_back(connection, self._turn) else None

    def _waited(self) -> bool:
        """Wait until it is time for a checkpoint; return False if the thread is to stop."""
        due = time.monotonic() + EVERY_SECONDS
        while not self._stopped.wait(min(LOOK_SECONDS, EVERY_SECONDS)):
            # A log that is to restart does so when something is written.
            if time.monotonic() >= due or long_log(self._path) not in (None, self._restarting):
                return True
        return False


def long_log(path: Path) -> bytes | None:
    """Return the salt of a store's log if the log is long, else None.

    The file keeps its size when the log restarts, but with a new salt, and each page has the salt it
    was written with (https://sqlite.org/walformat.html). SQLite holds no lock on this file. It does on
    the index of the log, where the length would be found more easily: closing that file here would
    release the locks of the whole process.
    """
    try:
        with open(f"{path}-wal", "rb", buffering=0) as log:
            header = log.read(32)
            page_size = int.from_bytes(header[8:12], "big")
            log.seek(32 + (LONG_LOG - 1) * (24 + page_size))
            page = log.read(24)
    except OSError:
        return None
    salt = header[16:24]
    return salt if len(page) == 24 and page[8:16] == salt else None


def copy_back(connection: sqlite3.Connection, turn: threading.Lock) -> bool:
    """Checkpoint the log; if it is long, let the next commit restart it.

    Returns whether the next commit will.
    """
    _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if pages < LONG_LOG:
        return False
    # Again, for what was written meanwhile: decisions wait while what is left is copied.
    for _ in range(PASSES):
        before = copied
        _, _, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if copied - before < FEW_PAGES:
            break
    with turn:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    return not busy
