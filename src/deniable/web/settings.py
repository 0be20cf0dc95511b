"""Settings: the account of whoever looks, people and their roles, API keys, sessions, the firm's name
and what needs a second person.

Secrets (the link of an invitation, a new key) are in the answer to the form that made them, and nowhere
else: opening the page again does not show them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import cast

from fastapi import APIRouter, Request
from starlette.responses import Response

from deniable import _numbers
from deniable._types import JsonObject
from deniable.errors import NANO, DeniableError, InvalidArgumentError, UnknownNameError
from deniable.service import passwords
from deniable.service.firm import firm_text
from deniable.service.http.auth import Service, authenticator_of, service_of
from deniable.service.http.messages import Problem
from deniable.service.limits import LONGEST_FIRM_NAME, LONGEST_REASON, MAX_DAYS
from deniable.service.people import INVITE_HOURS
from deniable.service.service import Deniable
from deniable.service.sessions import token_hash
from deniable.service.webhook import secret_of
from deniable.storage.commitments import actor_in_words
from deniable.storage.records import ROLES, SCOPES, Scope, User, UserRole
from deniable.web import responses
from deniable.web.access import (
    Form,
    PrivacySubmission,
    Reader,
    ReaderSubmission,
    Submission,
    Viewer,
    address_of,
    session_of,
)

router = APIRouter(prefix="/settings", include_in_schema=False)

ACTS: dict[str, tuple[Callable[[Deniable, str], object], str]] = {
    "disable": (lambda service, name: service.people.disable(name), "is disabled and signed out"),
    "enable": (lambda service, name: service.people.enable(name), "may sign in again"),
    "sign-out": (
        lambda service, name: service.sessions.end_all(service.people.get(name)),
        "is signed out everywhere",
    ),
}
"""What can be done to a person with one button, and what is told afterwards."""


@router.get("")
def settings(request: Request, viewer: Reader) -> Response:
    """The page."""
    return _page(request, viewer)


@router.post("/password")
async def change_password(request: Request, form: ReaderSubmission) -> Response:
    """Change one's own password; whoever is signed in with the old one elsewhere is signed out."""
    caller, session = form.viewer.caller, session_of(request)
    if caller.role is None or session is None:
        raise Problem(409, "wrong-state", "only people who sign in with a password have one")
    people = service_of(request).people
    old, new = _raw(form, "old"), _raw(form, "new")
    if new != _raw(form, "again"):
        return await _again(request, form, {"again": "The two new passwords are not the same."})
    try:
        known = await asyncio.to_thread(people.sign_in, caller.label, old, address_of(request))
        if known is None:
            return await _again(request, form, {"old": "The current password is wrong."})
        keep = token_hash(session.token)
        await asyncio.to_thread(people.change_password, caller.label, new, keep=keep)
    except InvalidArgumentError:
        refusal = f"The new password is too easy to guess: use {passwords.ALLOWED}."
        return await _again(request, form, {"new": refusal})
    except DeniableError as error:
        return await _again(request, form, {"old": responses.error_sentence(error)})
    return responses.redirect(request, "/settings", "Your password is changed.")


@router.post("/sessions/end")
def end_session(request: Request, form: ReaderSubmission, service: Service) -> Response:
    """End a session: one's own, or anybody's for an admin."""
    wanted, mine = form.text("session"), form.viewer.session
    own = {session.id for session in service.sessions.of(mine)} if mine is not None else set()
    if wanted not in own and not form.viewer.may("admin"):
        raise UnknownNameError("session", "...")  # also where somebody else has it
    service.sessions.end(wanted)
    return responses.redirect(request, "/settings", "That session is ended.")


@router.post("/people")
def invite(request: Request, form: Submission, service: Service) -> Response:
    """Invite a person, or give somebody a link for a new password; the link is shown once."""
    try:
        role = form.text("role")
        invitation = service.people.invite(
            form.text("name"), cast(UserRole, role) if role else None
        )
    except DeniableError as error:
        wrong = responses.field_errors(error, {"name": "name", "role": "role"}, "name")
        return _page(request, form.viewer, "invite", wrong, form)
    link = responses.service_address(request) + invitation.path
    return _page(request, form.viewer, invitation=invitation, link=link)


