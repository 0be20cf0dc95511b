"""One form for all spellings of a visitor id: an id that looks the same must not get a second draw."""

from __future__ import annotations

import unicodedata
from itertools import chain

INVISIBLE = (
    (0x00, 0x1F),
    (0x7F, 0x9F),
    (0xAD, 0xAD),
    (0x34F, 0x34F),
    (0x600, 0x605),
    (0x61C, 0x61C),
    (0x6DD, 0x6DD),
    (0x70F, 0x70F),
    (0x890, 0x891),
    (0x8E2, 0x8E2),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFB),
    (0x110BD, 0x110BD),
    (0x110CD, 0x110CD),
    (0x13430, 0x1343F),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
"""Characters that are not part of an id, by first and last code point.

Unicode's controls (Cc), format characters (Cf) and whatever else it says to ignore by default: fillers
and variation selectors. Written out, because each version of Python has its own version of Unicode.
"""

_REMOVED = dict.fromkeys(chain.from_iterable(range(first, last + 1) for first, last in INVISIBLE))


def normalised(visitor: str) -> str:
    r"""Normalise an id: no invisible characters, Unicode's composed form, no surrounding white space.

    Case is kept, because it may distinguish two ids.

    >>> normalised(" v-1\n"), normalised("v\u200b-1"), normalised("Cafe\u0301") == "Caf\u00e9"
    ('v-1', 'v-1', True)
    """
    if visitor.isascii() and visitor.isprintable():
        return visitor.strip()
    return unicodedata.normalize("NFC", visitor.translate(_REMOVED)).strip()


def spellings(visitor: str) -> list[str]:
    r"""All forms under which decisions of an id may be stored, the oldest first.

    At first ids were stored as written, then composed and trimmed, now without invisible characters.

    >>> spellings("v-1"), spellings(" v\u200b")
    (['v-1'], [' v\u200b', 'v\u200b', 'v'])
    """
    trimmed = unicodedata.normalize("NFC", visitor.strip())
    return [*dict.fromkeys((visitor, trimmed, normalised(visitor)))]
