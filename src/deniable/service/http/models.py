"""What administration sends and receives, as pydantic models: budgets in nats, times in UTC.

Requests forbid unknown members: a misspelt budget must not silently become a default.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from deniable.errors import NANO
from deniable.service.drafts import (
    MAX_ARMS,
    MAX_BUDGET,
    MAX_DAYS,
    MAX_SECONDS,
    MAX_SEGMENTS,
    NewArm,
)
from deniable.service.http.messages import EXPERIMENT_KEY
from deniable.service.jobs import LONGEST_NAME
from deniable.storage.erasure import Erasure
from deniable.storage.records import (
    ApiKey,
    Cell,
    Commitment,
    Experiment,
    Firm,
    Scope,
    Status,
    StrategyName,
)

Key = Annotated[str, Field(pattern=EXPERIMENT_KEY, max_length=128)]
Budget = Annotated[float, Field(ge=0, le=MAX_BUDGET, allow_inf_nan=False, strict=True)]
VisitorId = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]


def _text(value: object) -> object:
    """A time is sent as text: a bare number could be seconds or milliseconds."""
    if not isinstance(value, str):
        raise ValueError("expected text, such as 2026-01-31T00:00:00Z")
    return value


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FirmRequest(_Request):
    """A new period of the firm's budget."""

    budget: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False, strict=True)]
    days: Annotated[float, Field(gt=0, le=MAX_DAYS, allow_inf_nan=False, strict=True)] | None = None


class ArmRequest(_Request):
    """An arm of a new experiment."""

    key: Key
    label: Annotated[str, Field(max_length=500)] = ""
    budget: Budget | None = None

    def new_arm(self) -> NewArm:
        """As the use-case takes it."""
        return NewArm(self.key, self.label, self.budget)


class ExperimentRequest(_Request):
    """A new experiment."""

    key: Key
    arms: Annotated[list[ArmRequest], Field(min_length=2, max_length=MAX_ARMS)]
    segments: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=128)]],
        Field(min_length=1, max_length=MAX_SEGMENTS),
    ]
    budget: Budget | None = None
    strategy: StrategyName = "dynamic"
    planned_visitors: Annotated[int, Field(ge=1, le=10**15, strict=True)] | None = None
    group: Key | None = None
    default_arm: Key | None = None
    attribution_seconds: Annotated[int, Field(ge=1, le=MAX_SECONDS, strict=True)] | None = None


class StopRequest(_Request):
    """How to stop."""

    promote: Key | None = None


class KeyRequest(_Request):
    """A new API key."""

    label: Annotated[str, Field(min_length=1, max_length=200)]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=4)]


class ErasureRequest(_Request):
    """Visitors to forget."""

    visitors: Annotated[list[VisitorId], Field(min_length=1, max_length=1_000)]


class PurgeRequest(_Request):
    """Visitors of a time to forget."""

    before: Annotated[AwareDatetime, BeforeValidator(_text)]
    running: Annotated[bool, Field(strict=True)] = False


class FirmReply(BaseModel):
    """The firm's budget, in nats."""

    budget: float
    committed: float
    remaining: float
    starts_at: datetime
    ends_at: datetime | None

    @classmethod
    def of(cls, firm: Firm) -> FirmReply:
        """From the record."""
        return cls(
            budget=firm.budget,
            committed=firm.committed,
            remaining=firm.remaining,
            starts_at=firm.starts_at,
            ends_at=firm.ends_at,
        )


class ArmReply(BaseModel):
    """One arm."""

    key: str
    label: str
    budget: float | None
    active: bool


class ExperimentReply(BaseModel):
    """One experiment."""

    key: str
    status: Status
    arms: list[ArmReply]
    segments: list[str]
    strategy: StrategyName
    budget: float
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

    @classmethod
    def of(cls, experiment: Experiment) -> ExperimentReply:
        """From the record."""
        taken = {name: getattr(experiment, name) for name in cls.model_fields if name != "arms"}
        arms = [
            ArmReply(key=arm.key, label=arm.label, budget=_nats(arm.budget_nano), active=arm.active)
            for arm in experiment.arms
        ]
        return cls(arms=arms, **taken)


class CellReply(BaseModel):
    """Counts of one arm in one segment. Private: only for people of the firm."""

    segment: str | None
    arm: str
    shows: int
    clicks: int

    @classmethod
    def of(cls, cell: Cell) -> CellReply:
        """From the record."""
        return cls(segment=cell.segment, arm=cell.arm, shows=cell.shows, clicks=cell.clicks)


class CommitmentReply(BaseModel):
    """One entry of the ledger."""

    seq: int
    kind: str
    experiment: str | None
    amount: float
    detail: str
    recorded_at: datetime

    @classmethod
    def of(cls, entry: Commitment) -> CommitmentReply:
        """From the record."""
        return cls(
            seq=entry.seq,
            kind=entry.kind,
            experiment=entry.experiment,
            amount=entry.amount_nano / NANO,
            detail=entry.detail,
            recorded_at=entry.recorded_at,
        )


class KeyReply(BaseModel):
    """An API key; its secret only in the answer that made it."""

    id: str
    label: str
    scopes: Sequence[Scope]
    created_at: datetime
    revoked_at: datetime | None
    secret: str | None = None

    @classmethod
    def of(cls, key: ApiKey, secret: str | None = None) -> KeyReply:
        """From the record."""
        return cls(
            id=key.id,
            label=key.label,
            scopes=key.scopes,
            created_at=key.created_at,
            revoked_at=key.revoked_at,
            secret=secret,
        )


class HealthReply(BaseModel):
    """Whether the service lives, or can serve."""

    status: Literal["ok"] = "ok"


class ProblemReply(BaseModel):
    """RFC 9457 problem details."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str


def _nats(nano: int | None) -> float | None:
    return None if nano is None else nano / NANO


class VerificationReply(BaseModel):
    """Whether the ledger holds, and what is wrong first."""

    sound: bool
    problem: str | None
    chain: str | None
    seq: int | None
    commitments: int
    decisions: int
    erased: int
    heads: dict[str, str]


class ErasureReply(BaseModel):
    """What was forgotten, and what forgetting cost, in nats."""

    decisions: int
    debits: dict[str, float]
    exhausted: list[str]

    @classmethod
    def of(cls, outcome: Erasure) -> ErasureReply:
        """From the use-case's outcome."""
        debits = {key: nano / NANO for key, nano in outcome.debits_nano.items()}
        return cls(decisions=outcome.decisions, debits=debits, exhausted=outcome.exhausted)
