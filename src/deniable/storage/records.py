"""What is stored, as value objects: the firm, experiments with their arms, decisions, API keys.

Budgets are whole nano-nats here; `budget`, `remaining` and so on are the same in nats, for people.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Literal, NamedTuple, TypeAlias

from deniable.errors import NANO

Status: TypeAlias = Literal["draft", "running", "paused", "stopped", "scratch"]
Scope: TypeAlias = Literal[
    "decide", "reward", "scores", "read", "draft", "run", "audit", "privacy", "admin"
]
UserRole: TypeAlias = Literal["viewer", "analyst", "manager", "privacy-officer", "admin"]

SCOPES: tuple[Scope, ...] = (
    "decide",
    "reward",
    "scores",
    "read",
    "draft",
    "run",
    "audit",
    "privacy",
    "admin",
)
"""What a caller may do: ask for arms; report rewards; give scores; look; make and change drafts; start,
stop and change what runs; audit; the firm's budget, erasures, documents and exports; people and keys,
and all else."""

ROLES: dict[UserRole, tuple[Scope, ...]] = {
    "viewer": ("read",),
    "analyst": ("read", "draft"),
    "manager": ("read", "draft", "run"),
    "privacy-officer": ("read", "audit", "privacy"),
    "admin": SCOPES,
}
"""What each role of a person may do."""

SCRATCH_PREFIX = "_scratch-"
"""Keys of scratch copies begin with it; no key of an experiment begins with `_`."""

UNKNOWN_SEGMENT = -1
"""The stored position of a segment that the experiment does not list."""

MICRO = 1_000_000
"""Millionths in one unit of a reward; rewards are stored as integers of this unit."""

SLOTS = 1000
"""Slots of a layer; a visitor's is a keyed hash of the visitor and the layer."""


class Role(IntEnum):
    """Why a visitor was drawn from this row of the table. It never depends on the segment.

    Only MEMBER draws from the segment's own row (a segment that is not listed has the zero row), and
    only members enter the counts that tables are made from. All others draw from the zero row.
    """

    MEMBER = 0
    OTHER_SLOT = 1  # the visitor's slot of the layer belongs to another experiment, or to none
    HOLDOUT = 2
    CLOSED = 3  # paused, or exhausted before migration 0004
    ERASED = 4  # came back after an erasure


class Decision(NamedTuple):
    """What leaves the trusted store for one visitor: nothing tells the segment or the draw.

    Attributes:
        id: opaque, random; names this decision when its reward arrives.
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
        key: what `decide` answers.
        label: for people.
        budget_nano: this arm's own budget (arm-specific mechanism), or None for all arms.
        active: False once it was switched off: new visitors do not get it.

    >>> Arm("new").active
    True
    """

    key: str
    label: str = ""
    budget_nano: int | None = None
    active: bool = True


Better: TypeAlias = Literal["more", "less"]


@dataclass(frozen=True)
class Metric:
    """A reward that an experiment records.

    Attributes:
        name: what callers name it by.
        cap_micro: the largest value, in millionths; values lie between 0 and this.
        better: whether more of it is better, or less. Of the metric that decides more is.

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
        """As it is stored and chained; `Metric(*plain)` reads it. "more" is left out."""
        return [self.name, self.cap_micro, *([] if self.better == "more" else [self.better])]


@dataclass(frozen=True)
class Experiment:
    """One experiment as stored.

    Attributes:
        id: its UUID, 32 hexadecimal digits.
        key: the name by which it is called.
        status: draft, running, paused or stopped; scratch for a scratch copy.
        arms: in the order in which they were declared; positions in this tuple are what is stored.
            More can be added behind them, none is removed.
        segments: the segments that are learned apart; any other is served from the zero row.
        strategy: how tables are made from counts; a name from `deniable.strategies`.
        across_time: whether it asks for the grade "across time" where its strategy offers it.
        budget_nano: the cap on every visitor's risk; the largest arm budget where arms have one.
        trace_nano: the trace budget; None: nothing is promised about later tables.
        planned_visitors: what the budget was planned for; a figure for people.
        layer: experiments of one layer have different slots, so none shares a visitor with another.
        slots: the layer's slots that it has, one bit each; None without a layer or before the start.
        holdout: thousandths of the visitors that are held out, by a keyed hash of their own.
        default_arm: shown to everybody before the start and after a stop without a winner.
        attribution_seconds: rewards that come later than this are not counted; None: always.
        metrics: what is rewarded; the first one decides.
        version: of the promise; raised whenever an arm is switched off or added.
        winner: the promoted arm, once stopped with one.
        exhausted: an erasure found no budget before erasures left tombstones: new visitors get the
            zero row.
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
    trace_nano: int | None
    planned_visitors: int | None
    layer: str | None
    slots: bytes | None
    holdout: int
    default_arm: str
    attribution_seconds: int | None
    metrics: tuple[Metric, ...]
    version: int
    winner: str | None
    exhausted: bool
    table_number: int
    has_tombstones: bool
    created_at: datetime
    started_at: datetime | None
    stopped_at: datetime | None
    revision: int
    across_time: bool = False

    @property
    def budget(self) -> float:
        """The cap in nats."""
        return self.budget_nano / NANO

    @property
    def arm_specific(self) -> bool:
        """Whether arms have budgets of their own."""
        return self.arms[0].budget_nano is not None

    @property
    def cost_nano(self) -> int:
        """What it costs the firm while it counts: the budget and the trace budget."""
        return self.budget_nano + (self.trace_nano or 0)

    @property
    def budgets(self) -> tuple[int, ...]:
        """The budget of each arm, in nano-nats."""
        return tuple(
            self.budget_nano if arm.budget_nano is None else arm.budget_nano for arm in self.arms
        )

    @property
    def active(self) -> tuple[int, ...]:
        """The positions of the arms that new visitors can get."""
        return tuple(position for position, arm in enumerate(self.arms) if arm.active)

    @property
    def active_arms(self) -> tuple[Arm, ...]:
        """The arms that new visitors can get."""
        return tuple(arm for arm in self.arms if arm.active)


