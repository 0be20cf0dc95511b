"""Signing in with a name and a password or with an API key, by a link that invites, and out again."""

from __future__ import annotations

import asyncio
import re

from fastapi import APIRouter, Request
from starlette.datastructures import FormData
from starlette.responses import Response

from deniable.errors import InvalidArgumentError, TooManyAttemptsError
from deniable.service import passwords
from deniable.service.http.auth import authenticator_of, service_of
from deniable.service.http.messages import Problem
from deniable.storage.commitments import act_as
from deniable.storage.records import User
from deniable.web import responses
from deniable.web.access import (
    COOKIE,
    LIFETIME_SECONDS,
    ReaderSubmission,
    Session,
    address_of,
    checked_form,
    session_of,
    signer_of,
    viewer_of,
)

router = APIRouter(include_in_schema=False)

LONGEST_SECRET = 200
WRONG = "The name or the password is wrong."
TOO_LATE = "That took too long. Please send it again."


@router.get("/login")
def login_page(request: Request) -> Response:
    """Where to sign in."""
    if viewer_of(request) is not None:
        return responses.redirect(request, _our_own(request.query_params.get("next")))
    return _asked(request, session_of(request) or signer_of(request).new())


@router.post("/login")
async def login(request: Request) -> Response:
    """Sign in; the address to go to afterwards can only be one of our own."""
    before = session_of(request)
    if before is None:
        return _asked(request, signer_of(request).new(), TOO_LATE, 403)
    data = await checked_form(request, signer_of(request).form_token(before.token))
    if "name" in data:
        return await _with_password(request, before, data)
    return await _with_key(request, before, data)


@router.post("/logout")
def logout(request: Request, form: ReaderSubmission) -> Response:
    """Sign out: the browser forgets the session, and a copy of it is refused."""
    if form.viewer.session is not None:
        service_of(request).sessions.end(form.viewer.session.id)
    answer = responses.redirect(request, "/login", "You are signed out.")
    answer.delete_cookie(COOKIE, path="/")
    return answer


@router.get("/invite/{token}")
def invitation(request: Request, token: str) -> Response:
    """Where an invited person chooses a password. Looking at it does not use the link up."""
    return _choosing(request, token, session_of(request) or signer_of(request).new())


@router.post("/invite/{token}")
async def accept(request: Request, token: str) -> Response:
    """Set the password, once, and sign in."""
    before = session_of(request)
    if before is None:
        fresh = signer_of(request).new()
        return await asyncio.to_thread(_choosing, request, token, fresh, TOO_LATE, 403)
    data = await checked_form(request, signer_of(request).form_token(before.token))
    password, refusal = _text(data, "password"), ""
    if password != _text(data, "again"):
        refusal = "The two passwords are not the same."
    people = service_of(request).people
    invited = await asyncio.to_thread(people.invited, token)
    if invited is not None and not refusal:
        act_as("user", invited.name)
        try:
            user = await asyncio.to_thread(people.accept, token, password)
        except InvalidArgumentError:
            refusal = f"This password is too easy to guess: use {passwords.ALLOWED}."
        else:
            if user is not None:
                return await _begun(request, "/", user=user)
    return await asyncio.to_thread(_choosing, request, token, before, refusal, 422)


