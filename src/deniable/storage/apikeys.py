"""API keys in the store: inserted, listed, revoked and found by the hash of their secret."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select, update

from deniable.errors import UnknownNameError
from deniable.storage import times
from deniable.storage.records import ApiKey, Scope
from deniable.storage.schema import api_keys


def add(connection: Connection, label: str, scopes: Sequence[Scope], secret_hash: bytes) -> ApiKey:
    """Store a new key."""
    identity = os.urandom(16)
    connection.execute(
        insert(api_keys).values(
            id=identity,
            label=label,
            secret_hash=secret_hash,
            scopes=",".join(scopes),
            created_at=times.now(),
        )
    )
    return _one(connection, identity)


def everything(connection: Connection) -> list[ApiKey]:
    """All keys, oldest first."""
    rows = connection.execute(select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id))
    return [_key(row) for row in rows]


def revoke(connection: Connection, identity: bytes) -> ApiKey:
    """Mark a key as revoked, once; UnknownNameError where there is none."""
    connection.execute(
        update(api_keys)
        .where(api_keys.c.id == identity, api_keys.c.revoked_at.is_(None))
        .values(revoked_at=times.now())
    )
    return _one(connection, identity)


def valid(connection: Connection, secret_hash: bytes) -> tuple[ApiKey, bytes] | None:
    """The key with this hash of its secret that is not revoked, and the stored hash."""
    row = connection.execute(
        select(api_keys).where(
            api_keys.c.secret_hash == secret_hash, api_keys.c.revoked_at.is_(None)
        )
    ).one_or_none()
    return None if row is None else (_key(row), row.secret_hash)


def _one(connection: Connection, identity: bytes) -> ApiKey:
    row = connection.execute(select(api_keys).where(api_keys.c.id == identity)).one_or_none()
    if row is None:
        raise UnknownNameError("API key", identity.hex())
    return _key(row)


def _key(row: Any) -> ApiKey:
    return ApiKey(
        id=row.id.hex(),
        label=row.label,
        scopes=tuple(row.scopes.split(",")),
        created_at=times.as_datetime(row.created_at),
        revoked_at=times.maybe_datetime(row.revoked_at),
    )
