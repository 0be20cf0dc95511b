"""SQLite's write-ahead log, copied back into the file beside the commits and not within one.

A commit that finds a long log copies it back before it returns, and whoever decides waits for that. A
process that decides therefore has a thread that copies what there is every two seconds, while others
read and write. A log is begun anew only when nobody wrote since it was copied. Under load that does not
happen by itself, so a long log is copied once more while the thread holds the writers' turn. Little is
left to copy then.

A purge, or any other process that writes beside the service, leaves its log to the service. Where there
is none, or where the thread falls behind, a commit copies at `LONGEST_LOG`.
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

EVERY_SECONDS = 2.0


class Checkpointer:
    """Copies the log back until it is stopped.

    Args:
        connect: opens a connection to the file.
        turn: held by whoever writes in this process.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], turn: threading.Lock) -> None:
        self._connect = connect
        self._turn = turn
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End. Does not wait for ever: a disk that hangs must not keep the process."""
        self._stopped.set()
        self._thread.join(EVERY_SECONDS)

    def _run(self) -> None:
        while not self._stopped.wait(EVERY_SECONDS):
            # A file that is gone, damaged or full is told by the commits, which need it more.
            with suppress(sqlite3.Error), closing(self._connect()) as connection:
                while True:
                    copy_back(connection, self._turn)
                    if self._stopped.wait(EVERY_SECONDS):
                        return


def copy_back(connection: sqlite3.Connection, turn: threading.Lock) -> None:
    """Copy the log into the file; have the next commit begin it anew where it is long."""
    _, pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if pages >= LONG_LOG:
        # Once more, for what was written meanwhile: decisions wait for what is left.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        with turn:
            connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
