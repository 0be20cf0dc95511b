"""The publisher: publishes the next table of an experiment once the experiment has grown enough.

All learning happens here; serving only draws from the table in force. A table is due when the
stored decisions of all segments together have grown enough (`privacy/epochs.py`), so its timing
depends on no visitor's segment and no reward. `table_making.py` makes and stores it. If several
processes store decisions of an experiment, they publish one at a time, under a lease. After any
failure, the table in force stays.
"""

from __future__ import annotations

import logging
import os
import threading
from queue import SimpleQueue

from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from deniable.errors import BrokenPromiseError
from deniable.privacy.epochs import LEAST_NEW, Epochs, due_at, epochs_of
from deniable.privacy.tables import decoded_table
from deniable.service.experiment_state import ExperimentState
from deniable.service.table_making import next_table, put_into_force, recipe_of, store_table
from deniable.storage import experiments, times
from deniable.storage.records import Experiment, PublishedTable
from deniable.storage.schema import leases
from deniable.storage.store import Store
from deniable.storage.sums import Growth, RunningSums

_log = logging.getLogger("deniable")

LEASE_MICROSECONDS = 60_000_000

_TAKE = (
    update(leases)
    .where(leases.c.name == bindparam("lease"))
    .where((leases.c.until < bindparam("now")) | (leases.c.owner == bindparam("holder")))
    .values(owner=bindparam("holder"), until=bindparam("end"))
)
_KNOWN = select(leases.c.name).where(leases.c.name == bindparam("lease"))
_FIRST = insert(leases)
_RELEASE = (
    update(leases)
    .where(leases.c.name == bindparam("lease"), leases.c.owner == bindparam("holder"))
    .values(until=0)
)


