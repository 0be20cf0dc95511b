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
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import orjson

from deniable._types import JsonObject
from deniable.errors import OverloadedError
from deniable.service.http.auth import Authenticator, Caller, authorization_of
from deniable.service.http.messages import (
    Answer,
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
from deniable.storage.records import SCRATCH_PREFIX, Decision
from deniable.storage.records import Scope as KeyScope

Ask: TypeAlias = Callable[[str, JsonObject, str], asyncio.Future[Any]]
Tell: TypeAlias = Callable[[str, Any], bytes]
Decided: TypeAlias = "asyncio.Future[list[Decision]]"

_EXPERIMENTS = "/v1/experiments/"
_FLAGS = "/ofrep/v1/evaluate/flags/"


@dataclass(frozen=True, slots=True)
class DecideRoute:
    """One route.

    Attributes:
        template: path with `{key}`, as shown in logs.
        tally: index in the tally.
        scope: scope that the API key must have.
        ask: submits the decision or reward, given a key, a document and a caller's id.
        tell: builds the body from a key and the result; empty for 204.
        ofrep: whether errors use the OFREP format.
        items: name of the member with the batch; None if the route takes a single visitor or
            reward.
    """

    template: str
    tally: int
    scope: KeyScope
    ask: Ask
    tell: Tell
    ofrep: bool = False
    items: str | None = None


class Asked(NamedTuple):
    """A request that is waiting for the store.

    Attributes:
        route: the route.
        key: the key in the path.
        outcome: future with the result, for `told`.
    """

    route: DecideRoute
    key: str
    outcome: asyncio.Future[Any]


class DecideRoutes:
    """The decide and reward routes of one application.

    Args:
        authenticator: identifies the callers.
        limits: limits on bodies and batches.
    """

    def __init__(self, authenticator: Authenticator, limits: Limits) -> None:
        self._authenticator = authenticator
        self._limits = limits
        self._decisions: AsyncDecisions | None = None
        at = ROUTES.index
        decisions = f"{_EXPERIMENTS}{{key}}/decisions"
        self._decide = DecideRoute(
            decisions, at("decide"), "decide", self._decide_one, self._tell_one
        )
        self._decide_batch = DecideRoute(
            f"{decisions}/batch",
            at("decide_batch"),
            "decide",
            self._decide_many,
            self._tell_many,
            items="visitors",
        )
        self._ofrep = DecideRoute(
            f"{_FLAGS}{{key}}",
            at("ofrep"),
            "decide",
            self._decide_flag,
            self._tell_flag,
            ofrep=True,
        )
        rewards = (
            DecideRoute("/v1/rewards", at("reward"), "reward", self._reward_one, _tell_nothing),
            DecideRoute(
                "/v1/rewards/batch",
                at("reward_batch"),
                "reward",
                self._reward_many,
                _tell_nothing,
                items="rewards",
            ),
        )
        self._fixed = {route.template: route for route in rewards}

    def connect(self, decisions: AsyncDecisions) -> None:
        """Set where decisions are submitted. Called once the event loop is running."""
        self._decisions = decisions

    def find(self, path: str) -> tuple[DecideRoute, str] | None:
        """Return the route of a path and the key in it, or None if the path is not one of these."""
        if path.startswith(_EXPERIMENTS):
            rest = path[len(_EXPERIMENTS) :]  # an experiment may itself be called "decisions"
            if rest.endswith("/decisions"):
                return self._decide, rest.removesuffix("/decisions")
            if rest.endswith("/decisions/batch"):
                return self._decide_batch, rest.removesuffix("/decisions/batch")
            return None
        route = self._fixed.get(path)
        if route is not None:
            return route, ""
        if path.startswith(_FLAGS):
            return self._ofrep, path[len(_FLAGS) :]
        return None

    async def serve(
        self, route: DecideRoute, key: str, scope: Scope, receive: Receive, send: Send
    ) -> int:
        """Answer one request and return its status. Exceptions are reported as problems."""
        if scope["method"] != "POST":
            raise Problem(405, "method", "only POST", headers={"Allow": "POST"})
        caller = await self._authenticator.caller(authorization_of(scope))
        # Only auditors may use scratch copies. The check does not depend on whether the copy
        # exists.
        caller.require("audit" if key.startswith(SCRATCH_PREFIX) else route.scope)
        body = await read_body(scope, receive, self._limits.body)
        asked = self._asked(route, key, caller, body, scope)
        answer = told(route, key, await asked)
        await send_answer(send, answer)
        return answer.status

    def ask_at_once(self, path: str, scope: Scope, body: bytes) -> Asked | None:
        """Ask for what a request wants, where nothing has to be waited for.

        Returns None, and has done nothing, where `serve` has to look at the request: another route, a
        caller who is not remembered, or anything that is to be told as a problem. Overload is told at
        once too: there is no time to parse a batch twice in order to refuse it.
        """
        found = self.find(path)
        if found is None or len(body) > self._limits.body:
            return None
        route, key = found
        try:
            caller = self._authenticator.remembered(authorization_of(scope))
            if caller is None or route.scope not in caller.scopes or key.startswith(SCRATCH_PREFIX):
                return None
            return Asked(route, key, self._asked(route, key, caller, body, scope))
        except OverloadedError as error:
            return Asked(route, key, self._service.refused(error))
        except Exception:  # noqa: BLE001 - it happens again in `serve`, where it is told
            return None

    def _asked(
        self, route: DecideRoute, key: str, caller: Caller, body: bytes, scope: Scope
    ) -> asyncio.Future[Any]:
        if route.items is None:
            self._refuse_if_crowded(caller.id, 1)  # before parsing, because refusing must be cheap
        document = parse_object(body, header(scope, b"content-type"))
        if route.items is not None:  # count exactly: an estimate could depend on segment names
            given = document.get(route.items)
            self._refuse_if_crowded(caller.id, len(given) if isinstance(given, list) else 1)
        return route.ask(key, document, caller.id)

    def _refuse_if_crowded(self, caller: str, size: int) -> None:
        if self._service.writer.crowded(caller, max(1, size)):
            raise OverloadedError("too many decisions and rewards are queued")

    def _decide_one(self, key: str, document: JsonObject, caller: str) -> Decided:
        visitor, segment = visitor_and_segment(document)
        return self._service.decide(known_key(key), (visitor,), (segment,), caller)

    def _tell_one(self, key: str, found: list[Decision]) -> bytes:
        decision, arm = found[0]
        body = orjson.dumps({"decision": decision, "arm": arm})
        return padded(body, (arm,), self._service.longest_arm(key))

    def _decide_many(self, key: str, document: JsonObject, caller: str) -> Decided:
        wanted = items(document, "visitors", self._limits.batch)
        visitors, segments = visitors_and_segments(wanted)
        return self._service.decide(known_key(key), visitors, segments, caller)

    def _tell_many(self, key: str, found: list[Decision]) -> bytes:
        body = orjson.dumps({"decisions": [{"decision": i, "arm": arm} for i, arm in found]})
        return padded(body, [arm for _, arm in found], self._service.longest_arm(key))

    def _decide_flag(self, key: str, document: JsonObject, caller: str) -> Decided:
        visitor, segment = context_of(document)
        return self._service.decide(known_key(key), (visitor,), (segment,), caller)

    def _tell_flag(self, key: str, found: list[Decision]) -> bytes:
        body = orjson.dumps(evaluation(key, found[0]))
        return padded(body, (found[0].arm,) * 2, self._service.longest_arm(key))

    def _reward_one(self, _key: str, document: JsonObject, caller: str) -> asyncio.Future[None]:
        return self._service.reward((decision_and_value(document),), caller)

    def _reward_many(self, _key: str, document: JsonObject, caller: str) -> asyncio.Future[None]:
        wanted = items(document, "rewards", self._limits.batch)
        return self._service.reward([decision_and_value(item) for item in wanted], caller)

    @property
    def _service(self) -> AsyncDecisions:
        if self._decisions is None:
            raise Problem(503, "starting", "the service is starting")
        return self._decisions


def told(route: DecideRoute, key: str, found: object) -> Answer:
    """Build the response from the result of a request."""
    body = route.tell(key, found)
    return json_answer(200 if body else 204, body)


def _tell_nothing(_key: str, _found: None) -> bytes:
    return b""


# -- what is sent and answered ---------------------------------------------------------------------

EXPERIMENT_KEY = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
SCRATCH_KEY = rf"^{SCRATCH_PREFIX}[0-9a-f]{{16}}$"
LONGEST_DECISION = 64
_is_key = re.compile(f"{EXPERIMENT_KEY}|{SCRATCH_KEY}").fullmatch

NOT_BLANK = "".join(
    (r"[^\s", *(rf"\u{first:04x}-\u{last:04x}" for first, last in INVISIBLE if last < 0x10000), "]")
)
"""Pattern that every visitor id matches: blanks around it and invisible characters are no part of an id.

Without those beyond \\uffff, which dialects of regular expressions write in different ways.
"""

_VISITOR_MEMBERS = frozenset({"visitor", "segment"})
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


def known_key(key: str) -> str:
    """Return the key if it is a valid experiment key; raise a 404 problem otherwise."""
    if _is_key(key) is None:
        raise Problem(404, "unknown-name", "there is no such experiment")
    return key


def visitor_and_segment(document: object) -> tuple[Any, Any]:
    """Extract the members of a decision request. The service validates their values."""
    if type(document) is not dict or not document.keys() <= _VISITOR_MEMBERS:
        raise _invalid("body", "an object with the members `visitor` and, optionally, `segment`")
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
