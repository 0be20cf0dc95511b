"""The same service for asyncio: awaitable decide and reward, one wake-up of the loop per batch.

The writer finishes many jobs at once. They are collected and handed to the event loop in a single
call, which then sets all their futures.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from deniable.service.facade import Deniable
from deniable.service.jobs import DecideJob, Job
from deniable.storage.records import Decision


class AsyncDecisions:
    """Awaitable decide and reward of one `Deniable`, for one event loop.

    InvalidArgumentError and OverloadedError are raised by the call, everything else by awaiting.

    Args:
        service: the service.
        loop: the event loop where the futures live; the running one if not given.
    """

    def __init__(self, service: Deniable, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._service = service
        self._loop = loop or asyncio.get_running_loop()
        self._finished: deque[Job] = deque()
        self._awake = False

    def decide(
        self, experiment: str, visitors: Sequence[str], segments: Sequence[str | None]
    ) -> asyncio.Future[list[Decision]]:
        """Decisions for these visitors of one experiment, in order, once they are durable."""
        future: asyncio.Future[list[Decision]] = self._loop.create_future()
        self._service.submit_decisions(experiment, visitors, segments, self._done, waiter=future)
        return future

    def reward(self, rewards: Sequence[tuple[str, int]]) -> asyncio.Future[None]:
        """Count (decision, value) pairs; done once they are durable."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._service.submit_rewards(rewards, self._done, waiter=future)
        return future

    def _done(self, job: Job) -> None:
        """In the writer's thread: the first job of a batch wakes the loop for all of them."""
        self._finished.append(job)
        if not self._awake:
            self._awake = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """In the loop's thread."""
        self._awake = False  # before the last look into the queue, so that no job is left behind
        while self._finished:
            job = self._finished.popleft()
            future: asyncio.Future[object] = job.waiter  # type: ignore[assignment]
            if future.done():  # the client went away
                continue
            if job.error is not None:
                future.set_exception(job.error)
            else:
                future.set_result(job.answers if isinstance(job, DecideJob) else None)
