"""The portfolio page: allocations that are the solver's, pins, uploads, drafts changed."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import httpx2 as httpx
import polars as pl
import pytest
from playwright.sync_api import Browser, FilePayload, expect
from tests.service.support import serving
from tests.web.site import EXPERIMENT, HOSTILE, Site, token_of
from tests.web.watching import Theme, tab

from deniable.portfolio.allocation import allocate
from deniable.portfolio.problem import Portfolio
from deniable.portfolio.rules import zero_budgets
from deniable.service.drafts import NewArm
from deniable.storage.records import MICRO, Metric
from deniable.web.portfolio import EXAMPLE, experiments_of

TWO = [{"id": "A", "arms": 2, "visitors": 1000}, {"id": "B", "arms": 2, "visitors": 10_000}]
DONE = re.compile(r"[0-9.]+")


def ask(client: httpx.Client, to: str = "data", **question: Any) -> httpx.Response:
    token = token_of(client.get("/portfolio"))
    given = {"firm_budget": 4, "regime": "dynamic", **question}
    return client.post(f"/portfolio/{to}", json=given, headers={"x-form-token": token})


def test_an_allocation_is_the_solvers(demo_site: Site) -> None:
    direct = allocate(Portfolio.of(TWO), 4, regime="dynamic")
    with demo_site.signed_in("read") as client:
        found = ask(client, rows=TWO).json()
        budgets = [line["budget"] for line in found["lines"]]
        assert budgets == pytest.approx(direct.budgets.tolist(), abs=2e-3)
        assert found["total"] == pytest.approx(direct.total_regret, rel=1e-3)
        assert found["certified"] is True
        rules = {line["rule"]: line["regret"] for line in found["datasets"]["rules"]}
        zero = zero_budgets(direct.portfolio, regime="dynamic").total_regret
        assert rules["zero"] == pytest.approx(zero)
        assert rules["random arms"] == 11_000
        all_to_one = ask(client, rows=TWO, firm_budget=1.5).json()
        assert [line["budget"] for line in all_to_one["lines"]] == [0, 1.5]
        reserved = ask(client, rows=TWO, firm_budget=2, reserve=0.5).json()
        assert reserved["spent"] == pytest.approx(1.5)
        curve = ask(client, "what-if", rows=TWO).json()["what_if"]
        losses = [point["regret"] for point in curve]
        assert losses[0] == pytest.approx(zero)
        assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("objective", ["", "bound"])
@pytest.mark.parametrize("firm_budget", [2, 6, 16, 40])
def test_the_numbers_of_a_page_agree(demo_site: Site, objective: str, firm_budget: float) -> None:
    """What one more nat saves, the totals, the download and the rules are one allocation's."""
    with demo_site.signed_in("read") as client:
        found = ask(
            client, csv=EXAMPLE, regime="flexible", objective=objective, firm_budget=firm_budget
        ).json()
        lines = found["lines"]
        gains = [0.0 if line["gain"] == "limit" else _number(line["gain"]) for line in lines]
        if found["price"] == 0:
            assert set(gains) == {0.0}
            assert "One more nat would save nothing" in found["summaries"]["gains"]
        else:  # a layer's experiments share the next nat
            layered = gains[2] + gains[3]
            assert max(*gains, layered) == pytest.approx(found["price"], rel=0.01)
        shown = [row[2] for row in found["tables"]["gains"]["rows"]]
        assert sorted(shown) == sorted(line["gain"] for line in lines)
        rules = {line["rule"]: line["regret"] for line in found["datasets"]["rules"]}
        total = sum(line["regret"] for line in lines)
        assert found["total"] == pytest.approx(total) == pytest.approx(rules["this allocation"])
        saved = sum(line["saved"] for line in lines)
        assert saved == pytest.approx(rules["zero"] - total)
        assert found["total"] <= rules["equal split"] * (1 + 1e-9)
        sent = {"rows": json.dumps(found["rows"]), "firm_budget": str(firm_budget)}
        sent |= {"regime": "flexible", "objective": objective, "reserve": "0"}
        sent["form_token"] = token_of(client.get("/portfolio"))
        table = pl.read_csv(client.post("/portfolio/allocation.csv", data=sent).content)
        assert float(table["regret"].sum()) == pytest.approx(found["total"])


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def test_the_gap_and_the_comparison_are_told_as_they_are(demo_site: Site) -> None:
    with demo_site.signed_in("read") as client:
        one = ask(client, rows=TWO[:1], firm_budget=1).json()
        assert "lost: as with an equal split, " in one["verdict"]
        assert one["gap"] == "0.0001%"
        direct = allocate(Portfolio.of(TWO), 1.5, regime="dynamic", gap=1e-3)
        told = float(ask(client, rows=TWO, firm_budget=1.5).json()["gap"][:-1]) / 100
        assert direct.relative_gap <= told <= max(2 * direct.relative_gap, 1.01e-6)


