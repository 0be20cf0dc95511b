"""Signing in with an API key, and out again."""

from __future__ import annotations

import asyncio
import re

from fastapi import APIRouter, Request
from starlette.responses import Response

from deniable.service.http.guard import authenticator_of, service_of
from deniable.web import answers
from deniable.web.access import ReaderSubmission, checked_form, session_of, signer_of, viewer_of
from deniable.web.sessions import COOKIE, LIFETIME_SECONDS, Session

router = APIRouter()

LONGEST_SECRET = 200


@router.get("/login")
def login_page(request: Request) -> Response:
    """Where to sign in."""
    if viewer_of(request) is not None:
        return answers.redirect(request, "/")
    return _asked(request, session_of(request) or signer_of(request).new())


@router.post("/login")
async def login(request: Request) -> Response:
    """Sign in; the address to go to afterwards can only be one of our own."""
    before = session_of(request)
    if before is None:
        fresh = signer_of(request).new()
        return _asked(request, fresh, "That took too long. Please send the key again.", 403)
    data = await checked_form(request, signer_of(request).form_token(before))
    secret = data.get("key")
    if not isinstance(secret, str) or not 0 < len(secret.strip()) <= LONGEST_SECRET:
        return _asked(request, before, "Enter an API key.", 403)
    caller = await asyncio.to_thread(authenticator_of(request).authenticate, secret.strip())
    if caller is None:
        return _asked(request, before, "This API key is unknown or was revoked.", 403)
    if "read" not in caller.scopes:
        refusal = "This API key may not look at pages: it lacks the scope “read”."
        return _asked(request, before, refusal, 403)
    answer = answers.redirect(request, _our_own(data.get("next")))
    session = signer_of(request).new(caller.id)
    answers.set_cookie(
        request, answer, COOKIE, signer_of(request).written(session), LIFETIME_SECONDS
    )
    return answer


@router.post("/logout")
def logout(request: Request, _form: ReaderSubmission) -> Response:
    """Sign out: the browser forgets the session, and a copy of it is refused."""
    session = session_of(request)
    if session is not None:
        service_of(request).idempotency.end_session(session.id)
    answer = answers.redirect(request, "/login", "You are signed out.")
    answer.delete_cookie(COOKIE, path="/")
    return answer


def _asked(request: Request, session: Session, refusal: str = "", status: int = 200) -> Response:
    """The sign-in page; its form is bound to a session in which nobody is signed in yet."""
    signer = signer_of(request)
    answer = answers.show(
        request,
        "login.html",
        None,
        status=status,
        refusal=refusal,
        form_token=signer.form_token(session),
        next=_our_own(request.query_params.get("next")),
    )
    answers.set_cookie(request, answer, COOKIE, signer.written(session), LIFETIME_SECONDS)
    return answer


def _our_own(path: object) -> str:
    """A path on this host; anything else becomes the overview."""
    if isinstance(path, str) and re.fullmatch(r"/(?![/\\])[!-~]{0,2000}", path):
        return path
    return "/"
