"""A tab that is used again is as good as a new one."""

from __future__ import annotations

from playwright.sync_api import Browser
from tests.web.site import Site
from tests.web.watching import tab

MEMORY = """[localStorage.length, innerWidth, matchMedia("print").matches,
  matchMedia("(prefers-color-scheme: dark)").matches, matchMedia("(hover: hover)").matches]"""


def test_nothing_is_left_in_a_used_tab(demo_site: Site, browser: Browser) -> None:
    secret = demo_site.secret("read")
    with tab(browser, demo_site, new=True) as opened:
        opened.open("/login")
        fresh = opened.page.evaluate(MEMORY)
    with tab(browser, demo_site, secret=secret, theme="dark", width=390) as opened:
        opened.open("/")
        opened.page.evaluate("localStorage.setItem('theme', 'dark')")
        opened.page.context.grant_permissions(["clipboard-read"])
        opened.page.route("**/static/*", lambda route: route.abort())
        opened.page.emulate_media(media="print")
        assert opened.page.evaluate(MEMORY) != fresh
        assert opened.page.context.cookies()
    with tab(browser, demo_site) as again:
        assert again.page == opened.page
        assert not again.page.context.cookies()
        again.open("/login")
        assert again.page.evaluate(MEMORY) == fresh
        again.assert_well_behaved()
        again.page.evaluate("console.error('only here')")
        again.page.wait_for_function("true")
        assert (again.complaints, opened.complaints) == (["error: only here"], [])
        with tab(browser, demo_site) as beside:
            assert beside.page != again.page
