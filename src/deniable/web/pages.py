"""The pages on the service's application: which modules there are, how they are mounted, and errors.

A page is a module of this package with a `router` (FastAPI). To add one: write the module, add it
to MODULES, and its place in the header to NAVIGATION. Routes take `Reader`, `Submission`
and so on from `deniable.web.access`, which check who asks, and answer with `show` or `redirect` from
`deniable.web.responses`. `tests/web/test_roles.py` says which scope each route needs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from importlib import import_module
from typing import cast
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from deniable.errors import DeniableError
from deniable.service.http.app import Application
from deniable.service.http.messages import Problem, problem_of
from deniable.web import responses
from deniable.web.access import Signer, TrustedProxy, viewer_of
from deniable.web.monitor import Monitor

MODULES = (
    "static",
    "account",
    "overview",
    "labels",
    "experiments",
    "actions",
    "experiment",
    "planner",
    "portfolio",
    "ledger",
    "leak",
    "audits",
    "promises",
    "visitors",
    "settings",
)
"""Modules of this package with a `router`, in the order in which their paths are tried."""

UPLOAD_PATHS = frozenset({"/leak"})

_PROGRAMS = ("/v1/", "/ofrep/")

WORDS = {
    400: ("We cannot read that request", "Go back and try again."),
    403: (
        "Not allowed",
        "Your role or API key does not include this. An admin can change that under Settings.",
    ),
    404: ("There is nothing here", "It may have been removed, or the address has a typing error."),
    405: ("That cannot be done at this address", "Go back and use the buttons on the page."),
    429: ("Too many attempts", "Wait a while, then try again."),
    409: ("That cannot be done now", "Nothing was changed."),
    413: ("That was too long", "Nothing was changed. Send less at a time."),
    422: ("Something in the form is not right", "Nothing was changed. Go back and correct it."),
    500: (
        "Something went wrong here",
        "It is not your fault. Whoever runs the service will find it in the log.",
    ),
    503: ("The service is busy", "Nothing was changed. Try again in a moment."),
}
"""Status -> title and advice of the page that says so."""

_REFUSALS = (DeniableError, Problem, HTTPException, RequestValidationError, Exception)


def mount(
    application: Application,
    *,
    demo: bool = False,
    demo_key: str = "",
    proxy: TrustedProxy | None = None,
) -> Application:
    """Add the pages to an application and return it.

    Args:
        application: from `create_app`, not yet serving.
        demo: whether its visitors are simulated; every page then says so.
        demo_key: the secret of an API key with which anybody may enter by one click.
        proxy: that signs people in; None: they sign in here.
    """
    api = application.api
    api.state.signer = Signer(api.state.service.derived_key(b"web sessions"))
    api.state.demo = demo
    api.state.seen_at = time.monotonic()
    api.state.learned = {}
    api.state.audits = {}
    api.state.measuring = threading.Lock()
    api.state.demo_key = demo_key
    api.state.proxy = proxy or TrustedProxy()
    api.state.webhook = False
    api.state.monitor = Monitor(api.state.service)
    application.companions.append(api.state.monitor)
    application.upload_paths = UPLOAD_PATHS
    routers = [import_module(f"deniable.web.{name}").router for name in MODULES]
    # Not included, for the reason given in `make_api`.
    api.router.routes[:0] = [route for router in routers for route in router.routes]
    for kind in _REFUSALS:
        _tell_people(api, kind)
    return application


def _tell_people(api: FastAPI, kind: type[Exception]) -> None:
    """Answer browsers that asked for a page with one; programs get problem details as before."""
    told_to_programs = api.exception_handlers.get(kind, api.exception_handlers[DeniableError])

    async def told(request: Request, error: Exception) -> Response:
        if wants_page(request):
            return await asyncio.to_thread(error_page, request, error)
        return cast(Response, await told_to_programs(request, error))  # type: ignore[misc]

    api.add_exception_handler(kind, told)


def wants_page(request: Request) -> bool:
    """Whether a browser asked for a page, and not a program for an answer."""
    if request.url.path.startswith(_PROGRAMS):
        return False
    return "text/html" in request.headers.get("accept", "")


def error_page(request: Request, error: Exception) -> Response:
    """The refusal as a page; whoever is not signed in is sent to the sign-in page instead."""
    problem = _problem(error)
    if problem.status == 401:
        asked = request.url.path if request.method == "GET" else "/"
        if request.method == "GET" and request.url.query:  # a shared link: its plan, its filter
            asked += f"?{request.url.query}"
        place = "" if asked == "/" else f"?next={quote(asked, safe='')}"
        return RedirectResponse(f"/login{place}", 303, responses.HEADERS)
    title, advice = WORDS.get(problem.status, WORDS[400])
    return responses.show(
        request,
        "problem.html",
        viewer_of(request),
        status=problem.status,
        title=title,
        detail=problem.detail,
        advice=advice,
    )


def _problem(error: Exception) -> Problem:
    if isinstance(error, HTTPException):
        unknown = error.status_code == 404  # an address of no route: the framework says "Not Found"
        detail = "no page has this address" if unknown else str(error.detail)
        return Problem(error.status_code, "http", detail)
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        return Problem(422, "invalid-argument", f"{first['loc'][-1]}: {first['msg']}")
    return problem_of(error)
