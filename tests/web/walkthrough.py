"""A stranger's first ten minutes with `make run`, with a picture of each step.

`python -m tests.web.walkthrough FOLDER` writes them. Look at each one; a designer would.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from tests.web.conftest import CHROMIUM, FLAGS
from tests.web.site import Site, running_site
from tests.web.watching import Tab, Theme, tab

from deniable.demo.firm import CHECKOUT as CHECKOUT_BUTTON
from deniable.demo.firm import Simulator, prepare
from deniable.demo.month import opened
from deniable.service.service import open as open_service
from deniable.web.monitor import Monitor

CHECKOUT = f"/experiments/{CHECKOUT_BUTTON.key}"


def main() -> None:
    """Write the pictures of every step, in both themes and four widths."""
    if CHROMIUM is None:
        raise SystemExit("no Chromium: apt-get install chromium")
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "walkthrough")
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as place,
        opened(
            lambda: open_service(f"sqlite:///{place}/d.db"),
            watching=lambda service: Monitor(service).sample,
        ) as service,
    ):
        secret = prepare(service)
        Simulator(service, 30, 1).step(30)  # a minute at the first screen
        with running_site(service, demo=True) as site:
            site.app.api.state.monitor.look()
            walk(site, secret, folder)


def walk(site: Site, secret: str, folder: Path) -> None:
    """Ten minutes at a desk, then the same pages elsewhere."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        with tab(browser, site, secret=secret, width=1280) as screen:
            steps(screen, folder)
        others: tuple[tuple[int, Theme], ...] = ((390, "dark"), (768, "light"), (1440, "dark"))
        for width, theme in others:
            with tab(browser, site, secret=secret, width=width, theme=theme) as screen:
                for name, path in (
                    ("overview", "/"),
                    ("experiment", CHECKOUT),
                    ("list", "/experiments"),
                    ("ledger", "/ledger"),
                ):
                    screen.open(path)
                    picture(screen, folder / f"w{width}-{name}.png")
        browser.close()


def steps(screen: Tab, folder: Path) -> None:
    """What the first screen leads to, in order."""
    page = screen.page
    screen.open("/")
    picture(screen, folder / "01-first-screen.png")
    follow(page, "Read a result")
    picture(screen, folder / "02-a-result.png")
    screen.open("/")
    follow(page, "See what is promised")
    picture(screen, folder / "03-the-promise.png")
    screen.open("/")
    follow(page, "Divide the budget")
    page.wait_for_selector("#what_if-rows tr:nth-child(13)", state="attached")
    picture(screen, folder / "04-the-portfolio.png")
    screen.open("/")
    follow(page, "Look back")
    picture(screen, folder / "05-a-decision.png")
    screen.open("/")
    follow(page, "Send a visitor")
    picture(screen, folder / "06-connect.png")
    screen.open("/experiments/demo-gift-wrap")
    picture(screen, folder / "07-a-draft.png")
    page.get_by_role("link", name="Start…").click()
    page.get_by_role("dialog").wait_for()
    page.screenshot(path=folder / "08-starting-it.png", animations="disabled")
    page.get_by_role("dialog").get_by_role("link", name="No, go back").click()
    screen.open("/experiments?status=draft&sort=name")
    picture(screen, folder / "09-the-list.png")
    screen.open("/ledger")
    page.wait_for_selector("#seal[data-checked]")
    picture(screen, folder / "10-the-ledger.png")
    screen.open("/planner")
    picture(screen, folder / "11-the-planner.png")
    screen.open("/experiments/demo-product-photos")
    picture(screen, folder / "12-paused.png")


def follow(page: Page, link: str) -> None:
    """Click a step of the guided path."""
    page.get_by_role("list", name="Five steps through the demo").get_by_role(
        "link", name=link
    ).click()
    page.wait_for_load_state("load")


def picture(screen: Tab, path: Path) -> None:
    """The whole page, once its charts are drawn."""
    screen.draw_all()
    screen.page.wait_for_timeout(400)  # the last frames of its charts
    screen.page.screenshot(path=path, full_page=True, animations="disabled")


if __name__ == "__main__":
    main()
