"""Jobs for the writer. One job is one call, for one or many visitors or rewards.

`done(job)` is called once, in the writer's thread, after the transaction is durable. By then
`error` is set or, for decisions, `answers` is complete. `waiter` is for the caller's use. `caller`
identifies who asks, for fair queueing, and `since` is when the job was queued. A job that is `late`
has already been answered without the store.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from deniable.errors import InvalidArgumentError
from deniable.service.ids import normalised
from deniable.storage.records import MICRO, Decision

LONGEST_NAME = 512
"""Maximum length of visitor ids and segments."""

LARGEST_REWARD = 1_000_000
"""Largest possible cap of a metric."""


@dataclass(slots=True, eq=False)
class DecideJob:
    """Decisions for visitors of one experiment, in order."""

    experiment: str
    visitors: Sequence[str]
    segments: Sequence[str | None]
    done: Callable[[DecideJob], None]
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

    def finish(self) -> None:
        """Notify the waiting caller."""
        self.done(self)


@dataclass(slots=True, eq=False)
class RewardJob:
    """Rewards for decisions, in order."""

    rewards: Sequence[tuple[bytes, str | None, int]]  # decision, metric, millionths
    done: Callable[[RewardJob], None]
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

    @property
    def decisions(self) -> list[bytes]:
        """Ids of the rewarded decisions."""
        return [decision for decision, _, _ in self.rewards]

    def finish(self) -> None:
        """Notify the waiting caller."""
        self.done(self)


Job: TypeAlias = DecideJob | RewardJob


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
