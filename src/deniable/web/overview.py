"""The overview: the firm's budget, what runs, and what needs a look."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from deniable.web import answers
from deniable.web.access import Reader

router = APIRouter()


@router.get("/")
def overview(request: Request, viewer: Reader) -> Response:
    """The first page."""
    return answers.show(request, "overview.html", viewer)
