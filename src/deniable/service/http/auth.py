"""Authentication with Bearer API keys, cached briefly by the hash of their secret.

Refused secrets are cached too, so that guessing does not reach the store. While the store fails, or
does not respond within a second, a key stays accepted until `outage_seconds` after it was last
found valid. Decisions are answered without the store in the meantime.

The last part are FastAPI dependencies for all other routes and the web pages: the service, and a caller
with a required scope.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from hmac import compare_digest
from typing import Annotated, NamedTuple, Protocol, TypeVar, cast

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from deniable.errors import StoreUnavailableError
from deniable.service.http.messages import Problem
from deniable.service.http.messages import Scope as AsgiScope
from deniable.service.service import Deniable
from deniable.storage.commitments import act_as
from deniable.storage.records import ROLES, SCOPES, ApiKey, Scope, User, UserRole

Value = TypeVar("Value")

REMEMBERED = 10_000
ASKED_AT_ONCE = 1_000
"""Maximum number of secrets being looked up at the same time."""

KNOWN_WAIT_SECONDS, UNKNOWN_WAIT_SECONDS = 1.0, 10.0
"""How long a request waits for a key lookup: previously valid keys, and all others."""

THREADS = 4


class Caller(NamedTuple):
    """An authenticated API key or signed-in user.

    Attributes:
        id: id of the key or user.
        label: the key's label or the user's name.
        scopes: what the caller may do; `admin` allows everything.
        role: the user's role; None for an API key.
    """

    id: str
    label: str
    scopes: frozenset[Scope]
    role: UserRole | None = None

    def require(self, scope: Scope) -> None:
        """Raise a 403 problem unless this caller has the scope."""
        if scope in self.scopes:
            return
        if self.role is None:
            raise Problem(403, "scope-missing", f"this API key does not have the scope {scope!r}")
        raise Problem(403, "scope-missing", f"the role {self.role} does not include {scope!r}")

    def act(self) -> None:
        """Record this caller as the actor of later ledger entries in this context."""
        act_as("key" if self.role is None else "user", self.label)


CALLER = "deniable.caller"
"""Member of a request's scope: the label of its API key or the name of its user, for the log."""


class KnowsKeys(Protocol):
    """The part of the service that authentication needs."""

    def authenticate(self, secret: str) -> ApiKey | None:
        """Return the key with this secret, or None."""

    def note_use(self, key: ApiKey) -> None:
        """Record that the key was used in this hour."""


class _Known(NamedTuple):
    """A secret that is known to be valid."""

    digest: bytes
    caller: Caller
    fresh_until: float
    found_valid: float


class _Lookup(NamedTuple):
    """A lookup that is still in progress."""

    answer: asyncio.Future[Caller | None]
    since: float


