"""A document: a report with a number and a fingerprint, made at one height of the ledger."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256

from deniable.report.content import Field, Section


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
