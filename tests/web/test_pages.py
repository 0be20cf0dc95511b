"""Every page in Chromium: both themes, wide and narrow, with axe, under the strict policy."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect
from tests.patience import PATIENCE
from tests.web.site import EXPERIMENT, Site
from tests.web.watching import Tab, Theme, tab

PARTS = ("part-results", "part-privacy", "part-health", "part-history", "part-connect")
PAGES = (
    "/",
    "/experiments",
    "/experiments?q=nothing-like-it",
    "/experiments/new",
    f"/experiments/{EXPERIMENT}",
    *(f"/experiments/{EXPERIMENT}#{part}" for part in PARTS),
    f"/experiments/{EXPERIMENT}/do/pause",
    f"/experiments/{EXPERIMENT}/do/promote",
)
MOST_BYTES = 1_500_000
SECOND_VISIT_BYTES = 200_000


@pytest.mark.parametrize(
    ("theme", "width"), [("light", 1200), ("dark", 1200), ("light", 390), ("dark", 390)]
)
def test_every_page_is_accessible_and_well_behaved(
    demo_site: Site, browser: Browser, theme: Theme, width: int
) -> None:
    secret = demo_site.secret("admin")
    with tab(browser, demo_site, secret=secret, theme=theme, width=width) as opened:
        for path in PAGES:
            opened.open(path)
            opened.assert_well_behaved()
            _, _, part = path.partition("#")
            if part != PARTS[0]:  # which is what the address alone shows
                opened.assert_accessible(within=f"#{part}" if part else "")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_sign_in_and_problem_pages(demo_site: Site, browser: Browser, theme: Theme) -> None:
    with tab(browser, demo_site, theme=theme, width=390) as opened:
        opened.open("/login")
        opened.assert_well_behaved()
        opened.assert_accessible()
        opened.page.get_by_text("Sign in with an API key").click()
        opened.page.get_by_label("API key").fill("dnb_wrong")
        opened.page.get_by_role("button", name="Sign in with the key").click()
        opened.page.get_by_role("alert").get_by_text("unknown").wait_for()
        opened.assert_accessible()
        opened.sign_in(demo_site.secret("read"))
        opened.complaints.clear()  # the browser says on the console that the first try was refused
        opened.open("/no-such-page")
        opened.page.get_by_role("heading", name="There is nothing here").wait_for()
        opened.assert_accessible()
        opened.open("/experiments/new")
        opened.page.get_by_role("heading", name="Not allowed").wait_for()
        opened.assert_accessible()


def test_an_empty_store_in_both_themes(empty_site: Site, browser: Browser) -> None:
    secret = empty_site.secret("admin")
    for theme in ("light", "dark"):
        with tab(browser, empty_site, secret=secret, theme=theme, width=390) as opened:
            for path in ("/", "/experiments"):
                opened.open(path)
                opened.assert_well_behaved()
                opened.assert_accessible()


def test_the_first_visit_is_small_and_a_second_one_smaller(
    demo_site: Site, browser: Browser
) -> None:
    with tab(browser, demo_site, new=True) as opened:
        opened.sign_in(demo_site.secret("read"))
        opened.open(f"/experiments/{EXPERIMENT}")
        # With the sign-in page and the chart library.
        assert 100_000 < sum(opened.visits) < MOST_BYTES
        opened.open(f"/experiments/{EXPERIMENT}")
        # The page holds its charts' data, which grows until as many samples are kept as ever.
        assert 1_000 < opened.visits[-1] < SECOND_VISIT_BYTES


def test_the_theme_is_kept_and_charts_follow_it(demo_site: Site, browser: Browser) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("read")) as opened:
        opened.open(f"/experiments/{EXPERIMENT}")
        opened.draw_all()
        button = opened.page.locator("#theme")
        assert opened.page.locator("figure[data-drawn=light]").count() > 3
        button.click()
        button.click()
        opened.page.locator("figure[data-drawn=dark]").nth(3).wait_for()
        opened.open("/")
        assert opened.page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert button.get_attribute("aria-label") == "Colours: dark"
        button.click()
        assert opened.page.evaluate("document.documentElement.dataset.theme ?? ''") == ""
        opened.assert_well_behaved()


def test_the_keyboard_alone_is_enough(demo_site: Site, browser: Browser) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("admin")) as opened:
        opened.open("/")
        keyboard = opened.page.keyboard
        keyboard.press("Tab")
        assert opened.page.evaluate("document.activeElement.textContent") == "Skip to the content"
        keyboard.press("Enter")
        assert opened.page.evaluate("document.activeElement.id") == "main"


def test_every_chart_has_words_and_a_table(demo_site: Site, browser: Browser) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("read")) as opened:
        opened.open(f"/experiments/{EXPERIMENT}")
        assert (
            opened.page.locator("figure.chart").count() >= 6
        )  # means and lifts come when reliable
        for part in PARTS:
            opened.page.get_by_role("navigation", name="Parts of this page").get_by_role(
                "link", name=part.removeprefix("part-").capitalize()
            ).click()
            for one in opened.page.locator(f"#{part} figure.chart").all():
                assert len(one.locator("[role=img]").get_attribute("aria-label") or "") > 40
                one.locator("summary").click()
                assert one.locator("tbody tr").count() >= 1
            opened.assert_accessible(within=f"#{part}")


SHOWN = """[...document.querySelectorAll(".panel")]
  .filter((one) => getComputedStyle(one).visibility === "visible" && one.offsetHeight > 20)
  .map((one) => one.id)"""


@pytest.mark.parametrize("scripts", [True, False])
def test_one_part_is_shown_at_a_time_and_all_of_them_on_paper(
    demo_site: Site, browser: Browser, scripts: bool
) -> None:
    """By the address alone: also without scripts, and for a link to something inside a part."""
    context = browser.new_context(
        java_script_enabled=scripts, viewport={"width": 1280, "height": 800}
    )
    context.set_default_timeout(1000 * PATIENCE)
    try:
        page = context.new_page()
        opened = Tab(page, demo_site)
        opened.sign_in(demo_site.secret("read"))
        place = f"{demo_site.url}/experiments/{EXPERIMENT}"
        page.goto(place)
        assert page.evaluate(SHOWN) == ["part-results"]
        tabs = page.get_by_role("navigation", name="Parts of this page").get_by_role("link")
        for part, link in zip(PARTS, tabs.all(), strict=True):
            link.click()
            assert page.evaluate(SHOWN) == [part]
            if scripts:
                expect(link).to_have_attribute("aria-current", "true")
                expect(page.locator(".tabs [aria-current]")).to_have_count(1)
        page.goto(f"{place}#h-integrate")
        assert page.evaluate(SHOWN) == ["part-connect"]
        page.goto(f"{place}#nothing-has-this-name")
        assert page.evaluate(SHOWN) == ["part-results"]
        page.emulate_media(media="print")
        assert page.evaluate(SHOWN) == [part for part in PARTS if part != "part-connect"]
    finally:
        context.close()


def test_a_tab_leaves_the_page_where_it_is(demo_site: Site, browser: Browser) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("read"), width=1280) as opened:
        opened.open(f"/experiments/{EXPERIMENT}")
        page = opened.page
        page.locator(".tabs").scroll_into_view_if_needed()
        before = page.evaluate("scrollY")
        page.get_by_role("link", name="Privacy", exact=True).click()
        assert page.evaluate("scrollY") == before
        page.get_by_role("link", name="Results", exact=True).click()
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        page.get_by_role("link", name="History", exact=True).click()
        row, panel = (page.locator(one).bounding_box() for one in (".tabs-row", "#part-history"))
        assert row is not None
        assert panel is not None
        assert 10 < panel["y"] - row["y"] - row["height"] < 40, "the part begins below the tabs"


def test_the_policy_would_be_noticed_if_broken(demo_site: Site, browser: Browser) -> None:
    """The test's own power: an inline script is stopped and reported."""
    with tab(browser, demo_site, secret=demo_site.secret("read")) as opened:
        opened.open("/")
        opened.page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), {text: '1'}))"
        )
        with pytest.raises(AssertionError):
            opened.assert_well_behaved()


def test_axe_would_notice(demo_site: Site, browser: Browser) -> None:
    """The test's own power: a picture without words, and words that are too pale."""
    planted = """() => {
      const pale = Object.assign(document.createElement("p"), { textContent: "pale words" });
      Object.assign(pale.style, { color: "#888", background: "#777" });
      document.querySelector("main").append(pale, document.createElement("img"));
    }"""
    with tab(browser, demo_site, secret=demo_site.secret("read")) as opened:
        opened.open("/experiments")
        opened.assert_accessible()
        opened.page.evaluate(planted)
        for within in ("", "main"):
            with pytest.raises(AssertionError, match=r"color-contrast.*image-alt"):
                opened.assert_accessible(within)
