"""Who may see and do what: dependencies of the pages' routes.

`Reader`, `Drafter` and so on are for pages: somebody who is signed in, whose role or API key has the
scope. `Submission`, `DraftSubmission` and so on are for forms: the same, and the fields, once the form's
token was found to be right. Scripts that send JSON give the token in the header `X-Form-Token`. Whoever
is let in enters the ledger by name with all that the request does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request
from starlette.datastructures import FormData, UploadFile

from deniable.errors import UnknownNameError
from deniable.service.http.auth import Caller, caller_of, caller_of_user, service_of
from deniable.service.http.messages import Problem
from deniable.service.sessions import SignedIn
from deniable.storage.records import Scope
from deniable.web.proxy import TrustedProxy
from deniable.web.sessions import COOKIE, Session, Signer

TOKEN_FIELD = "form_token"
TOKEN_HEADER = "x-form-token"
LONGEST_FIELD = 20_000


@dataclass(frozen=True)
class Viewer:
    """Somebody who is signed in.

    Attributes:
        caller: the person or the API key, with its name and scopes.
        form_token: for the forms of this one's pages.
        session: how this one signed in; None: a trusted proxy says who it is.
    """

    caller: Caller
    form_token: str
    session: SignedIn | None = None

    def may(self, scope: Scope) -> bool:
        """Whether the role or the API key includes this scope."""
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


def address_of(request: Request) -> str:
    """Where a request comes from."""
    return proxy_of(request).address(request)


def proxy_of(request: Request) -> TrustedProxy:
    """Whose word counts about who is signed in."""
    return cast(TrustedProxy, request.app.state.proxy)


def viewer_of(request: Request) -> Viewer | None:
    """Who is signed in; None where nobody is, the session ended, or who signed in may no longer."""
    name = proxy_of(request).user(request)
    if name is not None:
        return _named_by_proxy(request, name)
    session = session_of(request)
    found = None if session is None else service_of(request).sessions.find(session.token)
    if session is None or found is None:
        return None
    caller = caller_of(found.key) if found.user is None else caller_of_user(found.user)
    if caller is None:
        return None
    return Viewer(caller, signer_of(request).form_token(session.token), found)


def _named_by_proxy(request: Request, name: str) -> Viewer | None:
    try:
        user = service_of(request).people.get(name)
    except UnknownNameError:
        return None
    if user.disabled_at is not None:
        return None
    return Viewer(caller_of_user(user), signer_of(request).form_token(f"proxy:{user.id}"))


def signed_in(request: Request) -> Viewer:
    """A dependency: who is signed in; else the problem 401."""
    viewer = viewer_of(request)
    if viewer is None:
        raise Problem(401, "signed-out", "sign in first")
    return viewer


def seeing(scope: Scope) -> Callable[[Viewer], Awaitable[Viewer]]:
    """A dependency: the viewer, if the role or API key has the scope; else the problem 401 or 403."""

    # Not a plain function: that would run in a context of its own, and the actor would be lost.
    async def checked(viewer: Annotated[Viewer, Depends(signed_in)]) -> Viewer:
        viewer.caller.require(scope)
        viewer.caller.act()
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
Drafter = Annotated[Viewer, Depends(seeing("draft"))]
Runner = Annotated[Viewer, Depends(seeing("run"))]
Officer = Annotated[Viewer, Depends(seeing("privacy"))]
Administrator = Annotated[Viewer, Depends(seeing("admin"))]
ReaderSubmission = Annotated[Form, Depends(sending("read"))]
DraftSubmission = Annotated[Form, Depends(sending("draft"))]
RunSubmission = Annotated[Form, Depends(sending("run"))]
AuditSubmission = Annotated[Form, Depends(sending("audit"))]
PrivacySubmission = Annotated[Form, Depends(sending("privacy"))]
Submission = Annotated[Form, Depends(sending("admin"))]
