"""Decide and reward over HTTP: one dictionary lookup finds the handler, with no framework involved.

Requests are validated by hand, strictly: missing or unknown members and wrong types are rejected before
anything is queued. The OpenAPI document describes the same rules as JSON Schema.

Every response is sent after its transaction is durable. This module passes segments and arms
through without inspecting them, so status, headers and log lines cannot depend on them. Bodies are
padded with spaces, so their length does not reveal the arm.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import orjson

from deniable._types import JsonObject
from deniable.errors import OverloadedError
from deniable.service.http.auth import CALLER, Authenticator, authorization_of
from deniable.service.http.messages import (
    Limits,
    Problem,
    Receive,
    Scope,
    Send,
    header,
    json_answer,
    parse_object,
    read_body,
    send_answer,
)
from deniable.service.http.metrics import ROUTES
from deniable.service.http.ofrep import context_of, evaluation
from deniable.service.ids import INVISIBLE
from deniable.service.limits import LARGEST_REWARD, LONGEST_NAME
from deniable.service.writer import AsyncDecisions
from deniable.storage.records import Decision
from deniable.storage.records import Scope as KeyScope

Ask: TypeAlias = Callable[[str, JsonObject], asyncio.Future[Any]]
Tell: TypeAlias = Callable[[str, Any], bytes]
Decided: TypeAlias = "asyncio.Future[list[Decision]]"
Labelled: TypeAlias = "asyncio.Future[list[str]]"

_EXPERIMENTS = "/v1/experiments/"
_UNOBSERVED = "/v1/unobserved/"
_MASKS = "/v1/masks/"
_FLAGS = "/ofrep/v1/evaluate/flags/"


VISITOR_BYTES = 5_000
"""Bytes of a batch for each visitor: as many as the longest id and listed segment can take in JSON.