def test_what_is_known_decides(demo_site: Site) -> None:
    known = [{**row, "segments": 2, "base_rate": "0.1", "value": 3} for row in TWO]
    with demo_site.signed_in("read") as client:
        found = ask(client, rows=known, regime="flexible").json()
        direct = allocate(Portfolio.of(known), 4)
        assert found["objective"] == "expected"
        assert found["total"] == pytest.approx(direct.total_regret, rel=1e-3)
        assert "expected to be lost" in found["verdict"]
        assert ask(client, rows=known, objective="bound").json()["objective"] == "bound"
        usual = ask(client, rows=TWO, regime="flexible", base_rate="0.1", lift="0.2").json()
        assert usual["objective"] == "expected"
        assert usual["rows"][0]["base_rate"] is None
        assert ask(client, rows=TWO, base_rate="").json()["objective"] == "bound"
        for wrong in ({"base_rate": "7"}, {"base_rate": "x"}, {"objective": "clicks"}):
            assert ask(client, rows=TWO, **wrong).status_code == 422


def test_pins_groups_and_csv(demo_site: Site) -> None:
    pinned = [{**TWO[0], "min_budget": "1.5"}, {**TWO[1], "strategy": "constant"}]
    with demo_site.signed_in("read") as client:
        found = ask(client, rows=pinned, regime="flexible").json()["lines"]
        assert found[0]["budget"] >= 1.5
        assert found[1]["strategy"] == "constant"
        grouped = [{**row, "layer": "page"} for row in TWO]
        together = ask(client, rows=grouped, firm_budget=1).json()
        assert together["spent"] == 1
        assert [line["budget"] for line in together["lines"]] == [1, 1]
        uploaded = ask(client, csv=EXAMPLE, regime="flexible").json()
        assert [row["id"] for row in uploaded["rows"]][:2] == ["homepage", "checkout"]
        assert uploaded["lines"][1]["budget"] <= 1.5
        spelled = "id,n_arms,horizon,n_segments,layer\na,2,9000,2,page\nb,3,9000,2,page\n"
        read = ask(client, csv=spelled, firm_budget=1).json()
        assert [(row["arms"], row["layer"]) for row in read["rows"]] == [
            ("2", "page"),
            ("3", "page"),
        ]
        assert read["spent"] <= 1


@pytest.mark.parametrize(
    "question",
    [
        {"rows": []},
        {"rows": "x"},
        {"rows": [{"id": "a", "arms": 1, "visitors": 10}]},
        {"csv": "id,arms\na,2\n"},
        {"csv": "\x00\x01"},
        {"csv": ""},
        {"rows": TWO, "firm_budget": "nan"},
        {"rows": TWO, "firm_budget": -1e99},
        {"rows": TWO, "regime": "<script>"},
        {"rows": [{**TWO[0], "committed": 9}]},
        {"rows": [{"id": {"a": 1}, "arms": [], "visitors": None}]},
        {"rows": [{**TWO[0], "id": f"e{i}"} for i in range(2_001)]},
    ],
    ids=str,
)
def test_what_is_no_portfolio_is_told(demo_site: Site, question: dict[str, Any]) -> None:
    with demo_site.signed_in("read") as client:
        answer = ask(client, **question)
        if question.get("firm_budget") == -1e99:  # below 0 is nothing to divide
            assert answer.status_code == 200
            return
        assert answer.status_code == 422
        assert len(answer.json()["wrong"]) > 10


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_names_are_data(demo_site: Site, value: str) -> None:
    with demo_site.signed_in("read") as client:
        answer = ask(client, rows=[{**TWO[0], "id": value}, TWO[1]])
        assert answer.status_code in (200, 422)
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_tokens_and_scopes(site: Site) -> None:
    with site.signed_in("read") as client:
        assert client.post("/portfolio/data", json={"rows": TWO}).status_code == 403
        assert ask(client, "apply", rows=TWO).status_code == 403
    with site.client() as client:
        assert client.post("/portfolio/data", json={"rows": TWO}).status_code in (303, 401)


def test_ours_are_drafts_and_what_runs(site: Site) -> None:
    service = site.service
    service.experiments.create(
        "draft", arms=["a", "b"], segments=["s"], budget=1, planned_visitors=9_000
    )
    service.experiments.create("unplanned", arms=["a", "b"], segments=["s"], budget=1)
    own = [NewArm("a", budget=0.5), NewArm("b", budget=1)]
    service.experiments.create("own", arms=own, segments=["s"], planned_visitors=5_000)
    service.experiments.create(
        "over", arms=["a", "b"], segments=["s"], budget=0.25, planned_visitors=10
    )
    service.experiments.start("over")
    service.experiments.stop("over")
    ours = experiments_of(service)
    rows = {row["id"]: row for row in ours.rows}
    assert set(rows) == {EXPERIMENT, "demo-homepage-hero", "draft", "own"}
    assert rows["draft"]["committed"] is None
    assert rows["own"]["committed"] == 1
    assert rows[EXPERIMENT]["committed"] == 2
    assert ours.left_out == ["unplanned"]
    assert (ours.firm_budget, ours.reserve) == (6, 0.25)


