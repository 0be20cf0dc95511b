"""SQLite, the embedded store: one file, with a write-ahead log, every commit synced to disk.

Writers of any process take turns by BEGIN IMMEDIATE. `synchronous=FULL` makes a commit return only
after the log is on the disk, so an answered decision survives the loss of power. A commit that need not
last (NORMAL) leaves that to the next one: the log is one file, whose sync brings all that stands before.

The writer's transaction uses prepared statements that handle many rows in one step, so the GIL is
released a few times per batch and not once per row. Inserts are split into the prepared sizes; lookups
are padded with NULL, which equals nothing. For large numbers of parameters, bytes are bound as
`bytearray`. For each parameter that is not a number, text or bytearray, `sqlite3` first searches for an
adapter, which takes longer than everything else.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from itertools import chain as flatten
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from deniable.errors import StoreUnavailableError
from deniable.storage.sqlite_connections import (
    OPTIONS,
    connected,
    create_private,
    made_engine,
    take_turn,
)
from deniable.storage.sqlite_files import Checkpointer, identity_of, restore_deleted
from deniable.storage.store import (
    OWN_COLUMNS,
    PUT_LABELS,
    SHARED_COLUMNS,
    Chain,
    Count,
    FirstLabel,
    Head,
    NewDecisions,
    NewLabel,
    NewReward,
    Shown,
    Stored,
)

T = TypeVar("T")


class SqliteStore:
    """Implements `Store` on one file.

    Attributes:
        engine: for migrations.
    """

    durable = True

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self.url = f"sqlite:///{self._path}"
        create_private(self._path)
        self.engine = made_engine(self._path)
        self._log_path = Path(f"{self._path}-wal")
        self._file: tuple[int, int] | None = None
        self._log: tuple[int, int] | None = None  # known once something was written
        self._size = self._rewritten = 0
        self._turn = threading.Lock()
        self._hot: sqlite3.Connection | None = None
        self._transaction: SqliteTransaction | None = None
        self._checkpointer: Checkpointer | None = None

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
                take_turn(self._hot)
                self._check_log()
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

    def shrink(self) -> None:
        """See Store."""
        self._check_file()
        with self._turn, suppress(sqlite3.Error), closing(self._connected()) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def free_bytes(self) -> int | None:
        """See Store."""
        try:
            return shutil.disk_usage(self._path.parent).free
        except OSError:
            return None

    def close(self) -> None:
        """See Store."""
        if self._checkpointer is not None:
            self._checkpointer.stop()
            self._checkpointer = None
        with suppress(sqlite3.Error):
            self._follow_log()
        self._drop()
        self.engine.dispose()

    def _check_file(self) -> None:
        """Fail if the file was deleted, replaced or cut: anything written to it would be lost."""
        identity = identity_of(self._path)
        if self._file is None:
            self._file = identity  # does not exist yet, or seen for the first time
        elif identity != self._file:
            raise StoreUnavailableError("SQLite: the file was deleted or replaced")
        size = os.stat(self._path).st_size if identity else 0
        if size == self._size:
            return
        rewrites = self._rewrites()
        if size < self._size and rewrites in (None, self._rewritten):
            # For good: a checkpoint would make it as long again, with holes.
            self._size = sys.maxsize
            raise StoreUnavailableError("SQLite: the file was truncated")
        if rewrites is not None:
            self._size, self._rewritten = size, rewrites

    def _rewrites(self) -> int | None:
        """Return a number that changes when SQLite rewrites the file, which may make it smaller.

        VACUUM and a restored backup count the version of the schema up. The number of pages would not
        do: what another process has written since may still be in the write-ahead log.
        """
        try:
            with closing(self._connected()) as connection:
                return int(connection.execute("PRAGMA schema_version").fetchone()[0])
        except sqlite3.Error:
            return None

    def _check_log(self) -> None:
        """Fail if the write-ahead log was deleted or replaced. The caller may write, and nobody else.

        The index that all processes share still describes the deleted log, so its content is put into
        a new file before anybody writes again. The next transaction has new connections.
        """
        log = identity_of(self._log_path)
        if self._log is None:
            self._log = log
        elif log != self._log:
            if log is None or not self._log_path.stat().st_size:
                restore_deleted(self._log, self._log_path)
            self._reopen()
            raise StoreUnavailableError("SQLite: the write-ahead log was deleted or replaced")

    def _follow_log(self) -> None:
        """Before reading: open new connections if another process has put a log into a new file."""
        if self._log is None or identity_of(self._log_path) in (None, self._log):
            return
        with self._turn:
            self._reopen()

    def _reopen(self) -> None:
        """Close all connections. The next transactions open new ones."""
        if self._checkpointer is not None:
            self._checkpointer.stop(wait=False)  # it may be waiting for our turn
            self._checkpointer = None
        # Not the last connection: that one would copy the log that it has into the file.
        with closing(self._connected()):
            self._drop()
            self.engine.dispose()
            self._log = None

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
            if not write:
                self._follow_log()
            with self.engine.connect() as plain:
                connection = plain.execution_options(write=write, lasting=lasting)
                with connection.begin():
                    if write:
                        self._check_log()
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
        return connected(self._path)

    def _drop(self) -> None:
        """Close the writer's connection. The next transaction opens a new one."""
        connection, self._hot, self._transaction = self._hot, None, None
        if connection is not None:
            connection.close()


