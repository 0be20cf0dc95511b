"""`make screenshots`: pictures of every page, small enough for the README and the docs.

They show the demo after its month. Look at them before they are committed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from tests.web.conftest import CHROMIUM, FLAGS
from tests.web.site import EXPERIMENT, Site, running_site
from tests.web.watching import Theme, tab

from deniable.demo.firm import prepare
from deniable.demo.month import opened
from deniable.service.service import open as open_service
from deniable.web import monitor

FOLDER = Path(__file__).parents[2] / "docs" / "images"
MOST_BYTES = 300_000

SHOTS: tuple[tuple[str, str, Theme, int, int], ...] = (
    # name, path, theme, width, height; a height of 0 is the whole page
    ("login", "", "light", 1000, 640),
    ("overview", "/", "light", 1200, 0),
    ("overview-dark-phone", "/", "dark", 390, 1900),
    ("experiments", "/experiments", "light", 1200, 0),
    ("experiment-new", "/experiments/new", "light", 1000, 0),
    ("experiment", f"/experiments/{EXPERIMENT}", "light", 1200, 1560),
    ("experiment-dark", f"/experiments/{EXPERIMENT}", "dark", 1200, 1560),
    ("experiment-phone", f"/experiments/{EXPERIMENT}", "light", 390, 1500),
    ("promote", f"/experiments/{EXPERIMENT}/do/promote", "light", 1000, 0),
    ("planner", "/planner?max_belief=50", "light", 1200, 1250),
    ("planner-dark-phone", "/planner?max_belief=50", "dark", 390, 1500),
    ("portfolio", "/portfolio", "light", 1200, 1350),
    ("portfolio-dark-phone", "/portfolio", "dark", 390, 1900),
    ("ledger", "/ledger", "light", 1200, 1200),
    ("promise", f"/ledger/promises/{EXPERIMENT}", "light", 1000, 1400),
    ("visitors", "/ledger/visitors", "light", 1000, 0),
)
PRESSED = {"portfolio": "An example", "portfolio-dark-phone": "An example"}
"""A button that is pressed before the picture is taken."""

AWAITED = {
    "portfolio": "#what_if-rows tr:nth-child(13)",
    "portfolio-dark-phone": "#what_if-rows tr:nth-child(13)",
    "ledger": "#seal[data-checked]",
    "planner": "#setting[data-took]",
    "planner-dark-phone": "#setting[data-took]",
}
"""What must be there before the picture is taken, besides all charts."""

EMPTY_SHOTS: tuple[tuple[str, str, Theme, int, int], ...] = (("first-run", "/", "light", 1000, 0),)


def main() -> None:
    """Write all pictures and say how large they are."""
    if CHROMIUM is None:
        raise SystemExit("no Chromium: apt-get install chromium")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        with open_service(f"sqlite:///{folder}/empty.db") as service, running_site(service) as site:
            take(site, EMPTY_SHOTS)
        with opened(
            lambda: open_service(f"sqlite:///{folder}/demo.db"),
            watching=lambda service: monitor.Monitor(service).sample,
        ) as service:
            prepare(service)
            with running_site(service, demo=True) as site:
                site.app.api.state.monitor.look()
                take(site, SHOTS)


def take(site: Site, shots: tuple[tuple[str, str, Theme, int, int], ...]) -> None:
    secret, _ = site.service.keys.create("Ada (privacy)", ["admin"])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        for name, path, theme, width, height in shots:
            with tab(
                browser, site, secret=secret if path else "", theme=theme, width=width
            ) as screen:
                screen.page.set_viewport_size({"width": width, "height": height or 900})
                screen.open(path or "/login")
                if name in PRESSED:
                    screen.page.get_by_role("button", name=PRESSED[name]).click()
                    screen.page.wait_for_selector("#lines tr:nth-child(5) .saved:not(:empty)")
                if name in AWAITED:
                    screen.page.wait_for_selector(AWAITED[name], state="attached")
                screen.draw_all()
                screen.page.wait_for_timeout(500)  # the last frames of its charts
                target = FOLDER / f"{name}.png"
                screen.page.screenshot(path=target, full_page=not height, animations="disabled")
                size = target.stat().st_size
                print(f"{target.name}: {size // 1000} kB")  # noqa: T201
                if size > MOST_BYTES:
                    raise SystemExit(f"{target.name} is too large")
        browser.close()


if __name__ == "__main__":
    main()
