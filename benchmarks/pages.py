"""The pages in Chromium, over the loopback address: until they can be used, and what they transfer.

A page can be used once its document is complete and its scripts have run; when its charts are drawn,
and the first answer of pages that ask for one has come, is told beside it. Cold: the very first
request to a server that has just said it is ready, by a browser that has nothing cached. Again: the
same page in the same browser. First visit: another browser that has nothing cached.
DENIABLE_BENCH_FULL=1 takes 1,000 experiments and 5,000,000 stored decisions in place of 200 and 200,000.
DENIABLE_BENCH_STORE=FOLDER keeps that store for the next run.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
from playwright.sync_api import Browser, Page, sync_playwright
from tests.web import shop
from tests.web.conftest import CHROMIUM, FLAGS
from tests.web.filling import fill
from tests.web.site import create_demo, sign_in

from benchmarks.service import Server, served
from benchmarks.timing import row
from deniable.service.service import open as open_service

FULL = os.environ.get("DENIABLE_BENCH_FULL") == "1"
MANY_EXPERIMENTS, MANY_DECISIONS = (1_000, 5_000_000) if FULL else (200, 200_000)
COLD_STARTS, VISITS, MOVES = 3, 9, 20
USABLE_MS, OVERVIEW_MS, REDRAW_MS, MOST_MB = 500, 300, 150, 1.5
KEY = shop.CHECKOUT_KEY
PAGES = (
    "/",
    "/experiments",
    "/experiments/new",
    f"/experiments/{KEY}",
    f"/experiments/{KEY}/do/promote",
    "/planner",
    "/portfolio",
    "/ledger",
    f"/ledger/promises/{KEY}",
    f"/ledger/promises/{KEY}/audit",
    "/ledger/visitors",
)
MANY_PAGES = (
    "/",
    "/experiments",
    "/experiments?status=running&sort=-visitors&page=7",
    "/experiments/experiment-0",
    "/portfolio",
    "/ledger",
    "/ledger/promises/experiment-0",
    "/settings",
)
"""Measured in a store with many experiments and decisions."""

_TIMES = """() => performance.getEntriesByType('navigation')
  .map(n => [n.responseEnd, n.domContentLoadedEventEnd])[0]"""
_PENDING = "figure.chart:not([data-drawn]), form#setting:not([data-took])"
_DRAWN = f"() => !document.querySelector('{_PENDING}') && performance.now()"


@dataclass(frozen=True)
class Visit:
    """One load of a page.

    Attributes:
        answered: milliseconds until the whole document has come.
        usable: milliseconds until it can be used.
        drawn: milliseconds until its charts are drawn and its first answer has come.
        server: milliseconds that the server has computed meanwhile.
        megabytes: transferred.
    """

    answered: float
    usable: float
    drawn: float
    server: float
    megabytes: float


def main() -> bool:
    """Print every row; True where all limits hold."""
    if CHROMIUM is None:
        print("SKIPPED: no Chromium; apt-get install chromium")
        return True
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed: servers find compiled modules
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        held = [*_demo(browser), *_at_size(browser)]
        browser.close()
    return all(held)


def _demo(browser: Browser) -> list[bool]:
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/demo.db"
        with _opened(store) as service:
            create_demo(service)
            shop.send(service, 5_000)
            secret, _ = service.keys.create("benchmark", ["admin"])
        with served("decide", store, pinned=False) as server:
            cookies = _signed_in(server, secret)
        held = []
        for path in PAGES:
            held += _page(browser, store, cookies, path)
        with (
            served("decide", store, pinned=False) as server,
            _tab(browser, server, cookies) as page,
        ):
            held.append(_redraw(server, page))
    return held


def _page(browser: Browser, store: str, cookies: dict[str, str], path: str) -> list[bool]:
    visits = _visits(browser, store, cookies, path)
    held = _told(path, visits)
    most = max(v.megabytes for v in visits["cold"] + visits["first visit"])
    held.append(row(f"{path}, first visit", most, "MB", MOST_MB))
    return held


def _visits(
    browser: Browser, store: str, cookies: dict[str, str], path: str
) -> dict[str, list[Visit]]:
    """Several starts of a server, each with visits of all kinds."""
    visits: dict[str, list[Visit]] = {"cold": [], "again": [], "first visit": []}
    for _ in range(COLD_STARTS):
        with served("decide", store, pinned=False) as server:
            with _tab(browser, server, cookies) as page:
                visits["cold"].append(_visit(server, page, path))
                visits["again"] += [
                    _visit(server, page, path) for _ in range(VISITS // COLD_STARTS)
                ]
            with _tab(browser, server, cookies) as page:
                visits["first visit"].append(_visit(server, page, path))
    return visits


def _told(path: str, visits: dict[str, list[Visit]]) -> list[bool]:
    """A row for the median of each kind of visits, and what it is made of."""
    held = []
    for name, those in visits.items():
        usable = [v.usable for v in those]
        held.append(row(f"{path}, {name}", statistics.median(usable), "ms", USABLE_MS))
        drawn = statistics.median(v.drawn for v in those)
        computed = statistics.median(v.server for v in those)
        print(
            f"      {min(usable):.0f} to {max(usable):.0f} ms; drawn after {drawn:.0f} ms; "
            f"the server computed for {computed:.0f} ms"
        )
    return held


def _at_size(browser: Browser) -> list[bool]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(os.environ.get("DENIABLE_BENCH_STORE") or temporary)
        store = f"sqlite:///{folder}/many-{MANY_EXPERIMENTS}-{MANY_DECISIONS}.db"
        with _opened(store) as service:
            if not service.experiments.totals():
                fill(service, MANY_EXPERIMENTS, MANY_DECISIONS)
            secret, _ = service.keys.create("benchmark", ["admin"])
        with served("decide", store, pinned=False) as server:
            cookies = _signed_in(server, secret)
        print(f"      with {MANY_EXPERIMENTS} experiments and {MANY_DECISIONS:,} decisions stored:")
        held = []
        for path in MANY_PAGES:
            visits = _visits(browser, store, cookies, path)
            if path == "/":
                for when, loads in visits.items():
                    answered = statistics.median(v.answered for v in loads)
                    held.append(row(f"{path}, {when}, answered", answered, "ms", OVERVIEW_MS))
            held += _told(path, visits)
    return held


def _redraw(server: Server, page: Page) -> bool:
    """From a moved slider until every number and chart of the planner has followed."""
    page.goto(f"{server.url}/planner?arms=3&visitors=1000000&segments=3&prior=20&budget=1")
    form, slider = page.locator("#setting"), page.locator("#slider")
    page.wait_for_selector("#setting[data-took]")
    taken = []
    for step in range(MOVES + 1):
        form.evaluate("form => { delete form.dataset.took; }")
        slider.evaluate(
            "(slider, value) => { slider.value = value; "
            "slider.dispatchEvent(new Event('input', { bubbles: true })); }",
            str(0.5 + 0.1 * step),
        )
        page.wait_for_selector("#setting[data-took]")
        taken.append(float(form.get_attribute("data-took") or "nan"))
    return row("planner, redrawn", statistics.median(taken[1:]), "ms", REDRAW_MS)


def _visit(server: Server, page: Page, path: str) -> Visit:
    got: list[int] = []

    def finished(event: dict[str, Any]) -> None:
        got.append(int(event["encodedDataLength"]))

    network = page.context.new_cdp_session(page)
    network.send("Network.enable")
    network.on("Network.loadingFinished", finished)
    computed = server.cpu_seconds()
    answer = page.goto(server.url + path)
    assert answer is not None
    assert (answer.status, answer.url) == (200, server.url + path)  # not sent to sign in
    drawn = page.wait_for_function(_DRAWN).json_value()
    computed = 1e3 * (server.cpu_seconds() - computed)
    answered, usable = page.evaluate(_TIMES)
    network.detach()
    return Visit(answered, usable, float(drawn), computed, sum(got) / 1e6)


def _signed_in(server: Server, secret: str) -> dict[str, str]:
    """The cookies of a session; it outlives the server, because its key is the store's."""
    with httpx.Client(base_url=server.url) as client:
        assert sign_in(client, secret).status_code == 303
        return dict(client.cookies)


@contextmanager
def _tab(browser: Browser, server: Server, cookies: dict[str, str]) -> Iterator[Page]:
    """A tab that is signed in and has nothing cached."""
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    context.add_cookies([{"name": n, "value": v, "url": server.url} for n, v in cookies.items()])
    try:
        yield context.new_page()
    finally:
        context.close()


@contextmanager
def _opened(store: str) -> Iterator[Any]:
    os.environ["DENIABLE_VISITOR_KEY"] = "00" * 32
    with open_service(store) as service:
        yield service
