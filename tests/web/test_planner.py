"""The planner: numbers that are the formulas', a slider that redraws, drafts from plans."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any
from urllib.parse import parse_qsl

import pytest
from playwright.sync_api import Browser, expect
from tests.oracle import posterior_high
from tests.web.site import HOSTILE, Site, send, token_of
from tests.web.test_hostile import assert_harmless
from tests.web.watching import Tab, Theme, tab

from deniable.errors import InvalidArgumentError
from deniable.expectations.expected import expected_loss
from deniable.planning.plan import plan
from deniable.planning.report import expected_words, ladder_rows
from deniable.web.planner import view
from deniable.web.planner_setting import Setting, read_setting

FIELDS = (
    "arms",
    "visitors",
    "segments",
    "prior",
    "budget",
    "arm_budgets",
    "max_belief",
    "shares",
    "base_rate",
    "lift",
    "heterogeneity",
    "per_day",
)
SIZES = {"arms": "2", "segments": "2", "visitors": "100000"}
GOOD = SIZES | {"key": "fine-plan", "arm_names": "a\nb", "segment_names": "s\nt", "budget": "1"}
ANY_NUMBER = re.compile(r"[0-9.]+")


def move(opened: Tab, budget: float) -> None:
    """Move the slider and wait until everything was redrawn."""
    form = opened.page.locator("#setting")
    form.evaluate("form => { delete form.dataset.took; }")
    opened.page.locator("#slider").evaluate(
        "(slider, value) => { slider.value = value; "
        "slider.dispatchEvent(new Event('input', { bubbles: true })); }",
        str(budget),
    )
    expect(form).to_have_attribute("data-took", ANY_NUMBER)


def test_the_page_says_what_the_formulas_say() -> None:
    setting = Setting(arms=3, visitors=50_000, segments=2, prior=20, budget=1.0)
    shown = view(setting)
    direct = plan(n_arms=3, horizon=50_000, n_segments=2, prior=0.2, budget=1.0)
    assert shown["plan"] == direct
    highest = float(posterior_high(0.2, 1.0))
    assert shown["plan"].highest_belief == pytest.approx(highest, rel=1e-12)
    assert shown["icons"] == {"before": 20, "after": 41, "random": 36}  # 40.5 up, 36.8 down
    parts = [p["clicks"] for p in shown["datasets"]["parts"] if p["strategy"] == "dynamic"]
    assert sum(parts) == pytest.approx(direct.strategies["dynamic"].regret)


def test_a_query_string_reproduces_its_setting() -> None:
    for setting in (
        Setting(),
        Setting(5, 10**6, 3, 12.5, 0.75),
        Setting(arms=3, arm_budgets=(0.5, 1, 2)),
        Setting(prior=5, max_belief=12.5),
        Setting(base_rate=2.5, lift=12, heterogeneity=0, per_day=5000),
        Setting(segments=3, shares=(50, 30, 20), base_rate=5),
        Setting(base_rate=5, experiments=20, unobserved=12.5, contexts=4, by_context=30),
    ):
        assert read_setting(dict(parse_qsl(setting.query()))) == setting


def test_every_number_is_the_library_s(site: Site) -> None:
    """The whole page, and the data that a moving slider asks for, from one plan."""
    known: dict[str, Any] = {
        "base_rate": 0.04, "lift": 0.1, "heterogeneity": 0.3, "per_day": 2000,
        "contexts": 4, "by_context": 0.3,
    }  # fmt: skip
    direct = plan(n_arms=3, horizon=50_000, n_segments=2, prior=0.2, max_belief=0.5, **known)
    setting = Setting(
        arms=3,
        visitors=50_000,
        segments=2,
        max_belief=50,
        base_rate=4,
        lift=10,
        heterogeneity=30,
        per_day=2000,
        contexts=4,
        by_context=30,
    )
    shown = view(setting)
    assert shown["plan"] == direct
    assert direct.expected is not None
    assert direct.ladder is not None
    assert shown["answer"] == direct.ladder.sentence
    cells = [cell for row in ladder_rows(direct) for cell in row[1:]]
    bars = [bar["more"] for bar in shown["datasets"]["ladder"]]
    assert bars == [step.more or 0 for step in direct.ladder.steps]
    for record in shown["datasets"]["expected"]:
        told = expected_loss(
            record["strategy"], 3, 50_000, 2, base_rate=0.04, lift=0.1, heterogeneity=0.3,
            budgets=record["budget"],
        )  # fmt: skip
        assert record["lost"] == pytest.approx(float(told.lost), rel=1e-4)
    with site.signed_in("read") as client:
        page = client.get(f"/planner?{setting.query()}").text
        answer = client.get(f"/planner/data?{setting.query()}").json()
        said = client.post(
            "/v1/plan",
            json={"arms": 3, "visitors": 50_000, "segments": 2, "max_belief": 0.5, **known},
            headers={"Authorization": f"Bearer {site.secret('read')}"},
        ).json()
    assert said == json.loads(json.dumps(direct.to_dict()))
    for words in (
        direct.ladder.sentence,
        expected_words(direct),
        direct.recommendation.reason,
        f"budget {direct.recommendation.budget:g}",
    ):
        assert words in page
        assert words in answer["words"]
    assert answer["budget"] == direct.budget == direct.recommendation.budget
    assert all(f">{cell}</td>" in page for cell in cells)


def test_the_page_fills_in_a_limit_and_a_rate_unless_told_not_to() -> None:
    filled = read_setting({})
    assert (filled.max_belief, filled.base_rate) == (50, 5)
    for empty in ("none", ""):
        nothing = read_setting({"max_belief": empty, "base_rate": empty})
        assert (nothing.max_belief, nothing.base_rate) == (None, None)
        assert view(nothing)["answer"] == ""
    assert read_setting({"prior": "60"}).max_belief is None  # a belief above the limit
    shown = view(filled)["plan"]
    assert shown.recommendation.belief <= 0.5
    assert shown.expected is not None
    assert shown.expected.best == shown.recommendation.strategy == "joint"
    # What people see first: a budget that buys clicks which neither of its rivals has.
    assert shown.recommendation.budget > 0.3
    lost = shown.recommendation.lost
    assert lost < 0.95 * shown.expected.rivals["pooled"].lost
    assert lost < 0.5 * shown.expected.strategies["dynamic"].lost


def test_one_sentence_answers() -> None:
    """Compared with one bandit for everybody and no privacy, never with random arms."""
    assert view(Setting(budget=1))["answer"] == ""
    small = view(read_setting({"budget": "1"}))
    assert small["answer"].startswith("No personalisation needed: one bandit for everybody brings")
    large = view(read_setting({"budget": "3", "lift": "40", "heterogeneity": "90"}))
    found = large["plan"].ladder
    chosen = found[found.recommended]
    for figure in (f"{chosen.clicks:,.0f} clicks", f"{chosen.more:,.0f} more than one bandit"):
        assert figure in large["answer"]
    assert "Without any privacy" in large["answer"]
    assert "random" not in small["answer"] + large["answer"]


def test_reasons_stay_unfolded_while_the_slider_moves(demo_site: Site, browser: Browser) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("read"), width=1280) as opened:
        opened.open("/planner")
        why = opened.page.locator("#why")
        expect(why.locator("ul")).to_be_hidden()
        why.locator("summary").click()
        expect(why.locator("ul")).to_be_visible()
        move(opened, 2.0)
        expect(opened.page.locator(".ladder")).to_contain_text("At budget 2,")
        expect(why.locator("ul")).to_be_visible()


def test_sizes_of_segments_are_percentages() -> None:
    sizes = read_setting({"segments": "2", "shares": "60, 40"})
    assert sizes.plan().shares == pytest.approx((0.6, 0.4))
    assert read_setting({"segments": "2", "shares": "50,50"}).plan().shares is None
    assert read_setting({"segments": "3", "shares": "33.3,33.3,33.3"}).plan().shares is None
    for wrong in ("60, 60", "0.6, 0.4", "6000, 4000"):
        with pytest.raises(
            InvalidArgumentError, match=r"percentages that sum to 100|0\.001 to 100"
        ):
            read_setting({"segments": "2", "shares": wrong})
    assert "differ in size" in view(sizes)["known"]
    with pytest.raises(InvalidArgumentError, match="3 sizes"):
        read_setting({"segments": "3", "shares": "60, 40"})


def test_a_refused_draft_loses_nothing_that_was_typed(site: Site) -> None:
    typed = {
        "key": "no such / key",
        "arm_names": "red\ngreen",
        "segment_names": "young\nold",
        "layer": "header",
        "strategy": "constant",
    }
    plan_of = {"arms": "2", "visitors": "4321", "segments": "2", "budget": "1.25", "prior": "15"}
    wrongs: tuple[dict[str, str], ...] = (
        {},
        {"key": "fine", "arm_names": "red\ngreen\nblue"},
        {"key": "fine", "visitors": "-1"},
    )
    with site.signed_in("admin") as client:
        for wrong in wrongs:
            sent = {**typed, **plan_of, **wrong}
            answer = send(client, "/planner", "/planner/experiments", **sent)
            assert answer.status_code == 422
            assert "No experiment was created" in answer.text
            for name in ("key", "arm_names", "segment_names", "layer"):
                assert sent[name] in answer.text
            assert re.search(r'value="constant"\s+checked', answer.text)
            if "visitors" not in wrong:
                assert 'value="4321"' in answer.text
                assert 'value="1.25"' in answer.text
    assert "fine" not in [experiment.key for experiment in site.service.experiments.all()]


def test_a_largest_belief_bounds_the_recommendation() -> None:
    free, bound = view(Setting()), view(Setting(max_belief=40))
    assert bound["budget"] < free["budget"]
    assert 0.3975 < bound["plan"].highest_belief <= 0.4
    assert not bound["over_limit"]
    assert view(Setting(budget=1, max_belief=40))["over_limit"]
    direct = plan(n_arms=4, horizon=1_000_000, n_segments=3, prior=0.2, max_belief=0.4)
    assert bound["plan"].recommendation == direct.recommendation
    assert view(Setting(prior=20, max_belief=20))["budget"] == 0


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_settings_are_refused_in_words(demo_site: Site, field: str, value: str) -> None:
    with demo_site.signed_in("read") as client:
        page = client.get("/planner", params={field: value[:6_000]})
        assert page.status_code == 422
        assert "expected" in page.text
        assert_harmless(page.text)
        answer = client.get("/planner/data", params={field: value[:6_000]})
        assert answer.status_code == 422
        assert value not in answer.text


@pytest.mark.parametrize("budget", ["nan", "inf", "-1", "41", "1e400"])
def test_budgets_that_are_none_are_refused(demo_site: Site, budget: str) -> None:
    with demo_site.signed_in("read") as client:
        assert client.get("/planner/data", params={"budget": budget}).status_code == 422


@pytest.mark.parametrize(
    "query",
    ["", "budget=0", "budget=40", "arms=256&visitors=10", "visitors=1000000000000&segments=1000"],
)
def test_extreme_settings_are_shown(demo_site: Site, query: str) -> None:
    with demo_site.signed_in("read") as client:
        assert client.get(f"/planner?{query}").status_code == 200
        assert client.get(f"/planner/data?{query}").status_code == 200


def test_downloads(demo_site: Site) -> None:
    query = "arms=2&visitors=50000&segments=1&prior=20&budget=1&max_belief=none&base_rate=none"
    with demo_site.signed_in("read") as client:
        assert client.get(f"/planner/plan.svg?{query}").text.startswith("<svg")
        assert client.get(f"/planner/plan.pdf?{query}").content.startswith(b"%PDF")
        saved = client.get(f"/planner/plan.toml?{query}")
        assert "attachment" in saved.headers["content-disposition"]
        assert tomllib.loads(saved.text) == {
            "arms": 2, "visitors": 50_000, "segments": 1, "prior": 0.2, "budget": 1,
        }  # fmt: skip
        limited = client.get(f"/planner/plan.toml?{query}&max_belief=60&base_rate=2&per_day=500")
        known = tomllib.loads(limited.text)
        assert known["max_belief"] == 0.6
        assert (known["base_rate"], known["lift"], known["heterogeneity"]) == (0.02, 0.05, 0.5)
        assert known["per_day"] == 500
        assert client.get(f"/planner/plan.exe?{query}").status_code == 422


def test_only_administrators_create_and_only_with_the_token(site: Site) -> None:
    draft = {
        "key": "x",
        **SIZES,
        "arm_names": "a\nb",
        "segment_names": "s\nt",
        "strategy": "dynamic",
        "budget": "1",
    }
    with site.signed_in("read") as client:
        page = client.get("/planner")
        assert "Create the draft" not in page.text
        answer = client.post("/planner/experiments", data={"form_token": token_of(page), **draft})
        assert answer.status_code == 403
    with site.signed_in("admin") as client:
        assert client.post("/planner/experiments", data=draft).status_code == 403
        answer = send(client, "/planner", "/planner/experiments", **draft)
        assert answer.headers["location"] == "/experiments/x"
        again = send(client, "/planner", "/planner/experiments", **draft)
        assert again.status_code == 422
        assert "No experiment was created" in again.text
    assert site.service.experiments.get("x").budget == 1
    with site.client() as client:
        assert client.get("/planner").headers["location"].startswith("/login")


def test_a_key_that_the_audit_reserves_creates_nothing(site: Site) -> None:
    with site.signed_in("admin") as client:
        answer = send(client, "/planner", "/planner/experiments", **GOOD | {"key": "firm"})
        told = answer.text
    assert "No experiment was created" in told
    assert "`deniable audit` reserves" in told
    assert "firm" not in [experiment.key for experiment in site.service.experiments.all()]


@pytest.mark.parametrize("field", ["key", "arm_names", "segment_names", "layer", "strategy"])
@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_names_create_nothing_harmful(busy_site: Site, field: str, value: str) -> None:
    draft = {
        "key": "fine-plan",
        **SIZES,
        "arm_names": "a\nb",
        "segment_names": "s\nt",
        "budget": "1",
        field: value,
    }
    with busy_site.signed_in("admin") as client:
        answer = send(client, "/planner", "/planner/experiments", **draft)
        assert answer.status_code in (303, 422)
        assert_harmless(answer.text)
        if answer.status_code == 303:
            assert_harmless(client.get(answer.headers["location"]).text)


@pytest.mark.parametrize(("theme", "width"), [("light", 1200), ("dark", 390)])
def test_the_page_in_a_browser(demo_site: Site, browser: Browser, theme: Theme, width: int) -> None:
    with tab(
        browser, demo_site, secret=demo_site.secret("admin"), theme=theme, width=width
    ) as opened:
        opened.open(
            "/planner?arms=3&visitors=50000&segments=2&prior=20&budget=1&arm_budgets=0.5,1,2"
        )
        expect(opened.page.get_by_role("heading", name="A budget for each variant")).to_be_visible()
        opened.assert_well_behaved()
        opened.assert_accessible()
        opened.open("/planner")
        move(opened, 1.0)
        opened.assert_well_behaved()
        opened.assert_accessible()


def test_the_slider_moves_everything_at_once(demo_site: Site, browser: Browser) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("read")) as opened:
        page = opened.page
        opened.open("/planner?arms=2&visitors=100000&segments=1&prior=20&budget=3")
        expect(page.locator("#setting")).to_have_attribute("data-took", ANY_NUMBER)
        move(opened, 1.0)
        expect(page.locator("[data-icon=after]").first).to_have_text("41")
        expect(page.locator("#believed use.after")).to_have_count(21)
        expect(page.locator("#belief-summary")).to_contain_text("40.5%")
        assert "budget=1&" in page.url + "&"
        href = page.get_by_role("link", name="TOML").get_attribute("href") or ""
        assert "budget=1" in href
        page.reload()
        expect(page.locator("#budget")).to_have_value("1")
        page.get_by_role("button", name="Suggested").click()
        expect(page.locator("#budget")).not_to_have_value("1")
        page.locator("#prior").fill("200")
        expect(page.get_by_role("alert")).to_contain_text("Belief before")


def test_a_largest_belief_is_kept_to_until_somebody_chooses_more(
    demo_site: Site, browser: Browser
) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("read")) as opened:
        page = opened.page
        opened.open("/planner?arms=2&visitors=100000&segments=2&prior=20&base_rate=none")
        form = page.locator("#setting")
        expect(form).to_have_attribute("data-took", ANY_NUMBER)
        page.get_by_label("A tracker may believe at most").fill("30")
        expect(page.locator("#budget")).to_have_value("0.538")  # ln(.3/.7) - ln(.2/.8), cut
        expect(page.locator("[data-icon=after]").first).to_have_text("30")
        expect(page).to_have_url(re.compile("max_belief=30"))
        assert "max_belief=30" in (
            page.get_by_role("link", name="TOML").get_attribute("href") or ""
        )
        expect(page.get_by_text("you allow")).to_have_count(0)
        move(opened, 1.5)
        expect(page.get_by_text("more than the 30% you allow")).to_be_visible()
        page.reload()
        expect(page.locator("#budget")).to_have_value("1.5")
        expect(page.get_by_label("A tracker may believe at most")).to_have_value("30")
        page.get_by_role("button", name="Suggested").click()
        expect(page.locator("#budget")).to_have_value("0.538")
        page.get_by_label("A tracker may believe at most").fill("10")
        expect(page.get_by_role("alert")).to_contain_text("A tracker may believe at most")
        assert all("422" in complaint for complaint in opened.complaints), opened.complaints


def test_a_draft_from_a_plan(busy_site: Site, browser: Browser) -> None:
    with tab(browser, busy_site, secret=busy_site.secret("admin")) as opened:
        page = opened.page
        opened.open("/planner?arms=3&visitors=50000&segments=2&prior=20&budget=1")
        move(opened, 1.25)
        page.get_by_label("Name").fill("from-a-plan")
        page.get_by_label("Variants, one per line").fill("old\nnew\nother")
        page.get_by_role("button", name="Create the draft").click()
        expect(page.get_by_role("status")).to_contain_text("from-a-plan is a draft")
        opened.assert_well_behaved()
    made = busy_site.service.experiments.get("from-a-plan")
    assert (made.budget, made.planned_visitors, len(made.arms), made.segments) == (
        1.25, 50_000, 3, ("segment-1", "segment-2"),
    )  # fmt: skip


def test_a_draft_is_made_of_what_was_typed_last(busy_site: Site, browser: Browser) -> None:
    """Whoever creates it before the page has answered waits for the answer."""
    with tab(browser, busy_site, secret=busy_site.secret("admin")) as opened:
        page = opened.page
        opened.open("/planner?arms=2&visitors=50000&segments=2&prior=20&budget=1")
        page.get_by_label("Name").fill("made-at-once")
        page.evaluate(
            """() => {
              const slider = document.getElementById("slider");
              slider.value = 1.5;
              slider.dispatchEvent(new Event("input", { bubbles: true }));
              document.getElementById("creation").requestSubmit();
            }"""
        )
        expect(page.get_by_role("status")).to_contain_text("made-at-once is a draft")
    assert busy_site.service.experiments.get("made-at-once").budget == 1.5


def test_what_all_segments_share_is_not_called_random(demo_site: Site) -> None:
    """At a small budget the joint strategy shows everybody the same arm, not a random one."""
    with demo_site.signed_in("read") as client:
        page = client.get("/planner?budget=0.03").text
    assert "are shown a variant that does not depend on their segment" in page
    assert "shown a random arm" not in page


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
