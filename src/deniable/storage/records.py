"""Stored records as value objects: the firm, experiments with their arms, decisions, API keys.

Budgets are in whole nano-nats; `budget`, `remaining` and so on are the same in nats, for display.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Literal, NamedTuple, TypeAlias

from deniable.errors import NANO

Status: TypeAlias = Literal["draft", "running", "paused", "stopped"]
Scope: TypeAlias = Literal[
    "decide", "unobserved", "reward", "label", "read", "draft", "run", "audit", "privacy", "admin"
]
UserRole: TypeAlias = Literal["viewer", "analyst", "manager", "privacy-officer", "admin"]

SCOPES: tuple[Scope, ...] = (
    "decide",
    "unobserved",
    "reward",
    "label",
    "read",
    "draft",
    "run",
    "audit",
    "privacy",
    "admin",
)
"""What a caller may do, in order: request arms; request those of unobserved visits; report rewards;
request labels; read; create and change drafts; start, stop and change experiments; audit; manage the
firm's budget, masks, erasures, documents and exports; everything, including people and keys.
"""

ROLES: dict[UserRole, tuple[Scope, ...]] = {
    "viewer": ("read",),
    "analyst": ("read", "draft"),
    "manager": ("read", "draft", "run"),
    "privacy-officer": ("read", "audit", "privacy"),
    "admin": SCOPES,
}
"""Scopes of each user role."""


UNKNOWN_SEGMENT = -1
"""Stored index of a segment that the experiment does not list."""

OTHER = "other"
"""The context of visitors whose own is missing or not listed; always the first one."""

MICRO = 1_000_000
"""Millionths in one unit of a reward; rewards are stored as integers in millionths."""

SLOTS = 1000
"""Number of slots in a layer; a visitor's slot is a keyed hash of the visitor and the layer."""


class Role(IntEnum):
    """Why a visitor was drawn from a particular row. It never depends on the segment.

    Only MEMBER draws from the table in force, by segment, listed or not, and only
    members enter the counts from which tables are made. All others draw from the neutral row.
    """

    MEMBER = 0
    OTHER_SLOT = 1  # the visitor's slot of the layer belongs to another experiment, or to none
    HOLDOUT = 2
    CLOSED = 3  # paused
    ERASED = 4  # returned after an erasure


class Decision(NamedTuple):
    """What leaves the trusted store for one visitor. It reveals neither the segment nor the draw.

    Attributes:
        id: opaque random id, used to report the reward.
        arm: the key of the arm to show.

    >>> Decision("0" * 32, "new").arm
    'new'
    """

    id: str
    arm: str


@dataclass(frozen=True)
class Arm:
    """One arm of an experiment.

    Attributes:
        key: what `decide` returns.
        label: text for people.
        budget_nano: the arm's own budget (arm-specific mechanism), or None if all arms share one.
        weight: its part of the neutral row at the start, relative to those of the other arms.
        active: False once it was switched off: new visitors no longer get it.

    >>> Arm("new").active
    True
    """

    key: str
    label: str = ""
    budget_nano: int | None = None
    active: bool = True
    weight: int = 1


Better: TypeAlias = Literal["more", "less"]


@dataclass(frozen=True)
class Metric:
    """A reward that an experiment records.

    Attributes:
        name: name used by callers.
        cap_micro: the largest value, in millionths; values lie between 0 and this.
        better: whether more or less is better. For the deciding metric, more is.

    >>> Metric("click").cap
    1.0
    """

    name: str = "reward"
    cap_micro: int = MICRO
    better: Better = "more"

    @property
    def cap(self) -> float:
        """The largest value."""
        return self.cap_micro / MICRO

    @property
    def plain(self) -> list[str | int]:
        """The stored and chained form; `Metric(*plain)` restores it. "more" is omitted."""
        return [self.name, self.cap_micro, *([] if self.better == "more" else [self.better])]


