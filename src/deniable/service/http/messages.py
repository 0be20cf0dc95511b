"""HTTP messages: reading requests, sending responses, and errors as RFC 9457 problem details.

Problems never repeat what the caller sent. Values are omitted on purpose: they might contain a segment
or a visitor's id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple, TypeAlias

import orjson

from deniable._types import JsonObject
from deniable.errors import (
    NANO,
    ApprovalNeededError,
    DeniableError,
    InsufficientBudgetError,
    InvalidArgumentError,
    OverloadedError,
    StoreUnavailableError,
    TooManyAttemptsError,
    UnknownNameError,
    WrongStateError,
)

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1

NO_STORE = (b"cache-control", b"private, no-store")
_JSON = (b"content-type", b"application/json")
_PROBLEM = (b"content-type", MEDIA_TYPE.encode())
_STATUS_OF: tuple[tuple[type[DeniableError], int, str], ...] = (
    (InvalidArgumentError, 422, "invalid-argument"),
    (UnknownNameError, 404, "unknown-name"),
    (ApprovalNeededError, 409, "approval-needed"),
    (InsufficientBudgetError, 409, "insufficient-budget"),
    (WrongStateError, 409, "wrong-state"),
    (TooManyAttemptsError, 429, "too-many-attempts"),
    (OverloadedError, 503, "overloaded"),
    (StoreUnavailableError, 503, "store-unavailable"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Size limits of one request.

    Attributes:
        body: maximum body size, in bytes.
        batch: maximum number of visitors or rewards.
        seconds: how long the body may take to arrive.
    """

    body: int = 262_144
    batch: int = 1_000
    seconds: float = 10.0


class ClientGoneError(Exception):
    """The client disconnected before the request was complete."""


class Problem(Exception):
    """An error response.

    Attributes:
        status: the HTTP status.
        code: the last part of the problem's `type`, stable for use in programs.
        detail: one sentence for people.
        headers: additional response headers.
        members: additional members of the body.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = dict(members or {})
        if status == 503:  # the same for all callers
            self.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)

    def body(self) -> bytes:
        """Return the problem as JSON.

        >>> Problem(404, "unknown-name", "there is none").body()[:62]
        b'{"type":"urn:problem-type:deniable:unknown-name","title":"Not '
        """
        return orjson.dumps(
            {
                "type": f"urn:problem-type:deniable:{self.code}",
                "title": HTTPStatus(self.status).phrase,
                "status": self.status,
                "detail": self.detail,
                **self.members,
            }
        )


def problem_of(error: Exception) -> Problem:
    """Convert an error to a problem. Unexpected errors reveal nothing."""
    if isinstance(error, Problem):
        return error
    for kind, status, code in _STATUS_OF:
        if isinstance(error, kind):
            return Problem(status, code, _detail(error), members=_members(error))
    return Problem(500, "internal", "the service failed; its log tells where")


def _detail(error: DeniableError) -> str:
    if isinstance(error, InvalidArgumentError):
        return f"{error.argument}: expected {error.allowed}"
    if isinstance(error, UnknownNameError):
        return f"there is no such {error.kind}"
    if isinstance(error, OverloadedError):
        return "too much is queued; try again in a moment"
    if isinstance(error, StoreUnavailableError):  # its message may name hosts and files
        return "the store did not respond; nothing was done"
    return str(error)


def _members(error: DeniableError) -> dict[str, object]:
    if isinstance(error, InsufficientBudgetError):
        return {"remaining": error.remaining / NANO, "requested": error.requested / NANO}
    if isinstance(error, InvalidArgumentError):
        return {"argument": error.argument}
    return {}


def too_large(limit: int) -> Problem:
    """Return the 413 problem. The rest of the body is not read."""
    return Problem(
        413,
        "too-large",
        f"the body may have {limit} bytes",
        headers={"Connection": "close"},
        members={"limit": limit},
    )


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return the value of a header (name in lower case), or None."""
    for found, value in scope["headers"]:
        if found == name:
            return value  # type: ignore[no-any-return]
    return None


def too_slow() -> Problem:
    """Return the 408 problem."""
    detail = "the request did not arrive in time"
    return Problem(408, "too-slow", detail, headers={"Connection": "close"})


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """Read the whole body; raise a problem as soon as it is too large (413) or too slow (408)."""
    try:
        async with asyncio.timeout(limits.seconds):
            return await _whole_body(scope, receive, limits.body)
    except TimeoutError:
        raise too_slow() from None


async def _whole_body(scope: Scope, receive: Receive, limit: int) -> bytes:
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


def limited(receive: Receive, limits: Limits) -> Receive:
    """Wrap `receive` to stream a body of any duration, each part of which comes in time."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        try:
            async with asyncio.timeout(limits.seconds):
                message = await receive()
        except TimeoutError:
            raise too_slow() from None
        seen += len(message.get("body", b""))
        if seen > limits.body:
            raise too_large(limits.body)
        return message

    return counted


def parse_object(body: bytes, content_type: bytes | None) -> JsonObject:
    """Parse the body as a JSON object; raise a 415, 400 or 422 problem if it is not one."""
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


class Answer(NamedTuple):
    """A complete response."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


def json_answer(status: int, body: bytes, *, extra: Headers = ()) -> Answer:
    """Return a JSON response. An empty body gets neither a content type nor a length."""
    if not body:
        return Answer(status, (NO_STORE, *extra), body)
    return Answer(status, (_JSON, NO_STORE, (b"content-length", b"%d" % len(body)), *extra), body)


def problem_answer(problem: Problem) -> Answer:
    """Return a problem as a complete response."""
    body = problem.body()
    length = (b"content-length", b"%d" % len(body))
    return Answer(problem.status, (_PROBLEM, NO_STORE, length, *extra_headers(problem)), body)


def extra_headers(problem: Problem) -> Headers:
    """Return the headers that belong to a problem."""
    return [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]


async def send_answer(send: Send, answer: Answer) -> None:
    """Send a response as ASGI messages."""
    status, headers, body = answer
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
