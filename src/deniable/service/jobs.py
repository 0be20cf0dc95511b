"""Jobs for the writer: what callers ask for, the queue they wait in, how much is taken at once.

One job is one call, for one or many visitors or rewards. `done(job)` is called once, in the writer's
thread, after the transaction is durable. By then `error` is set or, for decisions, `answers` is
complete. `waiter` is for the caller's use, and `since` is when the job was queued. A job that is `late`
has already been answered without the store.

Jobs are served in the order of their arrival. The queue has a limit, and so has waiting in it, like
CoDel. A queue that empties now and then is a burst, and everything in it is served. A queue that
has not emptied for a while is overload: then a job is refused at its turn if it had already waited
longer than `patience_seconds` when the previous batch was taken. Served jobs have therefore not
waited long, and no job is refused merely because one transaction was slow. While such a job is at the
head, new ones are refused on arrival (`crowded`), before their body is parsed. Refusing must be
cheap, or no time is left for serving.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from deniable.errors import InvalidArgumentError
from deniable.masks.mask import visitor_bytes
from deniable.service.ids import normalised
from deniable.service.limits import LARGEST_REWARD, LONGEST_NAME
from deniable.storage.records import MICRO, Decision


@dataclass(slots=True, eq=False)
class DecideJob:
    """Decisions for visitors of one experiment, in order.

    `observed` says whether third parties may see what comes of them: only an experiment of the same
    kind answers.
    """

    experiment: str
    visitors: Sequence[str]
    segments: Sequence[str | None]
    done: Callable[[Job], None]
    waiter: object = None
    contexts: Sequence[str | None] | None = None
    observed: bool = True
    answers: list[Decision] = field(default_factory=list)
    error: Exception | None = None
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
    since: float = 0.0
    late: bool = False

    @property
    def size(self) -> int:
        """Number of rewards."""
        return len(self.rewards)


@dataclass(slots=True, eq=False)
class LabelJob:
    """Labels of a mask for visitors, in order."""

    mask: str
    visitors: Sequence[str]
    segments: Sequence[str | None]
    done: Callable[[Job], None]
    waiter: object = None
    answers: list[str] = field(default_factory=list)
    error: Exception | None = None
    since: float = 0.0
    late: bool = False

    @property
    def size(self) -> int:
        """Number of labels."""
        return len(self.visitors)


Job: TypeAlias = DecideJob | RewardJob | LabelJob


def decide_job(
    experiment: str,
    visitors: Sequence[str],
    segments: Sequence[str | None],
    done: Callable[[Job], None],
    *,
    contexts: Sequence[str | None] | None = None,
    observed: bool = True,
    waiter: object = None,
) -> DecideJob:
    """Return a validated job; raises InvalidArgumentError. Other errors end up in `job.error`."""
    for visitor in visitors:
        checked_visitor(visitor)
    for segment in segments:
        checked_segment(segment)
    for context in contexts or ():
        checked_segment(context, "context")
    return DecideJob(experiment, visitors, segments, done, waiter, contexts, observed)


def label_job(
    mask: str,
    visitors: Sequence[str],
    segments: Sequence[str | None],
    done: Callable[[Job], None],
    *,
    waiter: object = None,
) -> LabelJob:
    """Return a validated job, like `decide_job`. Ids are compared as they are, in every engine."""
    for visitor in visitors:
        visitor_bytes(visitor)
    for segment in segments:
        checked_segment(segment)
    return LabelJob(mask, visitors, segments, done, waiter)


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


def checked_segment(segment: object, argument: str = "segment") -> str | None:
    """Validate a segment or context: any text, or None. It need not be listed by the experiment.

    No text is refused, because a status must not depend on it. One that is too long to be listed is
    unlisted.
    """
    if segment is None or type(segment) is str:
        return segment
    raise InvalidArgumentError(argument, "...", "text, or none")


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

STANDING_SECONDS = 0.1
"""A queue that has not been empty for this long is overload, not a burst."""


class JobQueue:
    """Waiting jobs, first come, first served. Not thread-safe: the owner must hold a lock.

    Args:
        limit: maximum number of waiting decisions and rewards. A larger job fits an empty queue.
        patience_seconds: how long a job may wait during overload; None means indefinitely.

    Attributes:
        size: number of waiting decisions and rewards.
        standing_since: since when there have been jobs left whenever a batch was taken; None if there
            were none the last time. May be read without the lock.
    """

    def __init__(self, limit: int, patience_seconds: float | None = None) -> None:
        self._limit = limit
        self._patience = patience_seconds
        self._jobs: deque[Job] = deque()
        self._taken_at = float("-inf")
        self.standing_since: float | None = None
        self.size = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, job: Job, now: float) -> bool:
        """Add a job; return False if the queue is full."""
        if self._jobs and self.size + job.size > self._limit:
            return False
        job.since = now
        self._jobs.append(job)
        self.size += job.size
        return True

    def take(self, limit: int, now: float) -> tuple[list[Job], list[Job]]:
        """Return a batch of about `limit` decisions and rewards, and the jobs that waited too long.

        A job that does not fit any more waits for the next batch, unless it is the first. Jobs already
        answered elsewhere are in neither list.
        """
        batch: list[Job] = []
        shed: list[Job] = []
        room, oldest = limit, self._oldest_to_serve(now)
        while self._jobs and (not batch or self._jobs[0].size <= room):
            job = self._jobs.popleft()
            self.size -= job.size
            if job.late:
                continue
            if job.since < oldest:
                shed.append(job)
                continue
            room -= max(1, job.size)
            batch.append(job)
            if room <= 0:
                break
        self._taken_at = now
        if not self._jobs:
            self.standing_since = None
        elif self.standing_since is None:
            self.standing_since = now
        return batch, shed

    def crowded(self, now: float) -> bool:
        """Whether a new job would probably be refused at its turn: the oldest one would be."""
        return bool(self._jobs) and self._jobs[0].since < self._oldest_to_serve(now)

    def age(self, now: float) -> float:
        """Return how long the oldest job has waited, in seconds."""
        return now - self._jobs[0].since if self._jobs else 0.0

    def _oldest_to_serve(self, now: float) -> float:
        """Return the time such that jobs queued before it are refused."""
        since = self.standing_since
        if self._patience is None or since is None or now - since < STANDING_SECONDS:
            return float("-inf")
        return self._taken_at - self._patience


# -- the size of a transaction ---------------------------------------------------------------------

BATCH_SECONDS = 0.025
"""Target duration of one transaction. Jobs that arrive meanwhile wait for the next one.

During overload a decision waits for its turn (`queue_seconds`, and up to one transaction more), and
then for its own transaction.
"""

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

    @property
    def limit(self) -> int:
        """The size of the next transaction."""
        return max(SMALLEST_BATCH, min(self._most, round(self._rate * BATCH_SECONDS)))

    def measured(self, size: int, seconds: float) -> None:
        """Record a transaction's size and duration. Small ones say little: most of it is waiting."""
        if size >= SMALLEST_BATCH:
            self._rate += 0.3 * (size / max(seconds, 1e-6) - self._rate)
