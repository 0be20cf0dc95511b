"""What a document says, to compare."""

from __future__ import annotations

from deniable.documents.content import Document
from deniable.report.content import Bullets, Fields, Paragraph, Signatures, Table


def texts(document: Document) -> list[str]:
    """Everything that a document says, in order."""
    found = [document.title]
    for row in document.cover:
        found += [row.label, row.value or row.hint]
    for section in document.sections:
        found.append(section.title)
        for block in section.blocks:
            if isinstance(block, Paragraph):
                found.append(block.text)
            elif isinstance(block, Bullets):
                found += block.items
            elif isinstance(block, Fields):
                for row in block.rows:
                    found += [row.label, row.value or row.hint]
            elif isinstance(block, Signatures):
                found += block.parties
            elif isinstance(block, Table):
                found += [block.caption, *block.header, *(c for row in block.rows for c in row)]
    return [text for text in found if text]