class Publisher:
    """Publishes tables in its own thread; for `memory:` stores, in the caller's thread.

    Args:
        store: the store to publish to.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._owner = os.urandom(16)
        self.sums = RunningSums()
        self._waiting: SimpleQueue[ExperimentState | None] = SimpleQueue()
        self._noticed: set[bytes] = set()
        self._thread: threading.Thread | None = None
        # Within this process; the lease is between processes.
        self._one_at_a_time = threading.Lock()

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

    def publish(
        self, key: str, *, after: int | None = None, alone: bool = False
    ) -> PublishedTable | None:
        """Publish the next table of a running or paused experiment.

        Args:
            key: the experiment.
            after: publish only if this is still the table in force.
            alone: whether no other process stored decisions recently. The lease, a separate
                transaction, is then skipped: it would only save another process from making a table
                in vain.

        Returns:
            The table; None if a different one is in force or another process is publishing.
        """
        lease = None if alone else f"publish {key}"[:64]
        with self._one_at_a_time:
            if lease is not None and not self._leased(lease):
                return None
            made: tuple[Experiment, PublishedTable] | None = None
            try:
                with self._store.read() as connection:
                    experiment = experiments.by_key(connection, key)
                    if _is_live(experiment) and after in (None, experiment.table_number):
                        found = self.sums.total(connection, experiment)
                        made = (experiment, next_table(connection, experiment, found))
            finally:  # the lease ends with the transaction that puts the table into force
                stored = self._store.retried(lambda connection: self._end(connection, lease, made))
            return stored

    def _end(
        self,
        connection: Connection,
        lease: str | None,
        made: tuple[Experiment, PublishedTable] | None,
    ) -> PublishedTable | None:
        """Put the table into force, if one was made, and release the lease."""
        stored = None if made is None else put_into_force(connection, *made)
        if lease is not None:
            connection.execute(_RELEASE, {"lease": lease, "holder": self._owner})
        return stored

    def _run(self) -> None:
        while (state := self._waiting.get()) is not None:
            self._look(state)
            # Not before: every batch that is stored meanwhile would ask for another look.
            self._noticed.discard(state.id)
            if not state.differences and state.new_decisions >= state.look_after:
                self.grown(state)

    def _look(self, state: ExperimentState) -> None:
        """Publish if due, and set after how many more decisions to check again."""
        try:
            if state.published is not None and self.sums.alone(state.id):
                left = self._publish_alone(state, state.published)
            else:
                left = self._publish_in_turn(state)
            state.look_after = state.new_decisions + max(1, left)
        except BrokenPromiseError as error:
            # The row was changed after this process had read it; until now it served what the chain
            # says.
            _log.error("experiment is not served: its row and the ledger are at odds")
            state.differences = [str(error).rpartition(": ")[2]]
        except Exception as error:  # noqa: BLE001 - the table in force stays; asked again later
            _log.warning("no table was published: %s", type(error).__name__)
            state.look_after = state.new_decisions + LEAST_NEW

    def _publish_in_turn(self, state: ExperimentState) -> int:
        """Publish if due, when several processes may store decisions."""
        with self._store.read() as connection:
            grown = self.sums.growth(connection, state.id)
        if grown.decisions >= next_due(grown):
            made = self.publish(state.key, after=grown.table, alone=grown.writers <= 1)
            if made is not None:
                grown = grown._replace(table=made.number, published=made.decisions)
                _hand_over(state, made, _left(grown))
        return _left(grown)

    def _publish_alone(self, state: ExperimentState, published: int) -> int:
        """Publish if due, when this process published the table in force and no other stores decisions.

        This process sees all decisions, so a table is nearly always due when this is called. A
        separate query for the growth is therefore skipped.
        """
        with self._one_at_a_time:
            left, stored = self._stored_briefly(state, published) or self._stored(state, published)
        if stored is not None:
            _hand_over(state, stored, left)
        return left

    def _stored_briefly(
        self, state: ExperimentState, published: int
    ) -> tuple[int, PublishedTable | None] | None:
        """Make and store the table in one transaction; None if that would hold it for too long."""
        brief = self._store.brief()
        if brief is None:
            return None
        with brief as connection:
            experiment = experiments.by_key(connection, state.key)
            if not _is_quick(experiment):
                return None
            left, made = self._made(connection, experiment, state, published)
            if made is not None:
                store_table(connection, experiment, made)
        return left, made

    def _stored(self, state: ExperimentState, published: int) -> tuple[int, PublishedTable | None]:
        with self._store.read() as connection:
            experiment = experiments.by_key(connection, state.key)
            left, made = self._made(connection, experiment, state, published)
        if made is None:
            return left, None
        return left, self._store.retried(
            lambda connection: put_into_force(connection, experiment, made)
        )

    def _made(
        self, connection: Connection, experiment: Experiment, state: ExperimentState, published: int
    ) -> tuple[int, PublishedTable | None]:
        """The next table if it is due, and how many decisions are left until the one after."""
        found = self.sums.total(connection, experiment)
        epochs = _epochs(experiment)
        left = due_at(published, epochs) - found.decisions
        unchanged = experiment.table_number == state.table_number
        if left > 0 or not (unchanged and _is_live(experiment)):
            return left, None
        return due_at(found.decisions, epochs) - found.decisions, next_table(
            connection, experiment, found
        )

    def _leased(self, name: str) -> bool:
        """Take the lease for this work; return False if another process holds it."""
        now = times.now()
        until = now + LEASE_MICROSECONDS

        def take(connection: Connection) -> bool:
            taken = connection.execute(
                _TAKE, {"lease": name, "holder": self._owner, "now": now, "end": until}
            )
            if taken.rowcount:
                return True
            if connection.execute(_KNOWN, {"lease": name}).first():
                return False
            connection.execute(_FIRST, {"name": name, "owner": self._owner, "until": until})
            return True

        try:
            return self._store.retried(take)
        except IntegrityError:  # another process inserted it first
            return False


def _is_live(experiment: Experiment) -> bool:
    return experiment.status in ("running", "paused")


def _is_quick(experiment: Experiment) -> bool:
    """Whether a table takes about a millisecond, and no statement that is not prepared."""
    plain = experiment.trace_nano is None and experiment.attribution_seconds is None
    return plain and recipe_of(experiment).fixed_band() is not None


def _epochs(experiment: Experiment) -> Epochs:
    trace = experiment.trace_nano is not None
    return epochs_of(len(experiment.arms), len(experiment.segments), trace=trace)


def _left(grown: Growth) -> int:
    """After how many more decisions of this process to look again.

    Where there are several processes, more often than one alone would have to.
    """
    left = next_due(grown) - grown.decisions
    return left if grown.writers <= 1 else left // (2 * grown.writers)


def _hand_over(state: ExperimentState, made: PublishedTable, left: int) -> None:
    """The writer may go on with the next state as soon as there is one: `left` is set before."""
    table = decoded_table(made.rows, len(state.arm_keys))
    state.look_after = state.new_decisions + left
    state.followed_by(made.number, made.decisions, table)


def next_due(grown: Growth) -> int:
    """Return the number of decisions at which the next table is due."""
    if not grown.table:
        return 0
    return due_at(grown.published, epochs_of(grown.arms, grown.segments, trace=grown.trace))
