"""The writer: one thread that answers everything queued in one durable transaction after another.

While a transaction is being synced to the disk the next jobs gather; together they are the next
batch (group commit). A job is answered only after its transaction is durable, or, where the store
cannot take it, with an unstored arm (decisions) or an error (rewards).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict

from deniable.errors import OverloadedError, StoreUnavailableError
from deniable.service.engine import Engine
from deniable.service.figures import Figures
from deniable.service.jobs import DecideJob, Job
from deniable.service.publisher import Publisher
from deniable.service.queueing import FairQueue
from deniable.storage.records import Decision
from deniable.storage.store import Store

BATCH_SECONDS = 0.025
"""How long one transaction should take: what comes meanwhile has to wait for it.

During overload a decision waits for its turn (`queue_seconds`, and up to one transaction more), and
then for its own transaction.
"""

LONG_BATCH_SECONDS = 0.1
"""The same where only batches come. A page of an index that many decisions of a transaction change is
written once, so that long transactions take less time for each."""

ONLY_BATCHES_SECONDS = 1.0
"""After so long without a single decision or reward, nobody is there who would wait for a batch."""

SMALLEST_BATCH, FIRST_BATCH = 100, 500
"""Decisions and rewards of one transaction: at least, and before anything was measured."""

READY_SECONDS = 3.0
"""A store that has not answered a probe after this long is not ready."""


class BatchSize:
    """How many decisions and rewards make a transaction of about BATCH_SECONDS.

    Attributes:
        limit: how many, by what the transactions so far have taken.

    >>> size = BatchSize(most=5_000)
    >>> for _ in range(20):
    ...     size.measured(size.limit, size.limit / 40_000)
    >>> size.limit
    1000
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rate = min(most, FIRST_BATCH) / BATCH_SECONDS
        self._single_at = float("-inf")

    @property
    def limit(self) -> int:
        """The size of the next transaction, where single visitors come too."""
        return self._of(BATCH_SECONDS)

    def limit_at(self, now: float) -> int:
        """The size of the next transaction."""
        mixed = now - self._single_at < ONLY_BATCHES_SECONDS
        return self._of(BATCH_SECONDS if mixed else LONG_BATCH_SECONDS)

    def taken(self, sizes: Iterable[int], now: float) -> None:
        """What a transaction holds: whether somebody alone is among them."""
        if 1 in sizes:
            self._single_at = now

    def _of(self, seconds: float) -> int:
        return max(SMALLEST_BATCH, min(self._most, round(self._rate * seconds)))

    def measured(self, size: int, seconds: float) -> None:
        """A transaction of this size took so long. Small ones tell little: most of it is waiting."""
        if size >= SMALLEST_BATCH:
            self._rate += 0.3 * (size / max(seconds, 1e-6) - self._rate)


