"""Who may see and do what: dependencies of the pages' routes, sessions, and a trusted proxy.

`Reader`, `Drafter` and so on are for pages: somebody who is signed in, whose role or API key has the
scope. `Submission`, `DraftSubmission` and so on are for forms: the same, and the fields, once the form's
token was found to be right. Scripts that send JSON give the token in the header `X-Form-Token`. Whoever
is let in enters the ledger by name with all that the request does.

A browser keeps a random token with an end, signed. Who is signed in by it is in the store. The sign-in
page has a session too, in which nobody is signed in yet: its form is bound to it. Signing in begins a
new one, so that a token that somebody planted before opens nothing.

A proxy in front of the service may sign people in (single sign-on) and say in a header who it is. Off
unless it is configured. The header counts only in requests that come from a listed address, and only if
it is there once: anybody could send it. Names that no user has are nobody.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Annotated, cast

from fastapi import Depends, Request
from starlette.datastructures import FormData, UploadFile

from deniable.errors import InvalidArgumentError, UnknownNameError
from deniable.service.http.auth import Caller, caller_of, caller_of_user, service_of
from deniable.service.http.messages import Problem
from deniable.service.sessions import SignedIn
from deniable.storage.records import Scope

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


def lines(text: str) -> list[str]:
    r"""The lines of a text that are not empty, without spaces around them.

    >>> lines("new \n\n old")
    ['new', 'old']
    """
    return [line.strip() for line in text.splitlines() if line.strip()]


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
Auditor = Annotated[Viewer, Depends(seeing("audit"))]
Administrator = Annotated[Viewer, Depends(seeing("admin"))]
ReaderSubmission = Annotated[Form, Depends(sending("read"))]
DraftSubmission = Annotated[Form, Depends(sending("draft"))]
RunSubmission = Annotated[Form, Depends(sending("run"))]
AuditSubmission = Annotated[Form, Depends(sending("audit"))]
PrivacySubmission = Annotated[Form, Depends(sending("privacy"))]
Submission = Annotated[Form, Depends(sending("admin"))]


# -- what a browser keeps --------------------------------------------------------------------------

COOKIE = "deniable_session"
LIFETIME_SECONDS = 8 * 3600
"""A working day."""

_FORM = re.compile(r"([0-9a-f]{64})\.([0-9]{1,12})\.([0-9a-f]{64})")


@dataclass(frozen=True)
class Session:
    """One session.

    Attributes:
        token: 256 random bits; forms are bound to it, and the store knows its hash.
        expires: seconds since 1970.
    """

    token: str
    expires: int


class Signer:
    """Writes and reads what browsers keep for us, and notices when they change it.

    Args:
        key: 32 secret bytes, the same in all processes.

    >>> signer = Signer(bytes(32))
    >>> signer.read(signer.written(Session("a" * 64, 2_000)), now=1_999).expires
    2000
    >>> signer.read(signer.written(Session("a" * 64, 2_000)), now=2_000) is None
    True
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def new(self) -> Session:
        """A session that begins now."""
        return Session(secrets.token_hex(32), int(time.time()) + LIFETIME_SECONDS)

    def written(self, session: Session) -> str:
        """The session as a cookie."""
        text = f"{session.token}.{session.expires}"
        return f"{text}.{self.sign('session', text)}"

    def read(self, cookie: str | None, now: float | None = None) -> Session | None:
        """The session of a cookie; None where there is none, it is not ours or it is over."""
        found = _FORM.fullmatch(cookie or "")
        if found is None:
            return None
        token, expires, signature = found.groups()
        if not hmac.compare_digest(signature, self.sign("session", f"{token}.{expires}")):
            return None
        if int(expires) <= (time.time() if now is None else now):
            return None
        return Session(token, int(expires))

    def form_token(self, owner: str) -> str:
        """What every form of this owner's pages carries, and no other site can know.

        Args:
            owner: a session's token, or who a trusted proxy says it is.
        """
        return self.sign("form", owner)

    def sign(self, purpose: str, text: str) -> str:
        """A signature of a text for one purpose."""
        return hmac.new(self._key, f"{purpose}:{text}".encode(), sha256).hexdigest()

    def same(self, given: str, expected: str) -> bool:
        """Whether two signatures are equal, in constant time."""
        return hmac.compare_digest(given.encode(), expected.encode())


# -- a proxy that signs people in ------------------------------------------------------------------


@dataclass(frozen=True)
class TrustedProxy:
    """Whose word counts.

    Attributes:
        header: in which the proxy names the user; empty: it names none.
        networks: addresses of proxies.
    """

    header: str = ""
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def of(cls, header: str, addresses: str) -> TrustedProxy:
        """From the settings.

        >>> TrustedProxy.of("Remote-User", "10.0.0.7, fd00::/8").networks[0]
        IPv4Network('10.0.0.7/32')
        """
        if header and not re.fullmatch(r"[A-Za-z0-9-]{1,64}", header):
            raise InvalidArgumentError("sign_in_header", header, "a name of a header")
        try:
            parts = [part.strip() for part in addresses.split(",") if part.strip()]
            networks = tuple(ip_network(part) for part in parts)
        except ValueError:
            raise InvalidArgumentError(
                "trusted_proxies", addresses, "addresses or networks, separated by commas"
            ) from None
        if header and not networks:
            raise InvalidArgumentError(
                "trusted_proxies", addresses, "the addresses from which the header counts"
            )
        return cls(header, networks)

    def trusts(self, request: Request) -> bool:
        """Whether a request comes from a listed address."""
        if not self.networks or request.client is None:
            return False
        try:
            address = ip_address(request.client.host)
        except ValueError:
            return False
        return any(address in network for network in self.networks)

    def user(self, request: Request) -> str | None:
        """Who is signed in by the proxy; None: it does not say, or its word does not count."""
        if not self.header or not self.trusts(request):
            return None
        given = request.headers.getlist(self.header)
        return given[0].strip().lower() or None if len(given) == 1 else None

    def address(self, request: Request) -> str:
        """Where a request comes from: what a trusted proxy says, or who is connected."""
        if self.trusts(request):
            told = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
            if told:
                return told[:64]
        return request.client.host if request.client is not None else ""
