"""The same service for asyncio: awaitable decide and reward, handed over in heaps both ways.

What is asked in one turn of the event loop goes to the writer together: one wake-up, one transaction.
What the writer finishes at once comes back in a single call, which then sets all the futures.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from deniable.errors import DeniableError, OverloadedError
from deniable.service.jobs import DecideJob, Job
from deniable.service.service import Deniable
from deniable.storage.records import Decision


class AsyncDecisions:
    """Awaitable decide and reward of one `Deniable`, for one event loop.

    InvalidArgumentError is raised by the call, everything else by awaiting.

    Args:
        service: the service.
        loop: the event loop where the futures live; the running one if not given.
    """

    def __init__(self, service: Deniable, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._service = service
        self._loop = loop or asyncio.get_running_loop()
        self._asked: list[Job] = []
        self._finished: deque[Job] = deque()
        self._awake = False

    def decide(
        self, experiment: str, visitors: Sequence[str], segments: Sequence[str | None]
    ) -> asyncio.Future[list[Decision]]:
        """Decisions for these visitors of one experiment, in order, once they are durable."""
        future: asyncio.Future[list[Decision]] = self._loop.create_future()
        self._ask(
            self._service.decide_job(experiment, visitors, segments, self._done, waiter=future)
        )
        return future

    def reward(self, rewards: Sequence[tuple[str, float, str | None]]) -> asyncio.Future[None]:
        """Count (decision, value) pairs; done once they are durable."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._ask(self._service.reward_job(rewards, self._done, waiter=future))
        return future

    def _ask(self, job: Job) -> None:
        """The first job of a turn of the loop hands over all of them, once the turn has ended."""
        if not self._asked:
            self._loop.call_soon(self._submit)
        self._asked.append(job)

    def _submit(self) -> None:
        jobs, self._asked = self._asked, []
        refused: Sequence[Job] = jobs
        error: DeniableError = OverloadedError("too much is queued")
        try:
            refused = self._service.submit(jobs)
        except DeniableError as closed:
            error = closed
        for job in refused:
            job.error = error
            self._done(job)

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
