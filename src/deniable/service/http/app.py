"""`create_app(service)`: decide and reward, administration, OFREP, health, metrics and pages as one app.

Everything besides decide and reward is answered by FastAPI. This module stands before it: API keys are
checked before a body is read, bodies and requests in flight are bounded (health routes excepted),
repeated administrative requests are answered from memory, and every answer gets the same headers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from fastapi import APIRouter, FastAPI

from deniable._types import JsonObject
from deniable.service.asynchronous import AsyncDecisions
from deniable.service.http import ofrep
from deniable.service.http.api import HEALTH_PATHS, make_api
from deniable.service.http.auth import Authenticator
from deniable.service.http.decide_routes import DecideRoute, DecideRoutes, told
from deniable.service.http.idempotency import answer_once, reply_key
from deniable.service.http.logs import LogRequests, log_failure, log_request
from deniable.service.http.messages import (
    NO_STORE,
    Answer,
    ClientGoneError,
    Limits,
    Message,
    Receive,
    Scope,
    Send,
    authorization_of,
    extra_headers,
    header,
    json_answer,
    limited,
    problem_answer,
    read_body,
    send_answer,
)
from deniable.service.http.metrics import ROUTES, Tally
from deniable.service.http.problems import Problem, problem_of
from deniable.service.service import Deniable

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


UPLOAD_LIMIT = 50_000_000
"""Bytes of a file that a person who is signed in may send to a page for uploads."""


@dataclass(frozen=True)
class Options:
    """How an application behaves.

    Attributes:
        body_limit: bytes of a request's body.
        batch_limit: visitors or rewards in one request.
        in_flight_limit: requests besides decide and reward that are answered at the same time.
        key_cache_seconds: how long an API key is remembered; a revoked one works at most this long.
        key_outage_seconds: how long a valid API key is accepted while the store does not answer.
        decide_seconds: how long a decision may take before it is answered without the store; None:
            as long as the store takes.
        log_requests: which requests get a log line.
        tally: counts requests; by default one for this process alone.
        close_seconds: how long the service may take to close when the application shuts down; None:
            it is not closed.
    """

    body_limit: int = 262_144
    batch_limit: int = 1_000
    in_flight_limit: int = 200
    key_cache_seconds: float = 5.0
    key_outage_seconds: float = 3_600.0
    decide_seconds: float | None = None
    log_requests: LogRequests = "administration"
    tally: Tally | None = None
    close_seconds: float | None = None


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
        upload_paths: paths of pages that take files; they check who sends before they read.
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
        limits = Limits(options.body_limit, options.batch_limit)
        self._decide = DecideRoutes(self._authenticator, limits)
        self._in_flight = 0
        self.api: FastAPI = make_api(
            service, self._authenticator, self._tally, limits, extra_routers
        )
        self.companions: list[Companion] = []
        self.upload_paths: frozenset[str] = frozenset()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http":
            start = time.perf_counter()
            found = self._decide.find(scope["path"])
            if found is None:
                await self._other(scope, receive, send, start)
                return
            route, key = found
            try:
                status = await self._decide.serve(route, key, scope, receive, send)
            except ClientGoneError:
                return
            except Exception as error:  # noqa: BLE001 - told as a problem
                answer = _refusal(error, route.template, key if route.ofrep else None)
                await send_answer(send, answer)
                status = answer.status
            self._note(route, scope["method"], status, start)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    def answer_at_once(
        self, path: str, scope: Scope, body: bytes, reply: Callable[[Answer], None]
    ) -> bool:
        """Answer a POST whose body is here without the ways of ASGI, which take as long as deciding.

        Returns False, and has done nothing, where `__call__` has to answer. Otherwise `reply` is called
        once, later, with the same answer that `__call__` would send.
        """
        start = time.perf_counter()
        asked = self._decide.ask_at_once(path, scope, body)
        if asked is None:
            return False

        def finish(outcome: asyncio.Future[object]) -> None:
            route, key = asked.route, asked.key
            try:
                answer = told(route, key, outcome.result())
            except Exception as error:  # noqa: BLE001 - told as a problem
                answer = _refusal(error, route.template, key if route.ofrep else None)
            reply(answer)
            self._note(route, "POST", answer.status, start)

        asked.outcome.add_done_callback(finish)
        return True

    def _note(self, route: DecideRoute, method: str, status: int, start: float) -> None:
        seconds = time.perf_counter() - start
        self._tally.request(route.tally, status, seconds)
        if self._log_decides:
            log_request(method, route.template, status, seconds)

    def template(self, scope: Scope) -> str:
        """The path of a request that was answered as its route declares it; never the path itself."""
        found = self._decide.find(scope["path"])
        return _template(scope) if found is None else found[0].template

    # -- everything besides decide and reward ------------------------------------------------

    async def _other(self, scope: Scope, receive: Receive, send: Send, start: float) -> None:
        path: str = scope["path"]
        bulk = path == ofrep.BULK_PATH
        try:
            status = await self._admitted(scope, receive, send)
        except ClientGoneError:
            return
        except Exception as error:  # noqa: BLE001 - told as a problem
            answer = _refusal(error, _template(scope), "" if bulk else None)
            await send_answer(send, answer)
            status = answer.status
        seconds = time.perf_counter() - start
        position = _OFREP if bulk else _ADMINISTRATION if path.startswith("/v1/") else _OTHER
        self._tally.request(position, status, seconds)
        if self._log_others:
            log_request(scope["method"], _template(scope), status, seconds)

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Answer one request and return the status; raises what is to be told as a problem.

        A request counts against the limit once all of it is here: one that is sent slowly takes
        nobody's place.
        """
        path: str = scope["path"]
        if path in HEALTH_PATHS:
            return await self._answered(scope, receive, send)
        if scope["method"] in _SAFE_METHODS:
            with self._place():
                return await self._answered(scope, receive, send)
        caller = None
        if path.startswith(_API_PREFIXES):
            caller = await self._authenticator.caller(authorization_of(scope))
        if path in self.upload_paths:  # to disk as it comes, once the route knows who sends it
            with self._place():
                return await self._answered(scope, limited(receive, UPLOAD_LIMIT), send)
        body = await read_body(scope, receive, self._options.body_limit)
        with self._place():
            given = header(scope, b"idempotency-key")
            if caller is None or given is None or not path.startswith("/v1/"):
                return await self._answered(scope, _repeated(body), send)
            return await answer_once(
                self._service,
                reply_key(caller.id, scope["method"], path, given),
                body,
                lambda kept: self._answered(scope, _repeated(body), kept),
                send,
            )

    @contextmanager
    def _place(self) -> Iterator[None]:
        """One of the places for requests in flight, or the problem 503."""
        if self._in_flight >= self._options.in_flight_limit:
            raise Problem(503, "overloaded", "too many requests at once; try again in a moment")
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Let FastAPI answer, with the headers that every answer has; returns the status."""
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
            # The framework has answered already, and raises again for whoever keeps a log.
            log_failure(_template(scope), error)
        return status

    # -- life --------------------------------------------------------------------------------

    async def _live(self, receive: Receive, send: Send) -> None:
        """The life of the application: from the loop's start until everything queued is finished."""
        await receive()
        decide_seconds = self._options.decide_seconds
        self._decide.connect(AsyncDecisions(self._service, decide_seconds=decide_seconds))
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
        self._authenticator.close()
        if self._options.close_seconds is not None:
            await asyncio.to_thread(self._service.close, self._options.close_seconds)
        await send({"type": "lifespan.shutdown.complete"})

    async def _observe(self) -> None:
        while True:
            self._tally.observe(self._service.figures, self._in_flight)
            await asyncio.sleep(1)


def _repeated(body: bytes) -> Receive:
    """A `receive` that gives a body that was read already, then waits for ever as a quiet client."""
    given = False

    async def receive() -> JsonObject:
        nonlocal given
        if given:
            await asyncio.Event().wait()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _refusal(error: Exception, template: str, flag: str | None) -> Answer:
    """A problem, in the shape of OFREP where a flag was asked for."""
    problem = problem_of(error)
    if problem.status == 500:
        log_failure(template, error)
    if flag is None:
        return problem_answer(problem)
    status, body = ofrep.refusal(flag or None, problem)
    return json_answer(status, body, extra=extra_headers(problem))


def _template(scope: Scope) -> str:
    """The path as its route declares it: what was asked for may hold an id."""
    return getattr(scope.get("route"), "path", "unknown")
