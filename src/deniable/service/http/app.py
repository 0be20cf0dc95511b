"""`create_app(service)`: hot routes, administration, OFREP, health, metrics and pages as one app."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fastapi import APIRouter, FastAPI

from deniable.service.asynchronous import AsyncDecisions
from deniable.service.http import ofrep
from deniable.service.http.auth import Authenticator
from deniable.service.http.framework import FrameworkRoutes
from deniable.service.http.hot import HotRoutes, Limits
from deniable.service.http.logs import LogRequests, log_failure, log_request
from deniable.service.http.messages import (
    ClientGoneError,
    Receive,
    Scope,
    Send,
    send_json,
    send_problem,
)
from deniable.service.http.problems import problem_of
from deniable.service.http.routes import make_api
from deniable.service.http.tally import ROUTES, Tally
from deniable.service.service import Deniable

_ADMINISTRATION = ROUTES.index("administration")
_OFREP = ROUTES.index("ofrep")
_OTHER = ROUTES.index("other")


@dataclass(frozen=True)
class Options:
    """How an application behaves.

    Attributes:
        body_limit: bytes of a request's body.
        batch_limit: visitors or rewards in one request.
        in_flight_limit: requests besides decide and reward that are answered at the same time.
        key_cache_seconds: how long an API key is remembered; a revoked one works at most this long.
        log_requests: which requests get a log line.
        tally_folder: where the processes of one service share their counters; None: one process.
        close_service: whether the service is closed when the application shuts down.
    """

    body_limit: int = 262_144
    batch_limit: int = 1_000
    in_flight_limit: int = 200
    key_cache_seconds: float = 5.0
    log_requests: LogRequests = "administration"
    tally_folder: Path | None = None
    close_service: bool = False


class Companion(Protocol):
    """Something that works beside an application while it serves."""

    def start(self) -> None:
        """Begin, without waiting."""

    def end(self) -> None:
        """Finish; returns once it is done."""


def create_app(
    service: Deniable, options: Options | None = None, *, extra_routers: Sequence[APIRouter] = ()
) -> Application:
    """The ASGI application on a service.

    Args:
        service: an open one.
        options: how it behaves.
        extra_routers: further routes of FastAPI on the same port, such as pages for people. They
            find `service` and `authenticator` in `request.app.state`; the FastAPI application
            itself is the result's `api`, for mounts.
    """
    return Application(service, options or Options(), extra_routers)


class Application:
    """One ASGI application.

    Attributes:
        api: its FastAPI half.
        companions: threads that are started and ended with the application.
    """

    def __init__(
        self, service: Deniable, options: Options, extra_routers: Sequence[APIRouter]
    ) -> None:
        self._service = service
        self._options = options
        self._log_hot = options.log_requests == "all"
        self._log_others = options.log_requests != "none"
        self._tally = Tally(options.tally_folder)
        authenticator = Authenticator(service.keys, max_age_seconds=options.key_cache_seconds)
        limits = Limits(options.body_limit, options.batch_limit)
        self._hot = HotRoutes(authenticator, limits)
        self.api: FastAPI = make_api(service, authenticator, self._tally, limits, extra_routers)
        self.companions: list[Companion] = []
        self._framework = FrameworkRoutes(
            self.api,
            service,
            authenticator,
            body_limit=options.body_limit,
            in_flight_limit=options.in_flight_limit,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http":
            start = time.perf_counter()
            found = self._hot.find(scope["path"])
            if found is None:
                await self._other(scope, receive, send, start)
                return
            route, key = found
            try:
                status = await self._hot.serve(route, key, scope, receive, send)
            except ClientGoneError:
                return
            except Exception as error:  # noqa: BLE001 - told as a problem
                status = await _refused(error, route.template, key if route.ofrep else None, send)
            seconds = time.perf_counter() - start
            self._tally.request(route.tally, status, seconds)
            if self._log_hot:
                log_request(scope["method"], route.template, status, seconds)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def _other(self, scope: Scope, receive: Receive, send: Send, start: float) -> None:
        path: str = scope["path"]
        bulk = path == ofrep.BULK_PATH
        try:
            status = await self._framework.serve(scope, receive, send)
        except ClientGoneError:
            return
        except Exception as error:  # noqa: BLE001 - told as a problem
            status = await _refused(error, _template(scope), "" if bulk else None, send)
        seconds = time.perf_counter() - start
        position = _OFREP if bulk else _ADMINISTRATION if path.startswith("/v1/") else _OTHER
        self._tally.request(position, status, seconds)
        if self._log_others:
            log_request(scope["method"], _template(scope), status, seconds)

    async def _live(self, receive: Receive, send: Send) -> None:
        """The life of the application: from the loop's start until everything queued is finished."""
        await receive()
        self._hot.connect(AsyncDecisions(self._service))
        observing = asyncio.create_task(self._observe())
        for companion in self.companions:
            companion.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        observing.cancel()
        with suppress(asyncio.CancelledError):
            await observing
        for companion in self.companions:
            await asyncio.to_thread(companion.end)
        if self._options.close_service:
            await asyncio.to_thread(self._service.close)
        await send({"type": "lifespan.shutdown.complete"})

    async def _observe(self) -> None:
        while True:
            self._tally.observe(self._service.figures, self._framework.in_flight)
            await asyncio.sleep(1)


async def _refused(error: Exception, template: str, flag: str | None, send: Send) -> int:
    """Tell a problem, in the shape of OFREP where a flag was asked for; returns the status."""
    problem = problem_of(error)
    if problem.status == 500:
        log_failure(template, error)
    if flag is None:
        await send_problem(send, problem)
        return problem.status
    status, body = ofrep.refusal(flag or None, problem)
    extra = [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
    await send_json(send, status, body, extra=extra)
    return status


def _template(scope: Scope) -> str:
    """The path as its route declares it: what was asked for may hold an id."""
    return getattr(scope.get("route"), "path", "unknown")
