"""HTTP routes for audits: scratch copies for canaries, and the ledger as a log."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path as FilePath
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from deniable.service.http import models
from deniable.service.http.administration import ExperimentKey, problems
from deniable.service.http.auth import Service, require
from deniable.service.http.decide_routes import EXPERIMENT_KEY, SCRATCH_KEY

audit = APIRouter(
    prefix="/v1", tags=["audit"], dependencies=[Depends(require("audit"))], responses=problems()
)

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
    return [models.StoredDrawReply.model_validate(one, from_attributes=True) for one in found]


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
    folder = FilePath(tempfile.mkdtemp(prefix="deniable-log-"))
    path = folder / f"{experiment or 'ledger'}-log.{ending}"
    try:
        service.ledger.export_log(path, experiment=experiment)
    except BaseException:
        shutil.rmtree(folder)
        raise
    return FileResponse(path, filename=path.name, background=BackgroundTask(shutil.rmtree, folder))
