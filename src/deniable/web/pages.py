"""The pages on the service's application: which modules there are, and how they are mounted.

A page is a module of this package with a `router` (FastAPI). To add one: write the module, add it
to MODULES, and its place in the header to NAVIGATION. Routes take `Reader`, `Submission`
and so on from `deniable.web.access`, which check who asks, and answer with `show` or `redirect` from
`deniable.web.answers`. `tests/web/test_roles.py` says which scope each route needs.
"""

from __future__ import annotations

import asyncio
import time
from importlib import import_module
from typing import cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from deniable.errors import DeniableError
from deniable.service.http.app import Application
from deniable.service.http.problems import Problem
from deniable.web import refusals
from deniable.web.preparation import Preparation
from deniable.web.proxy import TrustedProxy
from deniable.web.sessions import Signer
from deniable.web.watcher import Watcher

MODULES = (
    "static",
    "account",
    "overview",
    "experiments",
    "actions",
    "remarks",
    "experiment",
    "planner",
    "portfolio",
    "ledger",
    "leak",
    "promises",
    "visitors",
    "settings",
)
"""Modules of this package with a `router`, in the order in which their paths are tried."""

UPLOAD_PATHS = frozenset({"/leak"})

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
    api.state.demo_key = demo_key
    api.state.proxy = proxy or TrustedProxy()
    api.state.webhook = False
    api.state.watcher = Watcher(api.state.service)
    application.companions.append(api.state.watcher)
    application.upload_paths = UPLOAD_PATHS
    routers = [import_module(f"deniable.web.{name}").router for name in MODULES]
    # Not included: FastAPI makes included routes a second time at the first request, all of them.
    # Before those of programs, which it would make for the first page.
    api.router.routes[:0] = [route for router in routers for route in router.routes]
    for kind in _REFUSALS:
        _tell_people(api, kind)
    application.companions.append(Preparation(lambda: api.state.seen_at))
    return application


def _tell_people(api: FastAPI, kind: type[Exception]) -> None:
    """Answer browsers that asked for a page with one; programs get problem details as before."""
    told_to_programs = api.exception_handlers.get(kind, api.exception_handlers[DeniableError])

    async def told(request: Request, error: Exception) -> Response:
        if refusals.wants_page(request):
            return await asyncio.to_thread(refusals.page, request, error)
        return cast(Response, await told_to_programs(request, error))  # type: ignore[misc]

    api.add_exception_handler(kind, told)
