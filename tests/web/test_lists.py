"""Lists: searched, sorted, filtered and paged by the address alone, and the same as files."""

from __future__ import annotations

import csv
import io
import re
import threading
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from sqlalchemy import event
from tests.web.site import EXPERIMENT, HOSTILE, Site, send
from tests.web.watching import tab

from deniable.storage.sqlite import SqliteStore
from deniable.web.listing import SIZE, csv_text

ROWS = re.compile(r'<a href="/experiments/([\w.-]+)"><bdi>')


def listed(text: str) -> list[str]:
    return ROWS.findall(text.split("<tbody")[-1])


def fill(site: Site, number: int) -> None:
    for n in range(number):
        site.service.experiments.create(
            f"draft-{n:03}", arms=["a", "b"], segments=["s"], budget=0.1 * (1 + n % 5)
        )


def test_pages_orders_and_filters_are_in_the_address(site: Site) -> None:
    fill(site, SIZE + 5)
    site.service.experiments.label("draft-007", owner="Ada", tags=["spring"])
    with site.signed_in("read") as client:
        first = client.get("/experiments", params={"status": "draft", "sort": "name"}).text
        assert listed(first) == [f"draft-{n:03}" for n in range(SIZE)]
        assert "page 1 of 2" in first
        onward = re.search(r'rel="next" href="([^"]+)"', first)
        assert onward is not None
        second = client.get(onward[1].replace("&amp;", "&")).text
        assert listed(second) == [f"draft-{n:03}" for n in range(SIZE, SIZE + 5)]
        for query in ("q=SPRING", "owner=Ada", "tag=spring", "q=draft-007&status=draft"):
            assert listed(client.get(f"/experiments?{query}").text) == ["draft-007"]
        assert set(listed(client.get("/").text)) == {EXPERIMENT, "demo-homepage-hero"}
        nothing = client.get("/experiments", params={"q": "nothing like it"})
        assert "None of the" in nothing.text
        beyond = client.get("/experiments", params={"page": "99"})
        assert "first page" in beyond.text
        file = client.get("/experiments.csv?status=draft&sort=name&page=2")
        rows = list(csv.DictReader(io.StringIO(file.text)))
        assert [row["experiment"] for row in rows] == [f"draft-{n:03}" for n in range(SIZE + 5)]
        assert rows[7]["owner"] == "Ada"
        live = list(csv.DictReader(io.StringIO(client.get("/overview.csv?sort=name").text)))
        assert [row["experiment"] for row in live] == [EXPERIMENT, "demo-homepage-hero"]
        assert [float(row["budget_nats"]) for row in live] == [2.0, 1.0]


def test_a_list_takes_as_many_statements_whatever_its_length(site: Site) -> None:
    store = site.service._store
    assert isinstance(store, SqliteStore)
    asked: list[str] = []

    @event.listens_for(store.engine, "before_cursor_execute")
    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        # Only what answers a request: health is looked at now and then, in a thread of its own.
        if statement.startswith("SELECT") and "AnyIO" in threading.current_thread().name:
            asked.append(statement)

    def statements(path: str) -> int:
        asked.clear()
        assert client.get(path).status_code == 200
        assert asked
        return len(asked)

    with site.signed_in("read") as client:
        fill(site, SIZE)
        before = {path: statements(path) for path in ("/experiments", "/ledger")}
        for n in range(40):
            site.service.experiments.create(f"more-{n}", arms=["a", "b"], segments=["s"], budget=1)
        assert {path: statements(path) for path in before} == before


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_addresses(demo_site: Site, value: str) -> None:
    with demo_site.signed_in("read") as client:
        for path in ("/", "/experiments", "/ledger", "/experiments.csv", "/overview.csv"):
            for name in ("q", "status", "owner", "tag", "sort", "page", "about", "experiment"):
                answer = client.get(path, params={name: value[:500]})
                assert answer.status_code == 200
                assert "<script>alert" not in answer.text
                assert "<img src=x" not in answer.text


def test_a_cell_of_a_file_is_no_formula() -> None:
    assert csv_text(["a"], [["@x"], ["+1"], [-1], [None]]) == "a\n'@x\n'+1\n-1\n\"\"\n"


