"""Decide and reward over HTTP: one dictionary lookup to the handler, no framework on the way.

Every answer is sent after its transaction is durable. Nothing here looks at a segment or an arm
beyond handing it on, so status, headers and log lines cannot differ by them; bodies are padded with
blanks, so that their length does not tell the arm.
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
        template: its path with `{key}`; what logs show.
        tally: its position in the tally.
        scope: what the API key must be allowed to do.
        ask: decides or rewards, for a key, a document and a caller's id.
        tell: the body for a key and what came of it; empty for 204.
        ofrep: whether errors have the shape of OFREP.
        items: the member that holds a batch; None: the route is for one visitor or reward.
    """

    template: str
    tally: int
    scope: KeyScope
    ask: Ask
    tell: Tell
    ofrep: bool = False
    items: str | None = None


class Asked(NamedTuple):
    """A request that waits for the store.

    Attributes:
        route: its route.
        key: the key in its path.
        outcome: what came of it, for `told`.
    """

    route: DecideRoute
    key: str
    outcome: asyncio.Future[Any]


class DecideRoutes:
    """The decide and reward routes of one application.

    Args:
        authenticator: knows the callers.
        limits: on bodies and batches.
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
        """Where to decide; known once the event loop runs."""
        self._decisions = decisions

    def find(self, path: str) -> tuple[DecideRoute, str] | None:
        """The route of a path and the key in it, or None if it is not one of these."""
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
        """Answer one request and return the status; raises what is to be told as a problem."""
        if scope["method"] != "POST":
            raise Problem(405, "method", "only POST", headers={"Allow": "POST"})
        caller = await self._authenticator.caller(authorization_of(scope))
        # A scratch copy answers nobody but auditors; whether there is one makes no difference.
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
            self._refuse_if_crowded(caller.id, 1)  # before it is parsed: refusing must cost little
        document = parse_object(body, header(scope, b"content-type"))
        if route.items is not None:  # counted, not guessed: a guess could depend on segments' names
            given = document.get(route.items)
            self._refuse_if_crowded(caller.id, len(given) if isinstance(given, list) else 1)
        return route.ask(key, document, caller.id)

    def _refuse_if_crowded(self, caller: str, size: int) -> None:
        if self._service.crowded(caller, max(1, size)):
            raise OverloadedError("too many decisions and rewards are waiting")

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
    """The answer for what came of a request."""
    body = route.tell(key, found)
    return json_answer(200 if body else 204, body)


def _tell_nothing(_key: str, _found: None) -> bytes:
    return b""
