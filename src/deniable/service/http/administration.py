"""Every route besides decide and reward. Each is one call of the in-process service.

Experiments, the budget and API keys come first, then the ledger, erasure, retention and exports; audits
(scratch copies for canaries, and the ledger as a log); plans; scores for the strategy "gate".
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Depends, Path, Query, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator
from starlette.background import BackgroundTask

from deniable._types import JsonObject
from deniable.errors import InvalidArgumentError
from deniable.expectations.prior import HETEROGENEITY, LIFT
from deniable.planning.plan import Plan, plan
from deniable.service.drafts import MAX_ARMS, MAX_BUDGET, MAX_SEGMENTS
from deniable.service.http import models
from deniable.service.http.auth import Service, authenticator_of, require
from deniable.service.http.decide_routes import EXPERIMENT_KEY, SCRATCH_KEY
from deniable.service.http.messages import MEDIA_TYPE
from deniable.service.http.models import Budget
from deniable.service.result_records import Results
from deniable.service.scores import LARGEST_SCORE, checked_scores
from deniable.storage.records import Metric, Scope


def problems(*statuses: int) -> dict[int | str, JsonObject]:
    """Return a route's possible problems for its documentation; some are common to all."""
    schema = {"$ref": "#/components/schemas/ProblemReply"}
    return {
        status: {"description": "Problem details", "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted({400, 401, 403, 413, 415, 422, 503, *statuses})
    }


def _router(scope: Scope) -> APIRouter:
    """Create a router for callers with this scope."""
    needed = [Depends(require(scope))]
    return APIRouter(prefix="/v1", tags=[scope], dependencies=needed, responses=problems())


read, draft, run = _router("read"), _router("draft"), _router("run")
privacy, admin = _router("privacy"), _router("admin")
audit, plans, scores = _router("audit"), _router("read"), _router("scores")
ROUTERS = (read, draft, run, privacy, admin, audit, plans, scores)

ExperimentKey = Annotated[str, Path(pattern=EXPERIMENT_KEY, max_length=128)]
KeyId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]


@read.get("/firm", responses=problems(404))
def firm(service: Service) -> models.FirmReply:
    """The firm's budget, and how much of it counts now."""
    return models.FirmReply.of(service.firm.current())


@privacy.post("/firm", status_code=201, responses=problems(409))
def open_period(service: Service, wanted: models.FirmRequest) -> models.FirmReply:
    """Set the firm's budget and window. Existing commitments keep counting."""
    return models.FirmReply.of(
        service.firm.set(budget=wanted.budget, window_days=wanted.window_days, reason=wanted.reason)
    )


@read.get("/experiments")
def experiments(service: Service) -> list[models.ExperimentReply]:
    """All experiments, oldest first."""
    return [models.ExperimentReply.of(found) for found in service.experiments.all()]


@draft.post("/experiments", status_code=201, responses=problems(409))
def create_experiment(service: Service, wanted: models.ExperimentRequest) -> models.ExperimentReply:
    """Create a draft."""
    created = service.experiments.create(
        wanted.key,
        arms=[arm.new_arm() for arm in wanted.arms],
        segments=wanted.segments,
        budget=wanted.budget,
        strategy=wanted.strategy,
        across_time=wanted.across_time,
        planned_visitors=wanted.planned_visitors,
        trace_budget=wanted.trace_budget,
        layer=wanted.layer or wanted.group,
        holdout=wanted.holdout,
        metrics=[metric.metric() for metric in wanted.metrics] or (Metric(),),
        default_arm=wanted.default_arm,
        attribution_seconds=wanted.attribution_seconds,
    )
    return models.ExperimentReply.of(created)


@read.get("/experiments/{key}", responses=problems(404))
def experiment(service: Service, key: ExperimentKey) -> models.ExperimentReply:
    """One experiment."""
    return models.ExperimentReply.of(service.experiments.get(key))


@read.get("/experiments/{key}/counts", responses=problems(404))
def counts(service: Service, key: ExperimentKey) -> list[models.CellReply]:
    """Shows and clicks of each arm in each segment. Private: never hand this to a watcher."""
    return [models.CellReply.of(cell) for cell in service.experiments.counts(key)]


@read.get("/experiments/{key}/results", responses=problems(404))
def results(service: Service, key: ExperimentKey) -> Results:
    """What an experiment has learned, valid at any look. Private: never hand this to a watcher."""
    return service.experiments.results(key)


