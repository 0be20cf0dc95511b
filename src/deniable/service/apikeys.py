"""API keys with scopes: the secret is shown once, only its SHA-256 is stored.

A secret has 256 random bits, so a plain hash is enough: there is nothing to guess.
"""

from __future__ import annotations

from collections.abc import Sequence

from deniable.storage.records import ApiKey, Scope
from deniable.storage.store import Store


class ApiKeys:
    """The part of `Deniable` that knows who may call."""

    _store: Store

    def create_api_key(self, label: str, scopes: Sequence[Scope]) -> tuple[str, ApiKey]:
        """A new key: the secret (`dnb_...`, not stored) and its record."""
        raise NotImplementedError

    def api_keys(self) -> list[ApiKey]:
        """All keys, also the revoked ones, oldest first."""
        raise NotImplementedError

    def revoke_api_key(self, key_id: str) -> ApiKey:
        """From now on this key is refused (by other processes within their cache's age)."""
        raise NotImplementedError

    def authenticate(self, secret: str) -> ApiKey | None:
        """The key with this secret, or None if there is none or it was revoked."""
        raise NotImplementedError