@dataclass(frozen=True)
class Firm:
    """The firm's budget: at most this much in any window of so many days.

    Attributes:
        budget_nano: Gamma, what a visitor may lose over all experiments of any window.
        committed_nano: what counts of it now.
        window_days: the length of the window. An experiment counts from its start until so many days
            after its last answer.
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
        """What is committed, in nats."""
        return self.committed_nano / NANO

    @property
    def remaining_nano(self) -> int:
        """What is left, in nano-nats."""
        return self.budget_nano - self.committed_nano

    @property
    def remaining(self) -> float:
        """What is left, in nats."""
        return self.remaining_nano / NANO


@dataclass(frozen=True)
class Cell:
    """Counts of one arm in one segment over all writers; private, for people with read access.

    Attributes:
        segment: its name, or None for visitors of segments that the experiment does not list.
        arm: the arm's key.
        shows: decisions of members that showed it.
        rewarded: how many of them had a reward.
        value_micro: the sum of the deciding metric's rewards, in millionths.
    """

    segment: str | None
    arm: str
    shows: int
    rewarded: int
    value_micro: int

    @property
    def clicks(self) -> int:
        """The rewards in whole units: clicks, where rewards are 0 or 1."""
        return self.value_micro // MICRO


@dataclass(frozen=True)
class PublishedTable:
    """One table as stored, with what it was made from.

    Attributes:
        number: 1, 2, 3, ... within the experiment.
        version: of the promise that it belongs to.
        strategy: that made it.
        published_at: when.
        decisions: how many were stored by then, of every kind.
        counts: what it was made from, JSON.
        rows: the encoded table, in the shape that its experiment has now.
    """

    number: int
    version: int
    strategy: str
    published_at: datetime
    decisions: int
    counts: bytes
    rows: bytes


@dataclass(frozen=True)
class GateReport:
    """What the gate will do with a model's scores. Private: it is about all visitors so far.

    Attributes:
        experiment: its key.
        kind: scores or probabilities.
        recorded: whether the scores are new; False: the same are waiting, or followed, already.
        wanted: the model's expected score without the gate; 1 for probabilities.
        kept: with it; for probabilities the share of visitors who are shown what the model would show.
        table: the number of the table in force; 0 before the start.
        decisions: stored so far.
        next_at: the number of decisions at which the next table is published, which follows these
            scores; None before the start: the first table does.
    """

    experiment: str
    kind: Literal["scores", "probabilities"]
    recorded: bool
    wanted: float
    kept: float
    table: int
    decisions: int
    next_at: int | None

    @property
    def cost(self) -> float:
        """What the promise takes of what the model wanted."""
        return self.wanted - self.kept

    @property
    def words(self) -> str:
        """All of it as two sentences."""
        if self.kind == "scores":
            told = (
                f"Expected score {self.kept:.6g} with the gate, {self.wanted:.6g} without: it costs "
                f"{self.cost:.6g}."
            )
        else:
            told = f"{self.kept:.2%} of the visitors are shown what the model would show them."
        if self.next_at is None:
            return f"{told} The first table follows, when the experiment starts."
        so_far = f"{self.decisions:,} so far"
        return f"{told} The next table follows, at {self.next_at:,} decisions ({so_far})."


@dataclass(frozen=True)
class Commitment:
    """One entry of the ledger's commitment chain, newest last.

    Attributes:
        seq: 1, 2, 3, ...
        kind: firm, key, create, redraft, replan, discard, start, table, scores, pause, resume, stop,
            switch_off, add_arm, add_segment, erase, purge, audit, note, label, document, access,
            approval, export, settings, scratch, scratch_end, migrate; period and exhaust in stores
            from before migration 0004.
        experiment: the key it concerns, or None for the firm.
        amount_nano: what it took of the firm's budget.
        detail: further facts, JSON.
    """

    seq: int
    kind: str
    experiment: str | None
    amount_nano: int
    detail: str
    recorded_at: datetime

    @property
    def actor(self) -> str | None:
        """Who did it, as `deniable.storage.actors` writes it; None: the service itself, or unknown."""
        found = json.loads(self.detail or "{}")
        return found.get("by") if isinstance(found, dict) else None


@dataclass(frozen=True)
class ApiKey:
    """An API key as stored: only the hash of its secret is kept.

    Attributes:
        last_used_at: the beginning of the last hour in which it was used.
    """

    id: str
    label: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    revoked_at: datetime | None
    last_used_at: datetime | None = None


@dataclass(frozen=True)
class User:
    """A person who may sign in.

    Attributes:
        name: what the person signs in with; in lower case.
        role: what the person may do, by `ROLES`.
        joined_at: when the person first chose a password; None: still invited.
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
