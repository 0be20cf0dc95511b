"""Every route besides decide, reward and plan. Each is one call of the in-process service.

Experiments, the budget and API keys come first, then the ledger, erasure, retention and exports, and the
ledger as a log for auditors.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Depends, Path, Query, Request, Response
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from deniable._types import JsonObject
from deniable.analysis.result_records import Results
from deniable.analysis.summary import ExperimentSummary
from deniable.service.http import models
from deniable.service.http.auth import Service, authenticator_of, require
from deniable.service.http.decide_routes import EXPERIMENT_KEY, MASK_NAME
from deniable.service.http.messages import MEDIA_TYPE
from deniable.service.limits import (
    LONGEST_EXPERIMENT_KEY,
)
from deniable.storage.records import Metric, Scope


def problems(*statuses: int) -> dict[int | str, JsonObject]:
    """Return a route's possible problems for its documentation; some are common to all."""
    schema = {"$ref": "#/components/schemas/ProblemReply"}
    return {
        status: {"description": "Problem details", "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted({400, 401, 403, 413, 415, 422, 503, *statuses})
    }


def scoped_router(scope: Scope) -> APIRouter:
    """Create a router for callers with this scope."""
    needed = [Depends(require(scope))]
    return APIRouter(prefix="/v1", tags=[scope], dependencies=needed, responses=problems())


read, draft, run = scoped_router("read"), scoped_router("draft"), scoped_router("run")
privacy, admin = scoped_router("privacy"), scoped_router("admin")
audit = scoped_router("audit")
ROUTERS = (read, draft, run, privacy, admin, audit)

ExperimentKey = Annotated[str, Path(pattern=EXPERIMENT_KEY, max_length=LONGEST_EXPERIMENT_KEY)]
PAGE = 1_000
PageLimit = Annotated[int, Query(ge=1, le=10_000)]
KeyId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]


def _link_next(response: Response, path: str, after: str, limit: int) -> None:
    response.headers["Link"] = f'</v1/{path}?after={after}&limit={limit}>; rel="next"'


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


@read.get("/masks")
def masks(service: Service) -> list[models.MaskReply]:
    """All masks, oldest first. The newest of a name is the one in use."""
    return [models.MaskReply.of(mask) for mask in service.masks.all()]


@privacy.post("/masks", status_code=201, responses=problems(409))
def create_mask(service: Service, wanted: models.MaskRequest) -> models.MaskReply:
    """Create a mask and commit its budget."""
    return models.MaskReply.of(service.masks.create(**wanted.arguments()))


@privacy.post("/masks/{name}/end", responses=problems(404, 409))
def end_mask(service: Service, name: Annotated[str, Path(pattern=MASK_NAME)]) -> models.MaskReply:
    """End a mask. It counts until a window after its last answer."""
    return models.MaskReply.of(service.masks.end(name))


@read.get("/experiments")
def experiments(
    service: Service, response: Response, after: str = "", limit: PageLimit = PAGE
) -> list[models.ExperimentReply]:
    """Experiments, oldest first; `after` is the key of the last one of the page before.

    The header `Link` has the address of the next page, if there is one.
    """
    every = service.experiments.all()
    keys = [experiment.key for experiment in every]
    first = keys.index(after) + 1 if after in keys else 0
    page = every[first : first + limit]
    if first + limit < len(every):
        _link_next(response, "experiments", page[-1].key, limit)
    return [models.ExperimentReply.of(experiment) for experiment in page]


@draft.post("/experiments", status_code=201, responses=problems(404, 409))
def create_experiment(service: Service, wanted: models.ExperimentRequest) -> models.ExperimentReply:
    """Create a draft."""
    created = service.experiments.create(
        wanted.key,
        arms=[arm.new_arm() for arm in wanted.arms],
        segments=wanted.segments,
        contexts=wanted.contexts,
        observed=wanted.observed,
        budget=wanted.budget,
        strategy=wanted.strategy,
        planned_visitors=wanted.planned_visitors,
        mask=wanted.mask,
        sticky=wanted.sticky,
        layer=wanted.layer,
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
    """Shows and clicks of each arm in each segment, as of the table in force.

    Private: never hand this to a tracker.
    """
    return [models.CellReply.of(cell) for cell in service.experiments.released_counts(key)]


@read.get("/experiments/{key}/results", responses=problems(404))
def results(service: Service, key: ExperimentKey) -> Results:
    """What an experiment has learned, valid at any look. Private: never hand this to a tracker."""
    return service.experiments.results(key)


@read.get("/experiments/{key}/summary", responses=problems(404))
def summary(service: Service, key: ExperimentKey) -> ExperimentSummary:
    """Where an experiment stands: leaderboard, rates and risk by segment, totals over time.

    Segments with few visitors are left out. Private: never hand this to a tracker.
    """
    return service.experiments.summary(key)


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
    """Pause a running experiment: known visitors keep their arm, new ones get the neutral row."""
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
    """List one more segment. It counts as unlisted until the next table has its own row."""
    return models.ExperimentReply.of(service.experiments.add_segment(key, wanted.segment))


@run.post("/experiments/{key}/contexts", status_code=201, responses=problems(404, 409))
def add_context(
    service: Service, key: ExperimentKey, wanted: models.ContextRequest
) -> models.ExperimentReply:
    """List one more context. It has a row from the next table on, and cannot be removed."""
    return models.ExperimentReply.of(service.experiments.add_context(key, wanted.context))


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
def ledger(
    service: Service, response: Response, after: int = Query(0, ge=0), limit: PageLimit = PAGE
) -> list[models.CommitmentReply]:
    """Changes to the firm's budget or an experiment's state, oldest first, after a number.

    The header `Link` has the address of the next page, if there is one.
    """
    entries = service.ledger.entries(after=after, limit=limit + 1)
    if len(entries) > limit:
        _link_next(response, "ledger", str(entries[limit - 1].seq), limit)
    return [models.CommitmentReply.of(entry) for entry in entries[:limit]]


@read.get("/ledger/verification")
def verification(service: Service) -> models.VerificationReply:
    """Check all chains, counters and totals; reports the first problem."""
    found = service.ledger.verify()
    return models.VerificationReply.of(found)


@privacy.post("/erasures")
def erase(service: Service, wanted: models.ErasureRequest) -> models.ErasureReply:
    """Erase these visitors and their stored arms. If they return, they get the neutral row."""
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


@audit.get("/ledger/log", response_class=FileResponse, responses=problems(404))
def ledger_log(
    service: Service,
    experiment: Annotated[
        str | None,
        Query(
            pattern=EXPERIMENT_KEY,
            max_length=LONGEST_EXPERIMENT_KEY,
            description="Open only this one.",
        ),
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
