"""What a document is made of: sections of paragraphs, lists, tables, blanks and signature lines.

All text is plain. How it looks, and how names in it are made harmless, is for `rendering` to say.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TypeAlias


@dataclass(frozen=True)
class Paragraph:
    """One paragraph."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list of short paragraphs."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Field:
    """A label with its value.

    Attributes:
        label: what it is.
        value: empty where people fill it in.
        hint: what to fill in.
    """

    label: str
    value: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Fields:
    """Labels with values, one below the other."""

    rows: tuple[Field, ...]


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes:
        caption: what it shows.
        header: one name for each column.
        rows: of text.
        words: how many of the first columns are words; the others are numbers.
        small: whether it has long numbers.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    small: bool = False


@dataclass(frozen=True)
class Signatures:
    """Lines to sign on: name, position, place and date, signature."""

    parties: tuple[str, ...]


Block: TypeAlias = Paragraph | Bullets | Fields | Grid | Signatures


@dataclass(frozen=True)
class Section:
    """A heading and what is below it.

    Attributes:
        title: the heading.
        blocks: in order.
        annex: whether it begins on a page of its own.
    """

    title: str
    blocks: tuple[Block, ...]
    annex: bool = False


@dataclass(frozen=True)
class Document:
    """A whole document.

    Attributes:
        kind: statement, dpia, registry or record.
        title: its heading.
        number: under which it was issued; empty for a draft.
        height: the last entry of the ledger that it was made from.
        head: that entry's hash, hexadecimal.
        cover: labels and values below the title.
        sections: in order.

    >>> draft = Document("record", "Record", "", 7, "00" * 32, (), ())
    >>> draft.fingerprint()[:16], draft.issued
    ('20aa9cea7657597a', False)
    """

    kind: str
    title: str
    number: str
    height: int
    head: str
    cover: tuple[Field, ...]
    sections: tuple[Section, ...]

    @property
    def issued(self) -> bool:
        """Whether it has a number."""
        return bool(self.number)

    def fingerprint(self) -> str:
        """SHA-256 of all that it says, whatever it looks like: it is printed in the document."""
        text = json.dumps(asdict(self), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return sha256(text.encode("ascii")).hexdigest()
