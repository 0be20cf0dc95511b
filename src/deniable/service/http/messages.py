"""Reading a request's headers and body, and sending a whole answer: the ASGI messages, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

import orjson

from deniable.service.http.problems import MEDIA_TYPE, Problem

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

NO_STORE = (b"cache-control", b"private, no-store")
_JSON = (b"content-type", b"application/json")
_PROBLEM = (b"content-type", MEDIA_TYPE.encode())


class ClientGoneError(Exception):
    """The caller hung up before the request was complete: there is nobody to answer."""


def header(scope: Scope, name: bytes) -> bytes | None:
    """The value of a header (name in lower case), or None."""
    for found, value in scope["headers"]:
        if found == name:
            return bytes(value)
    return None


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body; the problem 413 as soon as it is known to be longer than the limit."""
    message = await receive()
    body: bytes = message.get("body", b"")
    while True:
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        if len(body) > limit:
            raise too_large(limit)
        if not message.get("more_body", False):
            return body
        length = header(scope, b"content-length")
        if length is not None and (not length.isdigit() or int(length[:20]) > limit):
            raise too_large(limit)
        message = await receive()
        body += message.get("body", b"")


def too_large(limit: int) -> Problem:
    """The problem 413."""
    return Problem(413, "too-large", f"the body may have {limit} bytes", members={"limit": limit})


def parse_object(body: bytes, content_type: bytes | None) -> dict[str, Any]:
    """The body as a JSON object; the problem 415 or 400 where it is none."""
    if content_type is not None and content_type != _JSON[1] and not _says_json(content_type):
        raise Problem(415, "not-json", "send the body as application/json")
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Problem(400, "malformed", "the body is not JSON in UTF-8") from None
    if type(found) is not dict:
        raise Problem(422, "invalid-argument", "body: expected a JSON object")
    return found


def _says_json(content_type: bytes) -> bool:
    return content_type.split(b";", 1)[0].strip().lower() == _JSON[1]


async def send_json(send: Send, status: int, body: bytes, *, extra: Headers = ()) -> None:
    """Send a whole JSON answer; 204 where the body is empty."""
    headers = [_JSON, NO_STORE, (b"content-length", b"%d" % len(body)), *extra]
    if not body:
        headers = [NO_STORE, *extra]  # a 204 has neither a type nor a length
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_problem(send: Send, problem: Problem) -> None:
    """Send a problem as the whole answer."""
    body = problem.body()
    extra = [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
    headers = [_PROBLEM, NO_STORE, (b"content-length", b"%d" % len(body)), *extra]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
