"""The FastAPI application: administration, bulk OFREP, health, metrics, error handling, OpenAPI."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.metadata import version

import orjson
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from deniable._types import JsonObject
from deniable.errors import DeniableError
from deniable.service.http import (
    administration,
    metrics,
    ofrep,
    plan_routes,
)
from deniable.service.http.auth import Authenticator, Service, require
from deniable.service.http.decide_routes import (
    DECISION_SCHEMA,
    EXPERIMENT_KEY,
    LABEL_SCHEMA,
    LABELLED_SCHEMA,
    MASK_NAME,
    NOT_BLANK,
    REWARD_SCHEMA,
    VISITOR_SCHEMA,
)
from deniable.service.http.messages import MEDIA_TYPE, Limits, Problem, parse_object, problem_of
from deniable.service.http.models import HealthReply, ProblemReply
from deniable.service.limits import LONGEST_EXPERIMENT_KEY, LONGEST_NAME
from deniable.service.service import Deniable

_KEY: JsonObject = {
    "name": "key",
    "in": "path",
    "required": True,
    "description": "The experiment's key.",
    "schema": {"type": "string", "pattern": EXPERIMENT_KEY, "maxLength": LONGEST_EXPERIMENT_KEY},
}
_MASK: JsonObject = {
    "name": "key",
    "in": "path",
    "required": True,
    "description": "The mask's name.",
    "schema": {"type": "string", "pattern": MASK_NAME},
}
_OFREP_CONTEXT = {
    "type": "object",
    "required": ["context"],
    "properties": {
        "context": {
            "type": "object",
            "required": ["targetingKey"],
            "properties": {
                "targetingKey": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": LONGEST_NAME,
                    "pattern": NOT_BLANK,
                },
                "segment": {"type": ["string", "null"]},
            },
        }
    },
}
_OFREP_FLAG = {
    "type": "object",
    "required": ["key", "reason", "variant", "value", "metadata"],
    "properties": {
        "key": {"type": "string"},
        "reason": {"const": ofrep.REASON},
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

STORE_MEMORY_SECONDS = 1.0
"""How long a `/storez` result is cached: the route is public, and each check costs a transaction."""

HEALTH_PATHS = frozenset({"/healthz", "/readyz", "/storez", "/metrics"})
"""Paths that are answered however busy the service is."""

operation = APIRouter(tags=["operation"])
flags = APIRouter(tags=["openfeature"])


def make_api(
    service: Deniable,
    authenticator: Authenticator,
    tally: metrics.Tally,
    limits: Limits,
    extra_routers: Sequence[APIRouter],
) -> FastAPI:
    """Create the application with all routers. No interactive docs, which would load external files."""
    api = FastAPI(
        title="Deniable",
        version=version("deniable"),
        description="Experiments whose shown arm keeps every visitor's segment deniable.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Newer FastAPI releases export paths, queries and error messages if the process has a
        # tracer provider.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    api.state.service = service
    api.state.authenticator = authenticator
    api.state.tally = tally
    api.state.schema_problem = None
    api.state.store_check = StoreCheck(service)
    for router in (operation, flags, *administration.ROUTERS, plan_routes.router, *extra_routers):
        # Not included: FastAPI makes included routes a second time at the first request, all of them.
        api.router.routes.extend(router.routes)
    api.add_exception_handler(DeniableError, _told)
    api.add_exception_handler(Problem, _told)
    api.add_exception_handler(HTTPException, _http_error)
    api.add_exception_handler(RequestValidationError, _not_valid)
    api.openapi = lambda: _document(api, limits)  # type: ignore[method-assign]
    return api


@operation.get("/healthz")
async def health() -> HealthReply:
    """Whether this process responds."""
    return HealthReply()


class StoreCheck:
    """Checks whether the store takes decisions, at most once a second and in one thread at a time.

    Args:
        service: the service.
    """

    def __init__(self, service: Deniable) -> None:
        self._service = service
        self._asking: asyncio.Future[bool] | None = None
        self._answer = False
        self._asked_at = float("-inf")

    async def passes(self) -> bool:
        """Return the result, at most a second old."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._asked_at < STORE_MEMORY_SECONDS:
            return self._answer
        if self._asking is None:
            self._asking = asyncio.ensure_future(asyncio.to_thread(self._service.ready))
            self._asking.add_done_callback(self._keep)
        await asyncio.wait([self._asking])
        return self._answer

    def _keep(self, asked: asyncio.Future[bool]) -> None:
        self._asking = None
        self._asked_at = asked.get_loop().time()
        self._answer = not asked.cancelled() and asked.exception() is None and asked.result()


@operation.get("/readyz", responses={503: {"model": ProblemReply}})
async def ready(request: Request) -> HealthReply:
    """Whether this process answers decisions, with neutral arms while the store fails."""
    problem = request.app.state.schema_problem
    if problem is not None:
        raise Problem(503, "not-ready", problem)
    return HealthReply()


@operation.get("/storez", responses={503: {"model": ProblemReply}})
async def stores(request: Request) -> HealthReply:
    """Whether a decision could be drawn and stored right now."""
    if not await request.app.state.store_check.passes():
        raise Problem(503, "not-storing", "the store cannot be written to")
    return HealthReply()


@operation.get("/metrics", response_class=Response)
async def figures(request: Request) -> Response:
    """Metrics for Prometheus: nothing about segments, arms or visitors."""
    return Response(request.app.state.tally.exposition(), media_type=metrics.MEDIA_TYPE)


