"""Checkpoints of SQLite's write-ahead log, made between commits and not within one.

A commit that finds a long log checkpoints it before it returns, which delays decisions. A process
that decides therefore has a thread that checkpoints every five seconds, while others read and write.
The log restarts from its beginning only if nothing was written since the checkpoint. Under load
that never happens on its own, so a long log is checkpointed again while the thread holds the
writers' lock. Little is left to copy then.

A purge, or any other process that writes at the same time, leaves its log to the service. If there
is no service, or if the thread falls behind, a commit checkpoints at `LONGEST_LOG`.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress

LONG_LOG, LONGEST_LOG = 32_000, 64_000
"""Pages of the log (128 and 256 MiB) at which it is begun anew, and at which a commit does that.

Whoever decides waits for two syncs of the disk when it is begun anew. At 32 MiB, with a purge beside the
decisions, that was often enough to be felt by one decision in a hundred."""

EVERY_SECONDS = 5.0
"""Each pass copies every page that has changed since the last one, mostly the same pages again. With 2
seconds, batches of 100 took a fifth more CPU time and came at .84 of the rate."""


class Checkpointer:
    """Checkpoints the log until it is stopped.

    Args:
        connect: opens a connection to the file.
        turn: the lock held by writers in this process.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], turn: threading.Lock) -> None:
        self._connect = connect
        self._turn = turn
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
        while not self._stopped.wait(EVERY_SECONDS):
            # Commits report a missing, damaged or full file; they depend on it more.
            with suppress(sqlite3.Error), closing(self._connect()) as connection:
                while True:
                    copy_back(connection, self._turn)
                    if self._stopped.wait(EVERY_SECONDS):
                        return


def copy_back(connection: sqlite3.Connection, turn: threading.Lock) -> None:
    """Checkpoint the log; if it is long, let the next commit restart it."""
    _, pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if pages >= LONG_LOG:
        # Once more, for what was written meanwhile: decisions wait for what is left.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        with turn:
            connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
