"""`create_app(service)`: the ASGI application for the API, OFREP, health, metrics and pages.

FastAPI handles everything except decide and reward. This module sits in front of it. It checks API
keys before reading bodies, limits body sizes and concurrent requests (except for health checks),
replays responses to repeated administrative requests, and adds the same headers to every response.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal, Protocol

from fastapi import APIRouter, FastAPI

from deniable._types import JsonObject
from deniable.errors import DeniableError
from deniable.service.http import ofrep
from deniable.service.http.api import HEALTH_PATHS, make_api
from deniable.service.http.auth import CALLER, Authenticator, authorization_of
from deniable.service.http.decide_routes import DecideRoutes
from deniable.service.http.idempotency import answer_once, reply_key
from deniable.service.http.logs import LogRequests, log_failure, log_request
from deniable.service.http.messages import (
    NO_STORE,
    Answer,
    ClientGoneError,
    Limits,
    Message,
    Problem,
    Receive,
    Scope,
    Send,
    extra_headers,
    header,
    json_answer,
    limited,
    problem_answer,
    problem_of,
    read_body,
    send_answer,
)
from deniable.service.http.metrics import ROUTES, Tally
from deniable.service.service import Deniable
from deniable.service.writer import AsyncDecisions

_ADMINISTRATION = ROUTES.index("administration")
_OFREP = ROUTES.index("ofrep")
_OTHER = ROUTES.index("other")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_API_PREFIXES = ("/v1/", "/ofrep/")
_DEFAULT_HEADERS = (
    NO_STORE,
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)


BEAT_SECONDS = 3600
SCHEMA_SECONDS = 2
"""How often a process checks whether the store was migrated to a newer schema."""

MEASURE_SECONDS = 15
"""How often the disk's free space and the age of tables are looked up."""

UPLOAD_LIMIT = 50_000_000
"""Maximum size of a file that a signed-in user may upload, in bytes."""


@dataclass(frozen=True)
class Options:
    """Settings of an application.

    Attributes:
        body_limit: maximum size of a request body, in bytes.
        batch_limit: maximum number of visitors or rewards per request.
        in_flight_limit: maximum number of concurrent requests, not counting decide and reward.
        request_seconds: how long a body, or the next part of an upload, may take to arrive.
        key_cache_seconds: how long an API key is cached; a revoked key keeps working for at most
            this long.
        key_outage_seconds: how long a valid API key stays accepted while the store does not
            respond.
        decide_seconds: how long to wait for the store before a decision is answered without it;
            None waits indefinitely.
        log_requests: which requests are logged.
        tally: request counters; by default, for this process only.
        only: what is answered: decisions and rewards ("decide"), the rest ("pages"), or everything.
            Health and metrics always are.
        close_seconds: how long the service may take to close at shutdown; None leaves it open.
    """

    body_limit: int = 262_144
    batch_limit: int = 1_000
    in_flight_limit: int = 200
    request_seconds: float = 10.0
    key_cache_seconds: float = 5.0
    key_outage_seconds: float = 3_600.0
    decide_seconds: float | None = None
    log_requests: LogRequests = "administration"
    tally: Tally | None = None
    only: Literal["everything", "decide", "pages"] = "everything"
    close_seconds: float | None = None


class Companion(Protocol):
    """A background worker that runs while the application serves."""

    def start(self) -> None:
        """Start without blocking."""

    def end(self) -> None:
        """Stop, and return once stopped."""


def create_app(
    service: Deniable, options: Options | None = None, *, extra_routers: Sequence[APIRouter] = ()
) -> Application:
    """Create the ASGI application for a service.

    Args:
        service: an open service.
        options: settings.
        extra_routers: additional FastAPI routers on the same port, such as the web pages. They find
            `service` and `authenticator` in `request.app.state`. The FastAPI application itself is
            the `api` attribute of the result, for mounts.
    """
    return Application(service, options or Options(), extra_routers)


