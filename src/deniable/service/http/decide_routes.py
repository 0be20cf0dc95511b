"""Decide and reward over HTTP: one dictionary lookup finds the handler, with no framework involved.

Every response is sent after its transaction is durable. This module passes segments and arms
through without inspecting them, so status, headers and log lines cannot depend on them. Bodies are
padded with spaces, so their length does not reveal the arm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import orjson

from deniable._types import JsonObject
from deniable.errors import OverloadedError
from deniable.service.asynchronous import AsyncDecisions
from deniable.service.http.auth import Authenticator, Caller
from deniable.service.http.messages import (
    Answer,
    Limits,
    Receive,
    Scope,
    Send,
    authorization_of,
    decision_and_value,
    header,
    items,
    json_answer,
    known_key,
    padded,
    parse_object,
    read_body,
    send_answer,
    visitor_and_segment,
    visitors_and_segments,
)
from deniable.service.http.metrics import ROUTES
from deniable.service.http.ofrep import context_of, evaluation
from deniable.service.http.problems import Problem
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
        if self._service.crowded(caller, max(1, size)):
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
