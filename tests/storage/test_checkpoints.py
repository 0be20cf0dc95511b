"""SQLite's log is copied back beside the commits; a decision waits no longer than it must."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.patience import eventually

from deniable.errors import StoreUnavailableError
from deniable.storage import sqlite_connections, sqlite_files
from deniable.storage.sqlite import SqliteStore
from deniable.storage.sqlite_connections import RETRY_SECONDS
from deniable.storage.sqlite_files import (
    LONGEST_LOG,
    Checkpointer,
    copy_back,
    identity_of,
    long_log,
    restore_deleted,
)

PAGES = 100
GROW = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
    "INSERT OR REPLACE INTO pages SELECT i, randomblob(4000) FROM n"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(file: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(file)
    with store.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE pages (number INTEGER PRIMARY KEY, content BLOB)")
    yield store
    store.close()


@pytest.fixture
def other(store: SqliteStore, file: Path) -> Iterator[sqlite3.Connection]:
    """Another process, as far as SQLite is concerned."""
    connection = sqlite3.connect(file, isolation_level=None, timeout=0, check_same_thread=False)
    connection.execute(f"PRAGMA wal_autocheckpoint = {LONGEST_LOG}")
    yield connection
    connection.close()


def copied(file: Path) -> bool:
    """Whether the pages that `GROW` writes are in the file itself."""
    return file.stat().st_size >= PAGES * 4000


def log_pages(connection: sqlite3.Connection) -> int:
    """The length of the log, which this copies back."""
    return int(connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1])


def test_a_commit_copies_only_a_very_long_log(store: SqliteStore) -> None:
    with store.begin() as connection:
        assert connection.exec_driver_sql("PRAGMA wal_autocheckpoint").scalar_one() == LONGEST_LOG
    with store.hot() as transaction:
        assert transaction._execute("PRAGMA wal_autocheckpoint").fetchone() == (LONGEST_LOG,)


def test_a_process_that_decides_copies_the_log_in_between(
    store: SqliteStore, other: sqlite3.Connection, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what another process wrote, such as a purge."""
    monkeypatch.setattr(sqlite_files, "EVERY_SECONDS", 0.01)
    other.execute(GROW, (PAGES,))
    assert not copied(file)
    with store.hot():
        pass
    eventually(lambda: copied(file), "the log is copied back")