@flags.post(ofrep.BULK_PATH, dependencies=[Depends(require("decide"))], include_in_schema=False)
async def all_flags(service: Service, request: Request) -> Response:
    """A visitor's stored decisions. Never draws."""
    content_type = request.headers.get("content-type")
    body = parse_object(
        await request.body(), content_type.encode("latin-1") if content_type else None
    )
    visitor, _segment, context = ofrep.context_of(body)
    found = await asyncio.to_thread(service.visitors.known, visitor, context)
    reply = {"flags": [ofrep.evaluation(flag.key, decision) for flag, decision in found]}
    blanks = sum(2 * (max(map(len, flag.arms)) - len(decision.arm)) for flag, decision in found)
    return Response(orjson.dumps(reply) + b" " * blanks, media_type="application/json")


async def _told(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    if request.url.path == ofrep.BULK_PATH:
        status, body = ofrep.refusal(None, problem)
        return Response(body, status, problem.headers, media_type="application/json")
    return Response(problem.body(), problem.status, problem.headers, media_type=MEDIA_TYPE)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    problem = Problem(error.status_code, "http", str(error.detail), headers=error.headers)
    return await _told(request, problem)


async def _not_valid(request: Request, error: Exception) -> Response:
    """Report where the request is invalid and what was expected, without the value."""
    assert isinstance(error, RequestValidationError)
    found = [
        {"pointer": "/".join(map(str, item["loc"])), "detail": item["msg"]}
        for item in error.errors()[:20]
    ]
    if any(item["type"] == "json_invalid" for item in error.errors()):
        return await _told(request, Problem(400, "malformed", "the body is not JSON"))
    first = f"{found[0]['pointer']}: {found[0]['detail']}" if found else "the request is not valid"
    problem = Problem(422, "invalid-argument", first, members={"errors": found})
    return await _told(request, problem)


def _document(api: FastAPI, limits: Limits) -> JsonObject:
    """Return the complete OpenAPI document, built once."""
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


def _hot_paths(limits: Limits) -> JsonObject:
    batches = [
        _list_of("visitors", VISITOR_SCHEMA, limits.batch),
        _list_of("decisions", DECISION_SCHEMA, limits.batch),
    ]
    decide = "The arm for a visitor: stored and durable before it is answered."
    many = "Decisions for many visitors, in order, in one transaction."
    alone = "The same for an experiment on visits that no third party observes."
    observed, unobserved = (
        f"/v1/{kind}/{{key}}/decisions" for kind in ("experiments", "unobserved")
    )
    schemas = (VISITOR_SCHEMA, DECISION_SCHEMA)
    return {
        observed: _post("decide", decide, *schemas, keyed=_KEY),
        f"{observed}/batch": _post("decide_batch", many, *batches, keyed=_KEY),
        unobserved: _post("decide_unobserved", alone, *schemas, keyed=_KEY),
        f"{unobserved}/batch": _post("decide_unobserved_batch", alone, *batches, keyed=_KEY),
        "/v1/masks/{key}/labels": _post(
            "label",
            "The label of a visitor for life: stored and durable before it is answered.",
            LABELLED_SCHEMA,
            {
                "type": "object",
                "required": ["label"],
                "additionalProperties": False,
                "properties": {"label": LABEL_SCHEMA},
            },
            keyed=_MASK,
        ),
        "/v1/masks/{key}/labels/batch": _post(
            "label_batch",
            "Labels of many visitors, in order, in one transaction.",
            _list_of("visitors", LABELLED_SCHEMA, limits.batch),
            _list_of("labels", LABEL_SCHEMA, limits.batch),
            keyed=_MASK,
        ),
        "/v1/rewards": _post(
            "reward",
            "Count the response to a decision, once. Unknown ids get the same answer.",
            REWARD_SCHEMA,
            None,
        ),
        "/v1/rewards/batch": _post(
            "reward_batch",
            "Count many responses in one transaction.",
            _list_of("rewards", REWARD_SCHEMA, limits.batch),
            None,
        ),
        f"{ofrep.BULK_PATH}/{{key}}": _post(
            "evaluate_flag", "OFREP: decide.", _OFREP_CONTEXT, _OFREP_FLAG, keyed=_KEY, ofrep=True
        ),
        ofrep.BULK_PATH: _post(
            "evaluate_flags",
            "OFREP: the stored decisions of a visitor. Never draws one.",
            _OFREP_CONTEXT,
            _list_of("flags", _OFREP_FLAG, None),
            ofrep=True,
        ),
    }


def _list_of(member: str, schema: JsonObject, limit: int | None) -> JsonObject:
    items: JsonObject = {"type": "array", "items": schema}
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
    request: JsonObject,
    reply: JsonObject | None,
    *,
    keyed: JsonObject | None = None,
    ofrep: bool = False,
) -> JsonObject:
    if reply is None:
        responses: JsonObject = {"204": {"description": "Counted, or nothing to count."}}
    else:
        responses = {"200": _response("Answered.", "application/json", reply)}
    for status in (400, 401, 403, *((404, 409) if keyed else ()), 413, 415, 503):
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
        "parameters": [keyed] if keyed else [],
        "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
        "responses": responses,
    }
    return {"post": operation}


def _response(description: str, media_type: str, schema: JsonObject) -> JsonObject:
    return {"description": description, "content": {media_type: {"schema": schema}}}
