"""What we promise about one experiment: a page that can be printed, signed and filed."""

from __future__ import annotations

import asyncio
from datetime import datetime
from fractions import Fraction
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from deniable.audit.exact import VersionProof, decimal, exact_proof
from deniable.audit.promise import Promise
from deniable.errors import NANO
from deniable.privacy.belief import highest_belief
from deniable.privacy.serving import SPACE
from deniable.service.http.guard import service_of
from deniable.service.service import Deniable
from deniable.web import answers, ledger_view
from deniable.web.access import AuditSubmission, Reader

router = APIRouter(prefix="/ledger/promises")

PRIORS = (0.01, 0.1, 0.2, 0.5)


@router.get("/{key}")
def statement(request: Request, viewer: Reader, key: str) -> Response:
    """The statement, with its exact table and the newest recorded audit."""
    service = service_of(request)
    experiment = service.experiments.get(key)
    promise = service.audits.promise(key)
    proofs = exact_proof(promise)
    budget = promise.budget_nano / NANO
    return answers.show(
        request,
        "promise.html",
        viewer,
        experiment=experiment,
        budget=budget,
        tables=[_table(promise, proof) for proof in proofs],
        worst=decimal(max(proof.worst.promised_ratio or Fraction(0) for proof in proofs), 12),
        grade=promise.stated_grade,
        own_grade=promise.grade,
        late=promise.late,
        since=_settled_at(service, promise),
        holds=all(proof.holds for proof in proofs),
        beliefs=[(prior, float(highest_belief(prior, budget))) for prior in PRIORS],
        results=service.experiments.results(key),
        audit=ledger_view.latest_audits(service.ledger.entries()).get(key),
    )


@router.post("/{key}/audit")
async def audit(request: Request, key: str, form: AuditSubmission) -> Response:
    """Audit now, and enter the verdict into the ledger."""
    found = await asyncio.to_thread(service_of(request).audits.run, key, record=True)
    place = f"/ledger/promises/{found.promise.name}#audit"
    return answers.redirect(request, place, found.verdict, "good" if found.sound else "bad")


@router.get("/{key}/audit")
def audit_page(request: Request, viewer: Reader, key: str) -> Response:
    """A full audit, made now, check by check; nothing is recorded."""
    found = service_of(request).audits.run(key)
    return answers.show(request, "audit.html", viewer, found=found, key=key)


def _settled_at(service: Deniable, promise: Promise) -> datetime | None:
    """When the late band of the newest version was fixed; None: there is none (yet)."""
    newest = max(promise.versions)
    settled = [t for t in promise.tables if t.version == newest and t.floors is not None]
    if not settled:
        return None
    return service.experiments.tables(promise.name, settled[0].number)[0].published_at


def _table(promise: Promise, proof: VersionProof) -> dict[str, Any]:
    """One version's exact numbers, arm by arm."""
    return {
        "version": proof.version,
        "n_tables": proof.n_tables,
        "rows": [
            {
                "arm": promise.arms[arm.arm],
                "budget": arm.budget_nano / NANO,
                "most": arm.most,
                "least": arm.least,
                "most_share": arm.most / SPACE,
                "least_share": arm.least / SPACE,
                "ratio": decimal(arm.promised_ratio or Fraction(0)),
                "fraction": arm.to_dict()["ratio"],
                "bound": decimal(arm.bound),
                "holds": arm.holds,
            }
            for arm in proof.arms
        ],
    }