@draft.put("/experiments/{key}", responses=problems(404, 409))
def change_draft(
    service: Service, key: ExperimentKey, wanted: models.DraftRequest
) -> models.ExperimentReply:
    """Change a draft. Members that are given replace existing ones."""
    return models.ExperimentReply.of(service.experiments.redraft(key, **wanted.changes()))


@draft.delete("/experiments/{key}", status_code=204, responses=problems(404, 409))
def discard_draft(service: Service, key: ExperimentKey) -> None:
    """Delete a draft. Its key can be reused."""
    service.experiments.discard(key)


@draft.post("/experiments/{key}/copies", status_code=201, responses=problems(404, 409))
def duplicate(
    service: Service, key: ExperimentKey, wanted: models.CopyRequest
) -> models.ExperimentReply:
    """Create a draft like this experiment."""
    return models.ExperimentReply.of(service.experiments.duplicate(key, wanted.key))


@draft.post("/experiments/{key}/notes", status_code=204, responses=problems(404))
def add_note(service: Service, key: ExperimentKey, wanted: models.NoteRequest) -> None:
    """Add a permanent note to the ledger. Never write anything about a visitor."""
    service.experiments.note(key, wanted.text)


@draft.put("/experiments/{key}/labels", responses=problems(404))
def label(
    service: Service, key: ExperimentKey, wanted: models.LabelsRequest
) -> models.LabelsRequest:
    """Set owner and tags, replacing earlier ones."""
    named = service.experiments.label(key, owner=wanted.owner, tags=wanted.tags)
    return models.LabelsRequest(owner=named.owner, tags=list(named.tags))


@run.post("/experiments/{key}/start", responses=problems(404, 409))
def start(service: Service, key: ExperimentKey) -> models.ExperimentReply:
    """Start a draft, which commits its budget."""
    return models.ExperimentReply.of(service.experiments.start(key))


@run.post("/experiments/{key}/pause", responses=problems(404, 409))
def pause(service: Service, key: ExperimentKey) -> models.ExperimentReply:
    """Pause a running experiment: known visitors keep their arm, new ones get the zero row."""
    return models.ExperimentReply.of(service.experiments.pause(key))


@run.post("/experiments/{key}/resume", responses=problems(404, 409))
def resume(service: Service, key: ExperimentKey) -> models.ExperimentReply:
    """Resume a paused experiment."""
    return models.ExperimentReply.of(service.experiments.resume(key))


@run.post("/experiments/{key}/stop", responses=problems(404, 409))
def stop(
    service: Service,
    key: ExperimentKey,
    wanted: Annotated[models.StopRequest | None, Body()] = None,
) -> models.ExperimentReply:
    """Stop a running or paused experiment for good. With `promote`, everyone gets that arm."""
    return models.ExperimentReply.of(
        service.experiments.stop(key, promote=wanted.promote if wanted else None)
    )


@run.post("/experiments/{key}/arms/{arm}/switch-off", responses=problems(404, 409))
def switch_off(service: Service, key: ExperimentKey, arm: ExperimentKey) -> models.ExperimentReply:
    """Create a new version without this arm. Visitors who have it keep it."""
    return models.ExperimentReply.of(service.experiments.switch_off(key, arm))


@run.post("/experiments/{key}/arms", status_code=201, responses=problems(404, 409))
def add_arm(
    service: Service, key: ExperimentKey, wanted: models.ArmRequest
) -> models.ExperimentReply:
    """Create a new version with one more arm, "given the time". Visitors who have an arm keep it."""
    added = service.experiments.add_arm(key, wanted.key, budget=wanted.budget, label=wanted.label)
    return models.ExperimentReply.of(added)


@run.post("/experiments/{key}/segments", status_code=201, responses=problems(404, 409))
def add_segment(
    service: Service, key: ExperimentKey, wanted: models.SegmentRequest
) -> models.ExperimentReply:
    """List one more segment. It gets the zero row until the next table has its own row."""
    return models.ExperimentReply.of(service.experiments.add_segment(key, wanted.segment))


@admin.get("/keys")
def api_keys(service: Service) -> list[models.KeyReply]:
    """All API keys, including revoked ones, without their secrets."""
    return [models.KeyReply.of(key) for key in service.keys.all()]


