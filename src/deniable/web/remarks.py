"""What people write about an experiment: notes for the ledger, its owner, tags to find it by."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from deniable.errors import DeniableError
from deniable.service.http.guard import Service
from deniable.web import answers, experiment, fields
from deniable.web.access import DraftSubmission

router = APIRouter(prefix="/experiments/{key}", include_in_schema=False)


@router.post("/notes")
def note(request: Request, form: DraftSubmission, service: Service, key: str) -> Response:
    """Enter a note; it stays in the ledger."""
    place = f"/experiments/{service.experiments.get(key).key}"
    given = {"text": form.text("text").replace("\r\n", "\n")}
    try:
        service.experiments.note(key, given["text"])
    except DeniableError as error:
        wrong = fields.beside(error, {"text": "text"}, "text")
        return experiment.page(request, form.viewer, service, key, answers.Typed(given, wrong))
    return answers.redirect(request, place, "The note is in the ledger.")


@router.post("/labels")
def label(request: Request, form: DraftSubmission, service: Service, key: str) -> Response:
    """Set owner and tags."""
    place = f"/experiments/{service.experiments.get(key).key}"
    given = {name: form.text(name) for name in ("owner", "tags")}
    try:
        tags = given["tags"].replace(",", " ").split()
        service.experiments.label(key, owner=given["owner"], tags=tags)
    except DeniableError as error:
        wrong = fields.beside(error, {"owner": "owner", "tags": "tags"}, "owner")
        return experiment.page(request, form.viewer, service, key, answers.Typed(given, wrong))
    return answers.redirect(request, place, "Owner and tags are saved.")