class MemoryStore:
    """Implements `Store` in memory, with one connection and a lock that serialises transactions.

    Attributes:
        engine: for migrations.
    """

    durable = False
    url = "memory:"

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._raw = sqlite3.connect(":memory:", **OPTIONS)
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

    read = begin

    def retried(self, work: Callable[[Connection], T], *, lasting: bool = True) -> T:
        """See Store; nothing lasts here."""
        with self.begin() as connection:
            return work(connection)

    def shrink(self) -> None:
        """See Store."""

    def free_bytes(self) -> None:
        """See Store."""

    def close(self) -> None:
        """See Store."""
        with self._lock:  # closing a connection in use would crash the process
            self.engine.dispose()
            self._raw.close()


LARGE, SMALL = 256, 64
"""Rows per statement: LARGE, or any number up to SMALL, which fits most batches."""

_Value: TypeAlias = bytes | bytearray | int | str | None
_Row: TypeAlias = Sequence[_Value]
_Given = TypeVar("_Given", bound=Sequence[object])

_ADD_COUNTS = (
    "ON CONFLICT (experiment_id, table_number, role, segment, arm, metric, writer_id) "
    "DO UPDATE SET shows = shows + excluded.shows, rewarded = rewarded + excluded.rewarded, "
    "value = value + excluded.value, square = square + excluded.square"
)


def _pieces(rows: Sequence[_Given]) -> Iterator[tuple[int, Sequence[_Given]]]:
    """Split rows into pieces of the prepared sizes, largest first."""
    start = 0
    while left := len(rows) - start:
        size = LARGE if left >= LARGE else min(left, SMALL)
        yield size, rows[start : start + size]
        start += size


@cache
def _insert(table: str, columns: tuple[str, ...], size: int, ending: str = "") -> str:
    """Build an INSERT. OR IGNORE also saves SQLite the journal for undoing half a statement."""
    verb = "INSERT" if ending else "INSERT OR IGNORE"
    row = f"({', '.join('?' * len(columns))})"
    return f"{verb} INTO {table} ({', '.join(columns)}) VALUES {', '.join([row] * size)} {ending}"


@cache
def _insert_decisions(size: int) -> str:
    """Build an INSERT in which values shared by all rows are bound once, as the first parameters."""
    first, own = len(SHARED_COLUMNS) + 1, len(OWN_COLUMNS)
    shared = ", ".join(f"?{number}" for number in range(1, first))
    rows = (
        f"({shared}, {', '.join(f'?{number}' for number in range(start, start + own))})"
        for start in range(first, first + size * own, own)
    )
    names = ", ".join((*SHARED_COLUMNS, *OWN_COLUMNS))
    return f"INSERT OR IGNORE INTO decisions ({names}) VALUES {', '.join(rows)}"


@cache
def _in(statement: str, size: int) -> str:
    return f"{statement} IN ({', '.join('?' * size)})"