def test_the_usual_click_rate_is_that_of_live_experiments() -> None:
    """So that the page begins with clicks that are expected to be lost, where that is known."""
    with serving("memory:") as service:
        for key, metrics in (("clicks", [Metric()]), ("pounds", [Metric("basket", 500 * MICRO)])):
            service.experiments.create(
                key, arms=["a", "b"], segments=["s", "t"], budget=1, metrics=metrics
            )
            service.experiments.start(key)
            answers = service.decide_batch(key, [(f"v{i}", "s") for i in range(99)])
            service.reward_batch([(answer.id, 1) for answer in answers[:33]])
        assert experiments_of(service).usual_rate == "", "fewer than 100 visitors"
        service.decide("clicks", "one more", "t")
        assert experiments_of(service).usual_rate == "0.33", "pounds are no clicks"
        service.experiments.stop("clicks")
        assert experiments_of(service).usual_rate == "", "it is no longer live"


def test_an_allocation_applied_and_downloaded(site: Site) -> None:
    service = site.service
    for key, visitors in (("small", 20_000), ("large", 2_000_000)):
        service.experiments.create(
            key, arms=["a", "b"], segments=["s"], budget=0.1, planned_visitors=visitors
        )
    rows = experiments_of(service).rows
    fields = {"rows": json.dumps(rows), "firm_budget": "5", "reserve": "0", "regime": "flexible"}
    with site.signed_in("admin") as client:
        token = token_of(client.get("/portfolio"))
        answer = client.post("/portfolio/apply", data={"form_token": token, **fields})
        assert answer.status_code == 200
        assert "2 drafts have new budgets" in client.get("/portfolio").text
        table = client.post("/portfolio/allocation.csv", data={"form_token": token, **fields})
        frame = pl.read_csv(io.StringIO(table.text))
        fields["rows"] = json.dumps([rows[0], {**rows[1], "id": "=1+1"}])
        formula = client.post("/portfolio/allocation.csv", data={"form_token": token, **fields})
        assert "\n'=1+1," in formula.text
    direct = allocate(Portfolio.of(rows), 5)
    wanted = dict(zip(direct.portfolio.ids, direct.budgets_nano.tolist(), strict=True))
    assert {e.key: e.budget_nano for e in service.experiments.all()} == wanted
    assert dict(zip(frame["id"], frame["budget_nano"], strict=True)) == wanted
    assert sum(e.budget_nano for e in service.experiments.all()) <= 5 * 10**9
    assert service.firm.current().committed == 3  # nothing was committed by it
    assert service.ledger.verify().sound


@pytest.mark.parametrize(("theme", "width"), [("light", 1200), ("light", 1100), ("dark", 390)])
def test_the_page_in_a_browser(demo_site: Site, browser: Browser, theme: Theme, width: int) -> None:
    with tab(
        browser, demo_site, secret=demo_site.secret("admin"), theme=theme, width=width
    ) as opened:
        page = opened.page
        opened.open("/portfolio")
        page.locator("#rules").scroll_into_view_if_needed()
        expect(page.locator("#rules[data-drawn]")).to_be_visible()
        expect(page.locator("#lines tr")).to_have_count(2)
        page.get_by_role("button", name="An example").click()
        expect(page.locator("#lines tr")).to_have_count(5)
        expect(page.locator("#lines .saved").first).not_to_be_empty()
        wide, room = page.locator("#allocation .scroll").evaluate(
            "scroll => [scroll.scrollWidth, scroll.clientWidth]"
        )
        assert wide <= room
        expect(page.locator("#what_if-rows tr")).to_have_count(13)
        expect(page.get_by_role("button", name="Apply to our drafts")).to_be_disabled()
        opened.assert_well_behaved()
        opened.assert_accessible()


