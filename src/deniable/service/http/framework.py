"""The FastAPI half of the application: administration, OFREP in bulk, health, metrics, pages.

`FrameworkRoutes` stands before it: it bounds bodies and requests in flight, answers repeated
requests from memory, and adds the headers that every answer has.
"""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

from fastapi import FastAPI

from deniable.service.http.auth import Authenticator
from deniable.service.http.logs import log_failure
from deniable.service.http.messages import (
    NO_STORE,
    Message,
    Receive,
    Scope,
    Send,
    header,
    read_body,
    send_json,
)
from deniable.service.http.problems import Problem
from deniable.service.http.replies import REPLAYED, checked_reply, remembered_body, reply_key
from deniable.service.service import Deniable

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_DEFAULT_HEADERS = (
    NO_STORE,
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)


class FrameworkRoutes:
    """Everything that is not hot.

    Args:
        api: the FastAPI application.
        service: remembers answers.
        authenticator: knows the callers.
        body_limit: bytes of a request's body.
        in_flight_limit: requests answered at the same time; more are refused.
    """

    def __init__(
        self,
        api: FastAPI,
        service: Deniable,
        authenticator: Authenticator,
        *,
        body_limit: int,
        in_flight_limit: int,
    ) -> None:
        self._api = api
        self._service = service
        self._authenticator = authenticator
        self._body_limit = body_limit
        self._in_flight_limit = in_flight_limit
        self.in_flight = 0

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Answer one request and return the status; raises what is to be told as a problem."""
        if self.in_flight >= self._in_flight_limit:
            raise Problem(503, "overloaded", "too many requests at once; try again in a moment")
        self.in_flight += 1
        try:
            if scope["method"] in _SAFE_METHODS:
                return await self._pass_on(scope, receive, send)
            body = await read_body(scope, receive, self._body_limit)
            given = header(scope, b"idempotency-key")
            if given is None or not scope["path"].startswith("/v1/"):
                return await self._pass_on(scope, _repeated(body), send)
            return await self._once(given, scope, body, send)
        finally:
            self.in_flight -= 1

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> int:
        response = _Response(send)
        try:
            await self._api(scope, receive, response)
        except Exception as error:
            if not response.started:
                raise
            # The framework has answered already, and raises again for whoever keeps a log.
            log_failure(getattr(scope.get("route"), "path", "unknown"), error)
        return response.status

    async def _once(self, given: bytes, scope: Scope, body: bytes, send: Send) -> int:
        caller = await self._authenticator.caller(header(scope, b"authorization"))
        key = reply_key(caller.id, scope["method"], scope["path"], given)
        request = sha256(body).digest()
        found = await asyncio.to_thread(self._service.idempotency.reserve, key, request)
        if found is not None:
            reply = checked_reply(found, request)
            await send_json(send, reply.status, reply.body, extra=[REPLAYED])
            return reply.status
        response = _Response(None)
        try:
            await self._api(scope, _repeated(body), response)
        finally:  # also where the route failed: then the key is free again
            kept = remembered_body(response.status, bytes(response.body))
            await asyncio.to_thread(self._service.idempotency.finish, key, response.status, kept)
        await response.send_to(send)
        return response.status


class _Response:
    """A `send` that notes the status and adds headers; keeps everything where `_send` is None."""

    def __init__(self, send: Send | None) -> None:
        self._send = send
        self._messages: list[Message] = []
        self.status = 500
        self.started = False
        self.body = bytearray()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.started = True
            present = {name.lower() for name, _ in message["headers"]}
            added = [pair for pair in _DEFAULT_HEADERS if pair[0] not in present]
            message = {**message, "headers": [*message["headers"], *added]}
        if self._send is not None:
            await self._send(message)
            return
        self._messages.append(message)
        self.body += message.get("body", b"")

    async def send_to(self, send: Send) -> None:
        """Send what was kept."""
        for message in self._messages:
            await send(message)


def _repeated(body: bytes) -> Receive:
    """A `receive` that gives a body that was read already, then waits for ever as a quiet client."""
    given = False

    async def receive() -> dict[str, Any]:
        nonlocal given
        if given:
            await asyncio.Event().wait()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
