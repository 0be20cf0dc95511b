"""A refused form comes back with everything that was typed, and names the field that is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

import httpx2 as httpx
import pytest
from playwright.sync_api import Browser, expect
from tests.web.site import EXPERIMENT, Site, send
from tests.web.watching import tab

from deniable.service.limits import MAX_NOTE
from deniable.storage.records import MICRO, Metric
from deniable.web.experiments import FIELDS

PLACE = f"/experiments/{EXPERIMENT}"
DRAFT = {
    "key": "fine",
    "arms": "old: As it was\nnew",
    "segments": "a\nb",
    "budget": "1",
    "planned_visitors": "1000",
    "arm_budgets": "",
    "default_arm": "new",
    "layer": "page",
    "attribution_days": "7",
    "outcome": "order",
    "largest": "200",
    "guardrails": "refund: less\nminutes: more, 60",
    "holdout": "5",
}
PLANNED = {
    "arms": "2",
    "visitors": "5000",
    "segments": "2",
    "prior": "20",
    "budget": "1",
    "key": "planned",
    "arm_names": "old\nnew",
    "segment_names": "a\nb",
    "layer": "page",
}
NEW, PLAN = "/experiments/new", "/planner"
CASES = (
    ("/", "/firm", {"budget": "1,000", "days": "30"}, "budget"),
    ("/", "/firm", {"budget": "-1", "days": "30"}, "budget"),
    ("/", "/firm", {"budget": "7", "days": "0"}, "days"),
    ("/", "/firm", {"budget": "7", "days": "soon"}, "days"),
    *(
        (NEW, NEW, {**DRAFT, name: value}, name)
        for name, value in (
            ("key", "two words"),
            ("key", EXPERIMENT),
            ("budget", "much"),
            ("arms", "only-one"),
            ("segments", "a\na"),
            ("planned_visitors", "many"),
            ("arm_budgets", "1"),
            ("arm_budgets", "0.5 1"),
            ("default_arm", "nobody"),
            ("layer", "x" * 200),
            ("attribution_days", "a week"),
            ("outcome", "two words"),
            ("largest", "0"),
            ("guardrails", "refund"),
            ("guardrails", "refund: less, many"),
            ("guardrails", "order: less"),
            ("holdout", "60"),
        )
    ),
    *(
        (PLAN, f"{PLAN}/experiments", {**PLANNED, name: value}, name)
        for name, value in (
            ("key", "two words"),
            ("key", EXPERIMENT),
            ("arm_names", "old\nnew\nnewer"),
            ("segment_names", "a"),
            ("layer", "x" * 200),
        )
    ),
    (f"{PLACE}/do/add-arm", f"{PLACE}/do/add-arm", {"name": "grey"}, "name"),
    (f"{PLACE}/do/add-segment", f"{PLACE}/do/add-segment", {"name": "returning"}, "name"),
    ("/experiments/layered/do/start", "/experiments/layered/do/start", {"share": "0"}, "share"),
    (PLACE, f"{PLACE}/notes", {"text": "x" * (MAX_NOTE + 1)}, "text"),
    (PLACE, f"{PLACE}/labels", {"owner": "Ada", "tags": "y" * 200}, "tags"),
    (PLACE, f"{PLACE}/labels", {"owner": "Ada" * 100, "tags": "spring"}, "owner"),
    ("/settings", "/settings/people", {"name": "no spaces", "role": "viewer"}, "name"),
    ("/settings", "/settings/keys", {"label": "", "scope": "read"}, "label"),
    ("/settings", "/settings/keys", {"label": "site"}, "scope"),
    ("/settings", "/settings/firm", {"firm_name": "Shop", "start_above": "much"}, "start_above"),
    ("/settings", "/settings/firm", {"firm_name": "S" * 500, "start_above": "2"}, "firm_name"),
    ("/ledger/visitors", "/ledger/visitors", {"visitor": "v" * 600}, "visitor"),
)


@dataclass
class Filled(HTMLParser):
    """The form with an action as a page shows it: what its fields hold, and which are wrong."""

    action: str
    values: dict[str, list[str]] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    _inside: bool = False
    _select: str = ""
    _into: tuple[dict[str, str], str] | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = given.get("action", "").partition("#")[0] == self.action
        if not self._inside:
            return
        name = given.get("name", "")
        if given.get("aria-invalid") == "true":
            described = given.get("aria-describedby", "").split()
            self.wrong[name or described[-1].removesuffix("-error")] = described[-1]
        chosen = given.get("type") not in ("checkbox", "radio") or "checked" in given
        if tag == "input" and name and chosen:
            self.values.setdefault(name, []).append(given.get("value", ""))
        if tag == "option" and "selected" in given:
            self.values.setdefault(self._select, []).append(given.get("value", ""))
        if tag == "select":
            self._select = name
        if tag == "textarea":
            self.texts[name] = ""
            self._into = (self.texts, name)
        if "id" in given and given["id"].endswith("-error"):
            self.texts[given["id"]] = ""
            self._into = (self.texts, given["id"])

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
        if tag in ("textarea", "p"):
            self._into = None

    def handle_data(self, data: str) -> None:
        if self._into is not None:
            kept, name = self._into
            kept[name] += data

    def holds(self, name: str, value: str) -> bool:
        return value in self.values.get(name, ()) or self.texts.get(name, "\0") == value


def filled(answer: httpx.Response, action: str) -> Filled:
    found = Filled(action)
    found.feed(answer.text)
    return found


@pytest.mark.parametrize(("page", "action", "typed", "wrong"), CASES)
def test_what_was_typed_is_kept_and_the_field_is_named(
    site: Site, page: str, action: str, typed: dict[str, str], wrong: str
) -> None:
    site.service.experiments.create(
        "layered", arms=["a", "b"], segments=["s"], budget=0.5, layer="page"
    )
    with site.signed_in("admin") as client:
        entries = len(site.service.ledger.entries())
        answer = send(client, page, action, **typed)
    assert answer.status_code == 422
    found = filled(answer, action)
    assert set(found.wrong) == {wrong}
    assert len(found.texts[found.wrong[wrong]].strip()) > 5, "in words, beside the field"
    lost = {name for name, value in typed.items() if value and not found.holds(name, value)}
    assert not lost
    assert len(site.service.ledger.entries()) == entries, "nothing was changed"


def test_every_problem_of_a_form_is_named_at_once(site: Site) -> None:
    wrong = {
        "key": "two words",
        "budget": "much",
        "arms": "only-one",
        "segments": "a\na",
        "planned_visitors": "many",
        "attribution_days": "a week",
        "layer": "x" * 200,
        "guardrails": "refund: sometimes",
        "holdout": "60",
    }
    with site.signed_in("admin") as client:
        answer = send(client, NEW, NEW, **{**DRAFT, "default_arm": "", **wrong})
    assert set(filled(answer, NEW).wrong) == set(wrong)
    links = re.search(r'id="problems".*?</div>', answer.text, re.S)
    assert links is not None
    assert re.findall(r'href="#(\w+)"', links[0]) == [name for name in FIELDS if name in wrong]


def test_both_fields_of_the_firm_are_named_at_once(site: Site) -> None:
    with site.signed_in("admin") as client:
        answer = send(client, "/", "/firm", budget="three", days="soon")
        settings = send(
            client, "/settings", "/settings/firm", firm_name="S" * 500, start_above="much"
        )
    assert set(filled(answer, "/firm").wrong) == {"budget", "days"}
    assert set(filled(settings, "/settings/firm").wrong) == {"firm_name", "start_above"}


def test_a_draft_comes_back_as_it_was_typed(site: Site) -> None:
    """Outcome, guardrails and holdout are stored, and edited as they were typed."""
    with site.signed_in("admin") as client:
        assert send(client, NEW, NEW, **DRAFT).status_code == 303
        again = filled(client.get("/experiments/fine/edit"), "/experiments/fine/edit")
    made = site.service.experiments.get("fine")
    assert made.metrics == (
        Metric("order", 200 * MICRO),
        Metric("refund", MICRO, "less"),
        Metric("minutes", 60 * MICRO),
    )
    assert made.holdout == 50
    assert all(again.holds(name, value) for name, value in DRAFT.items() if value)


def test_the_first_budget_too(empty_site: Site) -> None:
    with empty_site.signed_in("admin") as client:
        answer = send(client, "/", "/firm", budget="three", days="30")
    found = filled(answer, "/firm")
    assert answer.status_code == 422
    assert set(found.wrong) == {"budget"}
    assert found.holds("budget", "three")
    assert found.holds("days", "30")


def test_a_full_layer_keeps_the_share(site: Site) -> None:
    """What belongs to no field is told above them."""
    for key in ("one", "two"):
        site.service.experiments.create(
            key, arms=["a", "b"], segments=["s"], budget=0.5, layer="page"
        )
    site.service.experiments.start("one", share=0.8)
    with site.signed_in("admin") as client:
        place = "/experiments/two/do/start"
        answer = send(client, place, place, share="30")
    assert answer.status_code == 422
    assert "slots free" in answer.text
    assert filled(answer, place).holds("share", "30")
    assert site.service.experiments.get("two").status == "draft"


def test_a_refused_division_stays_on_the_page(site: Site, browser: Browser) -> None:
    """Limits that were set by hand are still there after the drafts could not be changed."""
    for key in ("one", "two"):
        site.service.experiments.create(
            key, arms=["a", "b"], segments=["s", "t"], budget=0.1, planned_visitors=10**9
        )
    with tab(browser, site, secret=site.secret("admin")) as opened:
        page = opened.page
        opened.open("/portfolio")
        page.get_by_label("At most, one").fill("0.25")
        page.get_by_label("Firm budget in nats").fill("60")
        expect(page.locator('#application input[name="firm_budget"]')).to_have_value("60")
        expect(page.locator('#application input[name="rows"]')).to_have_value(re.compile("0.25"))
        page.get_by_role("button", name="Apply to our drafts").click()
        page.get_by_role("button", name="Change them").click()
        expect(page.locator("#wrong")).to_contain_text("at most 6 nats")
        expect(page.get_by_label("At most, one")).to_have_value("0.25")
        expect(page.get_by_label("Firm budget in nats")).to_have_value("60")
    assert [site.service.experiments.get(key).budget for key in ("one", "two")] == [0.1, 0.1]


def test_budgets_of_arms_have_one_syntax(site: Site) -> None:
    """Separated by commas: in the planner, in the form and when a draft is edited or duplicated."""
    with site.signed_in("admin") as client:
        sent = {**DRAFT, "key": "by-arm", "budget": "", "arm_budgets": "0.5,1"}
        assert send(client, NEW, NEW, **sent).status_code == 303
        for page in ("/experiments/by-arm/edit", f"{NEW}?like=by-arm"):
            assert 'value="0.5, 1"' in client.get(page).text
        assert 'value="0.5, 1"' in client.get("/planner?arms=2&arm_budgets=0.5,1").text
