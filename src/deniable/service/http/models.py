"""Pydantic models for administration. Budgets are in nats, times in UTC.

Requests forbid unknown members, so that a misspelt budget does not silently become the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from deniable._types import JsonObject
from deniable.errors import NANO
from deniable.privacy.tables import decoded_table
from deniable.service.drafts import NewArm
from deniable.service.http.decide_routes import EXPERIMENT_KEY, NOT_BLANK
from deniable.service.limits import (
    LARGEST_REWARD,
    LONGEST_ARM_LABEL,
    LONGEST_EXPERIMENT_KEY,
    LONGEST_KEY_LABEL,
    LONGEST_NAME,
    LONGEST_REASON,
    MAX_ARMS,
    MAX_BUDGET,
    MAX_DAYS,
    MAX_HOLDOUT,
    MAX_LABEL,
    MAX_METRICS,
    MAX_NANO,
    MAX_NOTE,
    MAX_PLANNED_VISITORS,
    MAX_SECONDS,
    MAX_SEGMENTS,
    MAX_TAGS,
    MOST_ERASED,
)
from deniable.storage.records import (
    MICRO,
    SCOPES,
    Better,
    Commitment,
    Experiment,
    Metric,
    PublishedTable,
    Scope,
    Status,
)
from deniable.strategies import DEFAULT_STRATEGY

Key = Annotated[str, Field(pattern=EXPERIMENT_KEY, max_length=LONGEST_EXPERIMENT_KEY)]
Budget = Annotated[float, Field(ge=0, le=MAX_BUDGET, allow_inf_nan=False, strict=True)]
SegmentName = Annotated[str, Field(min_length=1, max_length=LONGEST_EXPERIMENT_KEY)]
VisitorId = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=NOT_BLANK)]


def _text(value: object) -> object:
    """Require times as text: a bare number could be seconds or milliseconds."""
    if not isinstance(value, str):
        raise ValueError("expected text, such as 2026-01-31T00:00:00Z")
    return value


def _deprecated(instead: str) -> FieldInfo:
    """Mark a field as deprecated in the documentation only; pydantic's own mark warns on access."""
    info: FieldInfo = Field(
        description=f"Deprecated: {instead}", json_schema_extra={"deprecated": True}
    )
    return info


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FirmRequest(_Request):
    """The firm's budget: a maximum in any window."""

    budget: Annotated[float, Field(ge=0, le=MAX_NANO / NANO, allow_inf_nan=False, strict=True)]
    window_days: Annotated[int, Field(ge=1, le=MAX_DAYS, strict=True)] = 90
    reason: Annotated[str, Field(max_length=LONGEST_REASON)] = ""
    days: Annotated[
        float | None,
        Field(gt=0, le=MAX_DAYS, allow_inf_nan=False, strict=True),
        _deprecated("periods are gone: use `window_days`; this has no effect"),
    ] = None


class ArmRequest(_Request):
    """An arm of a new experiment, or one to add to a running one."""

    key: Key
    label: Annotated[str, Field(max_length=LONGEST_ARM_LABEL)] = ""
    budget: Budget | None = None

    def new_arm(self) -> NewArm:
        """Convert to the service's type."""
        return NewArm(self.key, self.label, self.budget)


def _named(value: object) -> object:
    """A bare key stands for an arm without label and budget."""
    return {"key": value} if isinstance(value, str) else value


Arms = Annotated[
    list[Annotated[ArmRequest, BeforeValidator(_named, json_schema_input_type=ArmRequest | Key)]],
    Field(min_length=2, max_length=MAX_ARMS),
]
"""Arms as objects or bare keys."""


class MetricRequest(_Request):
    """A reward that a new experiment records."""

    name: Key
    cap: Annotated[float, Field(gt=0, le=LARGEST_REWARD, allow_inf_nan=False)] = 1.0
    better: Better = "more"

    def metric(self) -> Metric:
        """Convert to the service's type."""
        return Metric(self.name, round(self.cap * MICRO), self.better)


