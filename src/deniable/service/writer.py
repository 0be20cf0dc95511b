"""The writer: a single thread that answers all queued jobs, one durable transaction after another.

While one transaction is synced to disk, new jobs accumulate and become the next batch (group
commit). A job is answered only after its transaction is durable. If the store cannot take it,
decisions get an arm that is not stored and rewards get an error.

`AsyncDecisions` is its asyncio front end. Requests made in one event-loop iteration are submitted as one
batch; results come back in one callback. A decision that is not stored before the deadline is answered
without the store.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from deniable.errors import DeniableError, OverloadedError, StoreUnavailableError
from deniable.service.engine import Counts, Engine
from deniable.service.experiment_state import no_key
from deniable.service.jobs import (
    BatchSize,
    DecideJob,
    Job,
    JobQueue,
    RewardJob,
    decide_job,
    label_job,
    reward_job,
)
from deniable.service.publisher import Publisher
from deniable.storage.records import Decision
from deniable.storage.store import Store

READY_SECONDS = 3.0
"""The store counts as not ready if a probe takes longer than this."""


@dataclass
class Figures(Counts):
    """A snapshot of `Counts` with the state of the queue.

    Attributes:
        refused: jobs refused because the queue was full or they waited too long.
        queued: decisions and rewards now waiting.
        queue_age: how long the oldest of them has waited, in seconds.
        store_failing: whether the store currently fails to store decisions.
    """

    refused: int = 0
    queued: int = 0
    queue_age: float = 0.0
    store_failing: bool = False


class Writer:
    """Accepts jobs from any thread and processes them in its own.

    Args:
        store: the store to write to.
        key: key for visitor HMACs.
        publisher: makes tables.
        mask_key: returns the key of the firm's masks, if this process has it.
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
        mask_key: Callable[[], bytes | None] = no_key,
        queue_limit: int = 20_000,
        queue_seconds: float | None = None,
        batch_limit: int = 5_000,
    ) -> None:
        self.engine = Engine(store, key, mask_key, grown=publisher.grown)
        self._key = key
        # If not durable, there is nothing to sync: no thread, one job at a time.
        self._durable = store.durable
        self._batch_size = BatchSize(most=batch_limit)
        self._lock = threading.RLock()  # guards the attributes below
        self._changed = threading.Condition(self._lock)
        self._queue = JobQueue(queue_limit, queue_seconds)
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
        """Queue jobs and return those that were refused because the queue is full."""
        with self._lock:
            if self._closed:
                raise StoreUnavailableError("the service is closed")
            if not self._durable:
                self.engine.run(jobs)
                for job in jobs:
                    job.done(job)
                return ()
            now = time.monotonic()
            refused = [job for job in jobs if not self._queue.put(job, now)]
            self._refused += len(refused)
            self._wake()
        return refused

    def crowded(self) -> bool:
        """Whether a new job would only wait to be refused. Counts it if so."""
        if self._queue.standing_since is None:  # needs no lock, which the writer may hold
            return False
        with self._lock:
            crowded = self._queue.crowded(time.monotonic())
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
                batch, shed = self._queue.take(self._batch_size.limit, now)
            self._refuse(shed)
            if batch:
                self.engine.run(batch)
                taken = sum(job.size for job in batch)
                self._batch_size.measured(taken, time.monotonic() - now)
                for job in batch:
                    job.done(job)
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
            job.done(job)


class _Probe:
    """A caller waiting to learn whether the store is ready."""

    def __init__(self) -> None:
        self.finished = threading.Event()
        self.passed = False

    def finish(self, passed: bool) -> None:
        """Report the outcome."""
        self.passed = passed
        self.finished.set()


