"""Sessions of signed-in users: look up, list and end them.

The browser holds a random token; only its SHA-256 is stored. Permissions are looked up with every
request, so a changed role, a disabled person or a revoked key takes effect immediately.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from deniable.errors import StoreUnavailableError, UnknownNameError
from deniable.service.apikeys import key_of
from deniable.service.ids import id_bytes
from deniable.service.people import SECOND, user_of
from deniable.storage import times
from deniable.storage.account_rules import HOUR
from deniable.storage.records import ApiKey, User
from deniable.storage.schema import api_keys, sessions, users
from deniable.storage.store import Store

FORGET_SECONDS = 7 * 86_400
"""How long rows of ended sessions are kept."""

LONGEST_BROWSER = 64


@dataclass(frozen=True)
class SignedIn:
    """One session.

    Attributes:
        id: the hash of its token, which identifies it but grants no access.
        user: the person; None if signed in with an API key.
        key: the API key; None if signed in with a password.
        browser: the browser's user agent, shortened.
        created_at: when it began.
        seen_at: start of the last hour in which it was used.
        expires_at: when it expires.
    """

    id: str
    user: User | None
    key: ApiKey | None
    browser: str
    created_at: datetime
    seen_at: datetime
    expires_at: datetime

    @property
    def name(self) -> str:
        """Display name."""
        if self.user is not None:
            return self.user.name
        return f"API key {self.key.label}" if self.key is not None else ""


class Sessions:
    """The part of `Deniable` that manages sessions.

    Args:
        store: the store.
        clock: current time in the stored format; replaced in tests.
    """

    def __init__(self, store: Store, clock: Callable[[], int] = times.now) -> None:
        self._store = store
        self._clock = clock

    def begin(
        self, token: str, *, seconds: int, user: str = "", key: str = "", browser: str = ""
    ) -> None:
        """Store a new session.

        Args:
            token: a random token, kept by the browser.
            seconds: how long the session lasts.
            user: the person's id, or empty.
            key: the API key's id, or empty.
            browser: the browser's user agent.
        """
        now = self._clock()
        shown = "".join(letter for letter in browser if letter.isprintable())[:LONGEST_BROWSER]

        def work(connection: Connection) -> None:
            old = now - FORGET_SECONDS * SECOND
            connection.execute(delete(sessions).where(sessions.c.expires_at < old))
            connection.execute(
                insert(sessions).values(
                    token_hash=token_hash(token),
                    user_id=bytes.fromhex(user) or None,
                    key_id=bytes.fromhex(key) or None,
                    browser=shown,
                    created_at=now,
                    expires_at=now + seconds * SECOND,
                    seen_hour=now // HOUR,
                )
            )

        self._store.retried(work)

    def find(self, token: str) -> SignedIn | None:
        """Return the session with this token; None if unknown, expired, or no longer allowed."""
        hashed = token_hash(token)
        found = self._list(sessions.c.token_hash == hashed)
        if not found:
            return None
        hour = self._clock() // HOUR
        if times.as_stored(found[0].seen_at) // HOUR < hour:
            with suppress(
                StoreUnavailableError
            ):  # failing to record the last use must not break the page
                self._store.retried(
                    lambda connection: connection.execute(
                        update(sessions)
                        .where(sessions.c.token_hash == hashed)
                        .values(seen_hour=hour)
                    )
                )
        return found[0]

    def all(self) -> list[SignedIn]:
        """Return all active sessions, newest first."""
        return self._list()

    def of(self, session: SignedIn) -> list[SignedIn]:
        """Return all sessions of the same person or API key."""
        if session.user is not None:
            return self._list(sessions.c.user_id == bytes.fromhex(session.user.id))
        if session.key is not None:
            return self._list(sessions.c.key_id == bytes.fromhex(session.key.id))
        return []

    def end(self, session_id: str) -> None:
        """End one session in every process. Safe to call twice. Raises UnknownNameError if unknown."""
        hashed = id_bytes("session", session_id)

        def work(connection: Connection) -> None:
            here = sessions.c.token_hash == hashed
            if connection.execute(select(sessions.c.created_at).where(here)).first() is None:
                raise UnknownNameError("session", session_id)
            connection.execute(
                update(sessions)
                .where(here, sessions.c.ended_at.is_(None))
                .values(ended_at=self._clock())
            )

        self._store.retried(work)

    def end_all(self, user: User) -> int:
        """End all sessions of a person; return their number."""
        mine = self._list(sessions.c.user_id == bytes.fromhex(user.id))
        for session in mine:
            self.end(session.id)
        return len(mine)

    def _list(self, *conditions: ColumnElement[bool]) -> list[SignedIn]:
        """Return active sessions of people and keys that may sign in, newest first."""
        query = (
            select(sessions)
            .where(
                sessions.c.ended_at.is_(None), sessions.c.expires_at > self._clock(), *conditions
            )
            .order_by(sessions.c.created_at.desc())
        )
        with self._store.read() as connection:
            rows = connection.execute(query).all()
            people = select(users).where(
                users.c.id.in_({row.user_id for row in rows}), users.c.disabled_at.is_(None)
            )
            keys = select(api_keys).where(
                api_keys.c.id.in_({row.key_id for row in rows}), api_keys.c.revoked_at.is_(None)
            )
            who = {row.id: user_of(row) for row in connection.execute(people)}
            with_key = {row.id: key_of(row) for row in connection.execute(keys)}
        return [
            SignedIn(
                id=row.token_hash.hex(),
                user=who.get(row.user_id),
                key=with_key.get(row.key_id),
                browser=row.browser,
                created_at=times.as_datetime(row.created_at),
                seen_at=times.as_datetime(row.seen_hour * HOUR),
                expires_at=times.as_datetime(row.expires_at),
            )
            for row in rows
            if row.user_id in who or row.key_id in with_key
        ]


def token_hash(token: str) -> bytes:
    """Return the stored form of a token."""
    return sha256(token.encode("utf-8", "replace")).digest()
