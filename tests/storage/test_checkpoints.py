"""When the write-ahead log is copied back: late where a process decides, early elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from deniable.storage.sqlite import EARLY_CHECKPOINT, LATE_CHECKPOINT, SqliteStore


def pages(store: SqliteStore) -> int:
    """The length of the log at which a commit on another connection copies it back."""
    with store.begin() as connection:
        return int(connection.exec_driver_sql("PRAGMA wal_autocheckpoint").scalar_one())


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "store.db")


def test_a_process_that_does_not_decide_copies_early(store: SqliteStore) -> None:
    assert pages(store) == EARLY_CHECKPOINT
    store.close()


def test_all_connections_of_a_process_that_decides_copy_late(store: SqliteStore) -> None:
    """Otherwise every table that is published would copy a log that the writer leaves for later."""
    assert pages(store) == EARLY_CHECKPOINT
    with store.hot() as transaction:
        own = transaction._execute("PRAGMA wal_autocheckpoint").fetchone()
    assert own == (LATE_CHECKPOINT,)
    assert pages(store) == LATE_CHECKPOINT
    store.close()