So a batch is refused for the number of its visitors, never for the length of their segments.
"""


@dataclass(frozen=True, slots=True)
class DecideRoute:
    """One route.

    Attributes:
        template: path with `{key}`, as shown in logs.
        tally: index in the tally.
        scope: scope that the API key must have.
        ask: submits the decision or reward, given a key and a document.
        tell: builds the body from a key and the result; empty for 204.
        ofrep: whether errors use the OFREP format.
    """

    template: str
    tally: int
    scope: KeyScope
    ask: Ask
    tell: Tell
    ofrep: bool = False


class DecideRoutes:
    """The decide and reward routes of one application.

    Args:
        authenticator: identifies the callers.
        limits: limits on bodies and batches.
    """

    def __init__(self, authenticator: Authenticator, limits: Limits) -> None:
        self._authenticator = authenticator
        self._limits = limits
        self._batch_limits = replace(limits, body=max(limits.body, limits.batch * VISITOR_BYTES))
        self._decisions: AsyncDecisions | None = None
        at = ROUTES.index
        kinds: tuple[tuple[str, KeyScope, bool], ...] = (
            (_EXPERIMENTS, "decide", True),
            (_UNOBSERVED, "unobserved", False),
        )
        self._keyed: dict[str, tuple[DecideRoute, DecideRoute]] = {}
        for path, scope, observed in kinds:
            template = f"{path}{{key}}/decisions"
            ask, ask_many = (
                partial(ask, observed=observed) for ask in (self._decide_one, self._decide_many)
            )
            self._keyed[path] = (
                DecideRoute(template, at("decide"), scope, ask, self._tell_one),
                DecideRoute(
                    f"{template}/batch", at("decide_batch"), scope, ask_many, self._tell_many
                ),
            )
        self._ofrep = DecideRoute(
            f"{_FLAGS}{{key}}",
            at("ofrep"),
            "decide",
            self._decide_flag,
            self._tell_flag,
            ofrep=True,
        )
        labels = f"{_MASKS}{{key}}/labels"
        self._label = DecideRoute(labels, at("label"), "label", self._label_one, self._tell_label)
        self._label_batch = DecideRoute(
            f"{labels}/batch", at("label_batch"), "label", self._label_many, self._tell_labels
        )
        rewards = (
            DecideRoute("/v1/rewards", at("reward"), "reward", self._reward_one, _tell_nothing),
            DecideRoute(
                "/v1/rewards/batch",
                at("reward_batch"),
                "reward",
                self._reward_many,
                _tell_nothing,
            ),
        )
        self._fixed = {route.template: route for route in rewards}

    def connect(self, decisions: AsyncDecisions) -> None:
        """Set where decisions are submitted. Called once the event loop is running."""
        self._decisions = decisions

    def find(self, path: str) -> tuple[DecideRoute, str] | None:
        """Return the route of a path and the key in it, or None if the path is not one of these."""
        for prefix, (one, many) in self._keyed.items():
            if not path.startswith(prefix):
                continue
            rest = path[len(prefix) :]  # an experiment may itself be called "decisions"
            if rest.endswith("/decisions"):
                return one, rest.removesuffix("/decisions")
            if rest.endswith("/decisions/batch"):
                return many, rest.removesuffix("/decisions/batch")
            return None
        route = self._fixed.get(path)
        if route is not None:
            return route, ""
        if path.startswith(_FLAGS):
            return self._ofrep, path[len(_FLAGS) :]
        if path.startswith(_MASKS):
            name, _, rest = path[len(_MASKS) :].partition("/")
            if rest in ("labels", "labels/batch"):
                return self._label if rest == "labels" else self._label_batch, name
        return None

    async def serve(
        self, route: DecideRoute, key: str, scope: Scope, receive: Receive, send: Send
    ) -> int:
        """Answer one request and return its status. Exceptions are reported as problems."""
        if scope["method"] != "POST":
            raise Problem(405, "method", "only POST", headers={"Allow": "POST"})
        caller = await self._authenticator.caller(authorization_of(scope))
        scope[CALLER] = caller.label
        caller.require(route.scope)
        if route.scope == "unobserved" and header(scope, b"origin") is not None:
            raise Problem(403, "browser", "unobserved visits are decided by your server only")
        limits = self._batch_limits if route.template.endswith("/batch") else self._limits
        body = await read_body(scope, receive, limits)
        if self._service.writer.crowded():  # before parsing, because refusing must be cheap
            raise OverloadedError("too many decisions and rewards are queued")
        document = parse_object(body, header(scope, b"content-type"))
        reply = route.tell(key, await route.ask(key, document))
        answer = json_answer(200 if reply else 204, reply)
        await send_answer(send, answer)
        return answer.status

    def _decide_one(self, key: str, document: JsonObject, *, observed: bool = True) -> Decided:
        return self._service.decide(known_key(key), *visits([document]), observed=observed)

    def _tell_one(self, key: str, found: list[Decision]) -> bytes:
        decision, arm = found[0]
        body = orjson.dumps({"decision": decision, "arm": arm})
        return padded(body, (arm,), self._service.longest_arm(key))

    def _decide_many(self, key: str, document: JsonObject, *, observed: bool = True) -> Decided:
        wanted = items(document, "visitors", self._limits.batch)
        return self._service.decide(known_key(key), *visits(wanted), observed=observed)

    def _tell_many(self, key: str, found: list[Decision]) -> bytes:
        body = orjson.dumps({"decisions": [{"decision": i, "arm": arm} for i, arm in found]})
        return padded(body, [arm for _, arm in found], self._service.longest_arm(key))

    def _decide_flag(self, key: str, document: JsonObject) -> Decided:
        visitor, segment, context = context_of(document)
        return self._service.decide(known_key(key), (visitor,), (segment,), (context,))

    def _tell_flag(self, key: str, found: list[Decision]) -> bytes:
        body = orjson.dumps(evaluation(key, found[0]))
        return padded(body, (found[0].arm,) * 2, self._service.longest_arm(key))

    def _label_one(self, name: str, document: JsonObject) -> Labelled:
        visitors, segments, _ = visits((document,))
        return self._service.label(known_mask(name), visitors, segments)

    def _tell_label(self, name: str, found: list[str]) -> bytes:
        return self._padded_labels(name, {"label": found[0]}, found)

    def _label_many(self, name: str, document: JsonObject) -> Labelled:
        visitors, segments, _ = visits(items(document, "visitors", self._limits.batch))
        return self._service.label(known_mask(name), visitors, segments)

    def _tell_labels(self, name: str, found: list[str]) -> bytes:
        return self._padded_labels(name, {"labels": found}, found)

    def _padded_labels(self, name: str, reply: JsonObject, found: list[str]) -> bytes:
        encoded = list(map(orjson.dumps, found))
        longest = max(map(len, map(orjson.dumps, self._service.labels_of(name))), default=0)
        return padded(orjson.dumps(reply), encoded, longest)

    def _reward_one(self, _key: str, document: JsonObject) -> asyncio.Future[None]:
        return self._service.reward((decision_and_value(document),))

    def _reward_many(self, _key: str, document: JsonObject) -> asyncio.Future[None]:
        wanted = items(document, "rewards", self._limits.batch)
        return self._service.reward([decision_and_value(item) for item in wanted])

    @property
    def _service(self) -> AsyncDecisions:
        if self._decisions is None:
            raise Problem(503, "starting", "the service is starting")
        return self._decisions


def _tell_nothing(_key: str, _found: None) -> bytes:
    return b""


# -- what is sent and answered ---------------------------------------------------------------------

EXPERIMENT_KEY = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
LONGEST_DECISION = 64
MASK_NAME = r"^[a-z0-9-]{1,64}$"
_is_key = re.compile(EXPERIMENT_KEY).fullmatch
_is_mask = re.compile(MASK_NAME).fullmatch

NOT_BLANK = "".join(
    (r"[^\s", *(rf"\u{first:04x}-\u{last:04x}" for first, last in INVISIBLE if last < 0x10000), "]")
)
"""Pattern that every visitor id matches: blanks around it and invisible characters are no part of an id.

