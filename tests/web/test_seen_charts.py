"""Charts are drawn when they come into view, and all of them before the page is printed."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.web.site import EXPERIMENT, Site
from tests.web.test_planner import move
from tests.web.watching import tab

from deniable.web import static

PAGE = f"/experiments/{EXPERIMENT}"
UNSEEN = "figure.chart[data-unseen]"
JUMP = 40
"""Pixels by which a figure may grow or shrink when its chart is drawn."""

HEIGHTS = """Object.fromEntries([...document.querySelectorAll("figure.chart .canvas")]
  .map((one) => [one.parentElement.id, one.offsetHeight]))"""

PICTURE = "figure => figure.querySelector('canvas').toDataURL()"

NOTE_WHAT_IS_PRINTED = """addEventListener("beforeprint", () => {
  window.printed = [...document.querySelectorAll("figure.chart")].map((one) => one.dataset.drawn);
})"""


def unseen(page: Page, within: str) -> list[str]:
    found = page.locator(f"{within} {UNSEEN}")
    return [one.get_attribute("id") or "" for one in found.all()]


def test_a_chart_below_the_fold_waits_until_somebody_scrolls_to_it(
    demo_site: Site, browser: Browser
) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("read"), width=390) as opened:
        page = opened.page
        opened.open(PAGE)
        expect(page.locator("#traffic-chart canvas")).to_have_count(0)
        assert "traffic-chart" in unseen(page, "#part-results")
        before = page.evaluate(HEIGHTS)
        page.locator("#traffic-chart").scroll_into_view_if_needed()
        expect(page.locator("#traffic-chart[data-drawn=light] canvas")).to_be_visible()
        opened.draw_all()
        after = page.evaluate(HEIGHTS)
        jumps = {name: after[name] - before[name] for name in after}
        assert all(abs(jump) <= JUMP for jump in jumps.values()), jumps


def test_the_chart_of_a_tab_waits_until_it_is_opened(demo_site: Site, browser: Browser) -> None:
    """However near it is: the window is high enough for the whole page."""
    with tab(browser, demo_site, secret=demo_site.secret("read"), width=1280) as opened:
        page = opened.page
        page.set_viewport_size({"width": 1280, "height": 6000})
        opened.open(PAGE)
        assert unseen(page, "#part-results") == []
        assert unseen(page, "#part-privacy") == ["risks-chart"]
        page.get_by_role("link", name="Privacy", exact=True).click()
        expect(page.locator("#risks-chart[data-drawn=light] canvas")).to_be_visible()
        assert unseen(page, "#part-health") == ["delay-chart"]


def test_charts_of_a_closed_part_are_drawn_with_the_latest_data(
    demo_site: Site, browser: Browser
) -> None:
    """In the colours of the moment too, and not while the slider moves."""
    names = ("belief", "schedule", "regret", "elasticity", "parts")
    plan = "/planner?arms=3&visitors=50000&segments=2"
    pictures = []
    with tab(browser, demo_site, secret=demo_site.secret("read"), width=1280) as opened:
        page = opened.page
        page.set_viewport_size({"width": 1280, "height": 6000})
        for first, last in ((3, 1), (1, 1)):
            opened.open(f"{plan}&budget={first}")
            assert unseen(page, "#mathematics") == list(names)
            move(opened, last)
            page.emulate_media(color_scheme="dark")
            assert unseen(page, "#mathematics") == list(names)
            page.locator("#mathematics > summary").click()
            for name in names:
                expect(page.locator(f"#{name}[data-drawn=dark]")).to_be_visible()
            pictures.append([page.locator(f"#{name}").evaluate(PICTURE) for name in names])
            if first == last:
                move(opened, 3)
                assert page.locator("#belief").evaluate(PICTURE) != pictures[0][0], "it would show"
            page.goto("about:blank")
            page.emulate_media(color_scheme="light")
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize("path", [PAGE, "/planner", "/ledger"])
def test_every_chart_is_drawn_before_the_page_is_printed(
    demo_site: Site, browser: Browser, path: str
) -> None:
    """The browser lays out the paper right after this event, and waits for nothing.

    Microtasks are all that happens between two listeners, so this one sees what will be printed.
    """
    with tab(browser, demo_site, secret=demo_site.secret("read"), width=1280) as opened:
        opened.open(path)
        opened.page.evaluate("place => import(place).then(() => null)", static.address("vega.js"))
        opened.page.evaluate(NOTE_WHAT_IS_PRINTED)
        opened.page.pdf(format="A4")
        printed = opened.page.evaluate("printed")
        assert printed
        assert set(printed) == {"light"}
