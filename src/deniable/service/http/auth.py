"""Who is calling: Bearer API keys, remembered by the hash of their secret for a short time.

A secret that was refused is remembered too, so that guessing does not reach the store. Both memories
are bounded and forget everything at once when full.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from typing import NamedTuple, Protocol

from deniable.service.http.problems import Problem
from deniable.storage.records import SCOPES, ApiKey, Scope

REMEMBERED = 10_000


class Caller(NamedTuple):
    """An authenticated API key.

    Attributes:
        id: the key's id.
        label: the key's label, for people.
        scopes: what it may do; `admin` may do everything.
    """

    id: str
    label: str
    scopes: frozenset[Scope]

    def require(self, scope: Scope) -> None:
        """Raise the problem 403 unless this caller may do it."""
        if scope not in self.scopes:
            raise Problem(403, "scope-missing", f"this API key does not have the scope {scope!r}")


class KnowsKeys(Protocol):
    """The part of the service that is needed here."""

    def authenticate(self, secret: str) -> ApiKey | None:
        """The key with this secret, or None."""


class Authenticator:
    """Callers by their secret.

    Args:
        keys: asked when a secret is not remembered.
        max_age_seconds: how long an answer is remembered; a revoked key works at most this long.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        keys: KnowsKeys,
        *,
        max_age_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keys = keys
        self._max_age = max_age_seconds
        self._clock = clock
        self._remembered: dict[bytes, tuple[bytes, float, Caller | None]] = {}

    async def caller(self, authorization: bytes | None) -> Caller:
        """Who sent this Authorization header; the problem 401 where nobody known did."""
        secret = _bearer(authorization)
        digest = sha256(secret).digest()
        found = self._remembered.get(digest)
        # Looked up by hash, compared in constant time: how long it takes tells nothing of a secret.
        if found is None or not compare_digest(found[0], digest) or found[1] < self._clock():
            found = await self._asked(digest, secret)
        if found[2] is None:
            raise _unauthorized("this API key is unknown or revoked")
        return found[2]

    def authenticate(self, secret: str) -> Caller | None:
        """The caller with this secret, asked anew: for signing people in."""
        return caller_of(self._keys.authenticate(secret)) if secret.isascii() else None

    def forget(self) -> None:
        """Forget all answers: after a key was revoked in this process."""
        self._remembered.clear()

    async def _asked(self, digest: bytes, secret: bytes) -> tuple[bytes, float, Caller | None]:
        caller = await asyncio.to_thread(self.authenticate, secret.decode("latin-1"))
        if len(self._remembered) >= REMEMBERED:
            self._remembered.clear()
        entry = (digest, self._clock() + self._max_age, caller)
        self._remembered[digest] = entry
        return entry


def _bearer(authorization: bytes | None) -> bytes:
    if authorization is None:
        raise _unauthorized("send an API key: `Authorization: Bearer dnb_...`")
    if authorization[:7].lower() != b"bearer " or not 8 <= len(authorization) <= 256:
        raise _unauthorized("the Authorization header is not `Bearer` and an API key")
    return authorization[7:]


def _unauthorized(detail: str) -> Problem:
    return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})


def caller_of(key: ApiKey | None) -> Caller | None:
    """A key as a caller; `admin` has every scope."""
    if key is None:
        return None
    scopes = SCOPES if "admin" in key.scopes else key.scopes
    return Caller(key.id, key.label, frozenset(scopes))
