"""OFREP, the OpenFeature Remote Evaluation Protocol: an experiment is a flag, its arm the variant.

The targeting key is the visitor, and the context's `segment` and `context` are what a decision
needs. The reason is the same for everyone, and the metadata contains only the decision's id, which is
needed for rewards. Bulk evaluation returns stored decisions and never draws, so that asking for all
flags does not enrol a visitor. Experiments for unobserved visits are not flags.
"""

from __future__ import annotations

import orjson

from deniable._types import JsonObject
from deniable.service.http.messages import Problem
from deniable.service.jobs import checked_segment
from deniable.service.limits import LONGEST_NAME
from deniable.storage.records import Decision

REASON = "SPLIT"
"""OpenFeature's reason for a pseudorandom assignment."""

BULK_PATH = "/ofrep/v1/evaluate/flags"

_ERROR_CODES = {404: "FLAG_NOT_FOUND", 400: "PARSE_ERROR", 422: "INVALID_CONTEXT"}


def evaluation(key: str, decision: Decision) -> JsonObject:
    """Return a successful evaluation.

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


def context_of(document: JsonObject) -> tuple[str, str | None, str | None]:
    """Return visitor, segment and context of an evaluation request. Other members are ignored."""
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
    named = checked_segment(context.get("context"), "context")
    return visitor, checked_segment(context.get("segment")), named


def refusal(key: str | None, problem: Problem) -> tuple[int, bytes]:
    """Return status and body of a failed evaluation, in OFREP's format, with 400 instead of 422."""
    code = _ERROR_CODES.get(problem.status, "GENERAL")
    if problem.code == "targeting-key":
        code = "TARGETING_KEY_MISSING"
    body: JsonObject = {"errorCode": code, "errorDetails": problem.detail}
    if key is not None:
        body = {"key": key, **body}
    return 400 if problem.status == 422 else problem.status, orjson.dumps(body)
