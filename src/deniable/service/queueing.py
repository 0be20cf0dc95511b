"""The queue before the writer: bounded in number and in time, fair between callers and sizes.

Jobs wait in flows: one for each caller and class of sizes. Flows take turns (deficit round robin), so a
caller who sends large batches does not keep out one who sends single visitors.

The bound in time is like CoDel's: a queue that empties now and then is a burst, and everything in it is
served. A queue that was not empty for a while is overload; then jobs are refused when their turn comes
if they had waited longer than `patience_seconds` already when the batch before was taken. So those who
are served did not wait for long, and nobody is refused only because one transaction is slow.
While such jobs stand at the head of a flow, what would follow them is refused at the door (`crowded`),
before its body is parsed: refusing must cost little, or there is no time left to serve.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Hashable

from deniable.service.jobs import Job

TURN = 25
"""Decisions and rewards that a flow may add to a batch in one turn: a fraction of the smallest batch
(`writer.SMALLEST_BATCH`), so that every flow has its turns in each of them."""

STANDING_SECONDS = 0.1
"""A queue that was not empty for this long is overload, not a burst."""

SIZE_CLASSES = (1, 100)
"""Largest sizes of single jobs and of small batches; beyond is the class of large batches."""


class _Flow:
    """The jobs of one caller and size class."""

    __slots__ = ("credit", "jobs", "size")

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.size = 0
        self.credit = 0


class FairQueue:
    """Jobs that wait. Not safe for threads: its owner holds a lock.

    Args:
        limit: decisions and rewards that may wait.
        patience_seconds: how long a job may wait during overload; None: for ever.
    """

    def __init__(self, limit: int, patience_seconds: float | None = None) -> None:
        self._limit = limit
        self._patience = patience_seconds
        self._callers: OrderedDict[Hashable, OrderedDict[int, _Flow]] = OrderedDict()
        self._jobs = 0
        self._standing_since: float | None = None
        self._taken_at = float("-inf")
        self.size = 0

    def __len__(self) -> int:
        return self._jobs

    def put(self, job: Job, now: float) -> list[Job]:
        """Add a job; returns the jobs, maybe this one, that are refused because the queue is full.

        The longest flow gives way, beginning with its newest job.
        """
        refused: list[Job] = []
        size, kind = job.size, _size_class(job.size)
        while self.size and self.size + size > self._limit:
            caller, longest = max(
                ((caller, flow) for caller in self._callers.items() for flow in caller[1].items()),
                key=lambda found: found[1][1].size,
            )
            mine = (caller[0], longest[0]) == (job.caller, kind)
            if mine or longest[1].size <= size:
                return [*refused, job]
            refused.append(self._dropped_newest(caller[0], longest[0]))
        flows = self._callers.get(job.caller)
        if flows is None:
            flows = self._callers[job.caller] = OrderedDict()
        flow = flows.get(kind)
        if flow is None:
            flow = flows[kind] = _Flow()
        job.since = now
        flow.jobs.append(job)
        flow.size += size
        self.size += size
        self._jobs += 1
        return refused

    def take(self, limit: int, now: float) -> tuple[list[Job], list[Job]]:
        """The next batch, of about `limit` decisions and rewards, and the jobs that waited too long.

        A job that is larger than the limit is a batch of its own: small ones do not wait for it to be
        stored with them. Jobs that were answered meanwhile are in neither list.
        """
        batch: list[Job] = []
        shed: list[Job] = []
        room = limit
        oldest = self._oldest_to_serve(now)
        while self._callers and room > 0:
            caller, flows = next(iter(self._callers.items()))
            kind, flow = next(iter(flows.items()))
            if batch and limit < flow.jobs[0].size <= flow.credit + TURN:
                break
            flow.credit += TURN
            while flow.jobs and flow.jobs[0].size <= flow.credit and room > 0:
                job = flow.jobs.popleft()
                flow.size -= job.size
                self.size -= job.size
                self._jobs -= 1
                if job.late:
                    continue
                if job.since < oldest:
                    shed.append(job)
                    continue
                flow.credit -= job.size
                room -= max(1, job.size)
                batch.append(job)
            self._end_turn(caller, kind)
        self._taken_at = now
        if not self._callers:
            self._standing_since = None
        elif self._standing_since is None:
            self._standing_since = now
        return batch, shed

    def _oldest_to_serve(self, now: float) -> float:
        """Jobs that were queued before this time are refused."""
        since = self._standing_since
        if self._patience is None or since is None or now - since < STANDING_SECONDS:
            return float("-inf")
        return self._taken_at - self._patience

    @property
    def standing(self) -> bool:
        """Whether something was left waiting when the last batch was taken. Needs no lock."""
        return self._standing_since is not None

    def crowded(self, caller: Hashable, size: int, now: float) -> bool:
        """Whether a job of this caller and size would only be refused when its turn comes.

        So it is during overload where the job at the head of its flow has waited for too long already.
        """
        if self._standing_since is None:
            return False
        flows = self._callers.get(caller)
        flow = None if flows is None else flows.get(_size_class(size))
        return flow is not None and flow.jobs[0].since < self._oldest_to_serve(now)

    def age(self, now: float) -> float:
        """Seconds that the job at the head of a flow has waited, the longest of all flows."""
        heads = [flow.jobs[0] for flows in self._callers.values() for flow in flows.values()]
        return max((now - job.since for job in heads), default=0.0)

    def _end_turn(self, caller: Hashable, kind: int) -> None:
        flows = self._callers[caller]
        if flows[kind].jobs:
            flows.move_to_end(kind)
        else:
            del flows[kind]
        if flows:
            self._callers.move_to_end(caller)
        else:
            del self._callers[caller]

    def _dropped_newest(self, caller: Hashable, kind: int) -> Job:
        flow = self._callers[caller][kind]
        job = flow.jobs.pop()
        flow.size -= job.size
        self.size -= job.size
        self._jobs -= 1
        if not flow.jobs:
            self._end_turn(caller, kind)
        return job


def _size_class(size: int) -> int:
    return bisect_left(SIZE_CLASSES, size)
