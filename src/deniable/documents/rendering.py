"""Renders documents as printable HTML, and as Markdown. Their content is in `content`."""

from __future__ import annotations

import base64
import re
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from deniable.audit.save import printed
from deniable.documents.content import (
    Block,
    Bullets,
    Document,
    Field,
    Fields,
    Grid,
    Paragraph,
    Signatures,
)

if TYPE_CHECKING:
    from jinja2 import Environment

FORMATS = (".html", ".pdf", ".md")
BLANK = "______________________________"
SIGNED = ("Name", "Position", "Place and date", "Signature")
DRAFT = "Draft. It was not issued: it has no number, and the ledger does not know it."

_MARK = b"\n%deniable "
_ESCAPED = re.compile(r"([\\`*_\[\]|#])")
_LIST_START = re.compile(r"^([-+=]|\d+(?=[.)]))")


@cache
def environment() -> Environment:
    """Return the template environment, which escapes everything."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("deniable.documents"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        newline_sequence="\n",
    )
    made.globals.update(signed=SIGNED, draft=DRAFT)
    made.tests["kind"] = is_kind
    return made


def is_kind(block: Block, name: str) -> bool:
    """Whether a block is of this class, for use in templates."""
    return type(block).__name__ == name


def html(document: Document) -> str:
    """Render the document as one page, without scripts or external resources."""
    template = environment().get_template("document.html")
    return template.render(document=document, style=style(document))


def style(document: Document) -> str:
    """Return the document's inline style sheet, which numbers printed pages."""
    number = f"Number {document.number}" if document.issued else "Draft"
    return _sheet().replace("NUMBER", number)


@cache
def _sheet() -> str:
    return (files("deniable.documents") / "document.css").read_text("utf-8")


def style_source(document: Document) -> str:
    """Return the content security policy source that allows this style and no other."""
    digest = base64.b64encode(sha256(style(document).encode()).digest()).decode()
    return f"'sha256-{digest}'"


def pdf(document: Document, issued: datetime | None) -> bytes:
    """Print the HTML with Chromium. An issued document's number follows the end of the PDF."""
    made = printed(html(document), dated=issued)
    if not document.issued:
        return made
    return made + _MARK + document.number.encode("ascii") + b"\n"


def pdf_number(content: bytes) -> str | None:
    """Return the number in one of our PDFs; None for any other."""
    _, mark, number = content[-200:].rpartition(_MARK)
    text = number.strip()
    return text.decode() if mark and re.fullmatch(rb"[0-9-]{1,40}", text) else None


def markdown(document: Document) -> str:
    """Render the document as Markdown; names cannot become markup."""
    lines = [f"# {escaped(document.title)}", ""]
    if not document.issued:
        lines += [f"**{DRAFT}**", ""]
    lines += [*_fields(document.cover), ""]
    for section in document.sections:
        lines += [f"## {escaped(section.title)}", ""]
        for block in section.blocks:
            lines += [*_block(block), ""]
    lines += ["---", "", f"Fingerprint of the content: {document.fingerprint()}"]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    r"""rEscape plain text for Markdown, so that nothing becomes markup, HTML or a link.

    >>> print(escaped("a_b <i> | https://x.org"))
    a\_b &lt;i&gt; \| https&#58;//x.org
    """
    text = " ".join(text.split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _ESCAPED.sub(r"\\\1", text)
    text = text.replace("://", "&#58;//").replace("@", "&#64;").replace("~", "&#126;")
    return re.sub(r"(?i)\bwww\.", "www&#46;", text)


def _line(text: str) -> str:
    """Escape the start of a line as well, where a list or a rule could begin."""
    return _LIST_START.sub(lambda found: f"&#{ord(found[1][0])};{found[1][1:]}", escaped(text))


def _block(block: Block) -> list[str]:
    if isinstance(block, Paragraph):
        return [_line(block.text)]
    if isinstance(block, Bullets):
        return [f"- {_line(item)}" for item in block.items]
    if isinstance(block, Fields):
        return _fields(block.rows)
    if isinstance(block, Signatures):
        return _signatures(block)
    return _grid(block)


def _fields(rows: tuple[Field, ...]) -> list[str]:
    found = ["| | |", "|---|---|"]
    for row in rows:
        hint = f" ({escaped(row.hint)})" if row.hint else ""
        value = escaped(row.value) if row.value else f"`{BLANK}` to be completed{hint}"
        found.append(f"| {escaped(row.label)} | {value} |")
    return found


def _grid(grid: Grid) -> list[str]:
    marks = ["---" if place < grid.words else "---:" for place in range(len(grid.header))]
    found = [escaped(grid.caption), ""] if grid.caption else []
    found.append("| " + " | ".join(map(escaped, grid.header)) + " |")
    found.append("|" + "|".join(marks) + "|")
    found += ["| " + " | ".join(map(escaped, row)) + " |" for row in grid.rows]
    return found


def _signatures(block: Signatures) -> list[str]:
    found = ["| | " + " | ".join(map(escaped, block.parties)) + " |"]
    found.append("|" + "---|" * (len(block.parties) + 1))
    lines = " | ".join(f"`{BLANK}`" for _ in block.parties)
    return found + [f"| {line} | {lines} |" for line in SIGNED]