@admin.post("/keys", status_code=201)
def create_api_key(service: Service, wanted: models.KeyRequest) -> models.KeyReply:
    """Create an API key. Its secret is only in this response."""
    secret, key = service.keys.create(wanted.label, wanted.scopes)
    return models.KeyReply.of(key).model_copy(update={"secret": secret})


@admin.post("/keys/{key_id}/revoke", responses=problems(404))
def revoke_api_key(service: Service, key_id: KeyId, request: Request) -> models.KeyReply:
    """Refuse this key from now on; other processes follow within a few seconds."""
    revoked = service.keys.revoke(key_id)
    authenticator_of(request).forget()
    return models.KeyReply.of(revoked)


@read.get("/ledger")
def ledger(service: Service) -> list[models.CommitmentReply]:
    """All changes to the firm's budget or an experiment's state, oldest first."""
    return [models.CommitmentReply.of(entry) for entry in service.ledger.entries()]


@read.get("/ledger/verification")
def verification(service: Service) -> models.VerificationReply:
    """Check all chains, counters and totals; reports the first problem."""
    found = service.ledger.verify()
    return models.VerificationReply.of(found)


@privacy.post("/erasures")
def erase(service: Service, wanted: models.ErasureRequest) -> models.ErasureReply:
    """Erase these visitors and their stored arms. If they return, they get the zero row."""
    return models.ErasureReply.of(service.visitors.erase(wanted.visitors))


@privacy.post("/purges")
def purge(service: Service, wanted: models.PurgeRequest) -> models.ErasureReply:
    """Erase all visitors decided before a time, in stopped experiments or in all."""
    return models.ErasureReply.of(
        service.visitors.purge(before=wanted.before, running=wanted.running)
    )


@privacy.get("/experiments/{key}/export", response_class=FileResponse, responses=problems(404))
def export(
    service: Service,
    key: ExperimentKey,
    shape: Annotated[Literal["private", "public", "open-bandit"], Query()] = "public",
    ending: Annotated[Literal["parquet", "csv", "jsonl"], Query(alias="format")] = "csv",
) -> FileResponse:
    """Download the decisions. All shapes but `public` hold segments: keep them in the trusted zone."""
    return _download(
        f"{key}-{shape}.{ending}",
        lambda path: service.ledger.export(path, experiment=key, shape=shape),
    )


def _download(name: str, write: Callable[[FilePath], object]) -> FileResponse:
    """Respond with the file that `write` makes; it is deleted once it is sent."""
    folder = FilePath(tempfile.mkdtemp(prefix="deniable-export-"))
    path = folder / name
    try:
        write(path)
    except BaseException:
        shutil.rmtree(folder)
        raise
    return FileResponse(path, filename=name, background=BackgroundTask(shutil.rmtree, folder))


# -- audits ----------------------------------------------------------------------------------------

ScratchKey = Annotated[str, Path(pattern=SCRATCH_KEY)]
PAGE = 10_000


@audit.post("/experiments/{key}/scratch", status_code=201, responses=problems(404, 409))
def make_scratch(service: Service, key: ExperimentKey) -> models.ScratchReply:
    """Create a scratch copy for canaries: the same promise and table, no cost, no traffic."""
    return models.ScratchReply.of(*service.scratch.make(key))


@audit.get("/scratch/{scratch}/decisions", responses=problems(404))
def scratch_decisions(
    service: Service,
    scratch: ScratchKey,
    after: Annotated[str, Query(pattern="^([0-9a-f]{32})?$")] = "",
) -> list[models.StoredDrawReply]:
    """Up to 10,000 of its stored decisions after an id, in the order of ids."""
    found = service.scratch.stored(scratch, after=after, limit=PAGE)
    return [models.StoredDrawReply.of(one) for one in found]


@audit.delete("/scratch/{scratch}", responses=problems(404))
def remove_scratch(service: Service, scratch: ScratchKey) -> models.ScratchEndReply:
    """Delete a scratch copy and its decisions. The ledger keeps the ends of its chains."""
    return models.ScratchEndReply(decisions=service.scratch.remove(scratch))


