"""API keys with scopes. The secret is shown once; only its SHA-256 is stored.

A secret has 256 random bits, so it cannot be guessed and a plain hash is enough.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256

from sqlalchemy import Connection, insert, select, update

from deniable.errors import InvalidArgumentError, UnknownNameError
from deniable.service.ids import id_bytes
from deniable.service.limits import LONGEST_KEY_LABEL
from deniable.storage import commitments, times
from deniable.storage.account_rules import HOUR
from deniable.storage.records import SCOPES, ApiKey, Scope
from deniable.storage.schema import StoredRow, api_keys
from deniable.storage.store import Store

PREFIX = "dnb_"
"""Prefix of every secret, so that secret scanners can find leaked ones."""


class ApiKeys:
    """The part of `Deniable` that manages API keys."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, label: str, scopes: Sequence[Scope]) -> tuple[str, ApiKey]:
        """Create a key. Returns the secret (`dnb_...`, not stored) and the record."""
        if not 0 < len(label) <= LONGEST_KEY_LABEL or not label.isprintable():
            allowed = f"printable text of 1 to {LONGEST_KEY_LABEL} characters"
            raise InvalidArgumentError("label", label, allowed)
        wanted = tuple(scope for scope in SCOPES if scope in scopes)
        if not wanted or len(wanted) != len(set(scopes)):
            raise InvalidArgumentError("scopes", list(scopes), f"some of {', '.join(SCOPES)}")
        identity = os.urandom(16)
        secret = PREFIX + urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")

        def create(connection: Connection) -> ApiKey:
            commitments.lock_chain(connection)
            commitments.record(
                connection, "access", None, act="create key", key=label, scopes=list(wanted)
            )
            connection.execute(
                insert(api_keys).values(
                    id=identity,
                    label=label,
                    secret_hash=_hashed(secret),
                    scopes=" ".join(wanted),
                    created_at=times.now(),
                )
            )
            return _one(connection, identity)

        return secret, self._store.retried(create)

    def all(self) -> list[ApiKey]:
        """Return all keys, including revoked ones, oldest first."""
        with self._store.read() as connection:
            rows = connection.execute(select(api_keys).order_by(api_keys.c.created_at))
            return [key_of(row) for row in rows]

    def revoke(self, key_id: str) -> ApiKey:
        """Refuse this key from now on. Revoking it again keeps the first time."""
        identity = id_bytes("API key", key_id)

        def revoke(connection: Connection) -> ApiKey:
            commitments.lock_chain(connection)
            revoked = connection.execute(
                update(api_keys)
                .where(api_keys.c.id == identity, api_keys.c.revoked_at.is_(None))
                .values(revoked_at=times.now())
            ).rowcount
            key = _one(connection, identity)
            if revoked:
                commitments.record(connection, "access", None, act="revoke key", key=key.label)
            return key

        return self._store.retried(revoke)

    def authenticate(self, secret: str) -> ApiKey | None:
        """Return the key with this secret, or None if it is unknown or revoked."""
        with self._store.read() as connection:
            row = connection.execute(
                select(api_keys).where(
                    api_keys.c.secret_hash == _hashed(secret), api_keys.c.revoked_at.is_(None)
                )
            ).one_or_none()
        return None if row is None else key_of(row)

    def note_use(self, key: ApiKey) -> None:
        """Record that a key was used in this hour."""
        self._store.retried(
            lambda connection: connection.execute(
                update(api_keys)
                .where(api_keys.c.id == bytes.fromhex(key.id))
                .values(last_used_hour=times.now() // HOUR)
            )
        )


def _hashed(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _one(connection: Connection, identity: bytes) -> ApiKey:
    row = connection.execute(select(api_keys).where(api_keys.c.id == identity)).one_or_none()
    if row is None:
        raise UnknownNameError("API key", identity.hex())
    return key_of(row)


def key_of(row: StoredRow) -> ApiKey:
    """Convert a row of `api_keys` to a record."""
    hour = row.last_used_hour
    return ApiKey(
        id=row.id.hex(),
        label=row.label,
        scopes=tuple(row.scopes.split()),
        created_at=times.as_datetime(row.created_at),
        revoked_at=times.maybe_datetime(row.revoked_at),
        last_used_at=None if hour is None else times.as_datetime(hour * HOUR),
    )
