"""Renders documents as printable HTML, as PDF and as Markdown."""

from __future__ import annotations

import base64
import re
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files

from deniable.documents.content import Document
from deniable.report.html import environment
from deniable.report.markdown import escaped, fields_markdown, sections_markdown
from deniable.report.save import printed

FORMATS = (".html", ".pdf", ".md")
DRAFT = "Draft. It was not issued: it has no number, and the ledger does not know it."

_MARK = b"\n%deniable "


def html(document: Document) -> str:
    """Render the document as one page, without scripts or external resources."""
    template = environment("deniable.documents").get_template("document.html")
    return template.render(document=document, style=style(document), draft=DRAFT)


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
    lines += [*fields_markdown(document.cover), "", *sections_markdown(document.sections)]
    lines += ["---", "", f"Fingerprint of the content: {document.fingerprint()}"]
    return "\n".join(lines) + "\n"
