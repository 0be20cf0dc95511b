"""What the hot routes accept: strict checks by hand, and the same as JSON Schema for the OpenAPI.

A member that is missing, unknown or of another type is refused before anything is queued.
"""

from __future__ import annotations

import re
from typing import Any

from deniable.service.http.problems import Problem
from deniable.service.jobs import LARGEST_REWARD, LONGEST_NAME

EXPERIMENT_KEY = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
LONGEST_DECISION = 64

_is_key = re.compile(EXPERIMENT_KEY).fullmatch
_VISITOR_MEMBERS = frozenset({"visitor", "segment"})
_REWARD_MEMBERS = frozenset({"decision", "value"})
_REWARD_AND_METRIC = frozenset({"decision", "value", "metric"})

VISITOR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["visitor"],
    "additionalProperties": False,
    "properties": {
        "visitor": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME},
        "segment": {"type": ["string", "null"], "maxLength": LONGEST_NAME},
    },
}
REWARD_SCHEMA: dict[str, Any] = {
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
DECISION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["decision", "arm"],
    "additionalProperties": False,
    "properties": {
        "decision": {"type": "string", "description": "Opaque; names it when its reward comes."},
        "arm": {"type": "string", "description": "The key of the arm to show."},
    },
}


def known_key(key: str) -> str:
    """The key, if an experiment may be called so; else the problem 404."""
    if _is_key(key) is None:
        raise Problem(404, "unknown-name", "there is no such experiment")
    return key


def visitor_and_segment(document: Any) -> tuple[Any, Any]:
    """The members of one request for a decision; the service checks their values."""
    if type(document) is not dict or not document.keys() <= _VISITOR_MEMBERS:
        raise invalid("body", "an object with the members `visitor` and, optionally, `segment`")
    return document.get("visitor"), document.get("segment")


def decision_and_value(document: Any) -> tuple[str, float, str | None]:
    """The members of one reward: decision, value and metric."""
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


def items(document: dict[str, Any], member: str, limit: int) -> list[Any]:
    """The only member of a batch: a list of 1 to `limit` items."""
    found = document.get(member)
    if len(document) != 1 or type(found) is not list or not 1 <= len(found) <= limit:
        raise invalid(member, f"a list of 1 to {limit} items, and no other member")
    return found


def invalid(argument: str, allowed: str) -> Problem:
    """The problem 422, without the value."""
    return Problem(
        422, "invalid-argument", f"{argument}: expected {allowed}", members={"argument": argument}
    )
