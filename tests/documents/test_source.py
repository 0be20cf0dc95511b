"""Templates of documents: what their markup becomes, and that facts never become markup."""

from __future__ import annotations

import pytest

from deniable.documents.source import _environment, parsed
from deniable.report.content import Bullets, Field, Fields, Paragraph, Signatures, Table

START = "# Title\n\n| Firm | ___ its name |\n\n## One\n\n"


def test_every_kind_of_block() -> None:
    title, cover, sections = parsed(
        START
        + "Two\nlines.\n\n- first\n  goes on\n- second\n\n"
        + "| Name | long\n  value |\n| Blank | ___ a hint |\n\n"
        + "Its\ncaption. {small}\n| a | b | c |\n|---|---:|\n| x | 1 | 2 |\n| | | 3 |\n"
        + "## Annex {annex}\n\nsigned: One | Two\n\n## Page {paper}"
    )
    assert title == "Title"
    assert cover == (Field("Firm", hint="its name"),)
    assert sections[0].blocks == (
        Paragraph("Two lines."),
        Bullets(("first goes on", "second")),
        Fields((Field("Name", "long value"), Field("Blank", hint="a hint"))),
        Table(("a", "b", "c"), (("x", "1", "2"), ("", "", "3")), 1, True, "Its caption."),
    )
    assert sections[1].blocks == (Signatures(("One", "Two")),)
    assert [(one.annex, one.paper) for one in sections] == [
        (False, False),
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize(
    "fact",
    ["- x", "## x {annex}", "a | b |", "___ x", "signed: x", "back\\", "\\|", "{{ x }}", "|---|"],
)
def test_facts_stay_text(fact: str) -> None:
    source = START + "{{ x }}\n\n- {{ x }}\n\n| Name | {{ x }} |\n\n| {{ x }} |\n|---|\n| {{ x }} |"
    fact = f"{fact}\n\n{fact}"
    _, _, sections = parsed(_environment().from_string(source).render(x=fact))
    text = fact.replace("\n\n", " ")
    assert [one.title for one in sections] == ["One"]
    assert sections[0].blocks == (
        Paragraph(text),
        Bullets((text,)),
        Fields((Field("Name", text),)),
        Table((text,), ((text,),)),
    )
