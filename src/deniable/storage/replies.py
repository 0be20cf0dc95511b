"""Stored responses to administrative requests, by the hash of their idempotency key."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from deniable.storage import times
from deniable.storage.schema import replies

SECOND = 1_000_000


class StoredReply(NamedTuple):
    """One row; a status of 0 means that the request is still in progress."""

    request_hash: bytes
    status: int
    body: bytes


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
