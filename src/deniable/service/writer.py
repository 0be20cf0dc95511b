"""The writer: one thread that answers everything queued in one durable transaction after another.

While a transaction is being synced to the disk the next jobs gather; together they are the next
batch (group commit). A job is answered only after its transaction is durable, or, where the store
cannot take it, with an unstored uniform arm (decisions) or an error (rewards).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict
from queue import Empty, SimpleQueue

from deniable.errors import OverloadedError, StoreUnavailableError
from deniable.service.engine import Engine
from deniable.service.figures import Figures
from deniable.service.jobs import DecideJob, Job
from deniable.service.publisher import Publisher
from deniable.storage.store import Store


class Writer:
    """Takes jobs from any thread; finishes them in its own.

    Args:
        store: where to.
        key: of the visitors' HMACs.
        publisher: makes tables.
        queue_limit: decisions and rewards that may wait.
        batch_limit: decisions and rewards in one transaction (a larger single job is still one).
    """

    def __init__(
        self,
        store: Store,
        key: bytes,
        publisher: Publisher,
        *,
        queue_limit: int = 20_000,
        batch_limit: int = 5_000,
    ) -> None:
        self.engine = Engine(store, key, publish=publisher.publish, grown=publisher.grown)
        self._durable = store.durable  # nothing to sync: no thread, each job at once
        self._queue_limit = queue_limit
        self._batch_limit = batch_limit
        self._jobs: SimpleQueue[Sequence[Job] | None] = SimpleQueue()
        self._lock = threading.RLock()  # guards what follows
        self._queued = 0
        self._refused = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, job: Job) -> None:
        """Queue a job, or raise OverloadedError."""
        if self.submit_all((job,)):
            raise OverloadedError("too many decisions and rewards are waiting already")

    def submit_all(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Queue jobs in order, as many as fit; returns those that were refused."""
        with self._lock:
            if self._closed:
                raise StoreUnavailableError("the service is closed")
            if not self._durable:
                self.engine.run(jobs)
                for job in jobs:
                    job.finish()
                return ()
            queued, taken = self._queued, 0
            for job in jobs:
                size = job.size
                if queued + size > self._queue_limit and queued:
                    break
                queued += size
                taken += 1
            self._queued = queued
            self._refused += len(jobs) - taken
            if self._thread is None:  # started by the first job: looking on needs no thread
                self._thread = threading.Thread(
                    target=self._run, name="deniable-writer", daemon=True
                )
                self._thread.start()
            if taken:
                self._jobs.put(jobs[:taken])
            return jobs[taken:]

    @property
    def figures(self) -> Figures:
        """Counts since the start."""
        return Figures(**asdict(self.engine.counts), refused=self._refused, queued=self._queued)

    def ready(self) -> bool:
        """Whether the store takes an (empty) transaction."""
        with self._lock:
            if self._closed:
                return False
        waiting = threading.Event()
        self.submit(DecideJob("", (), (), lambda _job: waiting.set()))
        return waiting.wait(5) and not self.engine.failing

    def close(self) -> None:
        """Finish what is queued, then stop."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()
        self.engine.close()

    def _run(self) -> None:
        last = False
        while not last:
            batch, size, last = self._gathered()
            if batch:
                self.engine.run(batch)
                with self._lock:
                    self._queued -= size
                for job in batch:
                    job.finish()

    def _gathered(self) -> tuple[list[Job], int, bool]:
        """Everything queued, up to the limit; how much that is, and whether it was the last of it."""
        batch: list[Job] = []
        size = 0
        jobs = self._jobs.get()
        while jobs is not None:
            batch += jobs
            size += sum(job.size for job in jobs)
            if size >= self._batch_limit:
                return batch, size, False
            try:
                jobs = self._jobs.get_nowait()
            except Empty:
                return batch, size, False
        return batch, size, True