class Application:
    """The ASGI application.

    Attributes:
        api: the FastAPI application.
        companions: background workers, started and stopped with the application.
        upload_paths: paths that accept files; they authenticate the sender before reading the body.
    """

    def __init__(
        self, service: Deniable, options: Options, extra_routers: Sequence[APIRouter]
    ) -> None:
        self._service = service
        self._options = options
        self._log_decides = options.log_requests == "all"
        self._log_others = options.log_requests != "none"
        self._tally = options.tally or Tally()
        self._authenticator = Authenticator(
            service.keys,
            max_age_seconds=options.key_cache_seconds,
            outage_seconds=options.key_outage_seconds,
        )
        limits = Limits(options.body_limit, options.batch_limit, options.request_seconds)
        self._limits = limits
        self._decide = DecideRoutes(self._authenticator, limits)
        self._in_flight = 0
        self.api: FastAPI = make_api(
            service, self._authenticator, self._tally, limits, extra_routers
        )
        self.companions: list[Companion] = []
        self.upload_paths: frozenset[str] = frozenset()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry point."""
        if scope["type"] == "http":
            start = time.perf_counter()
            found = self._decide.find(scope["path"])
            if found is None:
                await self._other(scope, receive, send, start)
                return
            route, key = found
            try:
                self._check_served_here(deciding=True)
                status = await self._decide.serve(route, key, scope, receive, send)
            except ClientGoneError:
                return
            except Exception as error:  # noqa: BLE001 - reported as a problem
                answer = _refusal(error, route.template, key if route.ofrep else None)
                await send_answer(send, answer)
                status = answer.status
            seconds = time.perf_counter() - start
            self._tally.request(route.tally, status, seconds)
            # The time of a single reward would tell who clicked.
            reward = route.scope == "reward" and status < 400
            if self._log_decides and not reward:
                caller = scope.get(CALLER)
                log_request(scope["method"], route.template, status, seconds, caller)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    def _check_served_here(self, *, deciding: bool) -> None:
        """Raise the 404 problem if another process of the service answers these requests."""
        only = self._options.only
        if only != "everything" and deciding != (only == "decide"):
            raise Problem(404, "not-served-here", f"this process was started with --only {only}")

    def template(self, scope: Scope) -> str:
        """Return the route template of an answered request, never its actual path."""
        found = self._decide.find(scope["path"])
        return _template(scope) if found is None else found[0].template

    # -- everything except decide and reward -------------------------------------------------

    async def _other(self, scope: Scope, receive: Receive, send: Send, start: float) -> None:
        path: str = scope["path"]
        bulk = path == ofrep.BULK_PATH
        try:
            status = await self._answer_limited(scope, receive, send)
        except ClientGoneError:
            return
        except Exception as error:  # noqa: BLE001 - reported as a problem
            answer = _refusal(error, _template(scope), "" if bulk else None)
            await send_answer(send, answer)
            status = answer.status
        seconds = time.perf_counter() - start
        position = _OFREP if bulk else _ADMINISTRATION if path.startswith("/v1/") else _OTHER
        self._tally.request(position, status, seconds)
        if self._log_others:
            caller = scope.get(CALLER)
            log_request(scope["method"], _template(scope), status, seconds, caller)

    async def _answer_limited(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Answer one request and return its status. Exceptions are reported as problems.

        A request counts against the limit only once it has arrived completely, so slow senders do
        not occupy places.
        """
        path: str = scope["path"]
        if path in HEALTH_PATHS:
            if scope["method"] == "HEAD":  # the server leaves out the body
                scope["method"] = "GET"
            return await self._answered(scope, receive, send)
        self._check_served_here(deciding=path == ofrep.BULK_PATH)
        if scope["method"] in _SAFE_METHODS:
            with self._request_slot():
                return await self._answered(scope, receive, send)
        caller = None
        if path.startswith(_API_PREFIXES):
            caller = await self._authenticator.caller(authorization_of(scope))
            scope[CALLER] = caller.label
        # Streamed to disk, after the route has authenticated the sender.
        if path in self.upload_paths:
            with self._request_slot():
                upload = limited(receive, Limits(UPLOAD_LIMIT, seconds=self._limits.seconds))
                return await self._answered(scope, upload, send)
        body = await read_body(scope, receive, self._limits)
        with self._request_slot():
            given = header(scope, b"idempotency-key")
            if caller is None or given is None or not path.startswith("/v1/"):
                return await self._answered(scope, _replayed(body), send)
            return await answer_once(
                self._service,
                reply_key(caller.id, scope["method"], path, given),
                body,
                lambda kept: self._answered(scope, _replayed(body), kept),
                send,
            )

    @contextmanager
    def _request_slot(self) -> Iterator[None]:
        """Hold one of the places for concurrent requests, or raise the 503 problem."""
        if self._in_flight >= self._options.in_flight_limit:
            raise Problem(503, "overloaded", "too many requests at once; try again in a moment")
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Let FastAPI answer, add the common headers, and return the status."""
        status = 500
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                present = {name.lower() for name, _ in message["headers"]}
                added = [pair for pair in _DEFAULT_HEADERS if pair[0] not in present]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        try:
            await self.api(scope, receive, send_with_headers)
        except Exception as error:
            if not started:
                raise
            # The framework has already responded; it re-raises the error only for logging.
            log_failure(_template(scope), error)
        return status

    # -- lifespan ----------------------------------------------------------------------------

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Handle the ASGI lifespan: from startup until everything queued is finished."""
        await receive()
        decide_seconds = self._options.decide_seconds
        self._decide.connect(AsyncDecisions(self._service.writer, decide_seconds=decide_seconds))
        endless = (self._observe, self._beat, self._check_schema, self._measure)
        working = [asyncio.create_task(work()) for work in endless]
        for companion in self.companions:
            companion.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for work in working:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
        for companion in self.companions:
            await asyncio.to_thread(companion.end)
        self._authenticator.close()
        if self._options.close_seconds is not None:
            await asyncio.to_thread(self._service.close, self._options.close_seconds)
        await send({"type": "lifespan.shutdown.complete"})

    async def _observe(self) -> None:
        while True:
            self._tally.observe(self._service.figures, self._in_flight)
            await asyncio.sleep(1)

    async def _beat(self) -> None:
        while True:
            await asyncio.to_thread(self._service.beat)
            await asyncio.sleep(BEAT_SECONDS)

    async def _measure(self) -> None:
        while True:
            with suppress(DeniableError):
                self._tally.measure(await asyncio.to_thread(self._service.store_figures))
            await asyncio.sleep(MEASURE_SECONDS)

    async def _check_schema(self) -> None:
        while True:
            with suppress(DeniableError):  # a store that does not answer says nothing about it
                problem = await asyncio.to_thread(self._service.schema_problem)
                self.api.state.schema_problem = problem
            await asyncio.sleep(SCHEMA_SECONDS)


def _replayed(body: bytes) -> Receive:
    """Return a `receive` that replays a body already read, then blocks like a silent client."""
    given = False

    async def receive() -> JsonObject:
        nonlocal given
        if given:
            await asyncio.Event().wait()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _refusal(error: Exception, template: str, flag: str | None) -> Answer:
    """Return an error as a response, in OFREP format if a flag was requested."""
    problem = problem_of(error)
    if problem.status == 500:
        log_failure(template, error)
    if flag is None:
        return problem_answer(problem)
    status, body = ofrep.refusal(flag or None, problem)
    return json_answer(status, body, extra=extra_headers(problem))


def _template(scope: Scope) -> str:
    """Return the path as the route declares it. The actual path may contain an id."""
    return getattr(scope.get("route"), "path", "unknown")
