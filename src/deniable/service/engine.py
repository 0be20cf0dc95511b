"""The engine: what a writer keeps between batches; runs a batch, retries it, or answers without it.

It keeps the experiments' runtimes, its identity and the end of its chain. All of it can be read from
the store again, and is, after anything went wrong.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress

from sqlalchemy import select

from deniable.errors import DeniableError, StoreUnavailableError, UnknownNameError
from deniable.service.batch import Batch, by_experiment, by_tag
from deniable.service.catalogue import Catalogue
from deniable.service.fallback import unstored
from deniable.service.figures import Counts
from deniable.service.identity import Identity, claim, release
from deniable.service.jobs import DecideJob, Job
from deniable.service.runtime import Runtime
from deniable.storage import times
from deniable.storage.schema import experiments as table
from deniable.storage.store import Chain, HotTransaction, Store, TryAgain

_log = logging.getLogger("deniable")

PAUSES = (0.0, 0.0, 0.01, 0.05, 0.25)
"""Seconds before the second and each later attempt at a batch."""


class _Undone(Exception):
    """A probe's transaction is rolled back."""


class Engine:
    """Runs batches. Used by one thread at a time.

    Args:
        store: where to.
        key: of the visitors' HMACs.
    """

    def __init__(self, store: Store, key: bytes) -> None:
        self._store = store
        self._key = key
        self._catalogue = Catalogue(store, key)
        self._identity: Identity | None = None
        self._chain: Chain | None = None
        self.counts = Counts()
        self.failing = False
        self._closed_until = 0.0

    def run(self, jobs: Sequence[Job]) -> None:
        """Answer every job: `answers` or `error` is set when this returns."""
        began = time.monotonic()
        try:
            if began < self._closed_until and any(job.size for job in jobs):
                raise StoreUnavailableError("the store did not answer a moment ago")
            self._stored(jobs)
            if self.failing:
                _log.warning("decisions are stored again")
            self.failing, self._closed_until = False, 0.0
        # Whatever goes wrong: nothing was acknowledged, the answer is uniform, the writer lives on.
        except Exception as error:  # noqa: BLE001
            if not self.failing:  # once, not for every batch of a long outage
                _log.error("decisions cannot be stored: %s", type(error).__name__)
            self.failing = True
            # Waiting for a store that hangs takes at most half of the time.
            took = time.monotonic() - began
            self._closed_until = max(self._closed_until, began + 2 * took)
            self._forget()
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
        self._catalogue.learn((key,), ())
        try:
            with self._store.hot() as transaction:
                chain = self._chain or self._reread_chain(transaction, identity)
                batch = Batch(transaction, identity, chain, times.now())
                nobody = DecideJob(key, (os.urandom(16).hex(),), (None,), lambda _job: None)
                for runtime in self._catalogue.current(transaction, (key,), (), identity.writer):
                    if runtime.serves_draws:
                        batch.decide(runtime, (nobody,))
                        batch.store()
                raise _Undone
        except _Undone:
            pass
        finally:
            self._forget()

    def close(self) -> None:
        """Give the chain back."""
        identity, self._identity = self._identity, None
        if identity is not None:
            with suppress(StoreUnavailableError):
                self._store.retried(lambda connection: release(connection, identity))

    def state(self, experiment: str) -> tuple[Runtime | None, Chain | None, Identity | None]:
        """What a decision needs, as far as it is in memory."""
        return self._catalogue.get(experiment), self._chain, self._identity

    def extend(self, chain: Chain) -> Chain:
        """One decision more was chained."""
        self._chain = chain
        self.counts.decisions += 1
        self.counts.new_decisions += 1
        return chain

    def _stored(self, jobs: Sequence[Job]) -> None:
        """One durable transaction, retried where that can help; at once in vain while failing."""
        pauses = () if self.failing else PAUSES
        for pause in (*pauses, None):
            try:
                self._attempt(jobs)
            except TryAgain as lost:
                self._forget()
                if pause is None:
                    raise StoreUnavailableError(str(lost)) from lost
                time.sleep(pause)
            else:
                return

    def _attempt(self, jobs: Sequence[Job]) -> None:
        deciding, rewarding = by_experiment(jobs), by_tag(jobs)
        identity = self._identity = self._identity or self._store.retried(claim)
        self._catalogue.learn(deciding, rewarding)
        with self._store.hot() as transaction:
            chain = self._chain or self._reread_chain(transaction, identity)
            now = times.now()
            batch = Batch(transaction, identity, chain, now)
            runtimes = self._catalogue.current(transaction, deciding, rewarding, identity.writer)
            for runtime in runtimes:
                mine = deciding.get(runtime.key, ())
                if mine and runtime.serves_draws:
                    batch.decide(runtime, mine)
                for job in () if runtime.serves_draws else mine:
                    job.answers = [unstored(runtime, self._key) for _ in job.visitors]
                if runtime.id[:4] in rewarding:
                    batch.reward(runtime, rewarding[runtime.id[:4]])
            if batch.changed or (not deciding and not rewarding):  # an empty batch probes the store
                chain = batch.store()
        self._chain = chain
        for job, answers in batch.answers:
            job.answers = answers
        known = {runtime.key for runtime in runtimes}
        for key, mine in deciding.items():
            if key not in known:
                for job in mine:
                    job.error = UnknownNameError("experiment", key)
        self.counts.new_decisions += batch.new_decisions

    def _reread_chain(self, transaction: HotTransaction, identity: Identity) -> Chain:
        chain = transaction.chain(identity.writer, identity.owner)
        if chain is None:
            self._identity = None
            raise TryAgain("this writer's chain was taken over")
        return chain

    def _forget(self) -> None:
        """What is in memory may not be what is stored: read it again before it is used."""
        self._chain = None
        self._catalogue.forget_counts()

    def _answer_without_store(self, jobs: Sequence[Job], error: Exception) -> None:
        refusal = (
            error
            if isinstance(error, DeniableError)
            else StoreUnavailableError(f"the batch could not be stored: {type(error).__name__}")
        )
        for job in jobs:
            runtime = self._catalogue.get(job.experiment) if isinstance(job, DecideJob) else None
            if isinstance(job, DecideJob) and runtime is not None:
                job.answers = [unstored(runtime, self._key) for _ in job.visitors]
                self.counts.unstored += len(job.answers)
            else:
                job.error = refusal