def test_a_long_log_is_noticed_from_its_file(
    store: SqliteStore, other: sqlite3.Connection, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert long_log(file.with_name("none.db")) is None
    for pages in (1, 10, PAGES, PAGES):
        other.execute(GROW, (pages,))
        length = log_pages(other)
        for long, expected in ((length - 1, True), (length, True), (length + 1, False)):
            monkeypatch.setattr(sqlite_files, "LONG_LOG", long)
            assert (long_log(file) is not None) == expected
    monkeypatch.setattr(sqlite_files, "LONG_LOG", length)
    salt = long_log(file)
    other.execute("PRAGMA wal_checkpoint(RESTART)")
    assert long_log(file) == salt
    # The file is as large as before, but most of it belongs to the previous log.
    other.execute(GROW, (1,))
    assert long_log(file) is None
    for _ in range(length):
        other.execute(GROW, (1,))
    assert long_log(file) not in (None, salt)


class Looks(threading.Event):
    """Tells the thread to stop when it has looked three times."""

    looks = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.looks += 1
        return self.looks > 3


def test_a_log_that_becomes_long_is_copied_at_once(
    store: SqliteStore, other: sqlite3.Connection, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under overload it would reach the length at which a commit copies it, and decisions wait."""
    monkeypatch.setattr(sqlite_files, "EVERY_SECONDS", 3600.0)
    monkeypatch.setattr(sqlite_files, "LONG_LOG", PAGES)
    checkpointer = Checkpointer(file, store._connected, store._turn)

    def is_due() -> bool:
        checkpointer._stopped = Looks()
        return checkpointer._waited()

    with closing(store._connected()) as connection:
        assert not is_due()
        for _ in range(3):
            other.execute(GROW, (PAGES,))
            assert is_due()
            checkpointer._checkpoint(connection)
            # It stays long until something is written, and is not copied again for that.
            assert long_log(file) is not None
            assert not is_due()


def test_closing_ends_the_thread(store: SqliteStore) -> None:
    with store.hot():
        pass
    checkpointer = store._checkpointer
    assert checkpointer is not None
    assert checkpointer._thread.is_alive()
    store.close()
    assert not checkpointer._thread.is_alive()


class Turn:
    """The writers' turn, which comes when the others are done."""

    def __init__(self, done: Callable[[], object]) -> None:
        self._done = done

    def __enter__(self) -> None:
        self._done()

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("long", "begun_anew"), [(PAGES, True), (LONGEST_LOG, False)])
def test_a_long_log_is_begun_anew_in_the_writers_turn(
    long: int,
    begun_anew: bool,
    store: SqliteStore,
    other: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where something is always read or written while it is copied, it would only grow."""
    monkeypatch.setattr(sqlite_files, "LONG_LOG", long)
    with closing(store._connected()) as connection, closing(store._connected()) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM pages").fetchone()
        other.execute(GROW, (PAGES,))
        copy_back(connection, Turn(lambda: reader.execute("COMMIT")))  # type: ignore[arg-type]
        other.execute(GROW, (1,))
        assert (log_pages(other) < PAGES) == begun_anew


def test_a_file_that_is_gone_is_not_made_anew(
    store: SqliteStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_files, "EVERY_SECONDS", 0.001)
    tries: list[int] = []

    def connect() -> sqlite3.Connection:
        tries.append(1)
        return store._connected()

    file.rename(file.with_suffix(".away"))
    checkpointer = Checkpointer(file, connect, store._turn)
    checkpointer.start()
    eventually(lambda: len(tries) > 3 or file.exists(), "it is tried again and again")
    checkpointer.stop()
    assert not file.exists()


@pytest.mark.parametrize("kind", ["hot", "begin"])
def test_a_writer_begins_as_soon_as_another_process_has_written(
    kind: str, store: SqliteStore, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only a decision: those that come meanwhile queue behind any writer of their process."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 5:
            other.execute("COMMIT")

    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr("deniable.storage.sqlite_connections.time.sleep", sleep)
    with getattr(store, kind)():
        assert slept == [RETRY_SECONDS] * 5


@pytest.mark.parametrize("kind", ["hot", "begin"])
def test_a_process_that_does_not_stop_writing_is_not_waited_for_without_end(
    kind: str, store: SqliteStore, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connections, "BUSY_SECONDS", 0.01)
    begun = getattr(store, kind)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailableError, match="locked"), begun():
        pass
    other.execute("ROLLBACK")
    with begun():
        pass


def test_a_deleted_file_is_written_anew_from_what_is_open(tmp_path: Path) -> None:
    path = tmp_path / "store.db-wal"
    path.write_bytes(b"acknowledged")
    identity = identity_of(path)
    assert identity is not None
    with path.open("rb") as held:
        path.unlink()
        restore_deleted(identity, path)
        assert path.read_bytes() == held.read() == b"acknowledged"
        assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    restore_deleted(identity, path)
    assert not path.exists(), "nobody has it open"


def test_a_deleted_log_is_not_copied_to_the_file(
    store: SqliteStore, other: sqlite3.Connection, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index already describes another log, which this connection does not have."""
    looks: list[int] = []

    def looked(checkpointer: Checkpointer) -> bool:
        looks.append(1)
        if len(looks) == 2:
            Path(f"{file}-wal").unlink()
        return len(looks) < 3

    copied: list[int] = []
    monkeypatch.setattr(Checkpointer, "_waited", looked)
    monkeypatch.setattr(Checkpointer, "_checkpoint", lambda _self, _c: copied.append(len(looks)))
    other.execute(GROW, (PAGES,))
    Checkpointer(file, store._connected, store._turn)._run()
    assert copied == [1], "only before it was deleted"
