"""The publisher: makes the next table of an experiment once the experiment has grown enough.

All learning happens here; serving only draws from the table in force. A table is due when the
stored decisions of all segments together have grown enough (`privacy/epochs.py`), so its timing
depends on no visitor's segment and no reward. A table is a function of the counts stored with it.
It is checked in exact arithmetic, stored and chained before anything is drawn from it. If several
processes store decisions of an experiment, they publish one at a time, under a lease. After any
failure, the table in force stays.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from queue import SimpleQueue

from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from deniable._types import JsonObject
from deniable.errors import BrokenPromiseError
from deniable.privacy.epochs import LEAST_NEW, Epochs, due_at, epochs_of
from deniable.privacy.noise import discrete_laplace
from deniable.privacy.tables import Table, decoded_table
from deniable.service.experiment_state import ExperimentState
from deniable.storage import (
    commitments,
    experiments,
    promise_entries,
    promises,
    scores,
    times,
)
from deniable.storage.counts import table_counts
from deniable.storage.records import Experiment, PublishedTable
from deniable.storage.schema import leases
from deniable.storage.store import Store
from deniable.storage.sums import Growth, RunningSums, Sums, sums
from deniable.strategies.making import Recipe

_log = logging.getLogger("deniable")

LEASE_MICROSECONDS = 60_000_000

_encode = json.JSONEncoder(separators=(",", ":")).encode


_TAKE = (
    update(leases)
    .where(leases.c.name == bindparam("lease"))
    .where((leases.c.until < bindparam("now")) | (leases.c.owner == bindparam("holder")))
    .values(owner=bindparam("holder"), until=bindparam("end"))
)
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
        stored = None if made is None else _put_into_force(connection, *made)
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
            with self._store.read() as connection:
                experiment = experiments.by_key(connection, state.key)
                found = self.sums.total(connection, experiment)
                epochs = _epochs(experiment)
                left = due_at(published, epochs) - found.decisions
                unchanged = experiment.table_number == state.table_number
                if left > 0 or not (unchanged and _is_live(experiment)):
                    return left
                made = next_table(connection, experiment, found)
            stored = self._store.retried(
                lambda connection: _put_into_force(connection, experiment, made)
            )
        if stored is None:
            return left
        left = due_at(stored.decisions, epochs) - stored.decisions
        _hand_over(state, stored, left)
        return left

    def _leased(self, name: str) -> bool:
        """Take the lease for this work; return False if another process holds it."""
        now = times.now()
        values = {"owner": self._owner, "until": now + LEASE_MICROSECONDS}

        def take(connection: Connection) -> bool:
            taken = connection.execute(
                _TAKE, {"lease": name, "holder": self._owner, "now": now, "end": values["until"]}
            )
            if taken.rowcount:
                return True
            if connection.execute(select(leases.c.name).where(leases.c.name == name)).first():
                return False
            connection.execute(insert(leases).values(name=name, **values))
            return True

        try:
            return self._store.retried(take)
        except IntegrityError:  # another process inserted it first
            return False


def _is_live(experiment: Experiment) -> bool:
    return experiment.status in ("running", "paused")


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


def next_table(
    connection: Connection, experiment: Experiment, found: Sums | None = None
) -> PublishedTable:
    """Make the next table of an experiment from the stored counts.

    Args:
        connection: inside a transaction.
        experiment: the experiment.
        found: the sums of its counters, if already read.

    Raises:
        BrokenPromiseError: the row disagrees with the chain. A table made from a changed row would
            be chained, and would stay in force after the row was changed back.
    """
    found = sums(connection, experiment) if found is None else found
    promise = promises.check(connection, experiment)
    now = commitments.moment(connection)
    recipe = recipe_of(experiment)
    counts = counts_now(connection, experiment, now, found)
    wanted = None
    if recipe.kind.follows_scores:
        wanted = scores.newest(connection, experiment)
        counts["scores"] = None if wanted is None else scores.detail(wanted)
    # All inputs of a strategy are stored with the table and chained through its digest.
    counts["horizon"] = recipe.horizon
    counts["rule"] = recipe.kind.rule
    counts["additions"] = experiment.table_number  # the first table is made without noise
    seen = recipe.counts(counts["shows"], counts["rewards"], counts["additions"], wanted)
    late = promise.band if recipe.fixed_band() is None else None
    late = late or recipe.late_band(seen)
    counts["floors"] = None if late is None else list(late.floors)
    made = recipe.table(seen, late)
    promises.check_table(replace(promise, band=late or promise.band), made)
    return PublishedTable(
        number=experiment.table_number + 1,
        version=experiment.version,
        strategy=experiment.strategy,
        published_at=times.as_datetime(now),
        decisions=found.decisions,
        counts=_encode(counts).encode(),
        rows=made.encoded(),
    )


def recipe_of(experiment: Experiment) -> Recipe:
    """Return how the tables of the current version are made from counts."""
    return Recipe(
        experiment.strategy,
        budgets=experiment.budgets,
        active=experiment.active,
        cap=experiment.metrics[0].cap_micro,
        horizon=experiment.planned_visitors,
        across_time=experiment.across_time,
        trace_nano=experiment.trace_nano,
    )


def first_table(experiment: Experiment) -> Table:
    """Return the table before any visits, checked exactly."""
    empty = [[0] * len(experiment.arms) for _ in experiment.segments]
    recipe = recipe_of(experiment)
    return recipe.table(recipe.counts(empty, empty))


def put_first_table(connection: Connection, experiment: Experiment) -> None:
    """Publish a table in a transaction that holds the chain (start, switch off, add an arm)."""
    _store_table(connection, experiment, next_table(connection, experiment))


def _put_into_force(
    connection: Connection, experiment: Experiment, made: PublishedTable
) -> PublishedTable | None:
    commitments.lock_chain(connection)
    locked = experiments.held(connection, experiment)
    live = locked.status in ("running", "paused")
    unchanged = (made.number, made.version) == (locked.table_number + 1, locked.version)
    unchanged &= len(experiment.segments) == locked.segments
    if not live or not unchanged:  # stopped meanwhile, or its arms or segments changed
        return None
    if recipe_of(experiment).kind.follows_scores:
        newest = scores.newest(connection, experiment)
        if json.loads(made.counts)["scores"] != (newest and scores.detail(newest)):
            return None  # new scores arrived meanwhile; the table that is due will use those
    _store_table(connection, experiment, made)
    return made


def _store_table(connection: Connection, experiment: Experiment, made: PublishedTable) -> None:
    detail = promise_entries.table_detail(
        made.number,
        made.version,
        decoded_table(made.rows, len(experiment.arms)),
        made.counts,
        made.decisions,
        made.strategy,
        recipe_of(experiment).settled_band(json.loads(made.counts)["floors"]),
    )
    commitments.record(connection, "table", experiment, **detail)
    experiments.add_table(connection, experiment, made)


def counts_now(connection: Connection, experiment: Experiment, now: int, found: Sums) -> JsonObject:
    """Return the counts for a table made now, where `found` are the sums of its counters."""
    if experiment.trace_nano is not None or experiment.attribution_seconds is not None:
        return _counts(connection, experiment, now)
    width = len(experiment.arms)
    starts = range(0, len(found.shows), width)
    return {
        "shows": [found.shows[start : start + width].tolist() for start in starts],
        "rewards": [found.rewards[start : start + width].tolist() for start in starts],
    }


def _counts(connection: Connection, experiment: Experiment, now: int) -> JsonObject:
    """Return the counts for an experiment with an attribution window or a trace budget.

    A show counts once its attribution window has closed or its reward has arrived, whichever is
    first. The window of a table's decisions closes with the most recent of them. With a trace
    budget, each decision is counted exactly once, with noise (MATH section 13).
    """
    width, height = len(experiment.arms), len(experiment.segments)
    found = table_counts(connection, experiment)
    ends = _ends(experiments.published_at(connection, experiment), now)
    window = (experiment.attribution_seconds or 0) * 1_000_000
    closed = {number for number, end in ends.items() if now >= end + window}
    if experiment.trace_nano is None:
        shows = [[0] * width for _ in range(height)]
        rewards = [[0] * width for _ in range(height)]
        for (number, segment, arm), (shown, rewarded, value, _) in found.items():
            if segment >= 0:
                shows[segment][arm] += shown if number in closed else rewarded
                rewards[segment][arm] += value
        return {"shows": shows, "rewards": rewards}
    return _noisy_counts(connection, experiment, found, closed)


def _ends(published: Mapping[int, int], now: int) -> dict[int, int]:
    """Map table numbers to when they were replaced; `now` for the last, and for earlier decisions."""
    numbers = sorted(published)
    ends = {number: published[after] for number, after in pairwise(numbers)}
    first = published[numbers[0]] if numbers else now
    return {0: first, **ends, **({numbers[-1]: now} if numbers else {})}


def _padded(sums: list[list[int]], height: int, width: int) -> list[list[int]]:
    """Pad sums with zeros for arms and segments added since."""
    rows = [row + [0] * (width - len(row)) for row in sums]
    return rows + [[0] * width for _ in range(height - len(rows))]


def _noisy_counts(
    connection: Connection,
    experiment: Experiment,
    found: Mapping[tuple[int, int, int], tuple[int, int, int, int]],
    closed: set[int],
) -> JsonObject:
    """Return the noisy sums of the table in force plus everything new since then, with fresh noise.

    `entered` records which part of each table's decisions is in the sums. Once a table has closed,
    nothing more is added for it.
    """
    assert experiment.trace_nano is not None
    width, height = len(experiment.arms), len(experiment.segments)
    before = experiments.published(connection, experiment, experiment.table_number)
    if before:
        last = json.loads(before[0].counts)
        shows = _padded(last["shows"], height, width)
        rewards = _padded(last["rewards"], height, width)
        entered = {tuple(row[:3]): tuple(row[3:]) for row in last["entered"]}
    else:
        shows = [[0] * width for _ in range(height)]
        rewards = [[0] * width for _ in range(height)]
        entered = {}
    new_shows = [[0] * width for _ in range(height)]
    new_rewards = [[0] * width for _ in range(height)]
    for cell, (shown, rewarded, value, _) in found.items():
        number, segment, arm = cell
        old_shows, old_value, frozen = entered.get(cell, (0, 0, 0))
        if segment < 0 or frozen:
            continue
        now_shows = shown if number in closed else rewarded
        new_shows[segment][arm] += now_shows - old_shows
        new_rewards[segment][arm] += value - old_value
        entered[cell] = (now_shows, value, int(number in closed))
    if before:  # no decisions precede the first table, so it needs no noise
        cap = experiment.metrics[0].cap_micro
        for segment in range(height):
            for arm in range(width):
                shows[segment][arm] += new_shows[segment][arm] + discrete_laplace(
                    4 * 10**9, experiment.trace_nano
                )
                rewards[segment][arm] += new_rewards[segment][arm] + discrete_laplace(
                    4 * 10**9 * cap, experiment.trace_nano
                )
    return {
        "shows": shows,
        "rewards": rewards,
        "entered": [[*cell, *state] for cell, state in sorted(entered.items())],
    }
