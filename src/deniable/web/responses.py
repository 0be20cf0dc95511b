"""What a page's route answers: a template filled in, or a redirect with a message for the next page.

Every answer carries a policy under which the browser runs only our own files: no inline script or
style, no eval, no other host, no frames. Refusals are told in the words of the form. Some words can be
pointed at, or reached by the keyboard, and are explained where they stand, as in docs/glossary.md.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Literal, NamedTuple, TypeAlias

from jinja2 import (
    ChoiceLoader,
    Environment,
    FileSystemBytecodeCache,
    PackageLoader,
    StrictUndefined,
    select_autoescape,
)
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from deniable._compile import cache_folder
from deniable.errors import DeniableError, InvalidArgumentError
from deniable.report.html import SIGNED, is_kind
from deniable.service.http.messages import problem_of
from deniable.web import static, wording
from deniable.web.access import Viewer, signer_of
from deniable.web.wording import capitalised

MessageKind: TypeAlias = Literal["good", "bad", "note"]

MESSAGE_COOKIE = "deniable_message"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Vary": "Cookie",
}
NAVIGATION = (
    ("/", "Overview"),
    ("/labels", "Labels"),
    ("/planner", "Planner"),
    ("/experiments", "Experiments"),
    ("/portfolio", "Portfolio"),
    ("/ledger", "Audit log"),
    ("/leak", "Leak"),
)


class Typed(NamedTuple):
    """What was typed into a form, and what is wrong with it, both by field."""

    given: Mapping[str, str]
    wrong: Mapping[str, str] = {}


NOTHING_TYPED = Typed({})


@cache
def environment() -> Environment:
    """The templates; all that is filled in is escaped, and what is missing is an error."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader("deniable.web"), PackageLoader("deniable.report")]),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # they do not change while the service runs
        bytecode_cache=_compiled_templates(),
    )
    made.globals.update(asset=static.address, navigation=NAVIGATION, signed=SIGNED)
    made.filters.update(wording.FILTERS, with_glossary=with_glossary)
    made.tests["kind"] = is_kind
    return made


def _compiled_templates() -> FileSystemBytecodeCache | None:
    """Where compiled templates are kept: compiling them takes half a second at every start."""
    folder = cache_folder() / "templates"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not os.access(folder, os.W_OK | os.X_OK):  # then they are compiled again at every start
        return None
    return FileSystemBytecodeCache(str(folder))


def mark_active(request: Request) -> None:
    """Note that somebody looks: the demo's visitors come while somebody does."""
    request.app.state.seen_at = time.monotonic()


def rendered(template: str, **values: object) -> str:
    """A template filled in: for the parts of a page that are sent again while it is open."""
    return environment().get_template(template).render(**values)


def show(
    request: Request,
    template: str,
    viewer: Viewer | None,
    /,
    *,
    status: int = 200,
    **values: object,
) -> HTMLResponse:
    """A page.

    Args:
        request: what is answered.
        template: its file in `templates/`, which extends `base.html`.
        viewer: who is signed in.
        status: the HTTP status.
        values: what the template fills in.
    """
    mark_active(request)
    messages = _messages(request)
    html = rendered(
        template,
        viewer=viewer,
        path=request.url.path,
        demo=request.app.state.demo,
        messages=messages,
        **values,
    )
    answer = HTMLResponse(html, status, HEADERS)
    if messages:
        answer.delete_cookie(MESSAGE_COOKIE, path="/")
    return answer


def show_form(
    request: Request, template: str, viewer: Viewer, typed: Typed, /, **values: object
) -> HTMLResponse:
    """A page with a form: as `given`, and after a refusal with what is `wrong` beside each field."""
    status = 422 if typed.wrong else 200
    return show(
        request, template, viewer, status=status, given=typed.given, wrong=typed.wrong, **values
    )


def redirect(
    request: Request, path: str, message: str = "", kind: MessageKind = "good"
) -> Response:
    """Send the browser to a page of ours, which then shows the message once."""
    answer = RedirectResponse(path, 303, HEADERS)
    if message:
        leave_message(request, answer, message, kind)
    return answer


def leave_message(
    request: Request, answer: Response, message: str, kind: MessageKind = "good"
) -> None:
    """Have the next page show a message, once."""
    text = base64.urlsafe_b64encode(json.dumps([kind, message[:600]]).encode()).decode()
    signed = f"{text}.{signer_of(request).sign('message', text)}"
    set_cookie(request, answer, MESSAGE_COOKIE, signed, 60)


