"""The content of a document: sections of paragraphs, lists, tables, blanks and signature lines.

All text is plain. `rendering` handles its appearance and escaping.
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
        label: the label.
        value: the value; empty if people fill it in.
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
        caption: caption.
        header: one name per column.
        rows: rows of text.
        words: number of leading text columns; the others are numbers.
        small: whether it has long numbers.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    small: bool = False


@dataclass(frozen=True)
class Signatures:
    """Signature lines: name, position, place and date, signature."""

    parties: tuple[str, ...]


Block: TypeAlias = Paragraph | Bullets | Fields | Grid | Signatures


@dataclass(frozen=True)
class Section:
    """A heading with its content.

    Attributes:
        title: the heading.
        blocks: in order.
        annex: whether it starts on a new page.
    """

    title: str
    blocks: tuple[Block, ...]
    annex: bool = False


@dataclass(frozen=True)
class Document:
    """A complete document.

    Attributes:
        kind: statement, dpia, registry or record.
        title: its heading.
        number: the number under which it was issued; empty for a draft.
        height: the last ledger entry that it was made from.
        head: that entry's hash, in hexadecimal.
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
        """Return the SHA-256 of its content, independent of its appearance, which is printed in it."""
        text = json.dumps(asdict(self), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return sha256(text.encode("ascii")).hexdigest()
