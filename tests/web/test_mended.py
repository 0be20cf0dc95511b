"""Things that were broken once on the pages, one test each."""

from __future__ import annotations

import html
import json
import re
import shlex
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, FilePayload, expect
from tests.web.making import cells_of, experiment_of
from tests.web.site import EXPERIMENT, Site, send, sign_in, token_of
from tests.web.watching import tab

from deniable import _numbers
from deniable.analysis.alerts import SILENT_AFTER, alerts
from deniable.analysis.leaderboard import Leaderboard
from deniable.analysis.result_health import DrawCheck, Health
from deniable.cli import main
from deniable.errors import InvalidArgumentError, InvalidTableError
from deniable.portfolio.table import csv_rows, read_portfolio
from deniable.service.service import Deniable
from deniable.web.portfolio import experiments_of
from deniable.web.wording import odds_words


def test_the_sign_in_page_names_a_command_that_works(
    empty_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with empty_site.client() as client:
        page = html.unescape(client.get("/login").text)
    (command,) = re.findall(r"<code>(deniable users .*?)</code>", page)
    monkeypatch.setenv("DENIABLE_STORE", f"sqlite:///{tmp_path / 'other.db'}")
    assert main(["init", "--budget", "1"]) == 0
    assert main(shlex.split(command)[1:]) == 0


def test_a_shared_link_survives_signing_in(site: Site) -> None:
    link = "/planner?arms=3&visitors=50000&budget=1.5"
    with site.client() as client:
        sent = client.get(link)
        assert sent.status_code == 303
        (place,) = parse_qs(urlsplit(sent.headers["location"]).query)["next"]
        assert place == link
        page = client.get(sent.headers["location"])
        assert html.escape(link, quote=False) in page.text
        answer = sign_in(client, site.secret("read"), next=place)
        assert answer.headers["location"] == link


@pytest.mark.parametrize("text", ["1,000", "12,500", "+1,000,000"])
def test_a_thousand_is_not_one(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="without a comma"):
        _numbers.number("budget", text)


@pytest.mark.parametrize(("text", "value"), [("1,5", 1.5), ("0,500", 0.5), ("1,25", 1.25)])
def test_a_decimal_comma_is_read(text: str, value: float) -> None:
    assert _numbers.number("budget", text) == value


def test_a_thousand_nats_are_refused_on_the_page(site: Site) -> None:
    with site.signed_in("admin") as client:
        answer = send(client, "/", "/firm", budget="1,000", days="")
        assert answer.status_code == 422
        assert "without a comma" in answer.text
    assert site.service.firm.current().budget == 6


def test_few_visitors_raise_no_alert_about_responses(service: Deniable) -> None:
    experiment = experiment_of()
    board = Leaderboard(experiment, cells_of(experiment, [(2, 1), (0, 0), (0, 0)], [(1, 0)] * 3))

    def told(decisions: int) -> list[str]:
        check = DrawCheck(decisions, 0, (decisions, 0), (decisions, 0.0), (1.0, 1.0))
        health = {experiment.key: Health(check, 1.0, experiment.created_at)}
        return [alert.text for alert in alerts(None, [board], health, service.figures)]

    assert told(3) == []
    assert told(SILENT_AFTER - 1) == []
    assert told(SILENT_AFTER) == ["Only 0.0% of the decisions have a reported reward."]


def test_raising_the_budget_shows_before_and_after_first(site: Site) -> None:
    firm = site.service.firm
    with site.signed_in("admin") as client:
        asked = send(client, "/", "/firm", budget="7", days="30")
        assert asked.status_code == 200
        assert firm.current().budget == 6
        for words in ("Before", "After", "404 times", "1,100 times", "90 days", "30 days"):
            assert words in asked.text, words
        token = token_of(asked)
        sure = {"form_token": token, "confirmed": "yes", "budget": "7", "days": "30"}
        refused = client.post("/firm", data={**sure, "reason": ""})
        assert refused.status_code == 422
        assert 'value="7"' in refused.text, "what was typed is kept"
        assert firm.current().budget == 6
        done = client.post("/firm", data={**sure, "reason": "two more experiments"})
        assert done.status_code == 303
    assert (firm.current().budget, firm.current().window_days) == (7, 30)
    assert "two more experiments" in site.service.ledger.entries()[-1].detail


def test_the_first_budget_is_set_at_once(empty_site: Site) -> None:
    with empty_site.signed_in("admin") as client:
        assert send(client, "/", "/firm", budget="2", days="").status_code == 303
    assert empty_site.service.firm.current().budget == 2


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


def test_budgets_are_told_as_odds_and_beliefs_by_severity(site: Site) -> None:
    with site.signed_in("read") as client:
        overview, page = client.get("/").text, client.get(f"/experiments/{EXPERIMENT}").text
    assert f'severity bad">{odds_words(6.0)}<' in overview
    assert 'class="severity note"' in page
    assert odds_words(2.0).removeprefix("odds") + "</strong>" in page
    assert odds_words(4.0) == "odds move at most 54.6 times: from 20% to at most 93.2%"


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


def test_more_than_the_firm_has_is_not_applied(site: Site) -> None:
    service = site.service
    for key in ("one", "two"):
        service.experiments.create(
            key, arms=["a", "b"], segments=["s", "t"], budget=0.1, planned_visitors=10**9
        )
    rows = experiments_of(service).rows
    before = [e.budget_nano for e in service.experiments.all()]
    drafts = [row for row in rows if row["committed"] is None]
    fields = {"reserve": "0", "regime": "flexible"}
    with site.signed_in("admin") as client:
        for chosen, budget, words in (
            (rows, "60", "at most 6 nats"),
            (drafts, "6", "only 3 remain"),  # a file that leaves out what runs
        ):
            token = token_of(client.get("/portfolio"))
            sent = {"form_token": token, "rows": json.dumps(chosen), "firm_budget": budget}
            answer = client.post("/portfolio/apply", data={**sent, **fields})
            assert answer.status_code == 422
            assert words in answer.json()["wrong"]
            assert [e.budget_nano for e in service.experiments.all()] == before


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_files_of_all_countries(separator: str, tmp_path: Path) -> None:
    point = "." if separator == "," else ","
    lines = ["id,arms,visitors,max_budget", f"home,2,1000,0{point}5", "", "search,3,2000,"]
    text = "\n".join(
        line.replace(",", separator) if point == "." or "0,5" not in line else line
        for line in lines
    )
    if point == ",":
        text = text.replace("home,2,1000,0,5", separator.join(["home", "2", "1000", "0,5"]))
    (tmp_path / "p.csv").write_text("\ufeff" + text, "utf-8")
    found = read_portfolio(tmp_path / "p.csv")
    assert list(found.ids) == ["home", "search"]
    assert csv_rows(text)[0]["max_budget"] == "0.5"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no rows below its header"),
        ("id,arms,visitors\n", "no rows below its header"),
        ("id,arms,visitors\nhome,2\nshop,2,3,4,5", "row 2 has 5 fields, the header 3"),
        ('id,arms,visitors\n"home,2,3', "cannot be read as CSV"),
    ],
)
def test_bad_csv_is_told_in_our_words(text: str, words: str) -> None:
    with pytest.raises(InvalidTableError, match=words) as caught:
        csv_rows(text)
    assert "truncate_ragged_lines" not in str(caught.value)