@router.post("/people/role")
def change_role(request: Request, form: Submission, service: Service) -> Response:
    """Give a person another role."""
    name = _other(form, "role")
    try:
        user = service.people.set_role(name, cast(UserRole, form.text("role")))
    except DeniableError as error:
        return responses.redirect(request, "/settings", responses.error_sentence(error), "bad")
    told = f"{user.name} is now {user.role.replace('-', ' ')}."
    return responses.redirect(request, "/settings", told)


@router.post("/people/{act}")
def act(request: Request, form: Submission, service: Service, act: str) -> Response:
    """Disable or enable a person, or sign one out everywhere."""
    if act not in ACTS:
        raise Problem(404, "unknown-name", "there is no such action")
    name, (do, told) = _other(form, act), ACTS[act]
    try:
        do(service, name)
    except DeniableError as error:
        return responses.redirect(request, "/settings", responses.error_sentence(error), "bad")
    return responses.redirect(request, "/settings", f"{name} {told}.")


@router.post("/keys")
def create_key(request: Request, form: Submission, service: Service) -> Response:
    """A new API key; its secret is shown once."""
    try:
        secret, key = service.keys.create(
            form.text("label"), cast(list[Scope], form.texts("scope"))
        )
    except DeniableError as error:
        wrong = responses.field_errors(error, {"label": "label", "scopes": "scope"}, "label")
        return _page(request, form.viewer, "key", wrong, form)
    return _page(request, form.viewer, secret=secret, key=key)


@router.post("/keys/revoke")
def revoke_key(request: Request, form: Submission, service: Service) -> Response:
    """Refuse a key from now on."""
    try:
        key = service.keys.revoke(form.text("key"))
    except DeniableError as error:
        return responses.redirect(request, "/settings", responses.error_sentence(error), "bad")
    authenticator_of(request).forget()
    return responses.redirect(request, "/settings", f"The API key {key.label} is revoked.")


FIRM_TEXTS = {
    "firm_name": "name",
    "contact": "contact",
    "purpose": "purpose",
    "legal_basis": "legal_basis",
}
"""Field -> the setting of the firm that it fills."""


@router.post("/firm")
def firm(request: Request, form: PrivacySubmission, service: Service) -> Response:
    """Say what documents print, how long visitors are kept, and what needs a second person."""
    numbers: JsonObject = {}
    wrong: dict[str, str] = {}
    for name, read in FIRM_NUMBERS.items():
        try:
            numbers[name] = read(form.text(name)) if form.text(name) else "never"
        except DeniableError as error:
            wrong |= responses.field_errors(error, {name: name})
    for field, name in FIRM_TEXTS.items():
        try:
            firm_text(name, form.text(field))
        except DeniableError as error:
            wrong |= responses.field_errors(error, {name: field})
    try:
        if not wrong:
            texts: JsonObject = {name: form.text(field) for field, name in FIRM_TEXTS.items()}
            service.firm.change_settings(
                **texts,
                **numbers,
                approve_budget=form.text("approve_budget") == "yes",
                approve_erasure=form.text("approve_erasure") == "yes",
            )
            return responses.redirect(request, "/settings", "The firm’s settings are saved.")
    except DeniableError as error:
        wrong = responses.field_errors(error, {})
    return _page(request, form.viewer, "firm", wrong, form)


FIRM_NUMBERS: dict[str, Callable[[str], float]] = {
    "start_above": lambda text: _numbers.number("start_above", text, 0),
    "retention_days": lambda text: _numbers.whole("retention_days", text, 1, MAX_DAYS),
}
"""Field -> how its number is read; empty means never."""


