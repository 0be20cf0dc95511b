"""FastAPI dependencies: the service, and a caller with a required scope.

The web pages use the same: `request.app.state.service`, `request.app.state.authenticator`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, cast

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from deniable.service.http.auth import Authenticator, Caller
from deniable.service.http.messages import authorization_of
from deniable.service.service import Deniable
from deniable.storage.records import Scope

_documented = HTTPBearer(
    auto_error=False,
    scheme_name="apiKey",
    description="An API key, `dnb_...`, from `deniable keys`.",
)


def service_of(request: Request) -> Deniable:
    """Return the service of the application that received the request."""
    return cast(Deniable, request.app.state.service)


def authenticator_of(request: Request) -> Authenticator:
    """Return the authenticator of the application that received the request."""
    return cast(Authenticator, request.app.state.authenticator)


def require(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    """Return a dependency that yields the caller, or raises a 401 or 403 problem without the scope."""

    async def checked(request: Request, _bearer: object = Depends(_documented)) -> Caller:
        caller = await authenticator_of(request).caller(authorization_of(request.scope))
        caller.require(scope)
        caller.act()
        return caller

    return checked


Service = Annotated[Deniable, Depends(service_of)]
