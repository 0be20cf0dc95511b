"""Copies a SQLite store while it is in use, with SQLite's backup API."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from deniable.errors import StoreUnavailableError, WrongStateError


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy one consistent state of the source to a new file, readable only by its owner.

    Raises:
        WrongStateError: the source does not exist, or the target already exists.
        StoreUnavailableError: SQLite cannot read the source or write the target.
    """
    if not source.is_file():
        raise WrongStateError(f"there is no file {source}")
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise WrongStateError(f"{target} already exists: move it away first") from None
    try:
        with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
            old.backup(new)
            new.execute("PRAGMA journal_mode = DELETE")  # a single file, without a separate log
    except sqlite3.Error as error:
        target.unlink()
        raise StoreUnavailableError(f"SQLite: {error}") from error
    with open(target, "rb") as written:
        os.fsync(written.fileno())