class SqliteTransaction:
    """Implements `HotTransaction` on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def heads(self, experiments: Sequence[bytes]) -> dict[bytes, Head]:
        """See HotTransaction. The write lock of BEGIN IMMEDIATE keeps the experiments unchanged."""
        statement = "SELECT id, revision, table_number FROM experiments WHERE id"
        rows = self._found(statement, (), experiments)
        return {row[0]: Head(row[1], row[2]) for row in rows}

    def stored(self, experiment: bytes, visitors: Sequence[bytes]) -> dict[bytes, Stored]:
        """See HotTransaction."""
        statement = "SELECT visitor, id, shown FROM decisions WHERE visitor"
        return {row[0]: Stored(*row[1:]) for row in self._found(statement, (), visitors)}

    def erased(self, experiment: bytes, tombstones: Sequence[bytes]) -> set[bytes]:
        """See HotTransaction."""
        statement = "SELECT visitor FROM tombstones WHERE experiment_id = ? AND visitor"
        return {row[0] for row in self._found(statement, (experiment,), tombstones)}

    def labels(self, mask: bytes, visitors: Sequence[bytes]) -> dict[bytes, FirstLabel]:
        """See HotTransaction."""
        statement = "SELECT visitor, label, known FROM mask_labels WHERE mask_id = ? AND visitor"
        rows = self._found(statement, (bytearray(mask),), visitors)
        return {row[0]: FirstLabel(*row[1:]) for row in rows}

    def put_labels(self, rows: Sequence[NewLabel]) -> int:
        """See HotTransaction."""
        return self._added("mask_labels", NewLabel._fields, rows, PUT_LABELS)

    def add_decisions(self, new: NewDecisions) -> int:
        """See HotTransaction."""
        added = 0
        for size, piece in _pieces(new.rows):
            values: list[object] = [bytearray(new.experiment_id), *new[1:5]]
            for identity, visitor, salt, segment, shown, role, seq, link in piece:
                values += (
                    bytearray(identity),
                    bytearray(visitor),
                    bytearray(salt),
                    segment,
                    shown,
                    role,
                    seq,
                    bytearray(link),
                )
            added += self._execute(_insert_decisions(size), values).rowcount
        return added

    def shown(self, experiment: bytes, decisions: Sequence[bytes]) -> dict[bytes, Shown]:
        """See HotTransaction."""
        statement = (
            "SELECT id, salt, segment, shown, decided_at, table_number, role FROM decisions "
            "WHERE shown IS NOT NULL AND experiment_id = ? AND id"
        )
        rows = self._found(statement, (experiment,), decisions)
        return {row[0]: Shown(*row[1:]) for row in rows}

    def rewarded(self, experiment: bytes, decisions: Sequence[bytes]) -> set[tuple[bytes, int]]:
        """See HotTransaction."""
        statement = (
            "SELECT decision_id, metric FROM rewards WHERE experiment_id = ? AND decision_id"
        )
        return set(self._found(statement, (experiment,), decisions))

    def add_rewards(self, rows: Sequence[NewReward]) -> int:
        """See HotTransaction."""
        return self._added("rewards", NewReward._fields, rows)

    def answered(self, experiment: bytes, writer: int, hour: int) -> None:
        """See HotTransaction."""
        self._execute(
            "INSERT INTO answers (experiment_id, writer_id, hour) VALUES (?, ?, ?) "
            "ON CONFLICT (experiment_id, writer_id) DO UPDATE SET hour = max(hour, excluded.hour)",
            (experiment, writer, hour),
        )

    def extend(
        self,
        writer: int,
        owner: bytes,
        before: bytes,
        chain: Chain,
        lease_until: int,
        counts: Sequence[Count],
    ) -> bool:
        """See HotTransaction."""
        self._add_counts(counts)
        cursor = self._execute(
            "UPDATE writers SET seq = ?, head = ?, lease_until = ? "
            "WHERE id = ? AND owner = ? AND head = ?",
            (*chain, lease_until, writer, owner, before),
        )
        return cursor.rowcount == 1

    def _add_counts(self, rows: Sequence[Count]) -> None:
        self._added("counters", Count._fields, rows, _ADD_COUNTS)

    def chain(self, writer: int, owner: bytes) -> Chain | None:
        """See HotTransaction."""
        found: Chain | None = self._execute(
            "SELECT seq, head FROM writers WHERE id = ? AND owner = ?", (writer, owner)
        ).fetchone()
        return found

    def _found(self, statement: str, fixed: _Row, wanted: Sequence[bytes]) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for start in range(0, len(wanted), LARGE):
            part = wanted[start : start + LARGE]
            size = len(part) if len(part) <= SMALL else LARGE
            values = (*fixed, *map(bytearray, part), *(None,) * (size - len(part)))
            found += self._execute(_in(statement, size), values).fetchall()
        return found

    def _added(
        self, table: str, columns: tuple[str, ...], rows: Sequence[_Row], ending: str = ""
    ) -> int:
        added = 0
        for size, piece in _pieces(rows):
            statement = _insert(table, columns, size, ending)
            added += self._execute(statement, list(flatten.from_iterable(piece))).rowcount
        return added
