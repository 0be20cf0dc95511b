"""The report stands alone: nothing is fetched, ids are unique, every claim is in it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from research.reproduce import read_record, reproduce
from research.study import chosen_studies

NAMES = ["beliefs", "strategies", "elasticity", "illustration", "heterogeneity"]


class Page(HTMLParser):
    """Collects what the tests ask about."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href"):
                self.links.append(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    reproduce(chosen_studies(NAMES), out, workers=1, formats=())
    return out


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    parsed = Page()
    parsed.feed((folder / "report.html").read_text())
    return parsed


def test_nothing_is_fetched(folder: Path, page: Page) -> None:
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert "img" not in page.tags
    assert not [link for link in page.links if re.match(r"(https?:)?//", link)]
    assert "@import" not in (folder / "report.html").read_text()


def test_ids_are_unique_and_links_lead_somewhere(folder: Path, page: Page) -> None:
    assert len(page.ids) == len(set(page.ids))
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in page.ids, link
        else:
            assert (folder / link).exists(), link
    used = re.findall(r"url\(#([^)]+)\)", (folder / "report.html").read_text())
    assert set(used) <= set(page.ids)


def test_every_claim_and_figure_is_in_it(folder: Path, page: Page) -> None:
    text = " ".join(page.text.split())
    for name in NAMES:
        record = read_record(folder / name)
        assert record is not None
        for claim in record.claims:
            for words in (claim.text, claim.paper, claim.ours, claim.why):
                assert " ".join(words.split()) in text
        for figure in record.figures:
            assert figure.caption in text
    assert page.tags.count("figure") == 8


def test_differences_come_first_and_settled_ones_are_among_them(folder: Path) -> None:
    html = (folder / "report.html").read_text()
    start, end = html.index('id="differences"'), html.index('id="beliefs"')
    assert start < end
    for words in ("infinite risk", "initialization period", "drops the factor 4 sqrt 2"):
        assert words in html[start:end]


def test_a_full_run_does_not_say_quick(folder: Path, tmp_path: Path) -> None:
    assert "Quick run" not in (folder / "report.html").read_text()
    reproduce(chosen_studies(["beliefs"]), tmp_path, workers=1, quick=True, formats=())
    assert "Quick run" in (tmp_path / "report.html").read_text()


def test_the_summary_has_every_finding_and_claim_in_tables_of_five_columns(folder: Path) -> None:
    text = (folder / "summary.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and "claim |" not in line]
    claims = 0
    for name in NAMES:
        record = read_record(folder / name)
        assert record is not None
        assert f"**{record.headline}**" in text
        claims += len(record.claims)
    assert len(rows) == claims
    assert {row.count("|") for row in rows} == {6}
