"""Pydantic models for administration. Budgets are in nats, times in UTC.

Requests forbid unknown members, so that a misspelt budget does not silently become the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from deniable._types import JsonObject
from deniable.errors import NANO
from deniable.masks.mask import MOST_LABELS
from deniable.service.drafts import NewArm
from deniable.service.http.decide_routes import EXPERIMENT_KEY, MASK_NAME, NOT_BLANK
from deniable.service.limits import (
    LARGEST_REWARD,
    LONGEST_ARM_LABEL,
    LONGEST_EXPERIMENT_KEY,
    LONGEST_KEY_LABEL,
    LONGEST_NAME,
    LONGEST_REASON,
    MAX_ARMS,
    MAX_BUDGET,
    MAX_CONTEXTS,
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
    MAX_WEIGHT,
    MOST_ERASED,
)
from deniable.storage.masks import StoredMask
from deniable.storage.records import (
    MICRO,
    SCOPES,
    Better,
    Commitment,
    Experiment,
    Metric,
    Scope,
    Status,
)

Key = Annotated[str, Field(pattern=EXPERIMENT_KEY, max_length=LONGEST_EXPERIMENT_KEY)]
Budget = Annotated[float, Field(ge=0, le=MAX_BUDGET, allow_inf_nan=False, strict=True)]
MaskName = Annotated[str, Field(pattern=MASK_NAME)]
SegmentName = Annotated[str, Field(min_length=1, max_length=LONGEST_EXPERIMENT_KEY)]
VisitorId = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=NOT_BLANK)]


def _text(value: object) -> object:
    """Require times as text: a bare number could be seconds or milliseconds."""
    if not isinstance(value, str):
        raise ValueError("expected text, such as 2026-01-31T00:00:00Z")
    return value


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FirmRequest(_Request):
    """The firm's budget: a maximum in any window."""

    budget: Annotated[float, Field(ge=0, le=MAX_NANO / NANO, allow_inf_nan=False, strict=True)]
    window_days: Annotated[int, Field(ge=1, le=MAX_DAYS, strict=True)] = 90
    reason: Annotated[str, Field(max_length=LONGEST_REASON)] = ""


class MaskRequest(_Request):
    """A new mask. Its segments can be grouped; each group then is a label."""

    name: MaskName
    segments: Annotated[list[SegmentName], Field(min_length=2, max_length=MAX_SEGMENTS)]
    budget: Annotated[float, Field(gt=0, le=MAX_BUDGET, allow_inf_nan=False, strict=True)]
    groups: (
        Annotated[dict[SegmentName, list[SegmentName]], Field(max_length=MOST_LABELS)] | None
    ) = None
    version: Annotated[int, Field(ge=1, le=MAX_WEIGHT, strict=True)] = 1
    period: MaskName = "life"

    def arguments(self) -> JsonObject:
        """Return the members as `Masks.create` takes them."""
        return dict(self)


class ArmRequest(_Request):
    """An arm of a new experiment, or one to add to a running one."""

    key: Key
    label: Annotated[str, Field(max_length=LONGEST_ARM_LABEL)] = ""
    budget: Budget | None = None
    weight: Annotated[int, Field(ge=1, le=MAX_WEIGHT, strict=True)] | None = None

    def new_arm(self) -> NewArm:
        """Convert to the service's type."""
        return NewArm(self.key, self.label, self.budget, self.weight)


def _named(value: object) -> object:
    """A bare key stands for an arm without label and budget."""
    return {"key": value} if isinstance(value, str) else value


Arms = Annotated[
    list[Annotated[ArmRequest, BeforeValidator(_named, json_schema_input_type=ArmRequest | Key)]],
    Field(min_length=2, max_length=MAX_ARMS),
]
"""Arms as objects or bare keys."""


Contexts = Annotated[list[SegmentName], Field(max_length=MAX_CONTEXTS)]


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
    segments: Annotated[list[SegmentName], Field(max_length=MAX_SEGMENTS)] = []
    contexts: Contexts = []
    observed: bool = True
    budget: Budget | None = None
    strategy: Annotated[str, Field(max_length=16)] | None = None
    planned_visitors: Annotated[int, Field(ge=1, le=MAX_PLANNED_VISITORS, strict=True)] | None = (
        None
    )
    mask: MaskName | None = None
    sticky: Annotated[bool, Field(strict=True)] = True
    layer: Key | None = None
    holdout: Annotated[float, Field(ge=0, le=MAX_HOLDOUT, allow_inf_nan=False)] = 0.0
    metrics: Annotated[list[MetricRequest], Field(max_length=MAX_METRICS)] = []
    default_arm: Key | None = None
    attribution_seconds: Annotated[int, Field(ge=1, le=MAX_SECONDS, strict=True)] | None = None


class DraftRequest(_Request):
    """Changes to a draft. Only given members change; `null` removes a setting."""

    arms: Arms = []
    segments: Annotated[list[SegmentName], Field(max_length=MAX_SEGMENTS)] = []
    contexts: Contexts = []
    observed: bool = True
    budget: Budget | None = None
    strategy: Annotated[str, Field(max_length=16)] | None = None
    planned_visitors: Annotated[int, Field(ge=1, le=MAX_PLANNED_VISITORS, strict=True)] | None = (
        None
    )
    mask: MaskName | None = None
    sticky: Annotated[bool, Field(strict=True)] = True
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


class ContextRequest(_Request):
    """A context to list."""

    context: SegmentName


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


class ArmReply(BaseModel):
    """One arm."""

    key: str
    label: str
    budget: float | None
    active: bool
    weight: int


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
    contexts: list[str]
    observed: bool
    strategy: str
    budget: float
    planned_visitors: int | None
    mask: str | None
    sticky: bool
    layer: str | None
    holdout: float
    metrics: list[MetricReply]
    default_arm: str
    attribution_seconds: int | None
    version: int
    winner: str | None
    table_number: int
    created_at: datetime
    started_at: datetime | None
    stopped_at: datetime | None

    @classmethod
    def of(cls, experiment: Experiment) -> ExperimentReply:
        """Convert from the record."""
        own = ("arms", "contexts", "holdout", "metrics")
        taken = {name: getattr(experiment, name) for name in cls.model_fields if name not in own}
        arms = [
            ArmReply(
                key=arm.key,
                label=arm.label,
                budget=_nats(arm.budget_nano),
                active=arm.active,
                weight=arm.weight,
            )
            for arm in experiment.arms
        ]
        return cls(
            arms=arms,
            contexts=list(experiment.contexts[1:]),
            holdout=experiment.holdout / 1000,
            metrics=list(map(MetricReply.of, experiment.metrics)),
            **taken,
        )


class MaskReply(BaseModel):
    """One mask."""

    name: str
    version: int
    period: str
    budget: float
    groups: dict[str, list[str]]
    labels: list[str]
    channel: str
    key: str
    created_at: datetime
    ended_at: datetime | None

    @classmethod
    def of(cls, mask: StoredMask) -> MaskReply:
        """Convert from the record."""
        return cls.model_validate(mask, from_attributes=True)


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
    """What was erased. It costs nothing: erased visitors get the neutral row."""

    decisions: int
