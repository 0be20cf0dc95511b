"""The demo as a stranger meets it: the first screen, its five steps, in both themes and four widths."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect
from tests.web.site import Site, running_site
from tests.web.watching import Theme, tab

from deniable.demo.firm import Simulator, prepare
from deniable.demo.month import opened
from deniable.demo.scores import scores
from deniable.service.service import open as open_service
from deniable.web.monitor import Monitor

STEPS = {
    "See the label": "interest",
    "Read a result": "What we learned",
    "Sign the statement": "statement",
    "Plan an experiment": "visitors",
    "Connect your site": "Connect your site",
}


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    path = tmp_path_factory.mktemp("month") / "store.db"
    with opened(
        lambda: open_service(f"sqlite:///{path}"),
        watching=lambda service: Monitor(service).sample,
        visitors=20,
    ) as service:
        prepare(service)
        with running_site(service, demo=True) as site:
            site.app.api.state.monitor.look()
            yield site


def test_the_first_screen_leads_through_the_demo(month: Site, browser: Browser) -> None:
    with tab(browser, month, secret=month.secret("admin"), width=1280) as screen:
        page = screen.page
        for link, found in STEPS.items():
            screen.open("/")
            path = page.get_by_role("list", name="Five steps through the demo")
            expect(path.get_by_role("listitem")).to_have_count(5)
            path.get_by_role("link", name=link).click()
            expect(page.locator("main")).to_contain_text(found)
        screen.assert_well_behaved()
        head = page.locator(".experiment-head")
        title, buttons = (
            head.locator("h1").bounding_box(),
            head.locator(".row").first.bounding_box(),
        )
        assert title is not None
        assert buttons is not None
        assert abs(title["y"] - buttons["y"]) < title["height"]  # beside the title


def test_the_score_on_the_screen_is_the_services_and_moves(month: Site, browser: Browser) -> None:
    with tab(browser, month, secret=month.secret("read")) as screen:
        first = scores(month.service)
        screen.open("/")
        told = screen.page.locator("#score")
        for share in (first.open, first.guessed, first.blind, first.possible):
            expect(told).to_contain_text(f"{share:.0%}")
        expect(told).to_contain_text(f"{first.views:,} page views")
        Simulator(month.service, 40, 5).step(40)
        expect(told).to_contain_text(f"{scores(month.service).views:,} page views")


@pytest.mark.parametrize(
    ("width", "theme"),
    [(390, "dark"), (768, "light"), (964, "light"), (1280, "dark"), (1440, "light")],
)
def test_every_width_and_theme(month: Site, browser: Browser, width: int, theme: Theme) -> None:
    with tab(browser, month, secret=month.secret("admin"), width=width, theme=theme) as screen:
        for path in ("/", "/experiments", "/experiments/demo-checkout-button", "/ledger"):
            screen.open(path)
            screen.assert_well_behaved()
            screen.assert_accessible()


def test_visitors_come_while_somebody_looks(month: Site) -> None:
    state = month.app.api.state
    state.seen_at = -1e9
    assert Simulator(month.service, 9, watched=lambda: state.seen_at).idle
    with month.signed_in("read") as client:
        client.get("/experiments/demo-checkout-button/live")
        assert not Simulator(month.service, 9, watched=lambda: state.seen_at).idle


def test_two_drafts_wait_in_the_portfolio(month: Site) -> None:
    with month.signed_in("read") as client:
        page = client.get("/portfolio").text
        for key in ("demo-gift-wrap", "demo-loyalty-card"):
            assert key in page
        ledger = client.get("/ledger").text
        assert re.search(r'id="firm-audit"><span class="outcome kept"', ledger)