def test_the_slider_pins_and_upload(demo_site: Site, browser: Browser) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("read")) as opened:
        page = opened.page
        opened.open("/portfolio")
        page.locator("#rules").scroll_into_view_if_needed()
        expect(page.locator("#rules[data-drawn]")).to_be_visible()
        page.locator("#regime").select_option("dynamic")
        table = b"id,arms,visitors,segments\nA,2,1000,2\n<b>B</b>,2,10000,2\n"
        page.locator("#file").set_input_files(
            {"name": "x.csv", "mimeType": "text/csv", "buffer": table}
        )
        budgets = page.locator("#lines .budget")
        expect(budgets).to_have_count(2)
        expect(page.get_by_role("rowheader", name="<b>B</b>")).to_be_visible()
        page.locator("#firm_budget").fill("1.5")
        expect(budgets.nth(0)).to_have_text("0")
        expect(budgets.nth(1)).to_have_text("1.5")
        page.get_by_label("At least, A").fill("0.5")
        page.get_by_label("At least, A").blur()
        expect(budgets.nth(0)).to_have_text("0.5")
        page.get_by_label("At least, A").fill("7")
        page.get_by_label("At least, A").blur()
        expect(page.get_by_role("alert")).to_contain_text("only 1.5 are available")
        assert all("422" in complaint for complaint in opened.complaints), opened.complaints


def test_a_long_portfolio_comes_in_pages(site: Site, browser: Browser) -> None:
    """Of 60 experiments 25 are shown at a time; limits set on one page stay while others are read."""
    for n in range(60):
        site.service.experiments.create(
            f"one-{n:02}", arms=["a", "b"], segments=["s", "t"], budget=0.1, planned_visitors=10**6
        )
    with tab(browser, site, secret=site.secret("admin")) as opened:
        page = opened.page
        opened.open("/portfolio")
        lines = page.locator("#lines tr")
        expect(lines).to_have_count(25)
        expect(page.locator("#lines .budget").first).not_to_be_empty()
        expect(page.locator("#pager-words")).to_have_text("1 to 25 of 62")
        page.get_by_role("button", name="Next").click()
        page.get_by_role("button", name="Next").click()
        expect(lines).to_have_count(12)
        expect(page.get_by_role("button", name="Next")).to_be_disabled()
        expect(page.locator("#lines .budget").last).not_to_be_empty()
        page.get_by_label("Experiment contains").fill("ONE-07")
        expect(lines).to_have_count(1)
        page.get_by_label("At most, one-07").fill("0.125")
        page.get_by_label("At most, one-07").press("Tab")
        expect(page.locator('#application input[name="rows"]')).to_have_value(re.compile("0.125"))
        page.get_by_label("Experiment contains").fill("")
        expect(lines).to_have_count(25)
        sent = json.loads(page.locator('#application input[name="rows"]').input_value())
        assert len(sent) == 62
        assert next(row for row in sent if row["id"] == "one-07")["max_budget"] == "0.125"
        opened.assert_well_behaved()
        opened.assert_accessible()


def test_drafts_are_changed_after_asking(busy_site: Site, browser: Browser) -> None:
    busy_site.service.experiments.create(
        "to-be-changed", arms=["a", "b"], segments=["s", "t"], budget=0.01, planned_visitors=10**6
    )
    with tab(browser, busy_site, secret=busy_site.secret("admin")) as opened:
        page = opened.page
        opened.open("/portfolio")
        expect(page.locator("#lines tr").first).to_be_visible()
        page.get_by_role("button", name="Apply to our drafts").click()
        page.get_by_role("button", name="Keep them").click()
        assert busy_site.service.experiments.get("to-be-changed").budget == 0.01
        page.get_by_role("button", name="Apply to our drafts").click()
        opened.assert_accessible()
        page.get_by_role("button", name="Change them").click()
        expect(page.get_by_role("status")).to_contain_text("new budget")
        opened.assert_well_behaved()
    assert busy_site.service.experiments.get("to-be-changed").budget > 1


def test_an_empty_store_says_what_to_do(empty_site: Site, browser: Browser) -> None:
    with tab(browser, empty_site, secret=empty_site.secret("read"), width=390) as opened:
        opened.open("/portfolio")
        expect(opened.page.get_by_role("heading", name="Nothing to divide yet")).to_be_visible()
        opened.assert_well_behaved()
        opened.assert_accessible()


@pytest.mark.parametrize("path", ["/portfolio/data", "/portfolio/what-if"])
def test_what_is_no_json_object_is_refused(demo_site: Site, path: str) -> None:
    with demo_site.signed_in("read") as client:
        token = token_of(client.get("/portfolio"))
        deep = "[" * 100_000 + "]" * 100_000
        as_json = {"X-Form-Token": token, "Content-Type": "application/json"}
        for answer in (
            client.post(path, data={"form_token": token, "rows": "x"}),
            client.post(path, content='{"rows":' + deep + "}", headers=as_json),
            client.post(path, content=deep, headers=as_json),
            client.post(path, content="[]", headers=as_json),
            client.post(path, content="{", headers=as_json),
        ):
            assert answer.status_code == 422, answer.text
            assert answer.json()["wrong"]


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