async def _with_password(request: Request, before: Session, data: FormData) -> Response:
    name, password = _text(data, "name"), _text(data, "password")
    try:
        user = await asyncio.to_thread(
            service_of(request).people.sign_in, name, password, address_of(request)
        )
    except TooManyAttemptsError as error:
        minutes = -(-error.seconds // 60)
        unit = "minute" if minutes == 1 else "minutes"
        refusal = f"Too many wrong passwords. Try again in {minutes} {unit}."
        answer = _asked(request, before, refusal, 429, name=name)
        answer.headers["Retry-After"] = str(error.seconds)
        return answer
    if user is None:
        return _asked(request, before, WRONG, 403, name=name)
    return await _begun(request, _our_own(data.get("next")), user=user)


async def _with_key(request: Request, before: Session, data: FormData) -> Response:
    secret = _text(data, "key").strip()
    if "demo" in data and request.app.state.demo_key:  # `deniable serve --demo` made it
        secret = request.app.state.demo_key
    if not 0 < len(secret) <= LONGEST_SECRET:
        return _asked(request, before, "Enter an API key.", 403)
    caller = await asyncio.to_thread(authenticator_of(request).authenticate, secret)
    if caller is None:
        return _asked(request, before, "This API key is unknown or was revoked.", 403)
    if "read" not in caller.scopes:
        refusal = "This API key may not look at pages: it lacks the scope “read”."
        return _asked(request, before, refusal, 403)
    return await _begun(request, _our_own(data.get("next")), key=caller.id)


async def _begun(
    request: Request, place: str, *, user: User | None = None, key: str = ""
) -> Response:
    """Begin a session with a token that nobody has seen before, and go on to a page."""
    session = signer_of(request).new()
    await asyncio.to_thread(
        service_of(request).sessions.begin,
        session.token,
        seconds=LIFETIME_SECONDS,
        user="" if user is None else user.id,
        key=key,
        browser=_browser(request.headers.get("user-agent", "")),
    )
    answer = responses.redirect(request, place)
    _keep(request, answer, session)
    return answer


def _asked(
    request: Request, session: Session, refusal: str = "", status: int = 200, *, name: str = ""
) -> Response:
    """The sign-in page; its form is bound to a session in which nobody is signed in yet."""
    answer = responses.show(
        request,
        "login.html",
        None,
        status=status,
        refusal=refusal,
        name=name[:LONGEST_SECRET],
        one_click=bool(request.app.state.demo_key),
        form_token=signer_of(request).form_token(session.token),
        next=_our_own(request.query_params.get("next")),
    )
    _keep(request, answer, session)
    return answer


def _choosing(
    request: Request, token: str, session: Session, refusal: str = "", status: int = 200
) -> Response:
    """The page of an invitation; the same refusal for links that were used, are old or never were."""
    user = service_of(request).people.invited(token)
    if user is None:
        raise Problem(
            404, "unknown-name", "this link was used, has expired or never existed; ask for another"
        )
    answer = responses.show(
        request,
        "invite.html",
        None,
        status=status,
        refusal=refusal,
        user=user,
        shortest=passwords.SHORTEST,
        longest=passwords.LONGEST,
        form_token=signer_of(request).form_token(session.token),
    )
    _keep(request, answer, session)
    return answer


def _keep(request: Request, answer: Response, session: Session) -> None:
    cookie = signer_of(request).written(session)
    responses.set_cookie(request, answer, COOKIE, cookie, LIFETIME_SECONDS)


def _text(data: FormData, name: str) -> str:
    found = data.get(name)
    return found[: 4 * LONGEST_SECRET] if isinstance(found, str) else ""


def _browser(agent: str) -> str:
    """A browser in a few words; the whole line would tell more than anybody needs.

    >>> _browser("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/130.0 Safari/537.36")
    'Chrome on Linux'
    >>> _browser("curl/8.5")
    'another program'
    """
    names = {"Edg": "Edge", "OPR": "Opera", "Chrom": "Chrome", "Firefox": "Firefox"}
    names["Safari"] = "Safari"
    systems = {"Android": "Android", "iPhone": "iPhone", "iPad": "iPad", "Windows": "Windows"}
    systems |= {"Mac OS": "Mac", "Linux": "Linux"}
    name = next((shown for sign, shown in names.items() if sign in agent), "another program")
    system = next((f" on {shown}" for sign, shown in systems.items() if sign in agent), "")
    return name + system


def _our_own(path: object) -> str:
    """A path on this host; anything else becomes the overview."""
    if isinstance(path, str) and re.fullmatch(r"/(?![/\\])[!-~]{0,2000}", path):
        return path
    return "/"
