"""Errors as RFC 9457 problem details, which never repeat what the caller sent.

Values are omitted on purpose: they might contain a segment or a visitor's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import orjson

from deniable.errors import (
    NANO,
    ApprovalNeededError,
    DeniableError,
    InsufficientBudgetError,
    InvalidArgumentError,
    OverloadedError,
    StoreUnavailableError,
    TooManyAttemptsError,
    UnknownNameError,
    WrongStateError,
)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1

_STATUS_OF: tuple[tuple[type[DeniableError], int, str], ...] = (
    (InvalidArgumentError, 422, "invalid-argument"),
    (UnknownNameError, 404, "unknown-name"),
    (ApprovalNeededError, 409, "approval-needed"),
    (InsufficientBudgetError, 409, "insufficient-budget"),
    (WrongStateError, 409, "wrong-state"),
    (TooManyAttemptsError, 429, "too-many-attempts"),
    (OverloadedError, 503, "overloaded"),
    (StoreUnavailableError, 503, "store-unavailable"),
)


class Problem(Exception):
    """An error response.

    Attributes:
        status: the HTTP status.
        code: the last part of the problem's `type`, stable for use in programs.
        detail: one sentence for people.
        headers: additional response headers.
        members: additional members of the body.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = dict(members or {})
        if status == 503:  # the same for all callers
            self.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)

    def body(self) -> bytes:
        """Return the problem as JSON.

        >>> Problem(404, "unknown-name", "there is none").body()[:62]
        b'{"type":"urn:problem-type:deniable:unknown-name","title":"Not '
        """
        return orjson.dumps(
            {
                "type": f"urn:problem-type:deniable:{self.code}",
                "title": HTTPStatus(self.status).phrase,
                "status": self.status,
                "detail": self.detail,
                **self.members,
            }
        )


def problem_of(error: Exception) -> Problem:
    """Convert an error to a problem. Unexpected errors reveal nothing."""
    if isinstance(error, Problem):
        return error
    for kind, status, code in _STATUS_OF:
        if isinstance(error, kind):
            return Problem(status, code, _detail(error), members=_members(error))
    return Problem(500, "internal", "the service failed; its log tells where")


def _detail(error: DeniableError) -> str:
    if isinstance(error, InvalidArgumentError):
        return f"{error.argument}: expected {error.allowed}"
    if isinstance(error, UnknownNameError):
        return f"there is no such {error.kind}"
    if isinstance(error, OverloadedError):
        return "too much is queued; try again in a moment"
    if isinstance(error, StoreUnavailableError):  # its message may name hosts and files
        return "the store did not respond; nothing was done"
    return str(error)


def _members(error: DeniableError) -> dict[str, object]:
    if isinstance(error, InsufficientBudgetError):
        return {"remaining": error.remaining / NANO, "requested": error.requested / NANO}
    if isinstance(error, InvalidArgumentError):
        return {"argument": error.argument}
    return {}
