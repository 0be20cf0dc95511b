"""Looking back over HTTP: the ledger, its verification, erasure, retention and exports."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path as FilePath
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field
from starlette.background import BackgroundTask

from deniable.service.http import models
from deniable.service.http.administration import ExperimentKey, problems
from deniable.service.http.guard import Service, require
from deniable.storage.erasure import Erasure

read = APIRouter(
    prefix="/v1", tags=["read"], dependencies=[Depends(require("read"))], responses=problems()
)
admin = APIRouter(
    prefix="/v1", tags=["admin"], dependencies=[Depends(require("admin"))], responses=problems()
)


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
    """What was forgotten. It costs nothing: erased visitors get the zero row."""

    decisions: int
    debits: Annotated[dict[str, float], Field(deprecated="erasing costs nothing")] = {}
    exhausted: Annotated[list[str], Field(deprecated="erasing exhausts nothing")] = []

    @classmethod
    def of(cls, outcome: Erasure) -> ErasureReply:
        """From the use-case's outcome."""
        return cls(decisions=outcome.decisions)


@read.get("/ledger")
def ledger(service: Service) -> list[models.CommitmentReply]:
    """Everything that touched the firm's budget or an experiment's state, oldest first."""
    return [models.CommitmentReply.of(entry) for entry in service.ledger.entries()]


@read.get("/ledger/verification")
def verification(service: Service) -> VerificationReply:
    """Check all chains, counters and totals; tells what is wrong first."""
    found = service.ledger.verify()
    return VerificationReply.model_validate(found, from_attributes=True)


@admin.post("/erasures")
def erase(service: Service, wanted: models.ErasureRequest) -> ErasureReply:
    """Forget these visitors. Tombstones keep them from a second draw."""
    return ErasureReply.of(service.visitors.erase(wanted.visitors))


@admin.post("/purges")
def purge(service: Service, wanted: models.PurgeRequest) -> ErasureReply:
    """Forget all visitors decided before a time: of stopped experiments, or of all."""
    return ErasureReply.of(service.visitors.purge(before=wanted.before, running=wanted.running))


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
        service.ledger.export(path, experiment=key, shape=shape)
    except BaseException:
        shutil.rmtree(folder)
        raise
    return FileResponse(path, filename=path.name, background=BackgroundTask(shutil.rmtree, folder))
