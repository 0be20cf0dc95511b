"""Random bytes from the operating system, fetched once for a whole batch."""

from __future__ import annotations

import os

from deniable.errors import DeniableError


class EntropyError(DeniableError):
    """The operating system gave no random bytes; nothing can be drawn."""


def system_bytes(count: int) -> bytes:
    """`count` bytes of `os.urandom`, or EntropyError."""
    try:
        return os.urandom(count)
    except (OSError, NotImplementedError) as error:
        raise EntropyError("the operating system gives no random bytes") from error


class EntropyPool:
    """Hands out bytes that were fetched in one call; every byte once.

    >>> pool = EntropyPool(16)
    >>> pool(8) != pool(8)
    True
    """

    __slots__ = ("_bytes", "_used")

    def __init__(self, count: int) -> None:
        self._bytes = system_bytes(count)
        self._used = 0

    def __call__(self, count: int) -> bytes:
        """The next `count` bytes."""
        start = self._used
        self._used = end = start + count
        piece = self._bytes[start:end]
        if len(piece) < count:
            raise EntropyError("more random bytes were used than fetched")
        return piece
