"""Reading requests and sending responses: ASGI messages, and the input of decide and reward.

Decide and reward are validated by hand, strictly: missing or unknown members and wrong types are
rejected before anything is queued. The OpenAPI document describes the same rules as JSON Schema.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import orjson

from deniable._types import JsonObject
from deniable.service.http.problems import MEDIA_TYPE, Problem
from deniable.service.ids import INVISIBLE
from deniable.service.jobs import LARGEST_REWARD, LONGEST_NAME
from deniable.storage.records import SCRATCH_PREFIX

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

NO_STORE = (b"cache-control", b"private, no-store")
_JSON = (b"content-type", b"application/json")
_PROBLEM = (b"content-type", MEDIA_TYPE.encode())


EXPERIMENT_KEY = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
SCRATCH_KEY = rf"^{SCRATCH_PREFIX}[0-9a-f]{{16}}$"
LONGEST_DECISION = 64

_is_key = re.compile(f"{EXPERIMENT_KEY}|{SCRATCH_KEY}").fullmatch
_VISITOR_MEMBERS = frozenset({"visitor", "segment"})
NOT_BLANK = "".join(
    (r"[^\s", *(rf"\u{first:04x}-\u{last:04x}" for first, last in INVISIBLE if last < 0x10000), "]")
)
"""Pattern that every visitor id matches: blanks around it and invisible characters are no part of an id.

Without those beyond \\uffff, which dialects of regular expressions write in different ways.
"""

_REWARD_MEMBERS = frozenset({"decision", "value"})
_REWARD_AND_METRIC = frozenset({"decision", "value", "metric"})

VISITOR_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["visitor"],
    "additionalProperties": False,
    "properties": {
        "visitor": {
            "type": "string",
            "minLength": 1,
            "maxLength": LONGEST_NAME,
            "pattern": NOT_BLANK,
        },
        "segment": {"type": ["string", "null"], "maxLength": LONGEST_NAME},
    },
}
REWARD_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["decision", "value"],
    "additionalProperties": False,
    "properties": {
        "decision": {"type": "string", "maxLength": LONGEST_DECISION},
        "value": {
            "type": "number",
            "minimum": 0,
            "maximum": LARGEST_REWARD,
            "description": "0 to the metric's cap, which is 1 where none was declared.",
        },
        "metric": {
            "type": ["string", "null"],
            "minLength": 1,
            "maxLength": LONGEST_NAME,
            "description": "The metric that is rewarded; the one that decides if left out.",
        },
    },
}
DECISION_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["decision", "arm"],
    "additionalProperties": False,
    "properties": {
        "decision": {"type": "string", "description": "Opaque; names it when its reward comes."},
        "arm": {"type": "string", "description": "The key of the arm to show."},
    },
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Size limits of one request.

    Attributes:
        body: maximum body size, in bytes.
        batch: maximum number of visitors or rewards.
    """

    body: int = 262_144
    batch: int = 1_000


class ClientGoneError(Exception):
    """The client disconnected before the request was complete."""


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return the value of a header (name in lower case), or None."""
    for found, value in scope["headers"]:
        if found == name:
            return value  # type: ignore[no-any-return]
    return None


def authorization_of(scope: Scope) -> bytes | None:
    """Return the Authorization header, or None. Raises a 400 problem if there are two.

    With two, a proxy and this service might each check a different one.
    """
    found: bytes | None = None
    for name, value in scope["headers"]:
        if name == b"authorization":
            if found is not None:
                raise Problem(400, "malformed", "Authorization: expected one header")
            found = value
    return found


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Read the whole body; raise a 413 problem as soon as it exceeds the limit."""
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


def limited(receive: Receive, limit: int) -> Receive:
    """Wrap `receive` to stream the body and raise a 413 problem once it exceeds the limit."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise too_large(limit)
        return message

    return counted


def too_large(limit: int) -> Problem:
    """Return the 413 problem. The rest of the body is not read."""
    return Problem(
        413,
        "too-large",
        f"the body may have {limit} bytes",
        headers={"Connection": "close"},
        members={"limit": limit},
    )


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


def known_key(key: str) -> str:
    """Return the key if it is a valid experiment key; raise a 404 problem otherwise."""
    if _is_key(key) is None:
        raise Problem(404, "unknown-name", "there is no such experiment")
    return key


def visitor_and_segment(document: object) -> tuple[Any, Any]:
    """Extract the members of a decision request. The service validates their values."""
    if type(document) is not dict or not document.keys() <= _VISITOR_MEMBERS:
        raise invalid("body", "an object with the members `visitor` and, optionally, `segment`")
    return document.get("visitor"), document.get("segment")


def visitors_and_segments(
    documents: Sequence[object],
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The same of a batch: all visitors, and all segments."""
    # Nearly always every one has both members and no other: looked at together.
    if set(map(type, documents)) == {dict} and set(map(len, documents)) == {2}:  # type: ignore[arg-type]
        with suppress(KeyError):
            visitors = tuple([one["visitor"] for one in documents])  # type: ignore[index]
            return visitors, tuple([one["segment"] for one in documents])  # type: ignore[index]
    visitors, segments = zip(*map(visitor_and_segment, documents), strict=True)
    return visitors, segments


def decision_and_value(document: object) -> tuple[str, float, str | None]:
    """Extract and validate the members of a reward: decision, value and metric."""
    if type(document) is not dict or document.keys() not in (_REWARD_MEMBERS, _REWARD_AND_METRIC):
        raise invalid("body", "an object with `decision`, `value` and, optionally, `metric`")
    decision, value = document["decision"], document["value"]
    if type(decision) is not str or len(decision) > LONGEST_DECISION:
        raise invalid("decision", "the id that a decision came with")
    if type(value) not in (int, float) or not 0 <= value <= LARGEST_REWARD:
        raise invalid("value", "a number from 0 to the metric's cap")
    metric = document.get("metric")
    if metric is not None and (type(metric) is not str or not 0 < len(metric) <= LONGEST_NAME):
        raise invalid("metric", "the name of a metric")
    return decision, value, metric


def items(document: JsonObject, member: str, limit: int) -> list[object]:
    """Extract the only member of a batch: a list of 1 to `limit` items."""
    found = document.get(member)
    if len(document) != 1 or type(found) is not list or not 1 <= len(found) <= limit:
        raise invalid(member, f"a list of 1 to {limit} items, and no other member")
    return found


def invalid(argument: str, allowed: str) -> Problem:
    """Return a 422 problem that does not repeat the value."""
    return Problem(
        422, "invalid-argument", f"{argument}: expected {allowed}", members={"argument": argument}
    )


def padded(body: bytes, arms: Sequence[str], longest: int) -> bytes:
    """Pad JSON with spaces to the length it would have with the longest arm keys.

    Args:
        body: the response body.
        arms: all arm keys in it; keys are ASCII and never escaped.
        longest: the length of the experiment's longest arm key.

    >>> padded(b'{"arm":"b"}', ["b"], 4)
    b'{"arm":"b"}   '
    """
    return body + b" " * (longest * len(arms) - sum(map(len, arms)))
