"""Documents in the pages: issue, open, download; on paper nothing is cut."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.service.support import published
from tests.web.site import EXPERIMENT, HOSTILE, Site, send, token_of
from tests.web.test_hostile import assert_harmless
from tests.web.watching import Tab, Theme, tab

from deniable.documents import rendering
from deniable.documents.assembly import KINDS
from deniable.report.content import Table
from deniable.web.responses import TERMS

GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"
STATEMENT = f"/ledger/promises/{EXPERIMENT}"
ISSUE = f"{STATEMENT}/documents"
MOST_PAGES = {"statement": 4, "dpia": 5, "registry": 2, "record": 2}
PAPER_WIDTH, PAPER_HEIGHT = 695, 1009
"""What A4 has between the margins of a page, in CSS pixels."""

DOCUMENT_WIDTH, DOCUMENT_HEIGHT = 657, 1016
ROOM = 24
"""Pixels below the signatures on page 1: another font may need a line more."""
"""The same for a document."""

WIDE = """(limit) => [...document.querySelectorAll("main *")]
  .filter((one) => {
    const box = one.getBoundingClientRect(), style = getComputedStyle(one);
    return box.width > 1 && box.height > 1 && style.visibility === "visible" && !one.closest(".hidden")
      && box.right > limit + 1;
  })
  .map((one) => `${one.tagName}.${one.className} ${Math.round(one.getBoundingClientRect().right)}`)
  .slice(0, 5)"""
CUT = """() => [...document.querySelectorAll("main *")]
  .filter((one) => ["auto", "hidden", "scroll"].includes(getComputedStyle(one).overflowX)
    && !one.closest(".hidden") && one.scrollWidth > one.clientWidth + 1)
  .map((one) => `${one.tagName}.${one.className} ${one.scrollWidth} > ${one.clientWidth}`)"""


def assert_fits_paper(page: Page, width: int = PAPER_WIDTH) -> None:
    """Nothing is wider than A4, and nothing is cut at the edge of a box."""
    page.emulate_media(media="print")
    page.set_viewport_size({"width": width, "height": PAPER_HEIGHT})
    wide = page.evaluate(WIDE, width)
    assert not wide, f"{page.url}: {wide}"
    cut = page.evaluate(CUT)
    assert not cut, f"{page.url}: {cut}"


def test_issue_list_and_download(site: Site) -> None:
    with site.signed_in("read") as client:
        assert "None has been issued yet" in client.get(STATEMENT).text
        token = token_of(client.get("/ledger"))
        refused = client.post(ISSUE, data={"form_token": token, "kind": "statement"})
        assert refused.status_code == 403
    with site.signed_in("admin") as client:
        assert client.post(ISSUE, data={"kind": "statement"}).status_code == 403
        for kind in KINDS:
            answer = send(client, STATEMENT, ISSUE, kind=kind, firm="Example Ltd")
            assert answer.status_code == 303
        assert send(client, STATEMENT, ISSUE, kind="poem").status_code == 422
    issued = site.service.documents.all(EXPERIMENT)
    assert [one.kind for one in issued] == list(KINDS)
    assert {one.actor for one in issued} == {"API key test admin"}
    with site.signed_in("read") as client:
        page = client.get(STATEMENT).text
        ledger = client.get("/ledger").text
        for one in issued:
            assert one.number in page
            assert f"{KINDS[one.kind]} {one.number}. By API key test admin." in ledger
            made = site.service.documents.again(one.number)
            html = client.get(f"/ledger/documents/{one.number}.html")
            assert html.content == rendering.html(made).encode()
            assert html.headers["content-disposition"].endswith(f'-{one.number}.html"')
            text = client.get(f"/ledger/documents/{one.number}.md")
            assert text.content == rendering.markdown(made).encode()
            assert site.service.documents.verify(text.content).sound
        for wrong in ("2019-0001.html", f"{issued[0].number}.docx", "x", "..html"):
            assert client.get(f"/ledger/documents/{wrong}").status_code == 404


def test_names_keep_their_capitals_in_the_ledger(site: Site) -> None:
    issued = site.service.documents.issue(EXPERIMENT, "dpia", actor="Ada King")
    with site.signed_in("read") as client:
        assert (
            f"Annex to an impact assessment {issued.number}. By Ada King."
            in client.get("/ledger").text
        )


def test_a_draft_has_a_page_but_no_statement(site: Site) -> None:
    site.service.experiments.create("later", arms=["a", "b"], segments=["x", "y"], budget=1)
    with site.signed_in("admin") as client:
        page = client.get("/ledger/promises/later")
        assert page.status_code == 200
        assert "not started" in page.text
        answer = send(client, "/ledger/promises/later", "/ledger/promises/later/documents",
                      kind="statement")  # fmt: skip
        assert answer.status_code == 409
        assert "was never started" in answer.text
    assert site.service.documents.all() == []


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_fields(site: Site, value: str) -> None:
    with site.signed_in("admin") as client:
        for fields in ({"kind": value}, {"kind": "record", "firm": value}):
            answer = send(client, STATEMENT, ISSUE, **fields)
            assert answer.status_code in (303, 422)
            assert_harmless(answer.text)
        page = client.get(STATEMENT)
        assert page.status_code == 200
        assert_harmless(page.text)


def test_every_figure_of_the_page_is_the_documents(site: Site) -> None:
    site.send_visitors(500)
    published(site.service, EXPERIMENT)
    made = site.service.documents.draft(EXPERIMENT, "statement")
    with site.signed_in("read") as client:
        page = client.get(STATEMENT).text
    exact = next(section for section in made.sections if section.annex).blocks[0]
    assert isinstance(exact, Table)
    assert all(cell in page for row in exact.rows for cell in row)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_issuing_in_a_browser(site: Site, browser: Browser, theme: Theme, width: int) -> None:
    with tab(browser, site, secret=site.secret("admin"), theme=theme, width=width) as opened:
        opened.open(STATEMENT)
        page = opened.page
        page.get_by_label("Document", exact=True).select_option("dpia")
        page.get_by_label("Firm").fill("Example & Söhne <Ltd>")
        page.get_by_role("button", name="Issue").click()
        expect(page.get_by_role("status")).to_contain_text("annex to an impact assessment")
        number = site.service.documents.all()[0].number
        expect(page.get_by_role("link", name=number, exact=True)).to_be_visible()
        opened.assert_well_behaved()
        opened.assert_accessible()
        page.get_by_role("link", name=number, exact=True).click()
        expect(page.get_by_text("Example & Söhne <Ltd>")).to_be_visible()
        assert page.evaluate("getComputedStyle(document.querySelector('h2')).fontWeight") == "700"
        opened.assert_well_behaved()
        opened.assert_accessible()


@pytest.mark.parametrize("kind", KINDS)
def test_documents_fit_on_paper(busy_site: Site, browser: Browser, kind: str) -> None:
    """Long names, many segments, an arm switched off: nothing is cut; page 1 has the signatures."""
    service = busy_site.service
    key = f"a-long-name-of-an-experiment-of-the-checkout-team-{kind}"
    service.experiments.create(
        key,
        arms=[f"arm-with-a-long-name-{n}" for n in range(4)],
        segments=[f"segment number {n}" for n in range(12)],
        budget=0.25,
    )
    service.experiments.start(key)
    service.experiments.switch_off(key, "arm-with-a-long-name-3")
    issued = service.documents.issue(key, kind, firm="Example Ltd")
    html = rendering.html(service.documents.again(issued.number))
    context = browser.new_context()
    page = context.new_page()
    try:
        page.set_content(html)
        assert_fits_paper(page, DOCUMENT_WIDTH)
        if kind == "statement":
            end = page.evaluate(
                "document.querySelector('.signatures').getBoundingClientRect().bottom"
            )
            assert end < DOCUMENT_HEIGHT - ROOM
        pages = page.pdf(format="A4", prefer_css_page_size=True).count(b"/Type /Page\n")
        assert 1 <= pages <= MOST_PAGES[kind]
    finally:
        context.close()


PRINTED = ("/", "/planner", "/experiments", f"/experiments/{EXPERIMENT}", "/portfolio", "/settings",
           "/ledger", STATEMENT, f"{STATEMENT}/audit")  # fmt: skip


@pytest.mark.parametrize("path", PRINTED)
def test_every_page_fits_on_paper(demo_site: Site, browser: Browser, path: str) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("admin"), width=1440) as opened:
        opened.open(path)
        opened.draw_all()
        assert_fits_paper(opened.page)


def test_a_statement_prints_after_an_arm_was_switched_off(site: Site, browser: Browser) -> None:
    site.send_visitors(300)
    arm = site.service.experiments.get(EXPERIMENT).arms[-1].key
    site.service.experiments.switch_off(EXPERIMENT, arm)
    with tab(browser, site, secret=site.secret("read"), width=1440) as opened:
        opened.open(STATEMENT)
        assert_fits_paper(opened.page)
        expect(opened.page.get_by_role("table").filter(has_text="largest factor")).to_have_count(2)
        for table in opened.page.get_by_role("table").all():
            box = table.bounding_box()
            assert box is not None
            assert box["height"] < PAPER_HEIGHT


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("path", [STATEMENT, "/", f"/experiments/{EXPERIMENT}"])
def test_words_are_explained_where_they_stand(
    demo_site: Site, browser: Browser, path: str, width: int
) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("read"), width=width) as opened:
        opened.open(path)
        term = opened.page.locator(".term").first
        word = term.inner_text().lower()  # perhaps in the plural
        explained = next(text for name, text in TERMS.items() if word.startswith(name))
        tip = opened.page.locator(f"#{term.get_attribute('aria-describedby')}")
        expect(tip).to_be_hidden()
        term.focus()
        expect(tip).to_be_visible()
        expect(tip).to_have_text(explained)
        inside = tip.bounding_box()
        assert inside is not None
        assert inside["x"] >= 0
        assert inside["x"] + inside["width"] <= width
        opened.assert_well_behaved()
        opened.assert_accessible()
        _assert_tips_have_ids_of_their_own(opened)


def _assert_tips_have_ids_of_their_own(opened: Tab) -> None:
    ids = opened.page.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))


def test_every_explained_word_is_in_the_glossary() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", GLOSSARY.read_text("utf-8"), re.M)
    known = {word.strip() for words, _ in rows for word in words.split(",")}
    assert set(TERMS) <= known
