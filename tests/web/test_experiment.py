"""The page of one experiment: what it says of drafts, stopped experiments, budgets and segments."""

from __future__ import annotations

import html

from playwright.sync_api import Browser, expect
from tests.web.site import EXPERIMENT, Site
from tests.web.watching import tab

from deniable.web.wording import belief_words


def test_drafts_and_promoted_experiments_show_no_random_arms(site: Site) -> None:
    site.service.experiments.create("later", arms=["a", "b"], segments=["s"], budget=1)
    site.service.experiments.stop(EXPERIMENT, promote=_second_arm(site))
    with site.signed_in("read") as client:
        draft = client.get("/experiments/later").text
        assert "Same for every segment" not in draft
        assert "everybody is shown <bdi><strong>a</strong></bdi>" in draft
        text = html.unescape(client.get(f"/experiments/{EXPERIMENT}").text)
        figure = text[text.index("Same for every segment") :][:200]
        assert "100%" not in figure
        assert f"everybody gets “{_second_arm(site)}”" in figure


def test_a_draft_says_what_it_commits_and_whether_it_fits(site: Site) -> None:
    for key, budget in (("small", 1), ("large", 5.5)):  # 3 of the firm's 6 nats are free
        site.service.experiments.create(key, arms=["a", "b"], segments=["s"], budget=budget)
    with site.signed_in("read") as client:
        small, large = (client.get(f"/experiments/{key}").text for key in ("small", "large"))
    assert "<dd>1 nat</dd>" in small
    assert "It does not fit" not in small
    assert "It does not fit: 5.5 nats are needed and 3 nats are free." in large


def test_a_stopped_experiment_is_not_told_to_stop(site: Site) -> None:
    site.send_visitors(200)
    with site.signed_in("read") as client:
        running = client.get(f"/experiments/{EXPERIMENT}").text
        site.service.experiments.stop(EXPERIMENT, promote=_second_arm(site))
        stopped = client.get(f"/experiments/{EXPERIMENT}").text
    assert "The table in force" in running
    assert "until the next one is published" in running
    assert "The last table" in stopped
    assert "It is no longer used." in stopped
    assert "The experiment has stopped: nothing more will be learned." in stopped
    for words in ("Keep running", "stopping now is safe", "until the next one is published"):
        assert words not in stopped


def test_budgets_are_told_as_beliefs_by_severity(site: Site) -> None:
    with site.signed_in("read") as client:
        overview, page = client.get("/").text, client.get(f"/experiments/{EXPERIMENT}").text
    assert f'severity bad">{belief_words(6.0)}<' in overview
    assert 'class="severity note"' in page
    assert belief_words(2.0).partition("tracker")[2] + "</strong>" in page
    assert belief_words(4.0) == "a tracker that was 20% sure becomes at most 93.2% sure"


CUT = """(place) => [...document.querySelector(place).querySelectorAll("*")].filter((one) => {
  const style = getComputedStyle(one), hides = ["hidden", "clip"].includes(style.overflowX);
  const box = one.getBoundingClientRect();
  return !one.closest(".hidden") && box.width > 0
    && ((hides && one.scrollWidth > one.clientWidth + 1)
      || (box.right > innerWidth + 1 && !one.closest(".scroll")));
}).map((one) => `${one.tagName}.${one.className}`)"""


SCROLLS = """(place) => [...document.querySelectorAll(`${place} .scroll`)]
  .filter((one) => one.scrollWidth > one.clientWidth + 1).length"""


def test_success_by_segment_is_whole_on_every_screen(site: Site, browser: Browser) -> None:
    """Arms are columns: with many of them the table was cut off at the edge of its card."""
    service, key = site.service, "many-arms"
    arms = [f"a-rather-long-name-of-an-arm-{n}" for n in range(8)]
    segments = ["returning visitors with a basket", "first-visit"]
    service.experiments.create(key, arms=arms, segments=segments, budget=0.25)
    service.experiments.start(key)
    service.decide_batch(key, [(f"v{n}", segments[n % 2]) for n in range(1_500)])
    with tab(browser, site, secret=site.secret("read")) as opened:
        page = opened.page
        for width in (390, 768, 1000, 1280, 1440):
            page.set_viewport_size({"width": width, "height": 800})
            opened.open(f"/experiments/{key}")
            expect(page.locator("#segments tbody tr")).to_have_count(2)
            expect(page.locator("#segments tbody td")).to_have_count(2 * (1 + len(arms)))
            assert not page.evaluate(CUT, "#segments"), width
            if width < 960:  # cells below each other: nothing to scroll
                assert not page.evaluate(SCROLLS, "#segments"), width
            opened.assert_well_behaved()


def _second_arm(site: Site) -> str:
    return site.service.experiments.get(EXPERIMENT).arms[1].key
