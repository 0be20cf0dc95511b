"""What we promise about one experiment, and the documents that are issued about it."""

from __future__ import annotations

import asyncio
from threading import Lock

from fastapi import APIRouter, Request
from starlette.responses import Response

from deniable.documents import rendering
from deniable.documents.assembly import KINDS
from deniable.errors import UnknownNameError
from deniable.report.save import can_print
from deniable.service.http.auth import service_of
from deniable.storage.commitments import actor_in_words, current_actor
from deniable.web import ledger_view, responses
from deniable.web.access import Form, PrivacySubmission, Reader

router = APIRouter(prefix="/ledger", include_in_schema=False)

TYPES = {
    "html": "text/html; charset=utf-8",
    "md": "text/markdown; charset=utf-8",
    "pdf": "application/pdf",
}
_printing = Lock()
"""One Chromium at a time."""


@router.get("/promises/{key}")
def statement(request: Request, viewer: Reader, key: str) -> Response:
    """The statement as of now, the newest recorded audit, and the documents to sign."""
    service = service_of(request)
    experiment = service.experiments.get(key)
    made = service.documents.draft(key, "statement", planned=True)
    sections = [section for section in made.sections if not section.paper]
    annex = next(place for place, section in enumerate(sections) if section.annex)
    audits, _ = service.ledger.page(experiment=key, kinds=("audit",), limit=1)
    return responses.show(
        request,
        "promise.html",
        viewer,
        experiment=experiment,
        front=sections[:annex],
        annexes=sections[annex:],
        height=made.height,
        results=service.experiments.results(key),
        audit=ledger_view.latest_audits(audits).get(key),
        documents=service.documents.all(key)[::-1],
        kinds=KINDS,
        can_print=can_print(),
        firm_name=service.firm.settings().name,
    )


@router.get("/promises")
def firm_statement(request: Request, viewer: Reader) -> Response:
    """The firm's statement about its labels as of now, to sign."""
    service = service_of(request)
    made = service.documents.draft(None, "statement")
    return responses.show(
        request,
        "labels_statement.html",
        viewer,
        sections=[section for section in made.sections if not section.paper],
        height=made.height,
        documents=[issued for issued in service.documents.all() if not issued.experiment][::-1],
        kinds={"statement": KINDS["statement"]},
        can_print=can_print(),
        firm_name=service.firm.settings().name,
    )


@router.post("/promises/documents")
async def issue_firm_statement(request: Request, form: PrivacySubmission) -> Response:
    """Issue the firm's statement."""
    return await _issue(request, None, form)


@router.post("/promises/{key}/documents")
async def issue(request: Request, key: str, form: PrivacySubmission) -> Response:
    """Issue a document: it takes a number and an entry of the ledger."""
    return await _issue(request, key, form)


async def _issue(request: Request, key: str | None, form: Form) -> Response:
    issued = await asyncio.to_thread(
        service_of(request).documents.issue,
        key,
        form.text("kind"),
        firm=form.text("firm"),
        actor=actor_in_words(current_actor()),
        names_segments=not form.text("unnamed"),
    )
    place = f"/ledger/promises{'' if key is None else f'/{key}'}#documents"
    told = f"Issued {issued.number}: {KINDS[issued.kind].lower()}, entry {issued.seq} of the audit log."
    return responses.redirect(request, place, told)


@router.get("/documents/{name}")
def document(request: Request, viewer: Reader, name: str) -> Response:
    """An issued document, made again from the ledger: `NUMBER.html`, `.pdf` or `.md`.

    With `?view=yes` the HTML is shown, under a policy that allows its own style sheet and nothing else.
    """
    number, _, ending = name.rpartition(".")
    if ending not in TYPES:
        raise UnknownNameError("document", name)
    documents = service_of(request).documents
    issued, made = documents.get(number), documents.again(number)
    if ending == "pdf":
        with _printing:
            body = rendering.pdf(made, issued.issued_at)
    else:
        body = (rendering.html(made) if ending == "html" else rendering.markdown(made)).encode()
    headers = dict(responses.HEADERS)
    if ending == "html" and request.query_params.get("view") == "yes":
        style = rendering.style_source(made)
        headers["Content-Security-Policy"] = (
            f"default-src 'none'; style-src {style}; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
    else:
        file = f"{issued.kind}-{issued.number}.{ending}"
        headers["Content-Disposition"] = f'attachment; filename="{file}"'
    return Response(body, headers=headers, media_type=TYPES[ending])
