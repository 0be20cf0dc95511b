"""What people write about an experiment: notes for the ledger, its owner, tags to find it by."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from deniable.errors import DeniableError
from deniable.service.http.guard import Service
from deniable.web import answers, fields
from deniable.web.access import DraftSubmission

router = APIRouter(prefix="/experiments/{key}")


@router.post("/notes")
def note(request: Request, form: DraftSubmission, service: Service, key: str) -> Response:
    """Enter a note; it stays in the ledger."""
    place = f"/experiments/{service.experiments.get(key).key}"
    try:
        service.experiments.note(key, form.text("text").replace("\r\n", "\n"))
    except DeniableError as error:
        return answers.redirect(request, place, fields.in_words(error), "bad")
    return answers.redirect(request, place, "The note is in the ledger.")


@router.post("/labels")
def label(request: Request, form: DraftSubmission, service: Service, key: str) -> Response:
    """Set owner and tags."""
    place = f"/experiments/{service.experiments.get(key).key}"
    tags = form.text("tags").replace(",", " ").split()
    try:
        service.experiments.label(key, owner=form.text("owner"), tags=tags)
    except DeniableError as error:
        return answers.redirect(request, place, fields.in_words(error), "bad")
    return answers.redirect(request, place, "Owner and tags are saved.")