class ExperimentRequest(_Request):
    """A new experiment."""

    key: Key
    arms: Arms
    segments: Annotated[list[SegmentName], Field(min_length=1, max_length=MAX_SEGMENTS)]
    budget: Budget | None = None
    strategy: Annotated[str, Field(max_length=16)] = DEFAULT_STRATEGY
    across_time: Annotated[bool, Field(strict=True)] = False
    trace_budget: Budget | None = None
    planned_visitors: Annotated[int, Field(ge=1, le=MAX_PLANNED_VISITORS, strict=True)] | None = (
        None
    )
    layer: Key | None = None
    group: Annotated[Key | None, _deprecated("use `layer`")] = None
    holdout: Annotated[float, Field(ge=0, le=MAX_HOLDOUT, allow_inf_nan=False)] = 0.0
    metrics: Annotated[list[MetricRequest], Field(max_length=MAX_METRICS)] = []
    default_arm: Key | None = None
    attribution_seconds: Annotated[int, Field(ge=1, le=MAX_SECONDS, strict=True)] | None = None


class DraftRequest(_Request):
    """Changes to a draft. Only given members change; `null` removes a setting."""

    arms: Arms = []
    segments: Annotated[list[SegmentName], Field(min_length=1, max_length=MAX_SEGMENTS)] = []
    budget: Budget | None = None
    strategy: Annotated[str, Field(max_length=16)] = DEFAULT_STRATEGY
    across_time: Annotated[bool, Field(strict=True)] = False
    trace_budget: Budget | None = None
    planned_visitors: Annotated[int, Field(ge=1, le=MAX_PLANNED_VISITORS, strict=True)] | None = (
        None
    )
    layer: Key | None = None
    holdout: Annotated[float, Field(ge=0, le=MAX_HOLDOUT, allow_inf_nan=False)] = 0.0
    default_arm: Key | None = None
    attribution_seconds: Annotated[int, Field(ge=1, le=MAX_SECONDS, strict=True)] | None = None

    def changes(self) -> JsonObject:
        """Return the given members in the service's types."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        if "arms" in given:
            given["arms"] = [arm.new_arm() for arm in self.arms]
        return given


class CopyRequest(_Request):
    """The key of a copy."""

    key: Key


class NoteRequest(_Request):
    """A note for the ledger."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_NOTE)]


class LabelsRequest(_Request):
    """Owner and tags of an experiment."""

    owner: Annotated[str, Field(max_length=MAX_LABEL)] = ""
    tags: Annotated[
        list[Annotated[str, Field(max_length=MAX_LABEL)]], Field(max_length=MAX_TAGS)
    ] = []


class StopRequest(_Request):
    """Options for stopping."""

    promote: Key | None = None


class SegmentRequest(_Request):
    """A segment to list."""

    segment: SegmentName


class KeyRequest(_Request):
    """A new API key."""

    label: Annotated[str, Field(min_length=1, max_length=LONGEST_KEY_LABEL)]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(SCOPES))]


class ErasureRequest(_Request):
    """Visitors to erase."""

    visitors: Annotated[list[VisitorId], Field(min_length=1, max_length=MOST_ERASED)]


class PurgeRequest(_Request):
    """A time before which all visitors are erased."""

    before: Annotated[AwareDatetime, BeforeValidator(_text)]
    running: Annotated[bool, Field(strict=True)] = False


class _Reply(BaseModel):
    """A response with the attributes of a record."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, record: object) -> Self:
        """Convert from the record."""
        return cls.model_validate(record)


class FirmReply(_Reply):
    """The firm's budget, in nats."""

    budget: float
    committed: float
    remaining: float
    window_days: int
    starts_at: datetime
    ends_at: Annotated[None, _deprecated("budgets no longer end")] = None


class ArmReply(BaseModel):
    """One arm."""

    key: str
    label: str
    budget: float | None
    active: bool


class MetricReply(_Reply):
    """One metric."""

    name: str
    cap: float
    better: Better


