"""Copies of a SQLite store while it is in use, through SQLite's own backup."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from deniable.errors import StoreUnavailableError, WrongStateError


def copy_sqlite(source: Path, target: Path) -> None:
    """One consistent state of the source as a new file, for its owner alone.

    Raises:
        WrongStateError: there is no source, or the target is there already.
        StoreUnavailableError: SQLite cannot read the source or write the target.
    """
    if not source.is_file():
        raise WrongStateError(f"there is no file {source}")
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise WrongStateError(f"{target} is there already: move it away first") from None
    try:
        with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
            old.backup(new)
            new.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
    except sqlite3.Error as error:
        target.unlink()
        raise StoreUnavailableError(f"SQLite: {error}") from error
    with open(target, "rb") as written:
        os.fsync(written.fileno())