def service_address(request: Request) -> str:
    """The address of the service, as whoever asks knows it."""
    scheme = "https" if _encrypted(request) else "http"
    return f"{scheme}://{request.url.netloc}"


def _encrypted(request: Request) -> bool:
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))


def set_cookie(request: Request, answer: Response, name: str, value: str, seconds: int) -> None:
    """Give the browser something to keep: unseen by scripts, sent only from our own pages."""
    encrypted = _encrypted(request)
    answer.set_cookie(
        name, value, max_age=seconds, path="/", secure=encrypted, httponly=True, samesite="strict"
    )


def _messages(request: Request) -> list[tuple[str, str]]:
    """The message that the last redirect left, if it is ours."""
    text, _, signature = request.cookies.get(MESSAGE_COOKIE, "").rpartition(".")
    signer = signer_of(request)
    if not text or not signer.same(signature, signer.sign("message", text)):
        return []
    kind, message = json.loads(base64.urlsafe_b64decode(text))
    return [(kind, message)]


# -- refusals, in the words of the form ---------------------------------------------------------------


def error_sentence(error: DeniableError) -> str:
    """A refusal as a sentence; it does not repeat what was typed."""
    return capitalised(problem_of(error).detail) + "."


def field_errors(
    error: DeniableError, names: Mapping[str, str], otherwise: str = "form"
) -> dict[str, str]:
    """A refusal by the field that it stands beside.

    Args:
        error: the refusal.
        names: the field of each argument.
        otherwise: where all other refusals stand.

    >>> field_errors(InvalidArgumentError("window_days", 0, "1 to 3650"), {"window_days": "days"})
    {'days': 'Expected 1 to 3650.'}
    """
    field = names.get(error.argument) if isinstance(error, InvalidArgumentError) else None
    if field is None or not isinstance(error, InvalidArgumentError):
        return {otherwise: error_sentence(error)}
    return {field: f"Expected {error.allowed}."}


# -- words that a page explains --------------------------------------------------------------------

TERMS: dict[str, str] = {
    "variant": "One of the versions that the experiment shows: a button, a photo, an offer.",
    "nat": "The unit of privacy budgets. A budget of 1 nat lets the odds be multiplied by at most 2.72, "
    "2 nats by 7.39, 3 nats by 20.1.",
    "odds": "A probability divided by that of the opposite. 20% is odds of 1 to 4; twice those "
    "odds, 2 to 4, is 33%.",
    "segment": "The group that the firm puts a visitor in. It is the secret that is protected.",
    "tracker": "Anyone outside the firm who sees what visitors are shown: an analytics script, an "
    "advertising network, a browser extension.",
    "across time": "The guarantee also holds for a tracker who does not know when a visitor first came.",
    "given the time": "The guarantee holds for a tracker who knows when a visitor first came. A tracker "
    "who does not know could learn more, without limit, because chances change over time.",
}
"""Word -> what it means, in at most two sentences."""

_FOUND = re.compile(rf"\b({'|'.join(TERMS)})(s?)\b")


def with_glossary(text: str, prefix: str) -> Markup:
    """A sentence in which the first of each word can be pointed at; everything else is escaped.

    Args:
        text: plain text.
        prefix: begins the ids, which must be unique on a page.

    >>> print(with_glossary("a < b", "x"))
    a &lt; b
    >>> told = with_glossary("The odds of odds.", "x")
    >>> "odds" in told, told.count("tooltip")
    (True, 1)
    """
    return Markup("").join(_parts(text, prefix))


def _parts(text: str, prefix: str) -> Iterator[Markup]:
    told: set[str] = set()
    end = 0
    for found in _FOUND.finditer(text):
        word = found[1]
        if word in told:
            continue
        told.add(word)
        yield escape(text[end : found.start()])
        end = found.end()
        name = f"{prefix}-{word.replace(' ', '-')}"
        yield Markup(
            '<span class="term" tabindex="0" aria-describedby="{0}">{1}</span>'
            '<span class="tip" role="tooltip" id="{0}">{2}</span>'
        ).format(name, found[0], TERMS[word])
    yield escape(text[end:])
