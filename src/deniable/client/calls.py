"""What both clients share: requests as data, parsing of responses, and retries.

Every call can be repeated safely: a visitor's decision is stored once, and a reward counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

import httpx2 as httpx

from deniable._types import JsonObject
from deniable.errors import DeniableError
from deniable.storage.records import Decision

T = TypeVar("T")

LONGEST_WAIT_SECONDS = 5.0


class ServiceError(DeniableError):
    """The service refused a call, or could not be reached after all attempts.

    Attributes:
        status: the HTTP status, or None without a response.
        code: the kind of problem, for use in programs.
    """

    def __init__(self, status: int | None, code: str, detail: str) -> None:
        self.status = status
        self.code = code
        super().__init__(detail if status is None else f"{status} {code}: {detail}")


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request and how to parse its response."""

    path: str
    body: JsonObject
    read: Callable[[Any], T]


def decide(
    experiment: str, visitor: str, segment: str | None, context: str | None, observed: bool
) -> Call[Decision]:
    """Request one decision."""
    body = _visit(visitor, segment, context)
    return Call(_decisions(experiment, observed), body, _decision)


def decide_batch(
    experiment: str,
    visitors: Sequence[tuple[str, str | None]],
    contexts: Sequence[str | None] | None,
    observed: bool,
) -> Call[list[Decision]]:
    """Request many decisions, in order."""
    named = [None] * len(visitors) if contexts is None else contexts
    visits = [_visit(*pair, context) for pair, context in zip(visitors, named, strict=True)]
    path = f"{_decisions(experiment, observed)}/batch"
    return Call(
        path,
        {"visitors": visits},
        lambda answer: [_decision(item) for item in answer["decisions"]],
    )


def _decisions(experiment: str, observed: bool) -> str:
    kind = "experiments" if observed else "unobserved"
    return f"/v1/{kind}/{quote(experiment, safe='')}/decisions"


def _visit(visitor: str, segment: str | None, context: str | None) -> JsonObject:
    body = {"visitor": visitor, "segment": segment}
    return body if context is None else {**body, "context": context}


def label(mask: str, visitor: str, segment: str | None) -> Call[str]:
    """Request one label."""
    path = f"/v1/masks/{quote(mask, safe='')}/labels"
    return Call(path, {"visitor": visitor, "segment": segment}, lambda answer: answer["label"])


def label_batch(mask: str, visitors: Iterable[tuple[str, str | None]]) -> Call[list[str]]:
    """Request many labels, in order."""
    path = f"/v1/masks/{quote(mask, safe='')}/labels/batch"
    return Call(path, _visitors(visitors), lambda answer: answer["labels"])


Reward: TypeAlias = tuple[str, float] | tuple[str, float, str | None]
"""(decision, value), or (decision, value, metric)."""


def reward(decision: str, value: float, metric: str | None) -> Call[None]:
    """Send one reward."""
    return Call("/v1/rewards", _reward((decision, value, metric)), _nothing)


def reward_batch(rewards: Iterable[Reward]) -> Call[None]:
    """Send many rewards."""
    return Call("/v1/rewards/batch", {"rewards": [_reward(one) for one in rewards]}, _nothing)


def stored(visitor: str, context: str | None) -> Call[dict[str, Decision]]:
    """Request the visitor's stored decisions, by experiment. Never draws."""
    body = {"context": {"targetingKey": visitor, "context": context}}
    return Call("/ofrep/v1/evaluate/flags", body, _flags)


def answer(call: Call[T], response: httpx.Response) -> T:
    """Return the call's result, or raise ServiceError if it was refused."""
    if response.is_success:
        return call.read(response.json() if response.content else None)
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    code = str(problem.get("type", problem.get("errorCode", "unknown"))).rpartition(":")[2]
    detail = problem.get("detail", problem.get("errorDetails", response.reason_phrase))
    raise ServiceError(response.status_code, code, str(detail))


def pause(attempt: int, response: httpx.Response | None) -> float:
    """Return seconds until the next attempt: as the service requests, else 50 ms, 100 ms, 200 ms, ...

    >>> [pause(attempt, None) for attempt in (0, 1, 2)]
    [0.05, 0.1, 0.2]
    """
    asked = response.headers.get("retry-after", "") if response is not None else ""
    wanted = float(asked) if asked.isdigit() else 0.05 * 2**attempt
    return min(wanted, LONGEST_WAIT_SECONDS)


def worth_repeating(response: httpx.Response) -> bool:
    """Whether the failure is temporary."""
    return response.status_code in (502, 503, 504)


def unreachable(error: httpx.TransportError) -> ServiceError:
    """Return the error after the last attempt."""
    return ServiceError(None, "unreachable", f"no answer: {type(error).__name__}")


def _visitors(visitors: Iterable[tuple[str, str | None]]) -> JsonObject:
    return {"visitors": [{"visitor": name, "segment": segment} for name, segment in visitors]}


def _reward(given: Reward) -> JsonObject:
    body: JsonObject = {"decision": given[0], "value": given[1]}
    if len(given) > 2 and given[2] is not None:
        body["metric"] = given[2]
    return body


def _decision(found: JsonObject) -> Decision:
    return Decision(found["decision"], found["arm"])


def _flags(found: JsonObject) -> dict[str, Decision]:
    return {
        flag["key"]: Decision(flag["metadata"]["decision"], flag["variant"])
        for flag in found["flags"]
    }


def _nothing(_found: object) -> None:
    return None
