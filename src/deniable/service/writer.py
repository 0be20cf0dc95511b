"""The writer: a single thread that answers all queued jobs, one durable transaction after another.

While one transaction is synced to disk, new jobs accumulate and become the next batch (group
commit). A job is answered only after its transaction is durable. If the store cannot take it,
decisions get an arm that is not stored and rewards get an error.
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
"""Target duration of one transaction. Jobs that arrive meanwhile wait for the next one.

During overload a decision waits for its turn (`queue_seconds`, and up to one transaction more), and
then for its own transaction.
"""

LONG_BATCH_SECONDS = 0.1
"""The same where only batches come. A page of an index that many decisions of a transaction change is
written once, so that long transactions take less time for each."""

ONLY_BATCHES_SECONDS = 1.0
"""After so long without a single decision or reward, nobody is there who would wait for a batch."""

SMALLEST_BATCH, FIRST_BATCH = 100, 500
"""Batch sizes: the minimum, and the initial size before anything has been measured."""

READY_SECONDS = 3.0
"""The store counts as not ready if a probe takes longer than this."""


class BatchSize:
    """Estimates how many decisions and rewards fit into a transaction of about BATCH_SECONDS.

    Attributes:
        limit: the current estimate.

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
        """Record a transaction's size and duration. Small ones say little: most of it is waiting."""
        if size >= SMALLEST_BATCH:
            self._rate += 0.3 * (size / max(seconds, 1e-6) - self._rate)


class Writer:
    """Accepts jobs from any thread and processes them in its own.

    Args:
        store: the store to write to.
        key: key for visitor HMACs.
        publisher: makes tables.
        queue_limit: maximum number of queued decisions and rewards.
        queue_seconds: how long they may wait during overload; None means indefinitely.
        batch_limit: maximum decisions and rewards per transaction (a larger single job still gets
            one).
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
        # If not durable, there is nothing to sync: no thread, one job at a time.
        self._durable = store.durable
        self._batch_size = BatchSize(most=batch_limit)
        self._lock = threading.RLock()  # guards the attributes below
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
        """Queue jobs and return those that were refused. Queued ones may be refused in their favour."""
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
        """Whether a job of this caller and size would only wait to be refused. Counts it if so."""
        if not self._queue.standing:  # fast path, because the writer may hold the lock
            return False
        with self._lock:
            crowded = self._queue.crowded(caller, size, time.monotonic())
            self._refused += crowded
        return crowded

    def answer_late(self, job: Job) -> list[Decision]:
        """Answer a job without the store because the store is too slow. Raises for rewards.

        The job may still be stored later. That does no harm, because this answer reveals nothing.
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
        """Whether the current transaction has been running for longer than this."""
        since = self._busy_since
        return since is not None and time.monotonic() - since > seconds

    @property
    def figures(self) -> Figures:
        """Counts since the start and the current state."""
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
        """Finish everything queued, then stop. Returns False if that exceeds the timeout."""
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
        if self._thread is None:  # started lazily: read-only use needs no thread
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
                passed = self._probe_store()
                for probe in probes:
                    probe.finish(passed)
            self._busy_since = None

    def _probe_store(self) -> bool:
        """Do everything that a decision needs and roll it back, then commit an empty transaction."""
        try:
            self.engine.probe()
            self.engine.run([DecideJob("", (), (), lambda _job: None)])
        except Exception:  # noqa: BLE001 - any error means not ready
            return False
        return not self.engine.failing

    def _refuse(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            job.error = OverloadedError("too many decisions and rewards are waiting")
            with self._lock:
                self._refused += 1
            job.finish()


class _Probe:
    """A caller waiting to learn whether the store is ready."""

    def __init__(self) -> None:
        self.finished = threading.Event()
        self.passed = False

    def finish(self, passed: bool) -> None:
        """Report the outcome."""
        self.passed = passed
        self.finished.set()
