"""Who is calling: Bearer API keys, remembered by the hash of their secret for a short time.

A secret that was refused is remembered too, so that guessing does not reach the store. While the store
fails, or does not answer within a second, a key that was found valid before goes on being accepted, for
`outage_seconds` since it was last found valid: decisions are then answered without the store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from hmac import compare_digest
from typing import NamedTuple, Protocol, TypeVar

from deniable.errors import StoreUnavailableError
from deniable.service.http.problems import Problem
from deniable.storage.actors import act_as
from deniable.storage.records import ROLES, SCOPES, ApiKey, Scope, User, UserRole

Value = TypeVar("Value")

REMEMBERED = 10_000
ASKED_AT_ONCE = 1_000
"""Secrets that may wait for the store's answer."""

KNOWN_WAIT_SECONDS, UNKNOWN_WAIT_SECONDS = 1.0, 10.0
"""How long a request waits for the store's answer about a key that was valid before, and another."""

THREADS = 4


class Caller(NamedTuple):
    """An authenticated API key, or a person who is signed in.

    Attributes:
        id: of the key or the person.
        label: the key's label, or the person's name.
        scopes: what it may do; `admin` may do everything.
        role: of a person; None: an API key.
    """

    id: str
    label: str
    scopes: frozenset[Scope]
    role: UserRole | None = None

    def require(self, scope: Scope) -> None:
        """Raise the problem 403 unless this caller may do it."""
        if scope in self.scopes:
            return
        if self.role is None:
            raise Problem(403, "scope-missing", f"this API key does not have the scope {scope!r}")
        raise Problem(403, "scope-missing", f"the role {self.role} does not include {scope!r}")

    def act(self) -> None:
        """Enter the ledger as this caller from now on, in this context."""
        act_as("key" if self.role is None else "user", self.label)


class KnowsKeys(Protocol):
    """The part of the service that is needed here."""

    def authenticate(self, secret: str) -> ApiKey | None:
        """The key with this secret, or None."""

    def note_use(self, key: ApiKey) -> None:
        """Remember that the key was used in this hour."""


class _Known(NamedTuple):
    """A secret that was found valid."""

    digest: bytes
    caller: Caller
    fresh_until: float
    found_valid: float


class _Asked(NamedTuple):
    """A question that the store has not answered yet."""

    answer: asyncio.Future[Caller | None]
    since: float


class Authenticator:
    """Callers by their secret.

    Args:
        keys: asked when a secret is not remembered.
        max_age_seconds: how long an answer is remembered; a revoked key works at most this long.
        outage_seconds: how long a valid key is accepted while the store does not answer.
        clock: seconds that only go forward.
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
        self._asked: dict[bytes, _Asked] = {}
        # Threads of their own: while the store hangs they hang, and nothing else waits for them.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="deniable-keys")
        self._noting = ThreadPoolExecutor(1, thread_name_prefix="deniable-key-use")
        self._noted: dict[str, int] = {}

    def remembered(self, authorization: bytes | None) -> Caller | None:
        """Who sent this Authorization header; None where the store has to be asked.

        The problem 401 where nobody did, as far as that is remembered.
        """
        digest = sha256(_bearer(authorization)).digest()
        known = self._known.get(digest)
        # Looked up by hash, compared in constant time: how long it takes tells nothing of a secret.
        if known is not None and compare_digest(known.digest, digest):
            return known.caller if known.fresh_until >= self._clock() else None
        if self._refused.get(digest, float("-inf")) >= self._clock():
            raise _unauthorized("this API key is unknown or revoked")
        return None

    async def caller(self, authorization: bytes | None) -> Caller:
        """Who sent this Authorization header; the problem 401 where nobody known did."""
        caller = self.remembered(authorization)
        if caller is not None:
            return caller
        secret = _bearer(authorization)
        digest = sha256(secret).digest()
        caller = await self._looked_up(digest, secret, self._known.get(digest))
        if caller is None:
            raise _unauthorized("this API key is unknown or revoked")
        return caller

    def authenticate(self, secret: str) -> Caller | None:
        """The caller with this secret, not from the cache: for signing people in."""
        key = self._keys.authenticate(secret) if secret.isascii() else None
        if key is not None:
            self._note_use(key)
        return caller_of(key)

    def forget(self) -> None:
        """Forget all answers: after a key was revoked in this process."""
        self._known.clear()
        self._refused.clear()

    def close(self) -> None:
        """End the threads, without waiting for those that wait for the store."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._noting.shutdown(wait=False, cancel_futures=True)

    def _note_use(self, key: ApiKey) -> None:
        """Have the hour of a key's last use written, once an hour, while nobody waits for it."""
        hour = int(time.time()) // 3600
        if self._noted.get(key.id) == hour:
            return
        if key.last_used_at is not None and key.last_used_at.timestamp() // 3600 == hour:
            self._noted[key.id] = hour
            return
        self._noted[key.id] = hour  # first: a store that cannot be written to is not asked again
        with suppress(RuntimeError):  # it is being closed
            self._noting.submit(self._keys.note_use, key)

    async def _looked_up(self, digest: bytes, secret: bytes, known: _Known | None) -> Caller | None:
        """The store's answer, or what was known before where it does not answer."""
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

    def _ask(self, digest: bytes, secret: bytes) -> _Asked:
        loop = asyncio.get_running_loop()
        answer = loop.run_in_executor(self._threads, self.authenticate, secret.decode("latin-1"))
        answer.add_done_callback(lambda done: self._keep(digest, done))
        asked = self._asked[digest] = _Asked(answer, self._clock())
        return asked

    def _keep(self, digest: bytes, answer: asyncio.Future[Caller | None]) -> None:
        self._asked.pop(digest, None)
        now = self._clock()
        if answer.cancelled() or answer.exception() is not None:
            known = self._known.get(digest)
            if known is not None:  # the store is not asked again for every request
                self._known[digest] = known._replace(fresh_until=now + self._max_age)
                if now - known.found_valid > self._outage:
                    del self._known[digest]
            return
        caller = answer.result()
        if caller is not None:
            self._refused.pop(digest, None)
            _room(self._known)[digest] = _Known(digest, caller, now + self._max_age, now)
        else:
            self._known.pop(digest, None)
            _room(self._refused)[digest] = now + self._max_age


def _room(memory: dict[bytes, Value]) -> dict[bytes, Value]:
    """The memory, emptied if it is full."""
    if len(memory) >= REMEMBERED:
        memory.clear()
    return memory


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


def caller_of_user(user: User) -> Caller:
    """A person as a caller, with the scopes of the role."""
    return Caller(user.id, user.name, frozenset(ROLES[user.role]), user.role)
