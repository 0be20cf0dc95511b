"""People: named users with roles, who choose a password through a one-time link.

Every change is an `access` entry in the ledger. Secrets are not recorded: only the SHA-256 of a
link and the Argon2id hash of a password are stored.
"""

from __future__ import annotations

import hmac
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import TypeVar, cast

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from deniable.errors import (
    InvalidArgumentError,
    TooManyAttemptsError,
    UnknownNameError,
    WrongStateError,
)
from deniable.service import passwords
from deniable.storage import commitments, times
from deniable.storage.records import ROLES, User, UserRole
from deniable.storage.schema import StoredRow, attempts, invites, sessions, users
from deniable.storage.store import Store

T = TypeVar("T")

SECOND = 1_000_000
INVITE_HOURS = 72
MOST_INVITE_HOURS = 30 * 24
WINDOW_SECONDS = 15 * 60
LIMITS = {"pair": 10, "name": 50, "address": 100}
"""Allowed wrong passwords per quarter of an hour: per name and address, per name, per address."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,63}")
NAME_ALLOWED = (
    "1 to 64 letters a-z, digits, '.', '_', '@', '+' or '-', beginning with a letter or digit"
)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True)
class Invitation:
    """An invitation link, whose secret part is shown once.

    Attributes:
        user: the invited person.
        token: 256 random bits; the page is `/invite/TOKEN`.
        expires_at: when it expires.
    """

    user: User
    token: str = field(repr=False)
    expires_at: datetime

    @property
    def path(self) -> str:
        """The page where the person chooses a password."""
        return f"/invite/{self.token}"


class People:
    """The part of `Deniable` that manages users.

    Args:
        store: the store.
        key: 32 secret bytes, for hashing the names and addresses of sign-in attempts.
        clock: current time in the stored format; replaced in tests.
    """

    def __init__(self, store: Store, key: bytes, clock: Callable[[], int] = times.now) -> None:
        self._store = store
        self._key = key
        self._clock = clock

    def all(self) -> list[User]:
        """Return everyone by name, including disabled people."""
        with self._store.read() as connection:
            return [
                user_of(row) for row in connection.execute(select(users).order_by(users.c.name))
            ]

    def get(self, name: str) -> User:
        """Return one person, or raise UnknownNameError."""
        with self._store.read() as connection:
            return _by_name(connection, name)

    def invite(
        self, name: str, role: UserRole | None = None, *, hours: int = INVITE_HOURS
    ) -> Invitation:
        """Create a link for a new person, or for one who needs a new password. Earlier links expire.

        Args:
            name: what the person signs in with.
            role: role of a new person; for an existing person, a different one changes the role.
            hours: how long the link is valid.

        Raises:
            WrongStateError: the person is disabled.
        """
        name = checked_name(name)
        if role is not None:
            _checked_role(role)
        if type(hours) is not int or not 1 <= hours <= MOST_INVITE_HOURS:
            raise InvalidArgumentError("hours", hours, f"1 to {MOST_INVITE_HOURS}")
        token = urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
        now = self._clock()

        def work(connection: Connection) -> Invitation:
            row = connection.execute(select(users).where(users.c.name == name)).one_or_none()
            if row is None:
                if role is None:
                    raise InvalidArgumentError("role", role, f"one of {', '.join(ROLES)}")
                identity = os.urandom(16)
                connection.execute(
                    insert(users).values(id=identity, name=name, role=role, created_at=now)
                )
            else:
                identity = row.id
                if row.disabled_at is not None:
                    raise WrongStateError(f"{name} is disabled: enable this person first")
                if role is not None and role != row.role:
                    connection.execute(
                        update(users).where(users.c.id == identity).values(role=role)
                    )
            connection.execute(delete(invites).where(invites.c.user_id == identity))
            expires = now + hours * 3600 * SECOND
            connection.execute(
                insert(invites).values(
                    token_hash=_hashed(token), user_id=identity, created_at=now, expires_at=expires
                )
            )
            user = _by_name(connection, name)
            commitments.record(connection, "access", None, act="invite", user=name, role=user.role)
            return Invitation(user, token, times.as_datetime(expires))

        return self._changed(work)

    def invited(self, token: str) -> User | None:
        """Return whom a link invites; None if it is unknown, used, replaced or expired."""
        with self._store.read() as connection:
            found = self._invited(connection, token)
            return None if found is None else user_of(found)

    def accept(self, token: str, password: str) -> User | None:
        """Set the password of the invited person, once; returns None if the link is invalid.

        Ends all sessions of this person.

        Raises:
            InvalidArgumentError: the password is too weak; the link stays valid.
        """
        user = self.invited(token)
        if user is None:
            return None
        stored = passwords.hashed(password, user.name)

        def work(connection: Connection) -> User | None:
            now = self._clock()
            row = self._invited(connection, token)
            taken = connection.execute(
                update(invites)
                .where(invites.c.token_hash == _hashed(token), invites.c.used_at.is_(None))
                .values(used_at=now)
            ).rowcount
            if row is None or taken != 1:
                return None
            act = "join" if row.joined_at is None else "password"
            self._set_password(connection, row.id, stored, joined_at=row.joined_at or now)
            commitments.record(connection, "access", None, act=act, user=row.name, role=row.role)
            return _by_name(connection, row.name)

        return self._changed(work)

    def sign_in(self, name: str, password: str, address: str = "") -> User | None:
        """Return the person, or None if unknown, disabled or wrong. All three take equally long.

        Args:
            name: as entered.
            password: as entered.
            address: client address, for the limits.

        Raises:
            TooManyAttemptsError: too many wrong passwords; this one was not checked.
        """
        name = name.strip().lower()[:200]
        buckets = self._buckets(name, address)
        self._count(buckets)
        with self._store.read() as connection:
            row = _found(connection, name)
        usable = None if row is None or row.disabled_at is not None else row.password_hash
        if not passwords.matches(usable, password):
            return None
        assert row is not None

        def forgive(connection: Connection) -> None:
            connection.execute(delete(attempts).where(attempts.c.bucket == buckets["pair"]))
            for kind in ("name", "address"):
                connection.execute(
                    update(attempts)
                    .where(attempts.c.bucket == buckets[kind], attempts.c.tried > 0)
                    .values(tried=attempts.c.tried - 1)
                )
            if passwords.outdated(row.password_hash):
                stored = passwords.hasher().hash(password)
                connection.execute(
                    update(users).where(users.c.id == row.id).values(password_hash=stored)
                )

        self._store.retried(forgive)
        return user_of(row)

    def change_password(self, name: str, password: str, *, keep: bytes = b"") -> User:
        """Set a new password. Ends all sessions of this person except the one with this token hash."""
        stored = passwords.hashed(password, name)

        def work(connection: Connection) -> User:
            row = _row(connection, name)
            self._set_password(connection, row.id, stored, joined_at=row.joined_at, keep=keep)
            commitments.record(
                connection, "access", None, act="password", user=row.name, role=row.role
            )
            return _by_name(connection, name)

        return self._changed(work)

    def set_role(self, name: str, role: UserRole) -> User:
        """Change a person's role, effective from the next request."""
        _checked_role(role)
        return self._updated(name, "role", role=role)

    def disable(self, name: str) -> User:
        """Disable a person: sessions and links end. The name stays in the ledger."""
        return self._updated(name, "disable", disabled_at=self._clock())

    def enable(self, name: str) -> User:
        """Let a disabled person sign in again with the old password."""
        return self._updated(name, "enable", disabled_at=None)

    # -- internals ---------------------------------------------------------------------------

    def _updated(self, name: str, act: str, **values: object) -> User:
        def work(connection: Connection) -> User:
            row = _row(connection, name)
            before = {"role": row.role, "disabled": row.disabled_at is not None}
            after = {"role": values.get("role", row.role), "disabled": act == "disable"}
            if act == "role":
                after["disabled"] = before["disabled"]
            if before == after:
                return user_of(row)
            connection.execute(update(users).where(users.c.id == row.id).values(**values))
            if act == "disable":
                _end_sessions(connection, row.id, self._clock())
                connection.execute(delete(invites).where(invites.c.user_id == row.id))
            changed = _by_name(connection, row.name)
            commitments.record(
                connection, "access", None, act=act, user=row.name, role=changed.role
            )
            return changed

        return self._changed(work)

    def _changed(self, work: Callable[[Connection], T]) -> T:
        def alone(connection: Connection) -> T:
            commitments.lock_chain(connection)
            return work(connection)

        return self._store.retried(alone)

    def _invited(self, connection: Connection, token: str) -> StoredRow | None:
        if not _TOKEN.fullmatch(token):
            return None
        return connection.execute(
            select(users)
            .join(invites, invites.c.user_id == users.c.id)
            .where(
                invites.c.token_hash == _hashed(token),
                invites.c.used_at.is_(None),
                invites.c.expires_at > self._clock(),
                users.c.disabled_at.is_(None),
            )
        ).one_or_none()

    def _set_password(
        self,
        connection: Connection,
        identity: bytes,
        stored: str,
        *,
        joined_at: int | None,
        keep: bytes = b"",
    ) -> None:
        connection.execute(
            update(users)
            .where(users.c.id == identity)
            .values(password_hash=stored, joined_at=joined_at)
        )
        _end_sessions(connection, identity, self._clock(), keep)

    def _buckets(self, name: str, address: str) -> dict[str, bytes]:
        def hashed(*parts: str) -> bytes:
            text = "\n".join(parts).encode("utf-8", "replace")
            return hmac.digest(self._key, text, "sha256")

        return {
            "pair": hashed("pair", name, address),
            "name": hashed("name", name),
            "address": hashed("address", address),
        }

    def _count(self, buckets: dict[str, bytes]) -> None:
        """Count an attempt, and retry if another process inserted the same row meanwhile."""
        for attempt in range(3):
            try:
                self._store.retried(lambda connection: self._try(connection, buckets))
                return
            except IntegrityError:
                if attempt == 2:
                    raise

    def _try(self, connection: Connection, buckets: dict[str, bytes]) -> None:
        """Count an attempt before checking it, so that many at once cannot bypass the limit."""
        now = self._clock()
        old = now - WINDOW_SECONDS * SECOND
        connection.execute(delete(attempts).where(attempts.c.since <= old))
        found = {
            row.bucket: row
            for row in connection.execute(
                select(attempts)
                .where(attempts.c.bucket.in_(list(buckets.values())))
                .with_for_update()
            )
        }
        full = [
            found[bucket].since
            for kind, bucket in buckets.items()
            if bucket in found and found[bucket].tried >= LIMITS[kind]
        ]
        if full:
            raise TooManyAttemptsError(seconds=max(1, (max(full) - old) // SECOND))
        for bucket in buckets.values():
            if bucket in found:
                connection.execute(
                    update(attempts)
                    .where(attempts.c.bucket == bucket)
                    .values(tried=attempts.c.tried + 1)
                )
            else:
                connection.execute(insert(attempts).values(bucket=bucket, tried=1, since=now))


def checked_name(name: str) -> str:
    """Return the name as stored.

    >>> checked_name(" Ada@Firm.example ")
    'ada@firm.example'
    """
    lowered = name.strip().lower()
    if not _NAME.fullmatch(lowered):
        raise InvalidArgumentError("name", name, NAME_ALLOWED)
    return lowered


def user_of(row: StoredRow) -> User:
    """Convert a row of `users` to a record."""
    return User(
        id=row.id.hex(),
        name=row.name,
        role=cast(UserRole, row.role),
        created_at=times.as_datetime(row.created_at),
        joined_at=times.maybe_datetime(row.joined_at),
        disabled_at=times.maybe_datetime(row.disabled_at),
    )


def _checked_role(role: str) -> None:
    if role not in ROLES:
        raise InvalidArgumentError("role", role, f"one of {', '.join(ROLES)}")


def _hashed(token: str) -> bytes:
    return sha256(token.encode("ascii", "replace")).digest()


def _row(connection: Connection, name: str) -> StoredRow:
    row = _found(connection, name.strip().lower())
    if row is None:
        raise UnknownNameError("person", name)
    return row


def _found(connection: Connection, name: str) -> StoredRow | None:
    """Return the row with this name. Invalid names are queried too, so that timing is the same."""
    # Some stores fail on characters that names cannot contain.
    asked = name if _NAME.fullmatch(name) else ""
    return connection.execute(select(users).where(users.c.name == asked)).one_or_none()


def _by_name(connection: Connection, name: str) -> User:
    return user_of(_row(connection, name))


def _end_sessions(connection: Connection, user: bytes, now: int, keep: bytes = b"") -> None:
    connection.execute(
        update(sessions)
        .where(
            sessions.c.user_id == user,
            sessions.c.ended_at.is_(None),
            sessions.c.token_hash != keep,
        )
        .values(ended_at=now)
    )