def test_drafts_are_edited_duplicated_and_removed(site: Site) -> None:
    service = site.service
    service.experiments.create(
        "mine", arms=["a", "b"], segments=["s"], budget=0.5, holdout=0.1, planned_visitors=100
    )
    with site.signed_in("admin") as client:
        form = {"arms": "a: First\nc", "segments": "s\nt", "budget": "0,25", "strategy": "dynamic"}
        form["holdout"] = "10"
        answer = send(client, "/experiments/mine/edit", "/experiments/mine/edit", **form)
        assert answer.status_code == 303
        found = service.experiments.get("mine")
        assert [arm.key for arm in found.arms] == ["a", "c"]
        assert (found.budget, found.segments, found.holdout) == (0.25, ("s", "t"), 100)
        assert found.planned_visitors is None
        wrong = send(
            client, "/experiments/mine/edit", "/experiments/mine/edit", **{**form, "budget": "x"}
        )
        assert wrong.status_code == 422
        assert "a: First" in wrong.text
        copied = client.get("/experiments/new", params={"like": "mine"}).text
        assert 'value="mine-copy"' in copied
        assert "a: First" in copied
        page = client.get("/experiments/mine").text
        assert "/experiments/mine/do/discard" in page
        gone = send(client, "/experiments/mine/do/discard", "/experiments/mine/do/discard")
        assert gone.headers["location"] == "/experiments"
        assert client.get("/experiments/mine").status_code == 404
        refused = client.get(f"/experiments/{EXPERIMENT}/edit")
        assert refused.status_code == 303


def test_notes_and_labels(site: Site) -> None:
    place = f"/experiments/{EXPERIMENT}"
    with site.signed_in("admin") as client:
        said = "<b>Paused</b>: a holiday"
        assert send(client, place, f"{place}/notes", text=said).status_code == 303
        send(client, place, f"{place}/labels", owner="Ada", tags="spring, checkout")
        page = client.get(place).text
        assert "&lt;b&gt;Paused&lt;/b&gt;" in page
        assert "<b>Paused" not in page
        assert 'href="/experiments?tag=spring"' in page
        send(client, place, f"{place}/notes", text="")
        assert [e.kind for e in site.service.experiments.events(EXPERIMENT)].count("note") == 1
    with site.signed_in("read") as client:
        assert "Add a note" not in client.get(place).text


def test_a_table_is_saved_and_a_call_is_copied(demo_site: Site, browser: Browser) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("admin")) as opened:
        page = opened.page
        opened.open(f"/experiments/{EXPERIMENT}")
        page.get_by_role("button", name="Freeze").click()
        with page.expect_download() as download:
            page.get_by_role("button", name="CSV of this table: arms").click()
        with open(download.value.path(), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert sorted(row["Variant"][:4] for row in rows) == ["gree", "grey", "larg"]
        assert sum(int(row["Shown"].replace(",", "")) for row in rows) == 2_000
        page.get_by_role("link", name="Connect", exact=True).click()
        code = page.locator("#copy-curl")
        expect(code).to_contain_text(f"/v1/experiments/{EXPERIMENT}/decisions")
        page.get_by_role("button", name="Copy the code for curl").click()
        expect(page.locator('[data-copy="copy-curl"]')).to_contain_text(
            re.compile("Copied|Selected")
        )
        page.get_by_role("link", name="Pause…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("What this does")
        opened.assert_accessible()
        dialog.get_by_role("link", name="No, go back").click()
        expect(dialog).to_have_count(0)
        opened.assert_well_behaved()


WITHOUT_FILE = """[...document.querySelectorAll("main table")].filter((table) => {
  if (table.closest(".paper")) return false; // a document: it is issued as a whole
  let around = table.parentElement;
  while (!around.querySelector("[data-csv], a[href*='.csv'], #download")) {
    around = around.parentElement;
    if (around.tagName === "MAIN" || around.querySelectorAll("table").length > 1) return true;
  }
  return false;
}).map((table) => table.innerText.slice(0, 80))"""


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/experiments",
        f"/experiments/{EXPERIMENT}",
        f"/experiments/{EXPERIMENT}/do/promote",
        "/planner",
        "/planner?arms=2&arm_budgets=0.5,1",
        "/portfolio",
        "/ledger",
        f"/ledger/promises/{EXPERIMENT}",
        f"/ledger/promises/{EXPERIMENT}/audit",
        "/settings",
    ],
)
def test_every_table_can_be_saved(demo_site: Site, browser: Browser, path: str) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("admin")) as opened:
        opened.open(path)
        assert opened.page.locator("main table").count() >= 1
        assert not opened.page.evaluate(WITHOUT_FILE)


def test_the_dot_is_grey_when_the_service_is_gone(demo_site: Site, browser: Browser) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("read")) as opened:
        page = opened.page
        opened.open(f"/experiments/{EXPERIMENT}")
        live = page.locator("#live")
        expect(live).to_have_attribute("data-live-state", "fresh")
        page.route("**/live", lambda route: route.abort())
        expect(live).to_have_attribute("data-live-state", "gone")
        expect(live).to_contain_text("Last updated")
        page.unroute("**/live")
        expect(live).to_have_attribute("data-live-state", "fresh")
        opened.complaints.clear()  # the aborted requests on the console
