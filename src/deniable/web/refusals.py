"""Refusals as pages, in words: where to sign in, what is missing, what was wrong."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from deniable.service.http.problems import Problem, problem_of
from deniable.web import answers
from deniable.web.access import viewer_of

_PROGRAMS = ("/v1/", "/ofrep/")

WORDS = {
    400: ("We cannot read that request", "Go back and try again."),
    403: (
        "Not allowed",
        "Your role or API key does not include this. An admin can change that under Settings.",
    ),
    404: ("There is nothing here", "It may have been removed, or the address has a typing error."),
    405: ("That cannot be done at this address", "Go back and use the buttons on the page."),
    429: ("Too many attempts", "Wait a while, then try again."),
    409: ("That cannot be done now", "Nothing was changed."),
    413: ("That was too long", "Nothing was changed. Send less at a time."),
    422: ("Something in the form is not right", "Nothing was changed. Go back and correct it."),
    500: (
        "Something went wrong here",
        "It is not your fault. Whoever runs the service will find it in the log.",
    ),
    503: ("The service is busy", "Nothing was changed. Try again in a moment."),
}


def wants_page(request: Request) -> bool:
    """Whether a browser asked for a page, and not a program for an answer."""
    if request.url.path.startswith(_PROGRAMS):
        return False
    return "text/html" in request.headers.get("accept", "")


def page(request: Request, error: Exception) -> Response:
    """The refusal as a page; whoever is not signed in is sent to the sign-in page instead."""
    problem = _problem(error)
    if problem.status == 401:
        asked = request.url.path if request.method == "GET" else "/"
        if request.method == "GET" and request.url.query:  # a shared link: its plan, its filter
            asked += f"?{request.url.query}"
        place = "" if asked == "/" else f"?next={quote(asked, safe='')}"
        return RedirectResponse(f"/login{place}", 303, answers.HEADERS)
    title, advice = WORDS.get(problem.status, WORDS[400])
    return answers.show(
        request,
        "problem.html",
        viewer_of(request),
        status=problem.status,
        title=title,
        detail=problem.detail,
        advice=advice,
    )


def _problem(error: Exception) -> Problem:
    if isinstance(error, HTTPException):
        unknown = error.status_code == 404  # an address of no route: the framework says "Not Found"
        detail = "no page has this address" if unknown else str(error.detail)
        return Problem(error.status_code, "http", detail)
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        return Problem(422, "invalid-argument", f"{first['loc'][-1]}: {first['msg']}")
    return problem_of(error)
