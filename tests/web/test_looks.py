"""What a designer would frown at, and somebody saw once: edges, lines and names that were cut."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect
from tests.web.site import EXPERIMENT, Site
from tests.web.watching import tab

from deniable.portfolio.allocation import allocate
from deniable.portfolio.table import csv_rows
from deniable.web import allocation_view, portfolio, static

LEFT_EDGES = """
[...document.querySelectorAll("label.choice")].map((label) => {
  const text = document.createRange();
  text.setStartAfter(label.querySelector("input"));
  text.setEndAfter(label.lastChild);
  return [...text.getClientRects()].filter((line) => line.width > 20).map((line) => line.left);
}).filter((lines) => lines.length > 1)
"""
VALUES = """
[...document.querySelectorAll("#figures .figures > div")].map((figure) => [
  Math.round(figure.getBoundingClientRect().top),
  Math.round(figure.querySelector("dd").getBoundingClientRect().top),
])
"""

WIDER_THAN_THEIR_PLACE = """
[...document.querySelectorAll(".stack td")].filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => one.textContent.trim())
"""


def test_choices_of_several_lines_have_one_left_edge(demo_site: Site, browser: Browser) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("admin"), width=390) as opened:
        opened.open("/experiments/new")
        edges = opened.page.evaluate(LEFT_EDGES)
    assert edges
    for lines in edges:
        assert max(lines) - min(lines) < 1.5, lines


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_figures_beside_each_other_stand_in_one_line(
    demo_site: Site, browser: Browser, width: int
) -> None:
    """Also where the name of one takes two lines; on a tablet none is left over for a second row."""
    with tab(browser, demo_site, secret=demo_site.secret("read"), width=width) as opened:
        opened.open(f"/experiments/{EXPERIMENT}")
        rows: dict[int, set[int]] = {}
        for row, value in opened.page.evaluate(VALUES):
            rows.setdefault(row, set()).add(value)
    assert all(len(values) == 1 for values in rows.values()), rows
    assert len(rows) == (3 if width == 390 else 1)


def test_buttons_use_the_width_of_their_card(demo_site: Site, browser: Browser) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("read"), width=1280) as opened:
        opened.open("/planner")
        tops = opened.page.evaluate(
            "[...document.querySelectorAll('[data-follows]')].map((one) => one.offsetTop)"
        )
    assert len(tops) == 4
    assert len(set(tops)) == 1


def test_budgets_can_be_read_where_they_are_typed(demo_site: Site, browser: Browser) -> None:
    """On paper they are figures, not boxes."""
    with tab(browser, demo_site, secret=demo_site.secret("admin"), width=1280) as opened:
        opened.open("/portfolio")
        opened.page.get_by_role("button", name="An example").click()
        limit = opened.page.locator("#lines input").first
        limit.fill("0.125")
        assert limit.evaluate("input => input.scrollWidth <= input.clientWidth")
        opened.page.emulate_media(media="print")
        assert limit.evaluate("input => getComputedStyle(input).borderTopWidth") == "0px"


def test_legends_of_long_names_have_one_column_on_phones(demo_site: Site, browser: Browser) -> None:
    legend = {"legend": {"columns": 2, "labelLimit": 132}}
    asked = {"layer": [{"encoding": {"color": legend}}], "datasets": {"a": [legend]}}
    with tab(browser, demo_site, secret=demo_site.secret("read"), width=390) as opened:
        opened.open("/portfolio")
        made = opened.page.evaluate(
            "async ([place, asked]) => (await import(place)).inOneColumn(asked)",
            [static.address("charts.js"), asked],
        )
    drawn = made["layer"][0]["encoding"]["color"]["legend"]
    assert (drawn["columns"], drawn["labelLimit"] > 132) == (1, True)
    assert made["datasets"] == asked["datasets"]


def test_the_checks_of_an_audit_are_in_a_card(demo_site: Site, browser: Browser) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("admin"), width=1280) as opened:
        opened.open(f"/ledger/promises/{EXPERIMENT}/audit")
        opened.assert_well_behaved()
        assert opened.page.locator(".card table").count() == 1


def test_one_has_and_two_have(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = allocation_view.checked_rows(csv_rows(portfolio.EXAMPLE))
    found = allocate(allocation_view.portfolio_of(allocation_view.question(rows, "", {})), 100.0)
    by_rule = dict.fromkeys(("equal split", "zero", "random arms", "best budgets"), 1.0)
    for drawn, words in (
        (len(rows) - 1, "One more experiment gets less budget, or none."),
        (len(rows) - 2, "2 more experiments get less budget, or none."),
    ):
        monkeypatch.setattr(allocation_view, "MOST_BARS", drawn)
        assert words in allocation_view.summaries(found, by_rule)["bars"]


@pytest.mark.parametrize("width", [390, 1280])
def test_a_change_of_the_firms_budget_fits_its_card(
    demo_site: Site, browser: Browser, width: int
) -> None:
    """Before and after are sentences: they wrap."""
    with tab(browser, demo_site, secret=demo_site.secret("admin"), width=width) as opened:
        opened.open("/")
        opened.page.get_by_text("Change the budget").click()
        opened.page.locator("#budget").fill("7")
        opened.page.get_by_role("button", name="Show the change").click()
        expect(opened.page.get_by_role("heading", name="Change the firm’s budget?")).to_be_visible()
        opened.assert_well_behaved()


@pytest.mark.parametrize("path", ["/", "/experiments", "/ledger", "/settings"])
def test_on_a_tablet_no_value_is_wider_than_its_place(
    demo_site: Site, browser: Browser, path: str
) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("admin"), width=768) as opened:
        opened.open(path)
        wide = opened.page.evaluate(WIDER_THAN_THEIR_PLACE)
    assert wide == []


@pytest.mark.parametrize("width", [390, 768, 900])
def test_captions_are_as_wide_as_their_tables(
    demo_site: Site, browser: Browser, width: int
) -> None:
    """Where rows are stacked, a caption was once a column of single letters."""
    with tab(browser, demo_site, secret=demo_site.secret("read"), width=width) as opened:
        opened.open(f"/ledger/promises/{EXPERIMENT}")
        widths = opened.page.evaluate(
            "[...document.querySelectorAll('.paper caption')].map((one) => "
            "[one.offsetWidth, one.closest('table').offsetWidth])"
        )
    assert widths
    assert all(caption > 0.9 * table for caption, table in widths), widths


TOUCHED = """
[...document.querySelectorAll("button, .button, select, summary, .acts a, .tabs a, .site-header nav a"
  + ", .crumb a, .pager a, input:not([type=checkbox], [type=radio], [type=range], [type=hidden])")]
  .filter((one) => one.checkVisibility() && one.getBoundingClientRect().height > 0)
  .map((one) => [one.outerHTML.slice(0, 90), one.getBoundingClientRect().height])
