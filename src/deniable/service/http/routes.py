"""The FastAPI application: administration, bulk OFREP, health and metrics, one shape of errors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from deniable.errors import DeniableError
from deniable.service.http import administration, metrics, ofrep, oversight
from deniable.service.http.auth import Authenticator
from deniable.service.http.guard import Service, require
from deniable.service.http.hot import Limits
from deniable.service.http.messages import parse_object
from deniable.service.http.models import HealthReply, ProblemReply
from deniable.service.http.openapi import document
from deniable.service.http.problems import MEDIA_TYPE, Problem, problem_of
from deniable.service.http.tally import Tally
from deniable.service.service import Deniable

operation = APIRouter(tags=["operation"])
flags = APIRouter(tags=["openfeature"])


def make_api(
    service: Deniable,
    authenticator: Authenticator,
    tally: Tally,
    limits: Limits,
    extra_routers: Sequence[APIRouter],
) -> FastAPI:
    """The application with all routers; no interactive documentation, which would call other hosts."""
    api = FastAPI(
        title="Deniable",
        version=version("deniable"),
        description="Experiments whose shown arm keeps every visitor's segment deniable.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    api.state.service = service
    api.state.authenticator = authenticator
    api.state.tally = tally
    for router in (operation, flags, administration.read, administration.admin):
        api.include_router(router)
    for router in (oversight.read, oversight.admin, *extra_routers):
        api.include_router(router)
    api.add_exception_handler(DeniableError, _told)
    api.add_exception_handler(Problem, _told)
    api.add_exception_handler(HTTPException, _http_error)
    api.add_exception_handler(RequestValidationError, _not_valid)
    api.openapi = lambda: document(api, limits)  # type: ignore[method-assign]
    return api


@operation.get("/healthz")
async def health() -> HealthReply:
    """Whether this process answers at all."""
    return HealthReply()


@operation.get("/readyz", responses={503: {"model": ProblemReply}})
async def ready(service: Service) -> HealthReply:
    """Whether the store can be written to right now."""
    if not await asyncio.to_thread(service.ready):
        raise Problem(503, "not-ready", "the store cannot be written to")
    return HealthReply()


@operation.get("/metrics", response_class=Response)
async def figures(request: Request) -> Response:
    """Counters for Prometheus: nothing about segments, arms or visitors."""
    return Response(metrics.exposition(request.app.state.tally), media_type=metrics.MEDIA_TYPE)


@flags.post(ofrep.BULK_PATH, dependencies=[Depends(require("decide"))], include_in_schema=False)
async def all_flags(service: Service, request: Request) -> dict[str, Any]:
    """The stored decisions of a visitor; never draws one."""
    content_type = request.headers.get("content-type")
    body = parse_object(
        await request.body(), content_type.encode("latin-1") if content_type else None
    )
    visitor, _segment = ofrep.context_of(body)
    found = await asyncio.to_thread(service.visitors.decisions, visitor)
    return {"flags": [ofrep.evaluation(key, decision) for key, decision in found.items()]}


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
    """Where the request is wrong and what was expected, without what was sent."""
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
