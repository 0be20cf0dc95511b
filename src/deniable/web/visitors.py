"""Visitors who ask: what is stored about them, and erasing it. Ids travel in forms, never in URLs."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict

from fastapi import APIRouter, Request
from starlette.responses import Response

from deniable._formatting import whole
from deniable.errors import ApprovalNeededError, InvalidArgumentError
from deniable.service.http.auth import service_of
from deniable.service.jobs import checked_visitor
from deniable.service.limits import LONGEST_NAME
from deniable.storage.erasure import Erasure
from deniable.web import responses
from deniable.web.access import Form, Officer, PrivacySubmission, Viewer

router = APIRouter(prefix="/ledger/visitors", include_in_schema=False)


@router.get("")
def asked(request: Request, viewer: Officer) -> Response:
    """Where to ask."""
    return _page(request, viewer)


@router.post("")
async def look_up(request: Request, form: PrivacySubmission) -> Response:
    """Everything stored about one visitor; the id is hashed here."""
    visitor = _visitor(form)
    if visitor is None:
        wrong = f"Enter an id of 1 to {LONGEST_NAME} characters."
        return _page(request, form.viewer, visitor=form.text("visitor"), wrong=wrong)
    found = await asyncio.to_thread(service_of(request).visitors.stored, visitor)
    if form.text("as") == "json":
        body = json.dumps([asdict(line) for line in found], default=str, indent=2)
        headers = {
            **responses.HEADERS,
            "Content-Disposition": 'attachment; filename="visitor.json"',
        }
        return Response(body, headers=headers, media_type="application/json")
    return _page(request, form.viewer, visitor=visitor, found=found)


@router.post("/erase")
async def erase(request: Request, form: PrivacySubmission) -> Response:
    """Forget a visitor in every experiment."""
    visitor = _visitor(form)
    if visitor is None or form.text("sure") != "yes":
        return responses.redirect(request, "/ledger/visitors", "Nothing was erased.", "note")
    try:
        done = await asyncio.to_thread(service_of(request).visitors.erase, [visitor])
    except ApprovalNeededError as error:
        return responses.redirect(
            request, "/ledger/visitors", responses.error_sentence(error), "note"
        )
    return responses.redirect(request, "/ledger/visitors", _told(done))


def _visitor(form: Form) -> str | None:
    """The id as it was typed: spaces may belong to it."""
    given = form.data.get("visitor")
    try:
        return checked_visitor(given)
    except InvalidArgumentError:
        return None


def _told(done: Erasure) -> str:
    if not done.decisions:
        return "Nothing was stored about this visitor."
    who = (
        "1 decision no longer has"
        if done.decisions == 1
        else f"{whole(done.decisions)} decisions no longer have"
    )
    again = "If the visitor comes back, the variant is chosen without using the segment."
    return f"Erased: {who} a visitor. {again}"


def _page(request: Request, viewer: Viewer, **more: object) -> Response:
    values = {"visitor": "", "found": None, "wrong": "", **more}
    return responses.show(
        request, "visitors.html", viewer, status=422 if values["wrong"] else 200, **values
    )
