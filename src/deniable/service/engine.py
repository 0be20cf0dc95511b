"""The engine: what a writer keeps between batches; runs a batch, retries it, or answers without it.

It keeps the experiments' states, its identity and the end of its chain. All of it can be read from the
store again, and is, after anything went wrong.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from sqlalchemy import select

from deniable.errors import (
    DeniableError,
    StoreUnavailableError,
    UnknownNameError,
    WrongStateError,
)
from deniable.service.batch import (
    HOUR,
    Batch,
    by_experiment,
    by_tag,
    checked_rewards,
    outcomes_of,
)
from deniable.service.experiment_state import ExperimentState, ExperimentStates, OutOfDate
from deniable.service.figures import Counts
from deniable.service.identity import Identity, claim, claim_scratch, release
from deniable.service.jobs import DecideJob, Job, RewardJob
from deniable.storage import times
from deniable.storage.records import SCRATCH_PREFIX
from deniable.storage.schema import experiments as table
from deniable.storage.store import Chain, HotTransaction, Store, TryAgain

_log = logging.getLogger("deniable")

PAUSES = (0.0, 0.0, 0.01, 0.05, 0.25)
"""Seconds before the second and each later attempt at a batch."""

REREADS = 20
"""How often a batch may find its experiments changed before it gives up."""


class _Undone(Exception):
    """A probe's transaction is rolled back."""


