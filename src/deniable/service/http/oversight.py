"""Looking back over HTTP: the ledger, its verification, erasure, retention and exports."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from deniable.service.http import models
from deniable.service.http.administration import ExperimentKey, problems
from deniable.service.http.guard import Service, require

read = APIRouter(
    prefix="/v1", tags=["read"], dependencies=[Depends(require("read"))], responses=problems()
)
admin = APIRouter(
    prefix="/v1", tags=["admin"], dependencies=[Depends(require("admin"))], responses=problems()
)


@read.get("/ledger")
def ledger(service: Service) -> list[models.CommitmentReply]:
    """Everything that touched the firm's budget or an experiment's state, oldest first."""
    return [models.CommitmentReply.of(entry) for entry in service.ledger()]


@read.get("/ledger/verification")
def verification(service: Service) -> dict[str, Any]:
    """Check all chains, counters and totals; tells what is wrong first."""
    return asdict(service.verify_ledger())  # type: ignore[call-overload,no-any-return]


@admin.post("/erasures")
def erase(service: Service, wanted: models.ErasureRequest) -> dict[str, Any]:
    """Forget these visitors; their arm memory goes with them and is debited where that matters."""
    return asdict(service.erase(wanted.visitors))  # type: ignore[call-overload,no-any-return]


@admin.post("/purges")
def purge(service: Service, wanted: models.PurgeRequest) -> dict[str, Any]:
    """Forget all visitors decided before a time: of stopped experiments, or of all with a debit."""
    return asdict(  # type: ignore[call-overload,no-any-return]
        service.purge(before=wanted.before, running=wanted.running)
    )


@admin.get("/experiments/{key}/export", response_class=FileResponse, responses=problems(404))
def export(
    service: Service,
    key: ExperimentKey,
    shape: Annotated[Literal["private", "public", "open-bandit"], Query()] = "public",
    ending: Annotated[Literal["parquet", "csv", "jsonl"], Query(alias="format")] = "csv",
) -> FileResponse:
    """The decisions as a file. All shapes but `public` hold segments: keep them in the trusted zone."""
    folder = FilePath(tempfile.mkdtemp(prefix="deniable-export-"))
    path = folder / f"{key}-{shape}.{ending}"
    try:
        service.export(path, experiment=key, shape=shape)
    except BaseException:
        shutil.rmtree(folder)
        raise
    return FileResponse(path, filename=path.name, background=BackgroundTask(shutil.rmtree, folder))
