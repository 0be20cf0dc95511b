"""Documents as HTML and Markdown: both say the same, and names never become markup."""

from __future__ import annotations

import html as html_module
from html.parser import HTMLParser
from typing import Any

import markdown as markdown_module
import pytest
from tests.documents.support import texts

from deniable.documents import rendering
from deniable.documents.assembly import KINDS
from deniable.documents.content import Document
from deniable.report.content import Bullets, Paragraph, Section
from deniable.service.service import Deniable
from deniable.service.service import open as open_service

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "*bold* _it_ `code` ~gone~",
    "[click](https://evil.example) www.evil.example me@evil.example",
    "| a | b |",
    "# heading",
    "- a | ___ b {annex}",
    "signed: a | b",
    "{{ 1009 * 1013 }} {% raw %} \\",
    "אבג &amp; &#60;b&#62;",
)


class Text(HTMLParser):
    """The text of a page, and its elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def flat(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.mark.parametrize("kind", KINDS)
def test_html_and_markdown_say_the_same(service: Deniable, kind: str) -> None:
    issued = service.documents.issue("checkout", kind)
    made = service.documents.again(issued.number)
    page = Text(rendering.html(made)).flat
    plain = Text(markdown_module.markdown(rendering.markdown(made), extensions=["tables"])).flat
    for text in texts(made):
        wanted = " ".join(text.split())
        assert wanted in page, wanted
        assert wanted in plain, wanted


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_names_stay_text(kind: str, name: str) -> None:
    with open_service("memory:") as opened:
        opened.firm.set(budget=3)
        opened.experiments.create("e", arms=["a", "b"], segments=[name, "other"], budget=1)
        opened.experiments.start("e")
        issued = opened.documents.issue("e", kind, firm=name, actor=name)
        made = opened.documents.again(issued.number)
        page, text = rendering.html(made), rendering.markdown(made)
        plain = opened.documents.draft("e", kind)
    rendered = Text(markdown_module.markdown(text, extensions=["tables"]))
    shown = Text(page)
    assert name in " ".join(shown.words)
    assert " ".join(name.split()) in rendered.flat
    for found in (shown, rendered):
        assert not {"script", "img", "a", "em", "strong", "del", "i", "b"} & set(found.elements)
    assert rendered.elements.count("h1") == 1
    assert rendered.elements.count("h2") == len(made.sections)
    assert "1022117" not in page + text  # a template that was run would give the product
    assert len(plain.sections) == len(made.sections)
    assert "javascript:" not in html_module.unescape(page)


@pytest.mark.parametrize(
    "text", ["1. first", "- item", "+ more", "=====", "12) twelve", "<!-- x", "a  b\nc"]
)
def test_a_paragraph_begins_no_list(text: str) -> None:
    section = Section("s", (Paragraph(text), Bullets((text,))))
    document = Document("record", "t", "", 1, "", (), (section,))
    found = Text(markdown_module.markdown(rendering.markdown(document), extensions=["tables"]))
    assert found.elements.count("li") == 1
    assert found.elements.count("ol") == 0
    assert found.flat.count(" ".join(text.split())) == 2