class Waiting:
    """A `done` callback that a thread can wait for, implemented with a lock."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def __call__(self, _job: Job) -> None:
        """Mark the job as finished."""
        self._lock.release()

    def finished(self, timeout_seconds: float | None) -> bool:
        """Wait for the job; return whether it finished in time."""
        return self._lock.acquire(timeout=-1 if timeout_seconds is None else timeout_seconds)


class AsyncDecisions:
    """Awaitable decide and reward, for one event loop.

    Calls raise InvalidArgumentError immediately; all other errors are raised when awaited.

    Args:
        writer: where they are submitted; also an attribute.
        decide_seconds: deadline for the store. After it, decisions are answered without the store
            and rewards fail with an error. None waits indefinitely.
        loop: event loop of the futures; defaults to the running loop.
    """

    def __init__(
        self,
        writer: Writer,
        *,
        decide_seconds: float | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.writer = writer
        self._decide_seconds = decide_seconds
        self._loop = loop or asyncio.get_running_loop()
        self._asked: list[Job] = []
        self._waiting: deque[Job] = deque()
        self._watching = False
        self._finished: deque[Job] = deque()
        self._awake = False

    def decide(
        self,
        experiment: str,
        visitors: Sequence[str],
        segments: Sequence[str | None],
        contexts: Sequence[str | None] | None = None,
        *,
        observed: bool = True,
    ) -> asyncio.Future[list[Decision]]:
        """Decide for these visitors of one experiment. Resolves, in order, once they are durable."""
        future: asyncio.Future[list[Decision]] = self._loop.create_future()
        job = decide_job(
            experiment,
            visitors,
            segments,
            self._done,
            contexts=contexts,
            observed=observed,
            waiter=future,
        )
        self._enqueue(job)
        return future

    def label(
        self, mask: str, visitors: Sequence[str], segments: Sequence[str | None]
    ) -> asyncio.Future[list[str]]:
        """Return labels of a mask for these visitors. Resolves, in order, once they are durable."""
        future: asyncio.Future[list[str]] = self._loop.create_future()
        self._enqueue(label_job(mask, visitors, segments, self._done, waiter=future))
        return future

    def labels_of(self, mask: str) -> Sequence[str]:
        """Return all labels of a mask; none if it was never asked for one."""
        return self.writer.engine.labels_of(mask)

    def longest_arm(self, experiment: str) -> int:
        """Return the length of the experiment's longest arm key; 0 if it was never decided for."""
        state = self.writer.engine.state(experiment)
        return 0 if state is None else state.longest_arm

    def reward(
        self,
        rewards: Sequence[tuple[str, float] | tuple[str, float, str | None]],
    ) -> asyncio.Future[None]:
        """Count (decision, value) pairs. Resolves once they are durable."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._enqueue(reward_job(rewards, self._done, waiter=future))
        return future

    def _enqueue(self, job: Job) -> None:
        """Collect a job. The first job of an iteration schedules the submission of all of them."""
        if not self._asked:
            self._loop.call_soon(self._submit)
        self._asked.append(job)

    def _submit(self) -> None:
        jobs, self._asked = self._asked, []
        limit = self._decide_seconds
        if limit is not None and self.writer.stalled(
            limit
        ):  # the store hangs: answer without it right away
            for job in jobs:
                self._answer_late(job)
            return
        refused: Sequence[Job] = jobs
        error: DeniableError = OverloadedError("too much is queued")
        try:
            refused = self.writer.submit_all(jobs)
        except DeniableError as closed:
            error = closed
        for job in refused:
            job.error = error
            self._done(job)
        if limit is not None:
            self._waiting.extend(jobs)
            if not self._watching:
                self._watching = True
                self._loop.call_later(limit / 4, self._answer_overdue, limit)

    def _answer_overdue(self, limit: float) -> None:
        """Answer jobs that have waited too long; reschedule while any are waiting."""
        waiting, oldest = self._waiting, time.monotonic() - limit
        while waiting and (_future(waiting[0]).done() or waiting[0].since < oldest):
            job = waiting.popleft()
            if not _future(job).done():
                self._answer_late(job)
        self._watching = bool(waiting)
        if waiting:
            self._loop.call_later(limit / 8, self._answer_overdue, limit)

    def _answer_late(self, job: Job) -> None:
        try:
            _future(job).set_result(self.writer.answer_late(job))
        except DeniableError as error:
            _future(job).set_exception(error)

    def _done(self, job: Job) -> None:
        """Collect a finished job (writer's thread). The first one of a batch wakes the event loop."""
        self._finished.append(job)
        if not self._awake:
            self._awake = True
            with suppress(RuntimeError):  # the loop is closed, so there are no waiters
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """Resolve the futures of finished jobs (event loop's thread)."""
        self._awake = False  # cleared before draining the queue, so that no job is missed
        while self._finished:
            job = self._finished.popleft()
            future = _future(job)
            if future.done():  # the client disconnected, or the deadline had passed
                continue
            if job.error is not None:
                future.set_exception(job.error)
            else:
                future.set_result(None if isinstance(job, RewardJob) else job.answers)
        # Drop finished jobs promptly, before the garbage collector promotes them to an older
        # generation.
        waiting = self._waiting
        while waiting and _future(waiting[0]).done():
            waiting.popleft()


def _future(job: Job) -> asyncio.Future[object]:
    return job.waiter  # type: ignore[return-value]
