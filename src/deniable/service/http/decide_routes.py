"""Decide and reward over HTTP: one dictionary lookup to the handler, no framework on the way.

Every answer is sent after its transaction is durable. Nothing here looks at a segment or an arm
beyond handing it on, so status, headers and log lines cannot differ by them; bodies are padded with
blanks, so that their length does not tell the arm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

import orjson

from deniable._types import JsonObject
from deniable.errors import OverloadedError
from deniable.service.asynchronous import AsyncDecisions
from deniable.service.http.auth import Authenticator
from deniable.service.http.messages import (
    Limits,
    Receive,
    Scope,
    Send,
    authorization_of,
    decision_and_value,
    header,
    items,
    known_key,
    padded,
    parse_object,
    read_body,
    send_json,
    visitor_and_segment,
)
from deniable.service.http.metrics import ROUTES
from deniable.service.http.ofrep import context_of, evaluation
from deniable.service.http.problems import Problem
from deniable.storage.records import SCRATCH_PREFIX
from deniable.storage.records import Scope as KeyScope

Answer: TypeAlias = Callable[[str, JsonObject, str], Awaitable[bytes]]

_EXPERIMENTS = "/v1/experiments/"
_FLAGS = "/ofrep/v1/evaluate/flags/"


@dataclass(frozen=True, slots=True)
class DecideRoute:
    """One route.

    Attributes:
        template: its path with `{key}`; what logs show.
        tally: its position in the tally.
        scope: what the API key must be allowed to do.
        answer: the body for a key, a document and a caller's id; empty for 204.
        ofrep: whether errors have the shape of OFREP.
        items: the member that holds a batch; None: the route is for one visitor or reward.
    """

    template: str
    tally: int
    scope: KeyScope
    answer: Answer
    ofrep: bool = False
    items: str | None = None


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
        self._decide = DecideRoute(decisions, at("decide"), "decide", self._one_decision)
        self._decide_batch = DecideRoute(
            f"{decisions}/batch",
            at("decide_batch"),
            "decide",
            self._many_decisions,
            items="visitors",
        )
        self._ofrep = DecideRoute(
            f"{_FLAGS}{{key}}", at("ofrep"), "decide", self._one_flag, ofrep=True
        )
        rewards = (
            DecideRoute("/v1/rewards", at("reward"), "reward", self._one_reward),
            DecideRoute(
                "/v1/rewards/batch",
                at("reward_batch"),
                "reward",
                self._many_rewards,
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
        if route.items is None:
            self._refuse_if_crowded(caller.id, 1)  # before it is parsed: refusing must cost little
        document = parse_object(body, header(scope, b"content-type"))
        if route.items is not None:  # counted, not guessed: a guess could depend on segments' names
            given = document.get(route.items)
            self._refuse_if_crowded(caller.id, len(given) if isinstance(given, list) else 1)
        answered = await route.answer(key, document, caller.id)
        status = 200 if answered else 204
        await send_json(send, status, answered)
        return status

    def _refuse_if_crowded(self, caller: str, size: int) -> None:
        if self._service.crowded(caller, max(1, size)):
            raise OverloadedError("too many decisions and rewards are waiting")

    async def _one_decision(self, key: str, document: JsonObject, caller: str) -> bytes:
        visitor, segment = visitor_and_segment(document)
        found = await self._service.decide(known_key(key), (visitor,), (segment,), caller)
        decision, arm = found[0]
        body = orjson.dumps({"decision": decision, "arm": arm})
        return padded(body, [arm], self._service.longest_arm(key))

    async def _many_decisions(self, key: str, document: JsonObject, caller: str) -> bytes:
        wanted = items(document, "visitors", self._limits.batch)
        visitors, segments = zip(*map(visitor_and_segment, wanted), strict=True)
        found = await self._service.decide(known_key(key), visitors, segments, caller)
        body = orjson.dumps({"decisions": [{"decision": i, "arm": arm} for i, arm in found]})
        return padded(body, [arm for _, arm in found], self._service.longest_arm(key))

    async def _one_reward(self, _key: str, document: JsonObject, caller: str) -> bytes:
        await self._service.reward((decision_and_value(document),), caller)
        return b""

    async def _many_rewards(self, _key: str, document: JsonObject, caller: str) -> bytes:
        wanted = items(document, "rewards", self._limits.batch)
        await self._service.reward([decision_and_value(item) for item in wanted], caller)
        return b""

    async def _one_flag(self, key: str, document: JsonObject, caller: str) -> bytes:
        visitor, segment = context_of(document)
        found = await self._service.decide(known_key(key), (visitor,), (segment,), caller)
        body = orjson.dumps(evaluation(key, found[0]))
        return padded(body, [found[0].arm] * 2, self._service.longest_arm(key))

    @property
    def _service(self) -> AsyncDecisions:
        if self._decisions is None:
            raise Problem(503, "starting", "the service is starting")
        return self._decisions
