"""Stored responses to administrative requests, by the hash of their idempotency key.

A request reserves its key, acts, then stores its response; a retry gets that response and does
nothing. A reservation whose process died expires after a minute.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from deniable.storage import times
from deniable.storage.schema import replies
from deniable.storage.store import Store

SECOND = 1_000_000
REMEMBERED_SECONDS = 24 * 3600
RESERVED_SECONDS = 60


class StoredReply(NamedTuple):
    """One row; a status of 0 means that the request is still in progress."""

    request_hash: bytes
    status: int
    body: bytes


class Idempotency:
    """Responses in a store, kept for a day."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def reserve(self, key: bytes, request_hash: bytes) -> StoredReply | None:
        """Reserve the key for a request and return None, or return what is stored under it."""
        return self._store.retried(
            lambda connection: reserve(
                connection,
                key,
                request_hash,
                forget_seconds=REMEMBERED_SECONDS,
                stale_seconds=RESERVED_SECONDS,
            )
        )

    def finish(self, key: bytes, status: int, body: bytes | None) -> None:
        """Store the response, or release the key if it is None."""
        self._store.retried(lambda connection: finish(connection, key, status, body))


def reserve(
    connection: Connection,
    key: bytes,
    request_hash: bytes,
    *,
    forget_seconds: int,
    stale_seconds: int,
) -> StoredReply | None:
    """Reserve the key and return None, or return what is stored under it.

    Also deletes old responses, and reservations that were never finished.
    """
    now = times.now()
    connection.execute(
        delete(replies).where(
            (replies.c.created_at < now - forget_seconds * SECOND)
            | ((replies.c.status == 0) & (replies.c.created_at < now - stale_seconds * SECOND))
        )
    )
    row = connection.execute(
        select(replies.c.request_hash, replies.c.status, replies.c.body).where(
            replies.c.idempotency_key == key
        )
    ).one_or_none()
    if row is not None:
        return StoredReply(*row)
    try:
        connection.execute(
            insert(replies).values(
                idempotency_key=key, request_hash=request_hash, status=0, body=b"", created_at=now
            )
        )
    except IntegrityError:  # another process received the same request a moment earlier
        return StoredReply(request_hash, 0, b"")
    return None


def finish(connection: Connection, key: bytes, status: int, body: bytes | None) -> None:
    """Store the response, or release the key if there is none to store."""
    here = replies.c.idempotency_key == key
    if body is None:
        connection.execute(delete(replies).where(here))
    else:
        connection.execute(update(replies).where(here).values(status=status, body=body))