class Authenticator:
    """Identifies callers by their secret.

    Args:
        keys: looks up secrets that are not cached.
        max_age_seconds: how long a lookup is cached; a revoked key keeps working for at most this
            long.
        outage_seconds: how long a valid key stays accepted while the store does not respond.
        clock: monotonic clock, in seconds.
    """

    def __init__(
        self,
        keys: KnowsKeys,
        *,
        max_age_seconds: float = 5.0,
        outage_seconds: float = 3_600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keys = keys
        self._max_age = max_age_seconds
        self._outage = outage_seconds
        self._clock = clock
        self._known: dict[bytes, _Known] = {}
        self._refused: dict[bytes, float] = {}
        self._asked: dict[bytes, _Lookup] = {}
        # Dedicated threads: if the store hangs, only they hang.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="deniable-keys")
        self._noting = ThreadPoolExecutor(1, thread_name_prefix="deniable-key-use")
        self._noted: dict[str, int] = {}

    def remembered(self, authorization: bytes | None) -> Caller | None:
        """Return the cached caller for this Authorization header; None if the store has to be asked.

        Raises a 401 problem if the header is invalid or the secret is cached as refused.
        """
        digest = sha256(_bearer(authorization)).digest()
        known = self._known.get(digest)
        # Look up by hash and compare in constant time, so that timing reveals nothing about a
        # secret.
        if known is not None and compare_digest(known.digest, digest):
            return known.caller if known.fresh_until >= self._clock() else None
        if self._refused.get(digest, float("-inf")) >= self._clock():
            raise _unauthorized("this API key is unknown or revoked")
        return None

    async def caller(self, authorization: bytes | None) -> Caller:
        """Return the caller for this Authorization header, or raise a 401 problem."""
        caller = self.remembered(authorization)
        if caller is not None:
            return caller
        secret = _bearer(authorization)
        digest = sha256(secret).digest()
        caller = await self._look_up(digest, secret, self._known.get(digest))
        if caller is None:
            raise _unauthorized("this API key is unknown or revoked")
        return caller

    def authenticate(self, secret: str) -> Caller | None:
        """Look up the caller with this secret, bypassing the cache. Used for signing in."""
        key = self._keys.authenticate(secret) if secret.isascii() else None
        if key is not None:
            self._note_use(key)
        return caller_of(key)

    def forget(self) -> None:
        """Clear the cache. Called after a key was revoked in this process."""
        self._known.clear()
        self._refused.clear()

    def close(self) -> None:
        """Stop the threads without waiting for lookups in progress."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._noting.shutdown(wait=False, cancel_futures=True)

    def _note_use(self, key: ApiKey) -> None:
        """Record the key's last use in the background, at most once an hour."""
        hour = int(time.time()) // 3600
        if self._noted.get(key.id) == hour:
            return
        if key.last_used_at is not None and key.last_used_at.timestamp() // 3600 == hour:
            self._noted[key.id] = hour
            return
        self._noted[key.id] = hour  # set first, so that a read-only store is not tried again
        with suppress(RuntimeError):  # shutting down
            self._noting.submit(self._keys.note_use, key)

    async def _look_up(self, digest: bytes, secret: bytes, known: _Known | None) -> Caller | None:
        """Look the caller up; if the store does not respond, use what was known before."""
        asked = self._asked.get(digest)
        if asked is None and len(self._asked) < ASKED_AT_ONCE:
            asked = self._ask(digest, secret)
        if asked is not None:
            patience = UNKNOWN_WAIT_SECONDS if known is None else KNOWN_WAIT_SECONDS
            left = asked.since + patience - self._clock()
            if left > 0:
                await asyncio.wait([asked.answer], timeout=left)
            if asked.answer.done() and asked.answer.exception() is None:
                return asked.answer.result()
        if known is not None and self._clock() - known.found_valid <= self._outage:
            return known.caller
        raise StoreUnavailableError("API keys cannot be checked")

    def _ask(self, digest: bytes, secret: bytes) -> _Lookup:
        loop = asyncio.get_running_loop()
        answer = loop.run_in_executor(self._threads, self.authenticate, secret.decode("latin-1"))
        answer.add_done_callback(lambda done: self._keep(digest, done))
        asked = self._asked[digest] = _Lookup(answer, self._clock())
        return asked

    def _keep(self, digest: bytes, answer: asyncio.Future[Caller | None]) -> None:
        self._asked.pop(digest, None)
        now = self._clock()
        if answer.cancelled() or answer.exception() is not None:
            known = self._known.get(digest)
            if known is not None:  # do not ask the store again for every request
                self._known[digest] = known._replace(fresh_until=now + self._max_age)
                if now - known.found_valid > self._outage:
                    del self._known[digest]
            return
        caller = answer.result()
        if caller is not None:
            self._refused.pop(digest, None)
            _emptied_if_full(self._known)[digest] = _Known(digest, caller, now + self._max_age, now)
        else:
            self._known.pop(digest, None)
            _emptied_if_full(self._refused)[digest] = now + self._max_age


def _emptied_if_full(memory: dict[bytes, Value]) -> dict[bytes, Value]:
    """Return the cache, emptied if it was full."""
    if len(memory) >= REMEMBERED:
        memory.clear()
    return memory


def authorization_of(scope: AsgiScope) -> bytes | None:
    """Return the Authorization header, or None. Raises a 400 problem if there are two.

    With two, a proxy and this service might each check a different one.
    """
    found: bytes | None = None
    for name, value in scope["headers"]:
        if name == b"authorization":
            if found is not None:
                raise Problem(400, "malformed", "Authorization: expected one header")
            found = value
    return found


def _bearer(authorization: bytes | None) -> bytes:
    if authorization is None:
        raise _unauthorized("send an API key: `Authorization: Bearer dnb_...`")
    if authorization[:7].lower() != b"bearer " or not 8 <= len(authorization) <= 256:
        raise _unauthorized("the Authorization header is not `Bearer` and an API key")
    return authorization[7:]


def _unauthorized(detail: str) -> Problem:
    return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})


def caller_of(key: ApiKey | None) -> Caller | None:
    """Convert a key to a caller; `admin` has every scope."""
    if key is None:
        return None
    scopes = SCOPES if "admin" in key.scopes else key.scopes
    return Caller(key.id, key.label, frozenset(scopes))


def caller_of_user(user: User) -> Caller:
    """Convert a user to a caller with the scopes of the role."""
    return Caller(user.id, user.name, frozenset(ROLES[user.role]), user.role)


# -- FastAPI dependencies --------------------------------------------------------------------------

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
        request.scope[CALLER] = caller.label
        caller.require(scope)
        caller.act()
        return caller

    return checked


Service = Annotated[Deniable, Depends(service_of)]
