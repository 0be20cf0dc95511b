"""Who may see and do what: dependencies of the pages' routes.

`Reader` and `Administrator` are for pages: a viewer with the scope `read` or `admin`. `Submission`
is for forms: a viewer with `admin`, and the fields, once the form's token was found to be right.
Scripts that send JSON give the token in the header `X-Form-Token`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request
from starlette.datastructures import FormData, UploadFile

from deniable.service.http.auth import Caller, caller_of
from deniable.service.http.guard import service_of
from deniable.service.http.problems import Problem
from deniable.storage.records import Scope
from deniable.web.sessions import COOKIE, Session, Signer

TOKEN_FIELD = "form_token"
TOKEN_HEADER = "x-form-token"
LONGEST_FIELD = 20_000


@dataclass(frozen=True)
class Viewer:
    """A person who is signed in.

    Attributes:
        caller: the API key, its label and scopes.
        form_token: for the forms of this person's pages.
    """

    caller: Caller
    form_token: str

    def may(self, scope: Scope) -> bool:
        """Whether the API key has this scope."""
        return scope in self.caller.scopes


@dataclass(frozen=True)
class Form:
    """A form that was sent, by whom, and what it holds."""

    viewer: Viewer
    data: FormData

    def text(self, name: str) -> str:
        """A field as text without spaces around it; empty where missing or not text."""
        found = self.data.get(name)
        return found.strip()[:LONGEST_FIELD] if isinstance(found, str) else ""

    def texts(self, name: str) -> list[str]:
        """All fields of this name."""
        found = self.data.getlist(name)
        return [value.strip()[:LONGEST_FIELD] for value in found if isinstance(value, str)]

    def file(self, name: str) -> UploadFile | None:
        """An uploaded file."""
        found = self.data.get(name)
        return found if isinstance(found, UploadFile) and found.filename else None


def signer_of(request: Request) -> Signer:
    """The signer of the application that got the request."""
    return cast(Signer, request.app.state.signer)


def session_of(request: Request) -> Session | None:
    """The session that came with the request, signed in or not."""
    return signer_of(request).read(request.cookies.get(COOKIE))


def viewer_of(request: Request) -> Viewer | None:
    """Who is signed in; None where nobody is, who signed out, or whose API key was revoked since."""
    session = session_of(request)
    if (
        session is None
        or not session.key_id
        or service_of(request).idempotency.session_ended(session.id)
    ):
        return None
    caller = caller_of(service_of(request).keys.valid(session.key_id))
    return None if caller is None else Viewer(caller, signer_of(request).form_token(session))


def seeing(scope: Scope) -> Callable[[Request], Viewer]:
    """A dependency: the viewer, if its API key has the scope; else the problem 401 or 403."""

    def checked(request: Request) -> Viewer:
        viewer = viewer_of(request)
        if viewer is None:
            raise Problem(401, "signed-out", "sign in with an API key first")
        viewer.caller.require(scope)
        return viewer

    return checked


def sending(scope: Scope) -> Callable[[Request, Viewer], Awaitable[Form]]:
    """A dependency: the form that was sent, if the viewer has the scope and the token is right."""
    asks = Depends(seeing(scope))  # as a default: an annotation could not see `scope`

    async def checked(request: Request, viewer: Viewer = asks) -> Form:
        return Form(viewer, await checked_form(request, viewer.form_token))

    return checked


async def checked_form(request: Request, expected: str) -> FormData:
    """The fields; the problem 403 where the form does not carry the expected token."""
    is_form = request.headers.get("content-type", "").startswith(
        ("application/x-www-form-urlencoded", "multipart/form-data")
    )
    data = await request.form(max_files=1, max_fields=2_000) if is_form else FormData()
    given = request.headers.get(TOKEN_HEADER) or data.get(TOKEN_FIELD)
    if not isinstance(given, str) or not signer_of(request).same(given, expected):
        await data.close()
        raise Problem(
            403, "form-token", "this form is not from a page you opened: open it again and resend"
        )
    return data


Reader = Annotated[Viewer, Depends(seeing("read"))]
Administrator = Annotated[Viewer, Depends(seeing("admin"))]
Submission = Annotated[Form, Depends(sending("admin"))]
ReaderSubmission = Annotated[Form, Depends(sending("read"))]
