"""Connections to a SQLite file: how they are set up, and how writers of several processes take turns."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from deniable._types import JsonObject
from deniable.storage.sqlite_files import LONGEST_LOG

BUSY_SECONDS = 10.0
"""How long a writer waits for its turn before the store counts as unavailable."""

SYNCHRONOUS = "FULL"
NOT_LASTING = "NORMAL"

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

OPTIONS: JsonObject = {
    "isolation_level": None,  # transactions are started explicitly
    "check_same_thread": False,  # another thread may close it
    "cached_statements": 512,  # prepared: enough for all sizes of all kinds
}
"""Of the writer's connection."""


def create_private(path: Path) -> None:
    """Create a missing file readable only by its owner; SQLite's log gets the same mode."""
    with suppress(OSError):  # it exists, or cannot be created, which opening it will report
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def connected(path: Path) -> sqlite3.Connection:
    """Return a connection that never waits for another process; callers retry."""
    address = f"{path.absolute().as_uri()}?mode=rw"  # do not recreate a deleted file
    connection = sqlite3.connect(address, uri=True, **OPTIONS)
    _prepare(connection)
    connection.execute("PRAGMA busy_timeout = 0")
    return connection


def made_engine(path: Path) -> Engine:
    """Return SQLAlchemy's engine for administration; its connections say which turns they take."""
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


def take_turn(connection: sqlite3.Connection) -> None:
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
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    if not options.get("write", True):
        driver.execute("BEGIN")
        return
    lasting = options.get("lasting", True)
    driver.execute(f"PRAGMA synchronous = {SYNCHRONOUS if lasting else NOT_LASTING}")
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        take_turn(driver)
    finally:
        _wait_for_others(driver)
