"""OFREP, the OpenFeature Remote Evaluation Protocol: an experiment is a flag, its arm the variant.

The targeting key is the visitor, the context's `segment` the segment. The reason is the same for
everybody and the metadata holds only the decision's id, which the reward needs. Bulk evaluation
tells the decisions that are stored and never draws: asking for all flags must not enrol a visitor.
"""

from __future__ import annotations

import orjson

from deniable._types import JsonObject
from deniable.service.http.problems import Problem
from deniable.service.jobs import LONGEST_NAME, checked_segment
from deniable.storage.records import Decision

REASON = "SPLIT"
"""OpenFeature's reason for a pseudorandom assignment."""

BULK_PATH = "/ofrep/v1/evaluate/flags"

_ERROR_CODES = {404: "FLAG_NOT_FOUND", 400: "PARSE_ERROR", 422: "INVALID_CONTEXT"}


def evaluation(key: str, decision: Decision) -> JsonObject:
    """A successful evaluation.

    >>> evaluation("checkout", Decision("0a", "new"))["variant"]
    'new'
    """
    return {
        "key": key,
        "reason": REASON,
        "variant": decision.arm,
        "value": decision.arm,
        "metadata": {"decision": decision.id},
    }


def context_of(document: JsonObject) -> tuple[str, str | None]:
    """Visitor and segment of an evaluation request; other members of the context do not matter."""
    context = document.get("context")
    if type(context) is not dict:
        raise Problem(422, "invalid-argument", "context: expected an object")
    visitor = context.get("targetingKey")
    if visitor is None or visitor == "":
        raise Problem(400, "targeting-key", "context.targetingKey: expected the visitor's id")
    if type(visitor) is not str or len(visitor) > LONGEST_NAME:
        raise Problem(
            422,
            "invalid-argument",
            f"context.targetingKey: expected up to {LONGEST_NAME} characters",
        )
    return visitor, checked_segment(context.get("segment"))


def refusal(key: str | None, problem: Problem) -> tuple[int, bytes]:
    """Status and body of a failed evaluation: OFREP has its own, and knows 400 but not 422."""
    code = _ERROR_CODES.get(problem.status, "GENERAL")
    if problem.code == "targeting-key":
        code = "TARGETING_KEY_MISSING"
    body: JsonObject = {"errorCode": code, "errorDetails": problem.detail}
    if key is not None:
        body = {"key": key, **body}
    return 400 if problem.status == 422 else problem.status, orjson.dumps(body)
