"""Passwords: Argon2id with the parameters of RFC 9106, and the rules for new passwords.

Checking takes equally long whether or not the name exists: without a hash, a dummy hash is checked.
At most two checks run at once, each using 64 MiB of memory.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from threading import BoundedSemaphore
from typing import TYPE_CHECKING

from deniable.errors import InvalidArgumentError, OverloadedError

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST, LONGEST = 12, 200
FEWEST_LETTERS = 5
ALLOWED = (
    f"{SHORTEST} to {LONGEST} characters, at least {FEWEST_LETTERS} different, without the name"
)
_AT_ONCE = 2
_PATIENCE_SECONDS = 10

_turns = BoundedSemaphore(_AT_ONCE)


@cache
def hasher() -> PasswordHasher:
    """Return the Argon2id hasher with the library's recommended parameters."""
    from argon2 import PasswordHasher

    return PasswordHasher()


@cache
def _of_nobody() -> str:
    return hasher().hash("nobody has this password")


def hashed(password: str, name: str) -> str:
    """Hash a new password; raise InvalidArgumentError (without the password) if it is too weak."""
    text = _normalised(password)
    weak = (
        not SHORTEST <= len(text) <= LONGEST
        or len(set(text)) < FEWEST_LETTERS
        or name.casefold() in text.casefold()
    )
    if weak:
        raise InvalidArgumentError("password", "...", ALLOWED)
    with _Turn():
        return hasher().hash(text)


def matches(stored: str | None, password: str) -> bool:
    """Whether the password is correct. Without a stored hash it is not, after the same work."""
    from argon2.exceptions import VerificationError

    with _Turn():
        of_nobody = _of_nobody()  # always computed, so that the first check takes equally long
        try:
            hasher().verify(stored or of_nobody, _normalised(password)[:LONGEST])
        except VerificationError:
            return False
    return stored is not None


def outdated(stored: str) -> bool:
    """Whether the library now recommends stronger parameters than this hash has."""
    return hasher().check_needs_rehash(stored)


def _normalised(password: str) -> str:
    """Normalise Unicode across keyboards; characters that cannot be encoded become question marks."""
    text = unicodedata.normalize("NFKC", password)
    return text.encode("utf-8", "replace").decode()


class _Turn:
    """Limits memory use. Callers that wait too long are asked to retry."""

    def __enter__(self) -> None:
        if not _turns.acquire(timeout=_PATIENCE_SECONDS):
            raise OverloadedError("too many people are signing in; try again in a moment")

    def __exit__(self, *_failure: object) -> None:
        _turns.release()
