"""What people do, from an empty store to a promoted winner, in Chromium."""

from __future__ import annotations

import random

from playwright.sync_api import Browser, expect
from tests.web.site import EXPERIMENT, Site
from tests.web.watching import Tab, tab

from deniable.service.service import Deniable


def visit(service: Deniable, key: str, start: int, number: int) -> None:
    """Visitors, of whom those of segment `a` like `new` and all others like `old`."""
    chance = random.Random(start)
    names = [(f"v{n}", "ab"[n % 2]) for n in range(start, start + number)]
    for (_, segment), decision in zip(names, service.decide_batch(key, names), strict=True):
        likes = (decision.arm == "new") == (segment == "a")
        service.reward(decision.id, int(chance.random() < (0.6 if likes else 0.1)))


def confirm(opened: Tab, action: str, button: str) -> None:
    opened.page.get_by_role("link", name=f"{action}…").click()
    expect(opened.page.get_by_role("heading", name="What this does")).to_be_visible()
    opened.page.get_by_role("button", name=button).click()


def test_from_an_empty_store_to_a_winner(empty_site: Site, browser: Browser) -> None:
    service = empty_site.service
    with tab(browser, empty_site, secret=empty_site.secret("admin")) as opened:
        page = opened.page
        opened.open("/")
        expect(page.get_by_role("heading", level=1)).to_contain_text("three steps")
        page.get_by_label("Budget of the firm").fill("3")
        page.get_by_label("Length of the window").fill("30")
        page.get_by_role("button", name="Set the budget").click()
        expect(page.get_by_role("status")).to_contain_text("budget is set")
        assert service.firm.current().budget == 3
        assert service.firm.current().window_days == 30

        page.get_by_role("link", name="I know my budget").click()
        page.get_by_label("Name").fill("first one!")
        page.get_by_label("Variants, one per line").fill("old: As it was\nnew: The new one")
        page.get_by_label("Segments, one per line").fill("a\nb")
        page.get_by_label("Budget, in nats").fill("1,5")
        page.get_by_role("button", name="Save the draft").click()
        expect(page.get_by_role("alert")).to_be_visible()
        expect(page.get_by_label("Name")).to_have_attribute("aria-invalid", "true")
        expect(page.get_by_label("Variants, one per line")).to_have_value(
            "old: As it was\nnew: The new one"
        )
        opened.complaints.clear()  # the refusal's status on the console
        page.get_by_label("Name").fill("first")
        page.get_by_role("button", name="Save the draft").click()
        expect(page.get_by_role("status")).to_contain_text("draft is saved")
        assert service.experiments.get("first").budget == 1.5

        confirm(opened, "Start", "Start")
        expect(page.get_by_role("status")).to_contain_text("The experiment is running")
        assert service.firm.current().remaining == 1.5

        visit(service, "first", 0, 400)
        figures = page.locator("#figures")
        expect(figures).to_contain_text("400")  # it moves by itself
        visit(service, "first", 400, 200)
        expect(figures).to_contain_text("600")
        page.reload()
        opened.settled()
        for name in ("traffic-chart", "shows-chart", "clicks-chart", "regret-chart", "risks-chart"):
            expect(page.locator(f"#{name}")).to_have_count(1)

        confirm(opened, "Pause", "Pause")
        expect(page.locator(".status")).to_have_text("paused")
        assert service.experiments.get("first").status == "paused"
        confirm(opened, "Resume", "Resume")
        expect(page.locator(".status")).to_have_text("running")

        page.get_by_role("link", name="Promote and stop…").click()
        expect(page.get_by_role("dialog").locator(".says")).to_contain_text(
            "stays in use until the firm’s window after the last answer has passed"
        )
        page.get_by_role("radio", name="new").check()
        page.get_by_role("button", name="Promote and stop").click()
        expect(page.locator(".message.good").last).to_contain_text("Everybody gets new")
        assert service.experiments.get("first").winner == "new"
        assert page.get_by_role("link", name="Pause…").count() == 0
        for event in ("Created", "Started, 1.5 nats committed", "Paused", "Resumed", "Stopped"):
            expect(page.locator("#timeline")).to_contain_text(event)
        opened.assert_well_behaved()


