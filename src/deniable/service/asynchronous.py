"""Asyncio front end of the service.

Requests made in one event-loop iteration are submitted to the writer as one batch; results come back in
one callback. A decision that is not stored within the deadline is answered without the store.
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

    InvalidArgumentError is raised by the call, everything else by awaiting.

    Args:
        service: the service.
        decide_seconds: how long a decision may take; then it is answered without the store, and a
            reward with an error. None: as long as it takes.
        loop: the event loop where the futures live; the running one if not given.
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
        """Decisions for these visitors of one experiment, in order, once they are durable."""
        future: asyncio.Future[list[Decision]] = self._loop.create_future()
        job = self._service.decide_job(experiment, visitors, segments, self._done, waiter=future)
        self._ask(job, caller)
        return future

    def crowded(self, caller: Hashable, size: int) -> bool:
        """See Writer."""
        return self._service.crowded(caller, size)

    def refused(self, error: OverloadedError) -> asyncio.Future[None]:
        """What is awaited in place of an answer that there is no time for."""
        future: asyncio.Future[None] = self._loop.create_future()
        future.set_exception(error)
        return future

    def longest_arm(self, experiment: str) -> int:
        """See Deniable."""
        return self._service.longest_arm(experiment)

    def reward(
        self,
        rewards: Sequence[tuple[str, float] | tuple[str, float, str | None]],
        caller: Hashable = None,
    ) -> asyncio.Future[None]:
        """Count (decision, value) pairs; done once they are durable."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._ask(self._service.reward_job(rewards, self._done, waiter=future), caller)
        return future

    def _ask(self, job: Job, caller: Hashable) -> None:
        """The first job of an iteration hands over all of them, once the iteration has ended."""
        job.caller = caller
        if not self._asked:
            self._loop.call_soon(self._submit)
        self._asked.append(job)

    def _submit(self) -> None:
        jobs, self._asked = self._asked, []
        limit = self._decide_seconds
        if limit is not None and self._service.stalled(
            limit
        ):  # nobody waits for a store that hangs
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
                self._loop.call_later(limit / 4, self._watch, limit)

    def _watch(self, limit: float) -> None:
        """Answer what has waited for too long; look again while anything waits."""
        waiting, oldest = self._waiting, time.monotonic() - limit
        while waiting and (_future(waiting[0]).done() or waiting[0].since < oldest):
            job = waiting.popleft()
            if not _future(job).done():
                self._answer_late(job)
        self._watching = bool(waiting)
        if waiting:
            self._loop.call_later(limit / 8, self._watch, limit)

    def _answer_late(self, job: Job) -> None:
        try:
            _future(job).set_result(self._service.answer_late(job))
        except DeniableError as error:
            _future(job).set_exception(error)

    def _done(self, job: Job) -> None:
        """In the writer's thread: the first job of a batch wakes the loop for all of them."""
        self._finished.append(job)
        if not self._awake:
            self._awake = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """In the loop's thread."""
        self._awake = False  # before the last look into the queue, so that no job is left behind
        while self._finished:
            job = self._finished.popleft()
            future = _future(job)
            if future.done():  # the client went away, or the answer came too late
                continue
            if job.error is not None:
                future.set_exception(job.error)
            else:
                future.set_result(job.answers if isinstance(job, DecideJob) else None)
        # Jobs that are kept for longer would become old objects of the garbage collector.
        waiting = self._waiting
        while waiting and _future(waiting[0]).done():
            waiting.popleft()


def _future(job: Job) -> asyncio.Future[object]:
    return job.waiter  # type: ignore[return-value]