def row_names(contexts: tuple[str, ...], segments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a table's rows: segments or labels, contexts, or labels by context.

    The row of a context and a label is context x labels + label.

    >>> row_names((), ("a", "b")), row_names(("other", "phone"), ())
    (('a', 'b'), ('other', 'phone'))
    >>> row_names(("other", "phone"), ("~a", "~b"))
    ('other, ~a', 'other, ~b', 'phone, ~a', 'phone, ~b')
    """
    if not contexts or not segments:
        return contexts or segments
    return tuple(f"{context}, {segment}" for context in contexts for segment in segments)


def rows_by_context(contexts: tuple[str, ...], segments: tuple[str, ...]) -> int:
    """Return the number of rows of each context; 0 without contexts."""
    return max(1, len(segments)) if contexts else 0


@dataclass(frozen=True)
class Experiment:
    """One experiment as stored.

    Attributes:
        id: its UUID, 32 hexadecimal digits.
        key: its name.
        status: draft, running, paused or stopped.
        arms: in declared order; stored rows refer to indices of this tuple. Arms can be appended,
            but not removed.
        segments: the segments that are learned separately; others share one row of the table.
        strategy: how tables are made from counts; a name from `deniable.strategies`.
        budget_nano: the limit on every visitor's risk; the largest arm budget if arms have their
            own.
        planned_visitors: number of visitors the budget was planned for, for information.
        mask: the mask whose labels are its segments; None if it sees the segments themselves.
        sticky: whether a visitor keeps an arm. If not, each request is a decision of its own, stored
            without the visitor.
        layer: experiments in one layer have different slots and share no visitors.
        slots: its slots in the layer, one bit each; None without a layer or before the start.
        holdout: thousandths of the visitors who are held out, chosen by a separate keyed hash.
        default_arm: shown to everyone before the start and after a stop without a winner.
        attribution_seconds: rewards later than this do not count; None for no limit.
        metrics: the rewards to record; the first metric decides.
        contexts: what trackers know anyway, `OTHER` first; empty if rows are segments alone.
        observed: whether third parties may see what visitors are shown. If not, segments need no bound.
        version: version of the promise, raised whenever an arm is switched off or added.
        winner: the promoted arm, once stopped with one.
        table_number: the table in force; 0 before the start.
        has_tombstones: whether visitors were erased.
        revision: raised by every change.

    >>> from deniable import open
    >>> with open("memory:") as service:
    ...     made = service.experiments.create("e", arms=["a", "b"], segments=["s"], budget=1)
    >>> made.status, made.budget
    ('draft', 1.0)
    """

    id: str
    key: str
    status: Status
    arms: tuple[Arm, ...]
    segments: tuple[str, ...]
    strategy: str
    budget_nano: int
    planned_visitors: int | None
    mask: str | None
    sticky: bool
    layer: str | None
    slots: bytes | None
    holdout: int
    default_arm: str
    attribution_seconds: int | None
    metrics: tuple[Metric, ...]
    contexts: tuple[str, ...]
    observed: bool
    version: int
    winner: str | None
    table_number: int
    has_tombstones: bool
    created_at: datetime
    started_at: datetime | None
    stopped_at: datetime | None
    revision: int

    @property
    def rows(self) -> tuple[str, ...]:
        """The names of its tables' rows; see `row_names`."""
        return row_names(self.contexts, self.segments)

    @property
    def row_word(self) -> str:
        """What a row is, for people."""
        return "segment" if self.segments else "context"

    @property
    def budget(self) -> float:
        """The limit in nats."""
        return self.budget_nano / NANO

    @property
    def arm_specific(self) -> bool:
        """Whether arms have their own budgets."""
        return self.arms[0].budget_nano is not None

    @property
    def budgets(self) -> tuple[int, ...]:
        """The budget of each arm, in nano-nats."""
        return tuple(
            self.budget_nano if arm.budget_nano is None else arm.budget_nano for arm in self.arms
        )

    @property
    def active(self) -> tuple[int, ...]:
        """The indices of the arms that new visitors can get."""
        return tuple(position for position, arm in enumerate(self.arms) if arm.active)

    @property
    def active_arms(self) -> tuple[Arm, ...]:
        """The arms that new visitors can get."""
        return tuple(arm for arm in self.arms if arm.active)


@dataclass(frozen=True)
class Firm:
    """The firm's budget: a maximum in any window of a given number of days.

    Attributes:
        budget_nano: Gamma, the largest total risk of a visitor over all experiments in any window.
        committed_nano: how much of it counts now.
        window_days: the length of the window. An experiment counts from its start until this many
            days after its last answer.
        starts_at: when this budget was set.

    >>> from deniable import open
    >>> with open("memory:") as service:
    ...     firm = service.firm.set(budget=3)
    >>> firm.remaining
    3.0
    """

    budget_nano: int
    committed_nano: int
    window_days: int
    starts_at: datetime

    @property
    def budget(self) -> float:
        """The budget in nats."""
        return self.budget_nano / NANO

    @property
    def committed(self) -> float:
        """The committed amount in nats."""
        return self.committed_nano / NANO

    @property
    def remaining_nano(self) -> int:
        """The remaining amount in nano-nats."""
        return self.budget_nano - self.committed_nano

    @property
    def remaining(self) -> float:
        """The remaining amount in nats."""
        return self.remaining_nano / NANO


@dataclass(frozen=True)
class Cell:
    """Counts of one arm in one segment over all writers. Private, for users with read access.

    Attributes:
        segment: its name; None for unlisted segments.
        arm: the arm's key.
        shows: decisions of members that showed this arm.
        rewarded: how many of them have a reward.
        value_micro: the sum of the deciding metric's rewards, in millionths.
    """

    segment: str | None
    arm: str
    shows: int
    rewarded: int
    value_micro: int

    @property
    def clicks(self) -> int:
        """The rewards in whole units: clicks, if rewards are 0 or 1."""
        return self.value_micro // MICRO


@dataclass(frozen=True)
class PublishedTable:
    """A stored table with the counts it was made from.

    Attributes:
        number: 1, 2, 3, ... within the experiment.
        version: version of the promise that it belongs to.
        strategy: strategy that made it.
        published_at: time of publication.
        decisions: number of decisions of all roles stored at that time.
        counts: the input of the table, JSON.
        rows: the encoded table, in the current shape of its experiment.
    """

    number: int
    version: int
    strategy: str
    published_at: datetime
    decisions: int
    counts: bytes
    rows: bytes


@dataclass(frozen=True)
class Commitment:
    """One entry of the ledger's commitment chain, newest last.

    Attributes:
        seq: 1, 2, 3, ...
        kind: firm, key, mask, end_mask, erase_labels, create, redraft, replan, discard, start, table,
            pause, resume, stop, switch_off, add_arm, add_segment, add_context, erase, purge, audit,
            note, label, document, access, approval, export, settings, restore, clock.
        experiment: the key of the experiment, or None for the firm.
        amount_nano: how much of the firm's budget it took.
        detail: further details, JSON.
    """

    seq: int
    kind: str
    experiment: str | None
    amount_nano: int
    detail: str
    recorded_at: datetime

    @property
    def actor(self) -> str | None:
        """The actor, as in `deniable.storage.commitments`; None for the service itself, or unknown."""
        found = json.loads(self.detail or "{}")
        return found.get("by") if isinstance(found, dict) else None


@dataclass(frozen=True)
class ApiKey:
    """A stored API key, with only the hash of its secret.

    Attributes:
        last_used_at: start of the last hour in which it was used.
    """

    id: str
    label: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    revoked_at: datetime | None
    last_used_at: datetime | None = None


@dataclass(frozen=True)
class User:
    """A person who can sign in.

    Attributes:
        name: sign-in name, in lower case.
        role: determines what the person may do; see `ROLES`.
        joined_at: when the person first chose a password; None while invited.
        disabled_at: since when the person may not sign in.
    """

    id: str
    name: str
    role: UserRole
    created_at: datetime
    joined_at: datetime | None
    disabled_at: datetime | None

    @property
    def active(self) -> bool:
        """Whether the person may sign in."""
        return self.joined_at is not None and self.disabled_at is None
