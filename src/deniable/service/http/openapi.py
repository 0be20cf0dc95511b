"""The OpenAPI document: FastAPI's own, and the hot routes that it does not know."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from deniable.service.http import requests
from deniable.service.http.hot import Limits
from deniable.service.http.models import ProblemReply
from deniable.service.http.ofrep import BULK_PATH, REASON
from deniable.service.http.problems import MEDIA_TYPE

_KEY = {
    "name": "key",
    "in": "path",
    "required": True,
    "description": "The experiment's key.",
    "schema": {"type": "string", "pattern": requests.EXPERIMENT_KEY, "maxLength": 128},
}
_OFREP_CONTEXT = {
    "type": "object",
    "required": ["context"],
    "properties": {
        "context": {
            "type": "object",
            "required": ["targetingKey"],
            "properties": {
                "targetingKey": {"type": "string", "minLength": 1, "maxLength": 512},
                "segment": {"type": ["string", "null"], "maxLength": 512},
            },
        }
    },
}
_OFREP_FLAG = {
    "type": "object",
    "required": ["key", "reason", "variant", "value", "metadata"],
    "properties": {
        "key": {"type": "string"},
        "reason": {"const": REASON},
        "variant": {"type": "string"},
        "value": {"type": "string"},
        "metadata": {
            "type": "object",
            "required": ["decision"],
            "properties": {"decision": {"type": "string"}},
        },
    },
}
_OFREP_ERROR = {
    "type": "object",
    "required": ["errorCode", "errorDetails"],
    "properties": {"errorCode": {"type": "string"}, "errorDetails": {"type": "string"}},
}
_PROBLEM = {"$ref": "#/components/schemas/ProblemReply"}


def document(api: FastAPI, limits: Limits) -> dict[str, Any]:
    """The whole document, made once."""
    if api.openapi_schema is None:
        made = get_openapi(
            title=api.title, version=api.version, description=api.description, routes=api.routes
        )
        components = made.setdefault("components", {}).setdefault("schemas", {})
        components["ProblemReply"] = ProblemReply.model_json_schema()
        components.pop("HTTPValidationError", None)
        components.pop("ValidationError", None)
        made["paths"] = {**_hot_paths(limits), **made["paths"]}
        api.openapi_schema = made
    return api.openapi_schema


def _hot_paths(limits: Limits) -> dict[str, Any]:
    decisions = "/v1/experiments/{key}/decisions"
    return {
        decisions: _post(
            "decide",
            "The arm for a visitor: stored and durable before it is answered.",
            requests.VISITOR_SCHEMA,
            requests.DECISION_SCHEMA,
            keyed=True,
        ),
        f"{decisions}/batch": _post(
            "decide_batch",
            "Decisions for many visitors, in order, in one transaction.",
            _list_of("visitors", requests.VISITOR_SCHEMA, limits.batch),
            _list_of("decisions", requests.DECISION_SCHEMA, limits.batch),
            keyed=True,
        ),
        "/v1/rewards": _post(
            "reward",
            "Count the response to a decision, once. Unknown ids get the same answer.",
            requests.REWARD_SCHEMA,
            None,
        ),
        "/v1/rewards/batch": _post(
            "reward_batch",
            "Count many responses in one transaction.",
            _list_of("rewards", requests.REWARD_SCHEMA, limits.batch),
            None,
        ),
        f"{BULK_PATH}/{{key}}": _post(
            "evaluate_flag", "OFREP: decide.", _OFREP_CONTEXT, _OFREP_FLAG, keyed=True, ofrep=True
        ),
        BULK_PATH: _post(
            "evaluate_flags",
            "OFREP: the stored decisions of a visitor. Never draws one.",
            _OFREP_CONTEXT,
            _list_of("flags", _OFREP_FLAG, None),
            ofrep=True,
        ),
    }


def _list_of(member: str, schema: dict[str, Any], limit: int | None) -> dict[str, Any]:
    items: dict[str, Any] = {"type": "array", "items": schema}
    if limit is not None:
        items.update(minItems=1, maxItems=limit)
    return {
        "type": "object",
        "required": [member],
        "additionalProperties": False,
        "properties": {member: items},
    }


def _post(
    name: str,
    summary: str,
    request: dict[str, Any],
    reply: dict[str, Any] | None,
    *,
    keyed: bool = False,
    ofrep: bool = False,
) -> dict[str, Any]:
    if reply is None:
        responses: dict[str, Any] = {"204": {"description": "Counted, or nothing to count."}}
    else:
        responses = {"200": _response("Answered.", "application/json", reply)}
    for status in (400, 401, 403, *((404,) if keyed else ()), 413, 415, 503):
        responses[str(status)] = (
            _response("Refused.", "application/json", _OFREP_ERROR)
            if ofrep
            else _response("Problem details", MEDIA_TYPE, _PROBLEM)
        )
    if not ofrep:
        responses["422"] = _response("Problem details", MEDIA_TYPE, _PROBLEM)
    operation = {
        "operationId": name,
        "summary": summary,
        "tags": ["openfeature" if ofrep else "decisions"],
        "security": [{"apiKey": []}],
        "parameters": [_KEY] if keyed else [],
        "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
        "responses": responses,
    }
    return {"post": operation}


def _response(description: str, media_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {media_type: {"schema": schema}}}
