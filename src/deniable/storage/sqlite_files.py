"""SQLite's files beside the transactions: the log is copied back, and the whole store to a backup."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from deniable.errors import StoreUnavailableError, WrongStateError

LONG_LOG, LONGEST_LOG = 32_000, 64_000
"""Pages of the log (128 and 256 MiB) at which it is begun anew, and at which a commit does that.

Whoever decides waits for two syncs of the disk when it is begun anew. At 32 MiB, with a purge beside the
decisions, that was often enough to be felt by one decision in a hundred. A commit that copies a log of
256 MiB takes a third of a second."""

_SMALLEST_PAGE = 512

EVERY_SECONDS = 5.0
"""Each pass copies every page that has changed since the last one, mostly the same pages again. With 2
seconds, batches of 100 took a fifth more CPU time and came at .84 of the rate."""

LOOK_SECONDS = 0.1
"""How often the length of the log is looked at. An overload makes it long in a second."""

PASSES, FEW_PAGES = 4, 500
"""A long log is copied up to this often, until a pass finds only few pages, before writers must wait."""


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

    def stop(self, *, wait: bool = True) -> None:
        """Stop the thread. Waits for a limited time, so a hanging disk does not block the process."""
        self._stopped.set()
        if wait:
            self._thread.join(EVERY_SECONDS)

    def _run(self) -> None:
        while self._waited():
            # Commits report a missing, damaged or full file; they depend on it more.
            with suppress(sqlite3.Error), closing(self._connect()) as connection:
                log = identity_of(Path(f"{self._path}-wal"))
                # Through a connection to a deleted log, what is not in the index any more is copied.
                while log == identity_of(Path(f"{self._path}-wal")):
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


def identity_of(path: Path) -> tuple[int, int] | None:
    """Return what distinguishes a file from another at the same path; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def restore_deleted(identity: tuple[int, int], path: Path) -> None:
    """Write the content of a deleted file that this process has open to its path.

    Linux only. Elsewhere, and where it is not open, nothing is done.
    """
    with suppress(OSError):
        for descriptor in os.listdir("/proc/self/fd"):
            file = Path("/proc/self/fd", descriptor)
            if identity_of(file) == identity:
                with file.open("rb") as deleted, open(path, "wb", opener=_private) as restored:
                    shutil.copyfileobj(deleted, restored)
                    restored.flush()
                    os.fsync(restored.fileno())
                return


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def long_log(path: Path) -> bytes | None:
    """Return the salt of a store's log if the log is long, else None.

    The file keeps its size when the log restarts, but with a new salt, and each page has the salt it
    was written with (https://sqlite.org/walformat.html). SQLite holds no lock on this file. It does on
    the index of the log, where the length would be found more easily: closing that file here would
    release the locks of the whole process.
    """
    try:
        if os.stat(f"{path}-wal").st_size < LONG_LOG * _SMALLEST_PAGE:  # mostly: no need to open it
            return None
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
