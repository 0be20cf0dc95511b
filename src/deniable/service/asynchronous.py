"""Asyncio front end of the service.

Requests made in one event-loop iteration are submitted to the writer as one batch; results come
back in one callback. A decision that is not stored before the deadline is answered without the
store.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Hashable, Sequence
from contextlib import suppress

from deniable.errors import DeniableError, OverloadedError
from deniable.service.jobs import DecideJob, Job
from deniable.service.service import Deniable
from deniable.storage.records import Decision


class AsyncDecisions:
    """Awaitable decide and reward of one `Deniable`, for one event loop.

    Calls raise InvalidArgumentError immediately; all other errors are raised when awaited.

    Args:
        service: the service.
        decide_seconds: deadline for the store. After it, decisions are answered without the store
            and rewards fail with an error. None waits indefinitely.
        loop: event loop of the futures; defaults to the running loop.
    """

    def __init__(
        self,
        service: Deniable,
        *,
        decide_seconds: float | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._service = service
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
        caller: Hashable = None,
    ) -> asyncio.Future[list[Decision]]:
        """Decide for these visitors of one experiment. Resolves, in order, once they are durable."""
        future: asyncio.Future[list[Decision]] = self._loop.create_future()
        job = self._service.decide_job(experiment, visitors, segments, self._done, waiter=future)
        self._enqueue(job, caller)
        return future

    def crowded(self, caller: Hashable, size: int) -> bool:
        """See `Writer.crowded`."""
        return self._service.crowded(caller, size)

    def refused(self, error: OverloadedError) -> asyncio.Future[None]:
        """What is awaited in place of an answer that there is no time for."""
        future: asyncio.Future[None] = self._loop.create_future()
        future.set_exception(error)
        return future

    def longest_arm(self, experiment: str) -> int:
        """See `Deniable.longest_arm`."""
        return self._service.longest_arm(experiment)

    def reward(
        self,
        rewards: Sequence[tuple[str, float] | tuple[str, float, str | None]],
        caller: Hashable = None,
    ) -> asyncio.Future[None]:
        """Count (decision, value) pairs. Resolves once they are durable."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._enqueue(self._service.reward_job(rewards, self._done, waiter=future), caller)
        return future

    def _enqueue(self, job: Job, caller: Hashable) -> None:
        """Collect a job. The first job of an iteration schedules the submission of all of them."""
        job.caller = caller
        if not self._asked:
            self._loop.call_soon(self._submit)
        self._asked.append(job)

    def _submit(self) -> None:
        jobs, self._asked = self._asked, []
        limit = self._decide_seconds
        if limit is not None and self._service.stalled(
            limit
        ):  # the store hangs: answer without it right away
            for job in jobs:
                self._answer_late(job)
            return
        refused: Sequence[Job] = jobs
        error: DeniableError = OverloadedError("too much is queued")
        try:
            refused = self._service.submit(jobs)
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
            _future(job).set_result(self._service.answer_late(job))
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
                future.set_result(job.answers if isinstance(job, DecideJob) else None)
        # Drop finished jobs promptly, before the garbage collector promotes them to an older
        # generation.
        waiting = self._waiting
        while waiting and _future(waiting[0]).done():
            waiting.popleft()


def _future(job: Job) -> asyncio.Future[object]:
    return job.waiter  # type: ignore[return-value]