class Engine:
    """Runs batches. Used by one thread at a time.

    Args:
        store: where to.
        key: of the visitors' HMACs.
        publish: makes the first table of an experiment that has none, before it is drawn from.
        grown: told the experiments that may have grown enough for the next table.
        stored: told after every transaction which writer has stored rewards for which tables.
        scratch: whether this is the engine of a scratch copy, with a chain of its own.
    """

    def __init__(
        self,
        store: Store,
        key: bytes,
        *,
        publish: Callable[[str], object],
        grown: Callable[[ExperimentState], None],
        stored: Callable[[int | None, Mapping[bytes, int]], None],
        scratch: bool = False,
    ) -> None:
        self._store = store
        self._key = key
        self._publish = publish
        self._grown = grown
        self._told = stored
        self._states = ExperimentStates(store, key, scratch=scratch)
        self._claim = claim_scratch if scratch else claim
        self._copies: dict[str, Engine] = {}
        self._identity: Identity | None = None
        self._chain: Chain | None = None
        self.counts = Counts()
        self.failing = False
        self._closed_until = 0.0

    def run(self, jobs: Sequence[Job]) -> None:
        """Answer every job: `answers` or `error` is set when this returns."""
        canaries = [job for job in jobs if _is_canary(job)]
        others = [job for job in jobs if not _is_canary(job)] if canaries else jobs
        if others or not canaries:
            self._run(others)
        for key, some in by_experiment(canaries).items():
            self._copy(key)._run(some)
            if isinstance(some[0].error, UnknownNameError):  # it was removed
                del self._copies[key]

    def _copy(self, key: str) -> Engine:
        """The engine of a scratch copy: the same code, with a chain and counts of its own."""
        if key not in self._copies:
            self._copies[key] = Engine(
                self._store,
                self._key,
                publish=self._publish,
                grown=lambda _state: None,
                stored=lambda _writer, _rewarded: None,
                scratch=True,
            )
        return self._copies[key]

    def _run(self, jobs: Sequence[Job]) -> None:
        began = time.monotonic()
        try:
            if began < self._closed_until and any(job.size for job in jobs):
                raise StoreUnavailableError("the store did not answer a moment ago")
            self._stored(jobs)
            if self.failing:
                _log.warning("decisions are stored again")
            self.failing, self._closed_until = False, 0.0
        # Whatever goes wrong: nothing was acknowledged, the zero row answers, the writer lives on.
        except Exception as error:  # noqa: BLE001
            if not self.failing:  # once, not for every batch of a long outage
                _log.error("decisions cannot be stored: %s", type(error).__name__)
            self.failing = True
            self._told(None, {})  # it may have been stored all the same
            if isinstance(error, StoreUnavailableError):
                # Waiting for a store that hangs takes at most half of the time.
                took = time.monotonic() - began
                self._closed_until = max(self._closed_until, began + 2 * took)
            self._chain = None
            self._answer_without_store(jobs, error)
        self.counts.add(jobs)

    def probe(self) -> None:
        """Do all that a decision needs up to its commit, for nobody, and undo it; raises on failure."""
        identity = self._identity = self._identity or self._store.retried(claim)
        with self._store.read() as connection:
            key = connection.execute(
                select(table.c.key).where(table.c.status == "running").limit(1)
            ).scalar()
        if key is None:
            return
        self._states.learn((key,), ())
        try:
            with self._store.hot() as transaction:
                chain = self._chain or self._reread_chain(transaction, identity)
                batch = Batch(transaction, identity, chain, times.now(), self._key)
                nobody = DecideJob(key, (os.urandom(16).hex(),), (None,), lambda _job: None)
                for state in self._states.current(transaction, (key,), ()):
                    if state.serves_draws and not state.differences and state.zero is not None:
                        batch.decide(state, (nobody,))
                        batch.store()
                raise _Undone
        except _Undone:
            pass
        except OutOfDate as changed:  # the store answers; the next batch reads it anyway
            self._states.reread(changed.ids)
        finally:
            self._chain = None

    def state(self, experiment: str) -> ExperimentState | None:
        """An experiment as far as it is in memory."""
        copy = self._copies.get(experiment)
        return (self if copy is None else copy)._states.get(experiment)

    def close(self) -> None:
        """Give the chain back."""
        identity, self._identity = self._identity, None
        if identity is not None:
            with suppress(StoreUnavailableError):
                self._store.retried(lambda connection: release(connection, identity))

    def _stored(self, jobs: Sequence[Job]) -> None:
        """One durable transaction, retried where that can help; at once in vain while failing."""
        pauses = () if self.failing else PAUSES
        for pause in (*pauses, None):
            try:
                self._attempt(jobs)
            except TryAgain as lost:
                self._chain = None
                if pause is None:
                    raise StoreUnavailableError(str(lost)) from lost
                time.sleep(pause)
            else:
                return

    def _attempt(self, jobs: Sequence[Job]) -> None:
        """Run the batch with states that are current inside of its transaction."""
        deciding, rewarding = by_experiment(jobs), by_tag(jobs)
        self._states.learn(deciding, rewarding)
        for _ in range(REREADS):
            for key in deciding:
                state = self._states.get(key)
                if state is not None and state.needs_table:
                    self._publish(key)
                    self._states.reread([state.id])
            try:
                self._transact(deciding, rewarding)
            except OutOfDate as changed:
                self._states.reread(changed.ids)
                self._states.learn(deciding, rewarding)  # a draft may be another one by now
            else:
                return
        raise TryAgain("an experiment changes all the time")

    def _transact(
        self, deciding: dict[str, list[DecideJob]], rewarding: dict[bytes, list[RewardJob]]
    ) -> None:
        identity = self._identity = self._identity or self._store.retried(self._claim)
        with self._store.hot() as transaction:
            chain = self._chain or self._reread_chain(transaction, identity)
            now = times.now()
            batch = Batch(transaction, identity, chain, now, self._key)
            states = self._states.current(transaction, deciding, rewarding)
            rewards, refused = checked_rewards(states, rewarding)
            rewarded = dict.fromkeys(job for jobs in rewarding.values() for job in jobs)
            asked = [job for job in rewarded if job.outcomes is not None]
            told: dict[tuple[bytes, int], str] | None = {} if asked else None
            unstored = []
            for state in states:
                mine = deciding.get(state.key, ())
                if mine and state.differences:
                    continue
                if mine and state.serves_draws:
                    batch.decide(state, mine)
                elif mine:
                    unstored.append((state, mine))
                if state.id[:4] in rewards:
                    batch.reward(state, rewards[state.id[:4]], told)
            if batch.changed or (not deciding and not rewarding):  # an empty batch probes the store
                chain = batch.store()
        self._chain = chain
        self._told(identity.writer, batch.rewarded)
        self._finish(batch, states, deciding, unstored, now)
        for job, error in refused.items():
            job.error = error
        for job in asked:
            if told is not None and job.error is None:
                job.outcomes = outcomes_of(job, states, told)

    def _finish(
        self,
        batch: Batch,
        states: Sequence[ExperimentState],
        deciding: dict[str, list[DecideJob]],
        unstored: Sequence[tuple[ExperimentState, Sequence[DecideJob]]],
        now: int,
    ) -> None:
        """The transaction is durable: answer."""
        for job, answers in batch.answers:
            job.answers = answers
        for state, jobs in unstored:
            for job in jobs:
                job.answers = [state.unstored(self._key) for _ in job.visitors]
        known = {state.key: state for state in states}
        for key, jobs in deciding.items():
            refusal = _refusal(key, known.get(key))
            for job in jobs if refusal is not None else ():
                job.error = refusal
        for state in states:
            if state.key in deciding:
                state.answered_hour = now // HOUR
            new = batch.new_decisions[state]
            self.counts.new_decisions += new
            state.new_decisions += new
            if new and state.new_decisions >= state.look_after:
                self._grown(state)

    def _reread_chain(self, transaction: HotTransaction, identity: Identity) -> Chain:
        chain = transaction.chain(identity.writer, identity.owner)
        if chain is None:
            self._identity = None
            raise TryAgain("this writer's chain was taken over")
        return chain

    def _answer_without_store(self, jobs: Sequence[Job], error: Exception) -> None:
        refusal = (
            error
            if isinstance(error, DeniableError)
            else StoreUnavailableError(f"the batch could not be stored: {type(error).__name__}")
        )
        for job in jobs:
            state = self._states.get(job.experiment) if isinstance(job, DecideJob) else None
            if isinstance(job, DecideJob) and state is not None and not state.differences:
                job.answers = [state.unstored(self._key) for _ in job.visitors]
                self.counts.unstored += len(job.answers)
            else:
                job.error = refusal


def _is_canary(job: Job) -> bool:
    return isinstance(job, DecideJob) and job.experiment.startswith(SCRATCH_PREFIX)


def _refusal(key: str, state: ExperimentState | None) -> DeniableError | None:
    """Why nobody is answered for this experiment, whatever the segment; None where all are."""
    if state is None:
        return UnknownNameError("experiment", key)
    if state.differences:
        return WrongStateError(
            f"experiment {key!r} is not served: its stored {', '.join(state.differences)} "
            "is not what the ledger says; run `deniable ledger verify`"
        )
    return None