"""


@pytest.mark.parametrize(
    "path",
    ["/", "/planner", "/experiments", "/experiments/new", f"/experiments/{EXPERIMENT}",
     f"/experiments/{EXPERIMENT}/do/stop", "/portfolio", "/settings", "/ledger", "/leak"],
)  # fmt: skip
def test_what_is_touched_on_a_phone_is_44_pixels_high(
    demo_site: Site, browser: Browser, path: str
) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("admin"), width=390) as opened:
        opened.open(path)
        found = opened.page.evaluate(TOUCHED)
    assert len(found) > 3
    assert not [one for one in found if one[1] < 43.5]


def test_labels_beside_each_other_stand_in_one_line(demo_site: Site, browser: Browser) -> None:
    """Also where one field is higher than the other."""
    with tab(browser, demo_site, secret=demo_site.secret("admin"), width=1200) as opened:
        opened.open("/experiments/new")
        top = "name => document.querySelector(`label[for=${name}]`).getBoundingClientRect().top"
        guardrails, holdout = (
            opened.page.evaluate(top, name) for name in ("guardrails", "holdout")
        )
    assert holdout == pytest.approx(guardrails, abs=2)


def test_the_rows_of_a_portfolio_add_up_to_its_totals(demo_site: Site, browser: Browser) -> None:
    """Two experiments of one layer cost the larger budget: the sum of the column is named too."""
    with tab(browser, demo_site, secret=demo_site.secret("read"), width=1280) as opened:
        opened.open("/portfolio")
        opened.page.get_by_role("button", name="An example").click()
        opened.page.wait_for_selector("#lines tr:nth-child(5) .saved:not(:empty)")
        texts = opened.page.locator("#lines .budget").all_text_contents()
        rows = [float(one.replace(",", "")) for one in texts]
        spent = opened.page.locator("#spent").text_content() or ""
        expect(opened.page.locator("#sum-budget")).to_have_text(spent)
        note = opened.page.locator("#sum-note").text_content() or ""
        for part in ("regret", "saved"):
            each = opened.page.locator(f"#lines .{part}").all_text_contents()
            total = opened.page.locator(f"#sum-{part}").text_content() or ""
            assert int(total.replace(",", "")) == pytest.approx(
                sum(int(one.replace(",", "")) for one in each), abs=len(each)
            )
    assert sum(rows) > float(spent) + 0.5
    assert note == f"{sum(rows):.4g} if no layer shared"