def test_an_experiment_moves_while_somebody_looks_and_holds_still_when_told(
    site: Site, browser: Browser
) -> None:
    site.send_visitors(500)
    with tab(browser, site, secret=site.secret("read")) as opened:
        page = opened.page
        opened.open(f"/experiments/{EXPERIMENT}")
        expect(page.locator("#figures")).to_contain_text("500")
        page.get_by_role("button", name="Freeze").click()
        site.send_visitors(100, seed=2)
        updates = int(page.evaluate("document.documentElement.dataset.updates ?? '0'"))
        page.get_by_role("button", name="Unfreeze").click()
        expect(page.locator("#figures")).to_contain_text("600")
        page.wait_for_function(  # charts are drawn after the figures
            "before => Number(document.documentElement.dataset.updates) > before", arg=updates
        )
        site.service.experiments.pause(EXPERIMENT)  # somebody else does
        expect(page.locator(".status")).to_have_text("paused")
        opened.assert_well_behaved()


def test_stop_without_a_winner_and_switch_off_an_arm(site: Site, browser: Browser) -> None:
    with tab(browser, site, secret=site.secret("admin")) as opened:
        page = opened.page
        opened.open(f"/experiments/{EXPERIMENT}")
        page.get_by_role("link", name="Switch a variant off…").click()
        expect(page.get_by_role("dialog").locator(".says")).to_contain_text(
            "does not know on which day"
        )
        page.get_by_role("radio", name="grey").check()
        page.get_by_role("button", name="Switch a variant off").click()
        expect(page.locator("#leaderboard")).to_contain_text("switched off")
        assert (
            page.get_by_role("link", name="Switch a variant off…").count() == 0
        )  # two arms must stay
        confirm(opened, "Stop for good", "Stop for good")
        expect(page.locator(".message.note")).to_contain_text("default variant grey")
        opened.assert_well_behaved()


def test_add_a_segment_and_an_arm(site: Site, browser: Browser) -> None:
    site.send_visitors(200)
    with tab(browser, site, secret=site.secret("admin")) as opened:
        page = opened.page
        opened.open(f"/experiments/{EXPERIMENT}")
        before = site.service.experiments.get(EXPERIMENT)
        page.get_by_role("link", name="Add a segment…").click()
        expect(page.get_by_role("dialog").locator(".says")).to_contain_text("Until the next table")
        page.get_by_label("Name of the new segment").fill("business")
        page.get_by_role("button", name="Add a segment").click()
        expect(page.get_by_role("status")).to_contain_text("next table has a row")
        expect(page.locator("#timeline")).to_contain_text("Segment added")
        page.get_by_role("link", name="Add a variant…").click()
        expect(page.get_by_role("dialog").locator(".says")).to_contain_text(
            "version 2 of the guarantee"
        )
        expect(page.get_by_role("dialog").locator(".says")).to_contain_text(
            "does not know on which day"
        )
        page.get_by_label("Key of the new variant").fill(before.arms[0].key)
        page.get_by_role("button", name="Add a variant").click()
        expect(page.locator("#name-error")).to_contain_text("no arm of the experiment has")
        opened.complaints.clear()  # the refusal's status on the console
        expect(page.get_by_label("Key of the new variant")).to_have_value(before.arms[0].key)
        page.get_by_label("Key of the new variant").fill("purple")
        page.get_by_role("button", name="Add a variant").click()
        expect(page.get_by_role("status")).to_contain_text("can get the new variant")
        expect(page.locator("#leaderboard")).to_contain_text("purple")
        expect(page.locator("#timeline")).to_contain_text(
            "Variant added: purple; version 2, given the"
        )
        expect(page.locator(".lead").first).to_contain_text("given the time")
        opened.open(f"/ledger/promises/{EXPERIMENT}")
        expect(page.locator("main")).to_contain_text("a version was added")
        opened.assert_well_behaved()
    after = site.service.experiments.get(EXPERIMENT)
    assert after.segments == (*before.segments, "business")
    assert [arm.key for arm in after.arms[len(before.arms) :]] == ["purple"]
    assert site.service.audits.promise(EXPERIMENT).grade == "given the time"


def test_a_start_that_does_not_fit_is_refused_in_words(site: Site, browser: Browser) -> None:
    site.service.experiments.create("greedy", arms=["x", "y"], segments=["a"], budget=5)
    with tab(browser, site, secret=site.secret("admin")) as opened:
        page = opened.page
        opened.open("/experiments/greedy/do/start")
        expect(page.locator(".says")).to_contain_text("Only 3 nats are free")
        page.get_by_role("button", name="Start").click()
        expect(page.get_by_role("status")).to_contain_text("only 3 remain")
        assert site.service.experiments.get("greedy").status == "draft"
        opened.open("/experiments")
        page.get_by_label("Status").select_option("draft")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("tbody tr")).to_have_count(1)
