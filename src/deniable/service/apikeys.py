"""API keys with scopes: the secret is shown once, only its SHA-256 is stored.

A secret has 256 random bits, so a plain hash is enough: there is nothing to guess.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest

from deniable.errors import InvalidArgumentError, UnknownNameError
from deniable.storage import apikeys
from deniable.storage.records import SCOPES, ApiKey, Scope
from deniable.storage.store import Store

PREFIX = "dnb_"
LONGEST_LABEL = 200


class ApiKeys:
    """The part of `Deniable` that knows who may call."""

    _store: Store

    def create_api_key(self, label: str, scopes: Sequence[Scope]) -> tuple[str, ApiKey]:
        """A new key: the secret (`dnb_...`, not stored) and its record."""
        if not isinstance(label, str) or not 0 < len(label) <= LONGEST_LABEL:
            raise InvalidArgumentError("label", label, f"text of 1 to {LONGEST_LABEL} characters")
        if not label.isprintable():
            raise InvalidArgumentError("label", label, "printable text")
        wanted = tuple(scope for scope in SCOPES if scope in scopes)
        if not wanted or set(scopes) - set(SCOPES):
            raise InvalidArgumentError("scopes", tuple(scopes), f"some of {', '.join(SCOPES)}")
        secret = PREFIX + urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
        key = self._store.retried(
            lambda connection: apikeys.add(connection, label, wanted, _hash(secret))
        )
        return secret, key

    def api_keys(self) -> list[ApiKey]:
        """All keys, also the revoked ones, oldest first."""
        with self._store.read() as connection:
            return apikeys.everything(connection)

    def revoke_api_key(self, key_id: str) -> ApiKey:
        """From now on this key is refused (by other processes within their cache's age)."""
        try:
            identity = bytes.fromhex(key_id)
        except ValueError:
            raise UnknownNameError("API key", key_id) from None
        return self._store.retried(lambda connection: apikeys.revoke(connection, identity))

    def authenticate(self, secret: str) -> ApiKey | None:
        """The key with this secret, or None if there is none or it was revoked."""
        wanted = _hash(secret)
        with self._store.read() as connection:
            found = apikeys.valid(connection, wanted)
        return found[0] if found is not None and compare_digest(found[1], wanted) else None


def _hash(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
