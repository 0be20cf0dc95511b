"""Stored responses to administrative requests with an idempotency key, kept for a day.

A request reserves its key, acts, then stores its response; a retry gets that response and does
nothing. A reservation whose process died expires after a minute.
"""

from __future__ import annotations

from deniable.storage import replies
from deniable.storage.replies import StoredReply
from deniable.storage.store import Store

REMEMBERED_SECONDS = 24 * 3600
RESERVED_SECONDS = 60


class Idempotency:
    """The part of `Deniable` that stores responses."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def reserve(self, key: bytes, request_hash: bytes) -> StoredReply | None:
        """Reserve the key for a request and return None, or return what is stored under it."""
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
        """Store the response, or release the key if it is None."""
        self._store.retried(lambda connection: replies.finish(connection, key, status, body))