class Writer:
    """Takes jobs from any thread; finishes them in its own.

    Args:
        store: where to.
        key: of the visitors' HMACs.
        publisher: makes tables.
        queue_limit: decisions and rewards that may wait.
        queue_seconds: how long they may wait during overload; None: for ever.
        batch_limit: decisions and rewards in one transaction (a larger single job is still one).
    """

    def __init__(
        self,
        store: Store,
        key: bytes,
        publisher: Publisher,
        *,
        queue_limit: int = 20_000,
        queue_seconds: float | None = None,
        batch_limit: int = 5_000,
    ) -> None:
        self.engine = Engine(
            store,
            key,
            publish=publisher.publish,
            grown=publisher.grown,
            stored=publisher.sums.stored,
        )
        self._key = key
        self._durable = store.durable  # nothing to sync: no thread, each job at once
        self._batch_size = BatchSize(most=batch_limit)
        self._lock = threading.RLock()  # guards what follows
        self._changed = threading.Condition(self._lock)
        self._queue = FairQueue(queue_limit, queue_seconds)
        self._probes: list[_Probe] = []
        self._refused = 0
        self._late = 0
        self._busy_since: float | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, job: Job) -> None:
        """Queue a job, or raise OverloadedError."""
        if job in self.submit_all((job,)):
            raise OverloadedError("too many decisions and rewards are waiting already")

    def submit_all(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Queue jobs; returns those that were refused. Others may be refused in their favour."""
        with self._lock:
            if self._closed:
                raise StoreUnavailableError("the service is closed")
            if not self._durable:
                self.engine.run(jobs)
                for job in jobs:
                    job.finish()
                return ()
            now, refused = time.monotonic(), []
            for job in jobs:
                refused += self._queue.put(job, now)
            self._wake()
            if not refused:
                return ()
            mine = set(jobs)
            own = [job for job in refused if job in mine]
            self._refused += len(own)
        self._refuse([job for job in refused if job not in mine])
        return own

    def crowded(self, caller: Hashable, size: int) -> bool:
        """Whether a job of this caller and size would only wait to be refused; counts it if so."""
        if not self._queue.standing:  # nearly always; the writer may hold the lock just now
            return False
        with self._lock:
            crowded = self._queue.crowded(caller, size, time.monotonic())
            self._refused += crowded
        return crowded

    def answer_late(self, job: Job) -> list[Decision]:
        """Answer a job without the store, because the store takes too long; raises for rewards.

        The job may still be stored. That harms nobody: what is answered here tells nothing.
        """
        job.late = True
        state = self.engine.state(job.experiment) if isinstance(job, DecideJob) else None
        if not isinstance(job, DecideJob) or state is None or state.differences:
            raise StoreUnavailableError("the store did not answer in time")
        answers = [state.unstored(self._key) for _ in job.visitors]
        with self._lock:
            self._late += len(answers)
        return answers

    def stalled(self, seconds: float) -> bool:
        """Whether the present transaction has been at work for longer than this."""
        since = self._busy_since
        return since is not None and time.monotonic() - since > seconds

    @property
    def figures(self) -> Figures:
        """Counts since the start, and the present state."""
        with self._lock:
            queued, age = self._queue.size, self._queue.age(time.monotonic())
        found = Figures(
            **asdict(self.engine.counts),
            refused=self._refused,
            queued=queued,
            queue_age=age,
            store_failing=self.engine.failing or self.stalled(READY_SECONDS),
        )
        found.decisions += self._late
        found.unstored += self._late
        return found

    def ready(self) -> bool:
        """Whether a decision could be drawn and stored right now."""
        if not self._durable:
            return not self._closed
        probe = _Probe()
        with self._lock:
            if self._closed:
                return False
            self._probes.append(probe)
            self._wake()
        return probe.finished.wait(READY_SECONDS) and probe.passed

    def close(self, timeout_seconds: float | None = None) -> bool:
        """Finish what is queued, then stop; False where that took longer than the timeout."""
        with self._lock:
            first, self._closed = not self._closed, True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout_seconds)
            if self._thread.is_alive():
                return False
        if first:
            self.engine.close()
        return True

    def _wake(self) -> None:
        if self._thread is None:  # started by the first job: looking on needs no thread
            self._thread = threading.Thread(target=self._run, name="deniable-writer", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not (len(self._queue) or self._probes or self._closed):
                    self._changed.wait()
                if self._closed and not len(self._queue):
                    return
                probes, self._probes = self._probes, []
                now = self._busy_since = time.monotonic()
                batch, shed = self._queue.take(self._batch_size.limit_at(now), now)
            self._refuse(shed)
            if batch:
                sizes = [job.size for job in batch]
                self._batch_size.taken(sizes, now)
                self.engine.run(batch)
                self._batch_size.measured(sum(sizes), time.monotonic() - now)
                for job in batch:
                    job.finish()
            if probes:
                passed = self._probed()
                for probe in probes:
                    probe.finish(passed)
            self._busy_since = None

    def _probed(self) -> bool:
        """All that a decision needs, undone; then an empty transaction that is committed."""
        try:
            self.engine.probe()
            self.engine.run([DecideJob("", (), (), lambda _job: None)])
        except Exception:  # noqa: BLE001 - whatever is wrong, it is not ready
            return False
        return not self.engine.failing

    def _refuse(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            job.error = OverloadedError("too many decisions and rewards are waiting")
            with self._lock:
                self._refused += 1
            job.finish()


class _Probe:
    """Somebody who waits to know whether the store is ready."""

    def __init__(self) -> None:
        self.finished = threading.Event()
        self.passed = False

    def finish(self, passed: bool) -> None:
        """Tell the outcome."""
        self.passed = passed
        self.finished.set()
