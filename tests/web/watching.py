"""A browser tab that notes whatever a page must not do, and asks axe what it thinks of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import APIRequestContext, Browser, Page, Request, expect
from tests.patience import PATIENCE, eventually
from tests.web.site import form_token

expect.set_options(timeout=1000 * PATIENCE)

Theme = Literal["light", "dark"]

_REPORT = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`);
});
"""

_AXE = """(within) => axe.run(
  within ? { include: [[".tabs"], [within]] } : document,
  {
    resultTypes: ["violations"],
    preload: false,
    rules: Object.fromEntries(axe._audit.rules
      .filter((rule) => ["minor", "moderate"].includes(rule.impact))
      .map((rule) => [rule.id, { enabled: false }])),
  },
).then((found) => found.violations)"""
"""What passed stays in the browser. Only a rule about sounds, a moderate one, wants files preloaded.

A rule's impact is that of all its violations, so rules that are never serious need not run.
"""

TABLES_BEYOND_CARDS = """
[...document.querySelectorAll(".card table")].filter((table) => {
  const edge = (one) => one.getBoundingClientRect().right;
  return !table.closest(".scroll") && edge(table) > edge(table.closest(".card")) + 1;
}).map((table) => table.caption?.textContent ?? table.className)
"""
"""Their captions; a table in a box that scrolls may be as wide as it likes."""


class Served(Protocol):
    """Whatever has pages."""

    url: str


class Tab:
    """One page of a browser.

    Attributes:
        page: Playwright's.
        complaints: errors on the console, scripts that failed, requests to other hosts.
        visits: bytes of the answers to each page load, headers included, in order. What moves a page
            later on is no part of them: how often it comes depends on how long the test takes.
    """

    def __init__(self, page: Page, site: Served, *, used: bool = False) -> None:
        self.page, self.site = page, site
        self.complaints: list[str] = []
        self._loads: dict[str, str] = {}
        self._bytes: dict[str, int] = {}
        if not used:
            page.add_init_script(_REPORT)
        page.on("console", self._said)
        page.on("pageerror", self._failed)
        page.on("request", self._asked)
        self._devtools = page.context.new_cdp_session(page)
        self._devtools.send("Network.enable")
        self._devtools.on("Network.requestWillBeSent", self._sent)
        self._devtools.on("Network.loadingFinished", self._got)

    @property
    def visits(self) -> list[int]:
        return list(self._bytes.values())

    def open(self, path: str) -> None:
        """Go to a page and wait until the charts that are seen are drawn."""
        self.page.goto(self.site.url + path)
        self.settled()

    def settled(self) -> None:
        """Wait until every chart is drawn, but for those that the page draws when they are seen."""
        expect(self.page.locator("figure.chart:not([data-drawn], [data-unseen])")).to_have_count(0)

    def draw_all(self) -> None:
        """Have the page draw every chart, as it does before it is printed, and wait for them."""
        self.settled()  # also for the script that listens
        waiting = self.page.locator("figure.chart:not([data-drawn])")

        def drawn() -> bool:  # figures that arrive late hear of the next print only
            self.page.evaluate("dispatchEvent(new Event('beforeprint'))")
            self.page.wait_for_timeout(100)
            return waiting.count() == 0

        eventually(drawn, "all charts are drawn")

    def sign_in(self, secret: str) -> None:
        """Fill the form as a person does."""
        self.page.goto(self.site.url + "/login")
        self.page.get_by_text("Sign in with an API key").click()
        self.page.get_by_label("API key").fill(secret)
        self.page.get_by_role("button", name="Sign in with the key").click()
        expect(self.page.get_by_role("button", name="Sign out")).to_be_visible()

    def assert_well_behaved(self) -> None:
        """Nothing on the console, nothing against the policy, nothing wider than its place.

        All charts are drawn first, also those that nobody would see.
        """
        self.draw_all()
        violations = self.page.evaluate("window.violations")
        assert not violations, violations
        assert not self.complaints, self.complaints
        width = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1], f"{self.page.url} is {width[0]} wide on {width[1]}"
        wide = self.page.evaluate(TABLES_BEYOND_CARDS)
        assert not wide, f"{self.page.url} has tables wider than their cards: {wide}"

    def assert_accessible(self, within: str = "") -> None:
        """No violation that axe calls serious or critical, with all charts drawn.

        Args:
            within: only in this part, and in the tabs that show it, where the rest of the page has been
                looked at.
        """
        self.draw_all()
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE_SCRIPT)
        found = self.page.evaluate(_AXE, within)
        grave = [
            (one["id"], one["help"], [node["target"] for node in one["nodes"]][:5])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert not grave, grave

    def empty(self) -> None:
        """Leave nothing to the next test: no page, cookie, stored word, cached file, permission."""
        page, context = self.page, self.page.context
        page.remove_listener("console", self._said)
        page.remove_listener("pageerror", self._failed)
        page.remove_listener("request", self._asked)
        page.unroute_all()
        page.goto("about:blank")
        page.mouse.move(0, 0)
        context.clear_permissions()
        context.clear_cookies()
        everything = {"origin": self.site.url, "storageTypes": "all"}
        self._devtools.send("Storage.clearDataForOrigin", everything)
        self._devtools.send("Network.clearBrowserCache")
        self._devtools.detach()

    def _failed(self, error: object) -> None:
        self.complaints.append(f"script failed: {error}")

    def _said(self, message: object) -> None:
        kind, text = message.type, message.text  # type: ignore[attr-defined]
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.site.url, "data:", "blob:")):
            self.complaints.append(f"asked another host: {request.url}")

    def _sent(self, event: dict[str, Any]) -> None:
        if not event["request"]["url"].endswith("/live"):
            self._loads[event["requestId"]] = event["loaderId"]

    def _got(self, event: dict[str, Any]) -> None:
        load = self._loads.get(event["requestId"])
        if load is not None:
            self._bytes[load] = self._bytes.get(load, 0) + int(event["encodedDataLength"])


@contextmanager
def tab(
    browser: Browser,
    site: Served,
    *,
    secret: str = "",
    theme: Theme = "light",
    width: int = 1200,
    new: bool = False,
) -> Iterator[Tab]:
    """A tab with nothing in its memory, signed in where a secret is given.

    A new one takes longer to start than most pages to be drawn, so the tab of an earlier test is used
    again, emptied. After a failure it is closed instead.

    Args:
        browser: where.
        site: what has the pages.
        secret: of the API key.
        theme: which colours the browser prefers.
        width: of its window.
        new: whether this must be the first page that its process ever loads, for tests of sizes.
    """
    used = None if new else _idle.pop(browser, None)
    page = used or browser.new_context().new_page()
    page.context.set_default_timeout(1000 * PATIENCE)
    try:
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(media="null", color_scheme=theme, reduced_motion="reduce")
        opened = Tab(page, site, used=used is not None)
        if secret:
            _sign_in(page.context.request, site, secret)
        yield opened
        keep = not new and browser not in _idle and page.context.pages == [page]
        if keep:
            opened.empty()
            _idle[browser] = page
    except BaseException:
        keep = False
        raise
    finally:
        if not keep:
            page.context.close()


_idle: dict[Browser, Page] = {}


def _sign_in(requests: APIRequestContext, site: Served, secret: str) -> None:
    """Send the form and keep the cookie: two pages less to draw for each test."""
    page = requests.get(site.url + "/login")
    form: dict[str, str | float | bool] = {"form_token": form_token(page.text()), "key": secret}
    answer = requests.post(site.url + "/login", form=form, max_redirects=0)
    assert answer.status == 303, answer.text()