@audit.get("/ledger/log", response_class=FileResponse, responses=problems(404))
def ledger_log(
    service: Service,
    experiment: Annotated[
        str | None, Query(pattern=EXPERIMENT_KEY, max_length=128, description="Open only this one.")
    ] = None,
    ending: Annotated[
        Literal["parquet", "csv", "csv.gz", "jsonl", "jsonl.gz"], Query(alias="format")
    ] = "parquet",
) -> FileResponse:
    """All chains as a log for `deniable audit log`. It has segments: keep it in the trusted zone."""
    return _download(
        f"{experiment or 'ledger'}-log.{ending}",
        lambda path: service.ledger.export_log(path, experiment=experiment),
    )


# -- plans -----------------------------------------------------------------------------------------

Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]
Inside = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False, strict=True)]


class PlanRequest(BaseModel):
    """An experiment to plan. With a base rate, the plan has expected results in addition to bounds."""

    model_config = ConfigDict(extra="forbid")

    arms: Annotated[int, Field(ge=2, le=MAX_ARMS, strict=True)]
    visitors: Annotated[int, Field(ge=1, le=10**12, strict=True)]
    segments: Annotated[int | None, Field(ge=1, le=MAX_SEGMENTS, strict=True)] = None
    shares: Annotated[list[Probability] | None, Field(min_length=1, max_length=MAX_SEGMENTS)] = None
    prior: Probability = 0.2
    budget: Budget | None = None
    max_belief: Probability | None = None
    trace_budget: (
        Annotated[float, Field(ge=0.001, le=MAX_BUDGET, allow_inf_nan=False, strict=True)] | None
    ) = None
    base_rate: Inside | None = None
    lift: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False, strict=True)] = LIFT
    heterogeneity: Probability = HETEROGENEITY
    per_day: Annotated[float, Field(ge=1, le=1e12, allow_inf_nan=False, strict=True)] | None = None


@plans.post("/plan")
def make_plan(wanted: PlanRequest) -> Plan:
    """Plan the privacy budget of an experiment. Nothing is stored.

    Nothing is simulated either. If no precomputed expectation exists (segments of different sizes, a
    trace budget, or values that the surface does not cover), `expected.note` says what is left out.
    """
    return plan(
        n_arms=wanted.arms,
        horizon=wanted.visitors,
        n_segments=wanted.segments,
        shares=wanted.shares,
        prior=wanted.prior,
        budget=wanted.budget,
        max_belief=wanted.max_belief,
        trace_budget=wanted.trace_budget,
        base_rate=wanted.base_rate,
        lift=wanted.lift,
        heterogeneity=wanted.heterogeneity,
        per_day=wanted.per_day,
        simulate=False,
    )


# -- scores of an external model -------------------------------------------------------------------


def _shaped(given: object) -> dict[str, dict[str, float]]:
    """Validate all scores at once: pydantic would report the location and thereby name a segment."""
    try:
        return checked_scores(given)
    except InvalidArgumentError as error:
        raise ValueError(f"expected {error.allowed}") from None


_ROW = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {
        "type": "number",
        "minimum": -LARGEST_SCORE,
        "maximum": LARGEST_SCORE,
    },
}
_SCHEMA = {
    "type": "object",
    "description": "Segment -> arm -> score, for every segment and every arm.",
    "minProperties": 1,
    "additionalProperties": _ROW,
}


class ScoresRequest(BaseModel):
    """A model's scores, by segment and arm."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False})

    kind: Literal["scores", "probabilities"] = "scores"
    scores: Annotated[dict[str, dict[str, float]], PlainValidator(_shaped), WithJsonSchema(_SCHEMA)]

    @model_validator(mode="before")
    @classmethod
    def _members(cls, given: object) -> object:
        if isinstance(given, dict) and not set(given) <= set(cls.model_fields):
            raise ValueError("expected the members kind and scores, and no other")
        return given


class ScoresReply(BaseModel):
    """What the gate will do with the scores; see `deniable.storage.records.GateReport`."""

    model_config = ConfigDict(from_attributes=True)

    experiment: str
    kind: Literal["scores", "probabilities"]
    recorded: bool
    wanted: float
    kept: float
    cost: float
    table: int
    decisions: int
    next_at: int | None
    words: str


@scores.put("/experiments/{key}/scores", responses=problems(404, 409))
def put_scores(service: Service, key: ExperimentKey, wanted: ScoresRequest) -> ScoresReply:
    """Set the scores for the next scheduled table; returns what the promise costs the model. Private."""
    report = service.scores.put(key, wanted.scores, kind=wanted.kind)
    return ScoresReply.model_validate(report)
