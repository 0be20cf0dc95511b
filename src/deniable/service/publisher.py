"""The publisher: publishes the next table of an experiment once the experiment has grown enough.

All learning happens here; serving only draws from the table in force. A table is due when the
stored decisions of all segments together have grown enough (`privacy/epochs.py`), so its timing
depends on no visitor's segment and no reward. `table_making.py` makes and stores it, in one
transaction that holds the ledger and the experiment: no other process can publish at the same time.
After any failure, the table in force stays.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from queue import SimpleQueue

from sqlalchemy import Connection

from deniable.errors import BrokenPromiseError, causes
from deniable.privacy.epochs import LEAST_NEW
from deniable.service.experiment_state import ExperimentState
from deniable.service.table_making import publish_due
from deniable.storage.records import PublishedTable
from deniable.storage.store import Store

_log = logging.getLogger("deniable")


class Publisher:
    """Publishes tables in its own thread; for `memory:` stores, in the caller's thread.

    Args:
        store: the store to publish to.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: SimpleQueue[ExperimentState | None] = SimpleQueue()
        self._noticed: set[bytes] = set()
        self._thread: threading.Thread | None = None

    def grown(self, state: ExperimentState) -> None:
        """Check soon whether the experiment's next table is due. Does not block."""
        if not self._store.durable:
            self._look(state)
            return
        if state.id in self._noticed:
            return
        self._noticed.add(state.id)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="deniable-publisher", daemon=True
            )
            self._thread.start()
        self._waiting.put(state)

    def close(self) -> None:
        """Finish the table in progress, then stop."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def publish(self, key: str) -> PublishedTable | None:
        """Publish the next table of a running or paused experiment; None if it is not due."""
        return self._store.retried(partial(publish_due, key=key)).table

    def _run(self) -> None:
        while (state := self._waiting.get()) is not None:
            self._look(state)
            # Not before: every batch that is stored meanwhile would ask for another look.
            self._noticed.discard(state.id)
            if not state.differences and state.new_decisions >= state.look_after:
                self.grown(state)

    def _look(self, state: ExperimentState) -> None:
        """Publish if due, and set after how many more decisions to check again."""
        known = state.new_decisions  # read first: more may be stored during the look

        def look(connection: Connection) -> None:
            # Set before the commit: the writer takes it over to the state with the next table.
            state.look_after = known + publish_due(connection, state.key).look_after

        try:
            self._store.retried(look)
        except BrokenPromiseError as error:
            # The row was changed after this process had read it; until now it served what the chain
            # says.
            _log.error("experiment is not served: its row and the ledger are at odds")
            state.differences = [str(error).rpartition(": ")[2]]
        except Exception as error:  # noqa: BLE001 - the table in force stays; asked again later
            _log.warning("no table was published: %s", causes(error))
            state.look_after = state.new_decisions + LEAST_NEW
