"""The writer's queue: limited in length and waiting time, fair between callers and job sizes.

Jobs wait in flows, one per caller and size class. Flows take turns (deficit round robin), so a
caller who sends large batches does not block one who sends single visitors.

The limit on waiting time works like CoDel. A queue that empties now and then is a burst, and
everything in it is served. A queue that has not emptied for a while is overload: then a job is
refused at its turn if it had already waited longer than `patience_seconds` when the previous batch
was taken. Served jobs have therefore not waited long, and no job is refused merely because one
transaction was slow. While such jobs are at the head of a flow, new ones for that flow are refused
on arrival (`crowded`), before their body is parsed. Refusing must be cheap, or no time is left for
serving.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Hashable

from deniable.service.jobs import Job

TURN = 25
"""Decisions and rewards that a flow may add to a batch per turn. It is a fraction of the smallest
batch (`writer.SMALLEST_BATCH`), so that every flow gets its turn in each batch.
"""

STANDING_SECONDS = 0.1
"""A queue that has not been empty for this long is overload, not a burst."""

SIZE_CLASSES = (1, 100)
"""Largest sizes of single jobs and of small batches; anything larger is a large batch."""


class _Flow:
    """The jobs of one caller and size class."""

    __slots__ = ("credit", "jobs", "size")

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.size = 0
        self.credit = 0


class FairQueue:
    """Queue of waiting jobs. Not thread-safe: the owner must hold a lock.

    Args:
        limit: maximum number of waiting decisions and rewards.
        patience_seconds: how long a job may wait during overload; None means indefinitely.
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
        """Add a job. Returns the jobs, possibly this one, that are refused because the queue is full.

        The longest flow loses jobs first, starting with its newest.
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
        """Return a batch of about `limit` decisions and rewards, and the jobs that waited too long.

        A job larger than the limit gets a batch of its own, so small jobs do not wait for it. Jobs
        already answered elsewhere are in neither list.
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
        """Return the time such that jobs queued before it are refused."""
        since = self._standing_since
        if self._patience is None or since is None or now - since < STANDING_SECONDS:
            return float("-inf")
        return self._taken_at - self._patience

    @property
    def standing(self) -> bool:
        """Whether any jobs were left when the last batch was taken. Needs no lock."""
        return self._standing_since is not None

    def crowded(self, caller: Hashable, size: int, now: float) -> bool:
        """Whether a job of this caller and size would be refused when its turn comes.

        This is the case during overload if the job at the head of its flow has already waited too
        long.
        """
        if self._standing_since is None:
            return False
        flows = self._callers.get(caller)
        flow = None if flows is None else flows.get(_size_class(size))
        return flow is not None and flow.jobs[0].since < self._oldest_to_serve(now)

    def age(self, now: float) -> float:
        """Return the longest waiting time among the jobs at the heads of the flows, in seconds."""
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
