"""Jobs for the writer: what callers ask for, the order in which it waits, how much is taken at once.

One job is one call, for one or many visitors or rewards. `done(job)` is called once, in the writer's
thread, after the transaction is durable. By then `error` is set or, for decisions, `answers` is
complete. `waiter` is for the caller's use. `caller` identifies who asks, for fair queueing, and `since`
is when the job was queued. A job that is `late` has already been answered without the store.

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
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from deniable.errors import InvalidArgumentError
from deniable.service.ids import normalised
from deniable.service.limits import LARGEST_REWARD, LONGEST_NAME
from deniable.storage.records import MICRO, Decision


@dataclass(slots=True, eq=False)
class DecideJob:
    """Decisions for visitors of one experiment, in order."""

    experiment: str
    visitors: Sequence[str]
    segments: Sequence[str | None]
    done: Callable[[Job], None]
    waiter: object = None
    answers: list[Decision] = field(default_factory=list)
    error: Exception | None = None
    caller: Hashable = None
    since: float = 0.0
    late: bool = False

    @property
    def size(self) -> int:
        """Number of decisions."""
        return len(self.visitors)


@dataclass(slots=True, eq=False)
class RewardJob:
    """Rewards for decisions, in order."""

    rewards: Sequence[tuple[bytes, str | None, int]]  # decision, metric, millionths
    done: Callable[[Job], None]
    waiter: object = None
    error: Exception | None = None
    outcomes: dict[str, int] | None = None  # only for imports: outcome -> count; set when done
    caller: Hashable = None
    since: float = 0.0
    late: bool = False

    @property
    def size(self) -> int:
        """Number of rewards."""
        return len(self.rewards)


Job: TypeAlias = DecideJob | RewardJob


def decide_job(
    experiment: str,
    visitors: Sequence[str],
    segments: Sequence[str | None],
    done: Callable[[Job], None],
    *,
    waiter: object = None,
) -> DecideJob:
    """Return a validated job; raises InvalidArgumentError. Other errors end up in `job.error`."""
    for visitor in visitors:
        checked_visitor(visitor)
    for segment in segments:
        checked_segment(segment)
    return DecideJob(experiment, visitors, segments, done, waiter)


def reward_job(
    rewards: Sequence[tuple[str, float] | tuple[str, float, str | None]],
    done: Callable[[Job], None],
    *,
    waiter: object = None,
) -> RewardJob:
    """Return a validated job of (decision, value[, metric]) tuples, like `decide_job`."""
    checked = [
        (
            decision_bytes(reward[0]),
            checked_metric(reward[2]) if len(reward) > 2 else None,
            checked_value(reward[1]),
        )
        for reward in rewards
    ]
    return RewardJob(checked, done, waiter)


def checked_visitor(visitor: object) -> str:
    """Validate a visitor id: encodable text of 1 to 512 characters."""
    if (
        type(visitor) is str
        and len(visitor) <= LONGEST_NAME
        and normalised(visitor)
        and _encodable(visitor)
    ):
        return visitor
    # The message does not repeat the value: errors must not contain visitor ids.
    raise InvalidArgumentError(
        "visitor",
        "...",
        f"text of 1 to {LONGEST_NAME} characters that are not all blank or invisible",
    )


def checked_segment(segment: object) -> str | None:
    """Validate a segment: any short text, or None. Segments need not be listed by the experiment."""
    if segment is None or (
        type(segment) is str and len(segment) <= LONGEST_NAME and _encodable(segment)
    ):
        return segment
    raise InvalidArgumentError(
        "segment", "...", f"text of up to {LONGEST_NAME} characters, or none"
    )


def checked_value(value: object) -> int:
    """Convert a reward to millionths, 0 or more. The cap is checked later."""
    if isinstance(value, int | float) and 0 <= value <= LARGEST_REWARD:
        return round(value * MICRO)
    raise InvalidArgumentError("value", value, "a number from 0 to the metric's cap")


def checked_metric(metric: object) -> str | None:
    """Validate a metric name; None stands for the deciding metric."""
    if metric is None or (type(metric) is str and 0 < len(metric) <= LONGEST_NAME):
        return metric
    raise InvalidArgumentError("metric", metric, "the name of a metric, or none")


def decision_bytes(decision: object) -> bytes:
    """Return the 16 bytes of a decision id. Malformed ids map to an id that does not exist."""
    if type(decision) is not str:
        raise InvalidArgumentError("decision", decision, "the id that `decide` gave")
    try:
        raw = bytes.fromhex(decision) if len(decision) == 32 else b""
    except ValueError:
        raw = b""
    return raw if len(raw) == 16 else bytes(16)


def _encodable(text: str) -> bool:
    """Lone surrogates cannot be encoded; PostgreSQL text cannot contain NUL."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


# -- the queue ------------------------------------------------------------------------------------

TURN = 25
"""Decisions and rewards that a flow may add to a batch per turn. It is a fraction of the smallest
batch (`SMALLEST_BATCH`), so that every flow gets its turn in each batch.
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

    Attributes:
        size: number of waiting decisions and rewards.
        standing_since: since when there have been jobs left whenever a batch was taken; None if there
            were none the last time. May be read without the lock.
    """

    def __init__(self, limit: int, patience_seconds: float | None = None) -> None:
        self._limit = limit
        self._patience = patience_seconds
        self._callers: OrderedDict[Hashable, OrderedDict[int, _Flow]] = OrderedDict()
        self._jobs = 0
        self.standing_since: float | None = None
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
            self.standing_since = None
        elif self.standing_since is None:
            self.standing_since = now
        return batch, shed

    def _oldest_to_serve(self, now: float) -> float:
        """Return the time such that jobs queued before it are refused."""
        since = self.standing_since
        if self._patience is None or since is None or now - since < STANDING_SECONDS:
            return float("-inf")
        return self._taken_at - self._patience

    def crowded(self, caller: Hashable, size: int, now: float) -> bool:
        """Whether a job of this caller and size would be refused when its turn comes.

        This is the case during overload if the job at the head of its flow has already waited too
        long.
        """
        if self.standing_since is None:
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


# -- the size of a transaction ---------------------------------------------------------------------

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