class ExperimentReply(BaseModel):
    """One experiment."""

    key: str
    status: Status
    arms: list[ArmReply]
    segments: list[str]
    strategy: str
    across_time: bool
    budget: float
    trace_budget: float | None
    planned_visitors: int | None
    layer: str | None
    group: Annotated[str | None, _deprecated("use `layer`")]
    holdout: float
    metrics: list[MetricReply]
    default_arm: str
    attribution_seconds: int | None
    version: int
    winner: str | None
    exhausted: bool
    table_number: int
    created_at: datetime
    started_at: datetime | None
    stopped_at: datetime | None

    @classmethod
    def of(cls, experiment: Experiment) -> ExperimentReply:
        """Convert from the record."""
        own = ("arms", "trace_budget", "group", "holdout", "metrics")
        taken = {name: getattr(experiment, name) for name in cls.model_fields if name not in own}
        arms = [
            ArmReply(key=arm.key, label=arm.label, budget=_nats(arm.budget_nano), active=arm.active)
            for arm in experiment.arms
        ]
        return cls(
            arms=arms,
            trace_budget=_nats(experiment.trace_nano),
            group=experiment.layer,
            holdout=experiment.holdout / 1000,
            metrics=list(map(MetricReply.of, experiment.metrics)),
            **taken,
        )


class CellReply(_Reply):
    """Counts of one arm in one segment. Private: for the firm's staff only."""

    segment: str | None
    arm: str
    shows: int
    clicks: int


class CommitmentReply(BaseModel):
    """One entry of the ledger."""

    seq: int
    kind: str
    experiment: str | None
    amount: float
    detail: str
    recorded_at: datetime
    by: str | None = None

    @classmethod
    def of(cls, entry: Commitment) -> CommitmentReply:
        """Convert from the record."""
        return cls(
            seq=entry.seq,
            kind=entry.kind,
            experiment=entry.experiment,
            amount=entry.amount_nano / NANO,
            detail=entry.detail,
            recorded_at=entry.recorded_at,
            by=entry.actor,
        )


class KeyReply(_Reply):
    """An API key. The secret is included only when it is created."""

    id: str
    label: str
    scopes: Sequence[Scope]
    created_at: datetime
    revoked_at: datetime | None
    last_used_at: datetime | None = None
    secret: str | None = None


class HealthReply(BaseModel):
    """Whether the service is alive, or ready."""

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


class VerificationReply(_Reply):
    """Whether the ledger is intact, and the first problem if not."""

    sound: bool
    problem: str | None
    chain: str | None
    seq: int | None
    commitments: int
    decisions: int
    erased: int
    heads: dict[str, str]


class ErasureReply(_Reply):
    """What was erased. It costs nothing: erased visitors get the zero row."""

    decisions: int
    debits: Annotated[dict[str, float], _deprecated("erasing costs nothing")] = {}
    exhausted: Annotated[list[str], _deprecated("erasing exhausts nothing")] = []


class ScratchReply(BaseModel):
    """A scratch copy: its promise and its only table. Entries are strings, because they exceed 2^53."""

    key: str
    of_strategy: str
    arms: list[str]
    segments: list[str]
    budgets_nano: list[int]
    active: list[int]
    rows: list[list[str]]
    zero: list[str]

    @classmethod
    def of(cls, copy: Experiment, table: PublishedTable) -> ScratchReply:
        """Convert from the copy and its table."""
        made = decoded_table(table.rows, len(copy.arms))
        return cls(
            key=copy.key,
            of_strategy=copy.strategy,
            arms=[arm.key for arm in copy.arms],
            segments=list(copy.segments),
            budgets_nano=list(copy.budgets),
            active=list(copy.active),
            rows=[list(map(str, row)) for row in made.rows],
            zero=list(map(str, made.zero)),
        )


class StoredDrawReply(_Reply):
    """A stored decision of a scratch copy, with indices of segment (-1: not listed) and arm."""

    id: str
    segment: int
    shown: int
    table: int
    role: int


class ScratchEndReply(BaseModel):
    """A scratch copy was removed."""

    decisions: int
