"""Decision ids: the stored form and the shown form.

A stored id has 16 bytes: the experiment's tag (4), a mark (4) and an ending (8). The mark is random
and shared by decisions that are inserted together. This makes them neighbours in the index, so a
batch changes few index pages; with random ids it would change one page per decision.

The mark would reveal who came at the same time, so it never leaves the service: ids are shown with
the mark encrypted by a keyed hash of the ending.

    shown mark = stored mark XOR BLAKE2b(ending; key of the experiment)

Without the key, the 12 bytes after the tag are uniform and independent of those of every other id, as
long as no two endings are equal (a chance of n^2 / 2^65 among n decisions).

Decisions from before migration 0004 are shown as they are stored.
"""

from __future__ import annotations

import hmac
from hashlib import blake2b

_number = int.from_bytes


class DecisionIds:
    """Converts between the two forms of an experiment's decision ids.

    Args:
        key: key for visitor HMACs; the key for ids is derived from it.
        experiment: the experiment's id.

    >>> ids = DecisionIds(b"k" * 32, bytes(16))
    >>> ids.shown(bytes(16))
    '00000000a6ad86800000000000000000'
    >>> ids.stored(bytes.fromhex(ids.shown(b"tagsmarktheending"[:16]))).decode()
    'tagsmarktheendin'
    """

    __slots__ = ("_keyed",)

    def __init__(self, key: bytes, experiment: bytes) -> None:
        own = hmac.digest(key, b"deniable decision ids" + experiment, "sha256")
        self._keyed = blake2b(key=own, digest_size=4)

    def shown(self, stored: bytes) -> str:
        """The id that leaves, as hexadecimal digits."""
        hashed = self._keyed.copy()
        hashed.update(stored[8:])
        mask = _number(hashed.digest(), "big") << 64
        return (_number(stored, "big") ^ mask).to_bytes(16, "big").hex()

    def stored(self, shown: bytes) -> bytes:
        """Return the stored form of a shown id. The operation is its own inverse."""
        return bytes.fromhex(self.shown(shown))
