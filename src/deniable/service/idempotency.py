"""Answers to administrative requests that carried an idempotency key, kept for a day.

A request reserves its key, acts, then stores its answer; a retry finds that answer and acts no more.
A reservation whose process died frees itself after a minute. That a session was ended is remembered the
same way: sessions live for less than a day.
"""

from __future__ import annotations

from hashlib import sha256

from sqlalchemy import select

from deniable.storage import replies
from deniable.storage.replies import StoredReply
from deniable.storage.schema import replies as table
from deniable.storage.store import Store

REMEMBERED_SECONDS = 24 * 3600
RESERVED_SECONDS = 60
ENDED = 410


class Idempotency:
    """The part of `Deniable` that remembers answers."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def reserve(self, key: bytes, request_hash: bytes) -> StoredReply | None:
        """Take the key for a request and return None, or return what is stored under it."""
        return self._store.retried(
            lambda connection: replies.reserve(
                connection,
                key,
                request_hash,
                forget_seconds=REMEMBERED_SECONDS,
                stale_seconds=RESERVED_SECONDS,
            )
        )

    def finish(self, key: bytes, status: int, body: bytes | None) -> None:
        """Remember the answer, or free the key where it is None."""
        self._store.retried(lambda connection: replies.finish(connection, key, status, body))

    def end_session(self, session: str) -> None:
        """Refuse a signed-in person's session from now on, in every process."""
        key = _session_key(session)
        if self.reserve(key, key) is None:
            self.finish(key, ENDED, b"")

    def session_ended(self, session: str) -> bool:
        """Whether this session was ended."""
        with self._store.read() as connection:
            found = connection.execute(
                select(table.c.status).where(table.c.idempotency_key == _session_key(session))
            ).scalar()
        return found is not None


def _session_key(session: str) -> bytes:
    return sha256(b"ended session " + session.encode()).digest()
