"""What is stored, as value objects: the firm, experiments with their arms, decisions, API keys.

Budgets are whole nano-nats here; `budget`, `remaining` and so on are the same in nats, for people.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from deniable.errors import NANO

Status: TypeAlias = Literal["draft", "running", "paused", "stopped"]
StrategyName: TypeAlias = Literal["constant", "dynamic"]
Scope: TypeAlias = Literal["decide", "reward", "read", "admin"]

SCOPES: tuple[Scope, ...] = ("decide", "reward", "read", "admin")
UNKNOWN_SEGMENT = -1
"""The stored position of a segment that the experiment does not list."""


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


@dataclass(frozen=True)
class Experiment:
    """One experiment as stored.

    Attributes:
        id: its UUID, 32 hexadecimal digits.
        key: the name by which it is called.
        status: draft, running, paused or stopped.
        arms: in the order in which they were declared; positions in this tuple are what is stored.
        segments: the segments that are learned apart; any other is served uniformly.
        strategy: whether the risk is the budget from the start or follows the clock.
        budget_nano: the cap on every visitor's risk; the largest arm budget where arms have one.
        planned_visitors: what the budget was planned for; a figure for people.
        group: experiments of one group never share a visitor, so together they cost their largest.
        default_arm: shown to everybody before the start and after a stop without a winner.
        attribution_seconds: rewards that come later than this are not counted; None: always.
        version: raised whenever an arm is switched off.
        winner: the promoted arm, once stopped with one.
        exhausted: no budget is left for new draws: new visitors get a uniform arm.
        revision: raised by every change.

    >>> from deniable import open
    >>> with open("memory:") as service:
    ...     made = service.create_experiment("e", arms=["a", "b"], segments=["s"], budget=1)
    >>> made.status, made.budget
    ('draft', 1.0)
    """

    id: str
    key: str
    status: Status
    arms: tuple[Arm, ...]
    segments: tuple[str, ...]
    strategy: StrategyName
    budget_nano: int
    planned_visitors: int | None
    group: str | None
    default_arm: str
    attribution_seconds: int | None
    version: int
    winner: str | None
    exhausted: bool
    created_at: datetime
    started_at: datetime | None
    stopped_at: datetime | None
    revision: int

    @property
    def budget(self) -> float:
        """The cap in nats."""
        return self.budget_nano / NANO

    @property
    def arm_specific(self) -> bool:
        """Whether arms have budgets of their own."""
        return self.arms[0].budget_nano is not None

    @property
    def active_arms(self) -> tuple[Arm, ...]:
        """The arms that new visitors can get."""
        return tuple(arm for arm in self.arms if arm.active)


@dataclass(frozen=True)
class Firm:
    """The firm's budget for the present period, and what experiments have committed of it.

    Attributes:
        budget_nano: Gamma, what a visitor may lose over all experiments of the period.
        committed_nano: what started experiments (and erasures) have taken of it.
        starts_at: the beginning of the period.
        ends_at: its end; from then on new visitors are served uniformly. None: open.

    >>> from deniable import open
    >>> with open("memory:") as service:
    ...     firm = service.set_firm(budget=3)
    >>> firm.remaining
    3.0
    """

    id: str
    budget_nano: int
    committed_nano: int
    starts_at: datetime
    ends_at: datetime | None

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
        shows: decisions that showed it.
        clicks: those that were rewarded with 1.
    """

    segment: str | None
    arm: str
    shows: int
    clicks: int


@dataclass(frozen=True)
class Commitment:
    """One entry of the ledger's commitment chain, newest last.

    Attributes:
        seq: 1, 2, 3, ...
        kind: period, create, start, pause, resume, stop, switch_off, exhaust, erase or purge.
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


@dataclass(frozen=True)
class ApiKey:
    """An API key as stored: only the hash of its secret is kept."""

    id: str
    label: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    revoked_at: datetime | None