def test_a_bad_file_leaves_the_portfolio_as_it_was(site: Site, browser: Browser) -> None:
    """An empty or foreign file was divided with the free budget of another question."""
    service = site.service
    service.experiments.create(
        "over", arms=["a", "b"], segments=["s"], budget=0.25, planned_visitors=10
    )
    service.experiments.start("over")
    service.experiments.stop("over")  # a reserve: it counts, and is not listed
    with tab(browser, site, secret=site.secret("admin")) as opened:
        page = opened.page
        opened.open("/portfolio")
        expect(page.locator("#outcome")).to_be_visible()
        reserve = page.locator("#reserve").input_value()
        assert float(reserve) > 0
        for content in ("", "nonsense\n1", "id,arms,visitors\n"):
            file = FilePayload(name="p.csv", mimeType="text/csv", buffer=content.encode())
            page.locator("#file").set_input_files([])
            page.locator("#file").set_input_files([file])
            expect(page.locator("#wrong")).to_be_visible()
            assert page.locator("#reserve").input_value() == reserve


def test_planner_errors_leave_nothing_to_take(site: Site, browser: Browser) -> None:
    with tab(browser, site, secret=site.secret("admin")) as opened:
        page = opened.page
        opened.open("/planner")
        results = page.locator(".results")
        page.locator("#visitors").fill("-3")
        expect(page.locator("#wrong")).to_be_visible()
        assert results.evaluate("element => element.inert")
        page.locator("#visitors").fill("50000")
        expect(page.locator("#wrong")).to_be_hidden()
        assert not results.evaluate("element => element.inert")


def test_the_link_to_a_plan_is_copied(site: Site, browser: Browser) -> None:
    with tab(browser, site, secret=site.secret("admin")) as opened:
        page = opened.page
        opened.open("/planner?arms=4&visitors=70000")
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.locator("#link").click()
        expect(page.locator("#link")).to_have_text("Copied")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == page.locator("#link").evaluate("link => link.href")
        assert "arms=4" in copied
        expect(page.locator("#link")).not_to_have_text("Copied")
