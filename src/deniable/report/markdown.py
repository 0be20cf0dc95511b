r"""Renders reports as Markdown. Nothing in a text can become markup, HTML or a link."""

from __future__ import annotations

import re
from collections.abc import Sequence

from deniable.report.content import (
    Block,
    Bullets,
    Field,
    Fields,
    Paragraph,
    Section,
    Signatures,
    Table,
)
from deniable.report.html import SIGNED

BLANK = "______________________________"

_ESCAPED = re.compile(r"([\\`*_\[\]|#])")
_LIST_START = re.compile(r"^([-+=]|\d+(?=[.)]))")


def sections_markdown(sections: Sequence[Section]) -> list[str]:
    """Return the lines of the sections; charts are left out."""
    lines = []
    for section in sections:
        lines += [f"## {escaped(section.title)}", ""]
        for block in section.blocks:
            lines += [*_block(block), ""]
    return lines


def escaped(text: str) -> str:
    r"""Escape plain text for Markdown, so that nothing becomes markup, HTML or a link.

    >>> print(escaped("a_b <i> | https://x.org"))
    a\_b &lt;i&gt; \| https&#58;//x.org
    """
    text = " ".join(text.split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _ESCAPED.sub(r"\\\1", text)
    text = text.replace("://", "&#58;//").replace("@", "&#64;").replace("~", "&#126;")
    return re.sub(r"(?i)\bwww\.", "www&#46;", text)


def fields_markdown(rows: Sequence[Field]) -> list[str]:
    """Return the lines of labels and values; what people fill in is a blank."""
    lines = ["| | |", "|---|---|"]
    for row in rows:
        hint = f" ({escaped(row.hint)})" if row.hint else ""
        value = escaped(row.value) if row.value else f"`{BLANK}` to be completed{hint}"
        lines.append(f"| {escaped(row.label)} | {value} |")
    return lines


def _line(text: str) -> str:
    """Escape the start of a line as well, where a list or a rule could begin."""
    return _LIST_START.sub(lambda start: f"&#{ord(start[1][0])};{start[1][1:]}", escaped(text))


def _block(block: Block) -> list[str]:
    if isinstance(block, Paragraph):
        return [_line(block.text)]
    if isinstance(block, Bullets):
        return [f"- {_line(item)}" for item in block.items]
    if isinstance(block, Fields):
        return fields_markdown(block.rows)
    if isinstance(block, Signatures):
        return _signatures(block)
    return _table(block) if isinstance(block, Table) else []


def _table(table: Table) -> list[str]:
    marks = ["---" if place < table.words else "---:" for place in range(len(table.header))]
    lines = [escaped(table.caption), ""] if table.caption else []
    lines.append("| " + " | ".join(map(escaped, table.header)) + " |")
    lines.append("|" + "|".join(marks) + "|")
    lines += ["| " + " | ".join(map(escaped, row)) + " |" for row in table.rows]
    return lines


def _signatures(block: Signatures) -> list[str]:
    lines = ["| | " + " | ".join(map(escaped, block.parties)) + " |"]
    lines.append("|" + "---|" * (len(block.parties) + 1))
    blanks = " | ".join(f"`{BLANK}`" for _ in block.parties)
    return lines + [f"| {line} | {blanks} |" for line in SIGNED]