Without those beyond \\uffff, which dialects of regular expressions write in different ways.
"""

_VISITOR_MEMBERS = frozenset({"visitor", "segment", "context"})
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
        "segment": {"type": ["string", "null"]},
        "context": {"type": ["string", "null"]},
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
LABELLED_SCHEMA: JsonObject = {
    **VISITOR_SCHEMA,
    "properties": {
        "visitor": {
            "type": "string",
            "pattern": "^[!-~]{1,256}$",
            "description": "1 to 256 printable ASCII characters without spaces, compared as they are.",
        },
        "segment": {
            "type": ["string", "null"],
            "description": "The first known one counts; later ones are not looked at.",
        },
    },
}
LABEL_SCHEMA: JsonObject = {"type": "string", "description": "The visitor's label for life."}
DECISION_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["decision", "arm"],
    "additionalProperties": False,
    "properties": {
        "decision": {"type": "string", "description": "Opaque; names it when its reward comes."},
        "arm": {"type": "string", "description": "The key of the arm to show."},
    },
}


def known_key(key: str) -> str:
    """Return the key if it is a valid experiment key; raise a 404 problem otherwise."""
    if _is_key(key) is None:
        raise Problem(404, "unknown-name", "there is no such experiment")
    return key


def visits(documents: Sequence[Any]) -> tuple[Sequence[Any], ...]:
    """Return visitors, segments and contexts. The service validates their values."""
    for document in documents:
        if type(document) is not dict or not document.keys() <= _VISITOR_MEMBERS:
            allowed = "an object with the member `visitor` and, optionally, `segment` and `context`"
            raise _invalid("body", allowed)
    # Not tuples of each: one list by member is faster.
    return (
        [document.get("visitor") for document in documents],
        [document.get("segment") for document in documents],
        [document.get("context") for document in documents],
    )


def known_mask(name: str) -> str:
    """Return the name if it is a valid name of a mask; raise a 404 problem otherwise."""
    if _is_mask(name) is None:
        raise Problem(404, "unknown-name", "there is no such mask")
    return name


def decision_and_value(document: object) -> tuple[str, float, str | None]:
    """Extract and validate the members of a reward: decision, value and metric."""
    if type(document) is not dict or document.keys() not in (_REWARD_MEMBERS, _REWARD_AND_METRIC):
        raise _invalid("body", "an object with `decision`, `value` and, optionally, `metric`")
    decision, value = document["decision"], document["value"]
    if type(decision) is not str or len(decision) > LONGEST_DECISION:
        raise _invalid("decision", "the id that a decision came with")
    if type(value) not in (int, float) or not 0 <= value <= LARGEST_REWARD:
        raise _invalid("value", "a number from 0 to the metric's cap")
    metric = document.get("metric")
    if metric is not None and (type(metric) is not str or not 0 < len(metric) <= LONGEST_NAME):
        raise _invalid("metric", "the name of a metric")
    return decision, value, metric


def items(document: JsonObject, member: str, limit: int) -> list[object]:
    """Extract the only member of a batch: a list of 1 to `limit` items."""
    found = document.get(member)
    if len(document) != 1 or type(found) is not list or not 1 <= len(found) <= limit:
        raise _invalid(member, f"a list of 1 to {limit} items, and no other member")
    return found


def _invalid(argument: str, allowed: str) -> Problem:
    """Return a 422 problem that does not repeat the value."""
    return Problem(
        422, "invalid-argument", f"{argument}: expected {allowed}", members={"argument": argument}
    )


def padded(body: bytes, arms: Sequence[str | bytes], longest: int) -> bytes:
    """Pad JSON with spaces to the length it would have with the longest arm keys, or labels.

    Args:
        body: the response body.
        arms: all arm keys in it, which are ASCII and never escaped; or labels, encoded.
        longest: the length of the experiment's longest arm key, or of the mask's longest label.

    >>> padded(b'{"arm":"b"}', ["b"], 4)
    b'{"arm":"b"}   '
    """
    return body + b" " * (longest * len(arms) - sum(map(len, arms)))