@router.post("/approvals")
def answer_request(request: Request, form: PrivacySubmission, service: Service) -> Response:
    """Be the second person: grant or refuse."""
    grant = form.text("answer") == "grant"
    try:
        answered = service.approvals.answer(form.text("request"), grant=grant)
    except DeniableError as error:
        return responses.redirect(request, "/settings", responses.error_sentence(error), "bad")
    who = actor_in_words(answered.asked_by) or "whoever asked"
    told = f"Granted: {who} can do it now, within a day." if grant else "Refused."
    return responses.redirect(request, "/settings", told)


def _other(form: Form, act: str) -> str:
    """The person a form is about; nobody shuts the door behind oneself, so an admin always stays."""
    name = form.text("name").lower()
    caller = form.viewer.caller
    if caller.role is not None and caller.label == name and act in ("role", "disable"):
        raise Problem(409, "wrong-state", "ask another admin to change your own role or access")
    return name


def _raw(form: Form, name: str) -> str:
    """A password as it was typed: spaces belong to it."""
    found = form.data.get(name)
    return found[: 4 * passwords.LONGEST] if isinstance(found, str) else ""


async def _again(request: Request, form: Form, wrong: dict[str, str]) -> Response:
    """The page after a refused change of the password; passwords are not shown again."""
    return await asyncio.to_thread(_page, request, form.viewer, "password", wrong)


def _page(
    request: Request,
    viewer: Viewer,
    where: str = "",
    wrong: Mapping[str, str] | None = None,
    form: Form | None = None,
    **once: object,
) -> Response:
    """The page.

    Args:
        request: what is answered.
        viewer: who looks.
        where: the form in which something is wrong.
        wrong: what, by field.
        form: what was typed, to be shown again.
        once: a secret to be shown this one time.
    """
    service = service_of(request)
    oversees = viewer.may("privacy")
    everybody = service.people.all() if oversees else []
    mine = [] if viewer.session is None else service.sessions.of(viewer.session)
    return responses.show(
        request,
        "settings.html",
        viewer,
        status=422 if wrong else 200,
        oversees=oversees,
        people=sorted(everybody, key=_order),
        keys=service.keys.all()[::-1] if oversees else [],
        mine=mine,
        sessions=service.sessions.all() if viewer.may("admin") else [],
        firm=_firm_values(service, form if where == "firm" else None),
        webhook_secret=_webhook_secret(request) if viewer.may("admin") else "",
        requests=service.approvals.all() if oversees else [],
        roles=ROLES,
        scopes=SCOPES,
        invite_hours=INVITE_HOURS,
        shortest=passwords.SHORTEST,
        longest=passwords.LONGEST,
        longest_name=LONGEST_FIRM_NAME,
        longest_text=LONGEST_REASON,
        wrong=wrong or {},
        given={
            "name": "" if form is None else form.text("name"),
            "role": "" if form is None else form.text("role"),
            "label": "" if form is None else form.text("label"),
            "scopes": [] if form is None else form.texts("scope"),
        },
        **{"invitation": None, "link": "", "secret": "", "key": None, **once},
    )


def _firm_values(service: Deniable, form: Form | None) -> JsonObject:
    """The firm's settings as the form shows them, or as they were typed."""
    rules = ("approve_budget", "approve_erasure")
    if form is not None:
        return {name: form.text(name) for name in (*FIRM_TEXTS, *FIRM_NUMBERS, *rules)}
    now = service.firm.settings()
    limit = now.start_above_nano
    return {
        **{field: getattr(now, name) for field, name in FIRM_TEXTS.items()},
        "start_above": "" if limit is None else f"{limit / NANO:.15g}",
        "retention_days": now.retention_days or "",
        **{name: getattr(now, name) for name in rules},
    }


def _webhook_secret(request: Request) -> str:
    """What whoever gets the webhook checks signatures with; empty where there is no webhook."""
    return secret_of(service_of(request)).decode() if request.app.state.webhook else ""


def _order(user: User) -> tuple[bool, str]:
    return user.disabled_at is not None, user.name
