"""Ledger, statements, audits and visitors who ask: what a privacy officer files."""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Callable
from fractions import Fraction

import pytest
from playwright.sync_api import Browser, expect
from sqlalchemy import update
from tests.passing import pass_until
from tests.patience import PATIENCE, eventually
from tests.service.support import published
from tests.web.site import EXPERIMENT, HOSTILE, HTML, Site, send, sign_in, token_of
from tests.web.test_hostile import assert_harmless
from tests.web.watching import Theme, tab

from deniable._formatting import in_nats, nats
from deniable.audit.report import Audit
from deniable.privacy.exact import exp_floor
from deniable.storage import times
from deniable.storage.account import Balance
from deniable.storage.schema import commitments
from deniable.web import audits, ledger_view
from deniable.web.listing import csv_text

pytestmark = pytest.mark.usefixtures("strict_audits")

STATEMENT = f"/ledger/promises/{EXPERIMENT}"
PAGES = ("/ledger", STATEMENT, f"{STATEMENT}/audit", "/ledger/visitors")


def test_the_ledger_adds_up(site: Site) -> None:
    site.service.experiments.create("third", arms=["a", "b"], segments=["s"], budget=0.5)
    site.service.experiments.start("third")
    site.service.experiments.stop("third")
    site.service.firm.set(budget=8, reason="a third team")
    balances = site.service.firm.balances()
    found = ledger_view.entries(site.service.ledger.entries(), balances)
    kept = [entry for entry in found if entry.kind not in ("table", "key")]
    # What stopped still counts: nothing is freed before the window has passed.
    assert [entry.committed for entry in kept] == [0, 0, 2, 2, 3, 3, 3.5, 3.5, 3.5]
    assert found[-1].committed == site.service.firm.current().committed
    assert "Reason: a third team" in found[-1].told
    points = ledger_view.spending(balances, ledger_view.POINTS)
    assert [(p["committed"], p["budget"]) for p in points] == [
        (0, 6), (2, 6), (3, 6), (3.5, 6), (3.5, 8), (3.5, 8),
    ]  # fmt: skip


@pytest.mark.parametrize("apart", [0, 7])
def test_a_long_history_is_drawn_with_few_points(apart: int) -> None:
    """The first, the last and the peak are among them; time never goes back."""
    history = [Balance(apart * i, (37 * i) % 1_009, 5) for i in range(5_000)]
    points = ledger_view.spending(history, 200)
    drawn, ends = [round(1e9 * p["committed"]) for p in points], points[-1]
    assert len(points) <= 201  # with the present
    assert (drawn[0], max(drawn), drawn[-2]) == (0, 1_008, history[-1].committed_nano)
    assert [p["time"] for p in points] == sorted(p["time"] for p in points)
    assert ends["committed"] == points[-2]["committed"]


def test_balances_end_when_the_window_has_passed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.service.experiments.stop(EXPERIMENT)
    pass_until(monkeypatch, site.service.beat, times.now() + 92 * 86_400 * 1_000_000)
    balances = site.service.firm.balances()
    assert balances[-1].committed_nano == site.service.firm.current().committed_nano
    assert [one.committed_nano for one in balances][-2:] == [3 * 10**9, 10**9]


def test_published_tables_do_not_flood_the_ledger(site: Site) -> None:
    for _ in range(5):
        published(site.service, EXPERIMENT)
    with site.signed_in("read") as client:
        page = client.get("/ledger").text
        assert "7 published tables are hidden" in page
        assert "Table published" not in page.split("<tbody")[-1]
        listed = client.get("/ledger", params={"kind": "table"}).text
        assert listed.split("<tbody")[-1].count("Table published") == 7
        some = client.get("/ledger/ledger.csv", params={"kind": "table"}).text
        assert some.count("\n") == 8


def test_filters_and_export(site: Site) -> None:
    with site.signed_in("read") as client:
        everything = list(csv.DictReader(io.StringIO(client.get("/ledger/ledger.csv").text)))
        assert [row["kind"] for row in everything] == [
            "key",
            "firm",
            "create",
            "start",
            "create",
            "start",
            "access",  # the key with which the page was opened
        ]
        some = client.get("/ledger/ledger.csv", params={"experiment": EXPERIMENT, "spends": "yes"})
        rows = list(csv.DictReader(io.StringIO(some.text)))
        assert [(row["kind"], float(row["taken_nats"])) for row in rows] == [("start", 2)]
        page = client.get("/ledger", params={"kind": "start", "first": "99999"}).text
        assert "2 of 9 entries" in page
        assert "Draft created" not in page.split("<tbody")[-1]


def test_a_cell_is_no_formula() -> None:
    entry = ledger_view.Entry(
        1, __import__("datetime").datetime.now(), "x", "x", "=1+1", 0, 0, "@x", "+y"
    )
    row = csv_text(ledger_view.COLUMNS, ledger_view.cells([entry])).splitlines()[1]
    assert ",'=1+1," in row
    assert row.endswith(",'@x,'+y")


def test_long_ledgers_are_paged(site: Site) -> None:
    for _ in range(60):
        site.service.experiments.pause(EXPERIMENT)
        site.service.experiments.resume(EXPERIMENT)
    with site.signed_in("read") as client:
        first = client.get("/ledger").text
        assert first.count("<tr") > ledger_view.PAGE
        assert "Older" in first
        assert "Newer" not in first
        second = client.get("/ledger", params={"first": "100"}).text
        assert "Newer" in second
        assert "Firm’s budget set" in second


def test_the_chain_is_verified_and_a_change_is_found(site: Site) -> None:
    site.send_visitors(200)
    with site.signed_in("read") as client:
        before = len(site.service.ledger.entries())
        good = client.get("/ledger/verification").json()
        assert (good["sound"], good["commitments"], good["decisions"]) == (True, before, 400)
        with site.service._store.begin() as connection:
            connection.execute(
                update(commitments).where(commitments.c.seq == 3).values(amount_nano=1)
            )
        bad = client.get("/ledger/verification").json()
        assert bad["sound"] is False
        assert "commitment 3" in bad["problem"]


def test_a_statement_shows_limits_and_not_the_table_that_is_drawn_from(site: Site) -> None:
    site.send_visitors(1_000)
    published(site.service, EXPERIMENT)
    tables = [published.table for published in site.service.audits.promise(EXPERIMENT).tables]
    entries = [row[0] for table in tables for row in (*table.rows, table.unlisted)]
    worst = Fraction(max(entries), min(entries))
    assert 1 < worst <= exp_floor(2_000_000_000)
    with site.signed_in("read") as client:
        page = client.get(STATEMENT).text
        assert not any(f"{entry:,}" in page or str(entry) in page for entry in entries)
        assert f"{worst.numerator}/{worst.denominator}" not in page
        assert "at most the factor 7.39" in page
        assert "None has been recorded yet" in page
        assert "Audit now and record it" not in page  # only for administrators
        assert client.get("/ledger/promises/nothing").status_code == 404


def test_an_audit_is_recorded_once_asked(site: Site) -> None:
    site.send_visitors(300)
    with site.signed_in("read") as client:
        token = token_of(client.get("/ledger"))
        assert client.post(f"{STATEMENT}/audit", data={"form_token": token}).status_code == 403
        # Its figures change with every decision, so it is not for everybody who may read.
        assert client.get(f"{STATEMENT}/audit").status_code == 403
        assert f"{STATEMENT}/audit" not in client.get(STATEMENT).text
    with site.signed_in("read", "audit") as client:
        page = client.get(f"{STATEMENT}/audit")
        assert "by design and over 300 decisions" in page.text
        assert_harmless(page.text)
    assert site.service.ledger.entries()[-1].kind != "audit"
    with site.signed_in("admin") as client:
        assert client.post(f"{STATEMENT}/audit").status_code == 403
        token = token_of(client.get(STATEMENT))
        client.post(f"{STATEMENT}/audit", data={"form_token": token})
        assert "over 300 decisions" in client.get(STATEMENT).text
        assert "it would have noticed an excess of" in client.get(STATEMENT).text
        assert "would be noticed" in client.get("/ledger").text
        assert "firm-audit" not in client.get("/ledger").text
        site.service.audits.firm(record=True)
        assert "The firm&#39;s promise is kept, over" in client.get("/ledger").text
    assert site.service.ledger.entries()[-1].kind == "audit"


def test_an_audit_that_takes_long_shows_how_far_it_is(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page comes back by itself, and has the result once there is one."""
    site.send_visitors(300)
    go_on, audit = threading.Event(), site.service.audits.run

    def slow(key: str, *, record: bool, progress: Callable[[int], None]) -> Audit:
        progress(2)
        assert go_on.wait(PATIENCE)
        return audit(key, record=record, progress=progress)

    monkeypatch.setattr(audits, "PATIENCE", 0.05)
    monkeypatch.setattr(site.service.audits, "run", slow)
    with site.signed_in("read", "audit") as client:
        token = token_of(client.get(STATEMENT))
        sent = client.post(f"{STATEMENT}/audit", data={"form_token": token})
        assert sent.headers["location"] == f"{STATEMENT}/audit/recording"
        page = client.get(sent.headers["location"])
        assert page.headers["refresh"] == "1"
        assert "Step 3 of 5: counting them again" in page.text
        assert site.service.ledger.entries()[-1].kind != "audit"
        go_on.set()
        eventually(lambda: client.get(f"{STATEMENT}/audit/recording").status_code == 303, "end")
        assert "over 300 decisions" in client.get(STATEMENT).text
    assert site.service.ledger.entries()[-1].kind == "audit"


def test_only_administrators_look_visitors_up(site: Site) -> None:
    with site.signed_in("read") as client:
        assert client.get("/ledger/visitors").status_code == 403
        token = token_of(client.get("/ledger"))
        answer = client.post("/ledger/visitors", data={"form_token": token, "visitor": "me"})
        assert answer.status_code == 403
    with site.signed_in("admin") as client:
        assert client.post("/ledger/visitors", data={"visitor": "me"}).status_code == 403


@pytest.mark.parametrize("value", [*HOSTILE, ""])
def test_hostile_ids(site: Site, value: str) -> None:
    with site.signed_in("admin") as client:
        answer = send(client, "/ledger/visitors", "/ledger/visitors", visitor=value)
        assert answer.status_code == (200 if 0 < len(value) <= 512 else 422)
        assert_harmless(answer.text)


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_addresses(demo_site: Site, value: str) -> None:
    with demo_site.signed_in("admin") as client:
        parameters = dict.fromkeys(("experiment", "kind", "spends", "first"), value[:3_000])
        answer = client.get("/ledger", params=parameters)
        assert answer.status_code == 200
        assert_harmless(answer.text)
        assert client.get("/ledger/ledger.csv", params=parameters).status_code == 200


def test_a_visitor_asks_and_is_erased(site: Site, browser: Browser) -> None:
    site.service.decide(EXPERIMENT, "me & <you>", "returning")
    with tab(browser, site, secret=site.secret("admin")) as opened:
        page = opened.page
        opened.open("/ledger")
        page.get_by_role("link", name="Access and erasure requests").click()
        page.get_by_label("The visitor’s id").fill("me & <you>")
        page.get_by_role("button", name="Look it up").click()
        expect(page.get_by_role("rowheader", name=EXPERIMENT)).to_be_visible()
        expect(page.get_by_role("cell", name="returning")).to_be_visible()
        assert "me" not in page.url.rsplit("/", 1)[-1]
        opened.assert_accessible()
        page.get_by_label("Erase this visitor").check()
        page.get_by_role("button", name="Erase").click()
        expect(page.get_by_role("status")).to_contain_text("1 decision no longer has a visitor")
        page.get_by_label("The visitor’s id").fill("me & <you>")
        page.get_by_role("button", name="Look it up").click()
        expect(page.get_by_text("No decision is stored for this id")).to_be_visible()
        opened.assert_well_behaved()
    assert site.service.visitors.stored("me & <you>") == []
    assert site.service.ledger.verify().sound


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_the_pages_in_a_browser(
    demo_site: Site, browser: Browser, theme: Theme, width: int
) -> None:
    with tab(
        browser, demo_site, secret=demo_site.secret("admin"), theme=theme, width=width
    ) as opened:
        for path in PAGES:
            opened.open(path)
            if path == "/ledger":
                expect(opened.page.locator("#seal[data-checked=sound]")).to_be_visible()
            opened.assert_well_behaved()
            opened.assert_accessible()


def test_a_statement_prints_on_its_own(demo_site: Site, browser: Browser) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("read")) as opened:
        opened.open(STATEMENT)
        expect(opened.page.get_by_role("button", name="Print")).to_be_visible()
        opened.page.emulate_media(media="print")
        expect(opened.page.get_by_role("navigation")).to_be_hidden()
        expect(opened.page.get_by_role("button", name="Print")).to_be_hidden()
        expect(opened.page.get_by_role("heading", name="Why it holds")).to_be_visible()
        pages = opened.page.pdf(format="A4").count(b"/Type /Page\n")
        assert pages <= 2


@pytest.mark.parametrize("path", ["/planner", "/portfolio", "/ledger", STATEMENT])
def test_a_first_visit_is_small(demo_site: Site, browser: Browser, path: str) -> None:
    """Bytes of the very first visit, the sign-in page included."""
    with tab(browser, demo_site, new=True) as opened:
        opened.sign_in(demo_site.secret("read"))
        opened.open(path)
        opened.settled()
        assert 10_000 < sum(opened.visits) < 1_500_000


def test_a_long_ledger_comes_in_pages(site: Site) -> None:
    for number in range(ledger_view.PAGE):
        site.service.experiments.create(f"e{number}", arms=["a", "b"], segments=["s"], budget=0.1)
    with site.signed_in("read") as client:
        newest = client.get("/ledger").text
        assert (
            newest.count("Draft created") == ledger_view.PAGE
        )  # one row is a key, one more in the filter
        assert ">Older</a>" in newest
        oldest = client.get("/ledger", params={"first": ledger_view.PAGE}).text
        assert ">Older</a>" not in oldest
        assert "At most 6 nats in any 90 days" in oldest


def test_times_are_utc_of_24_hours(demo_site: Site, browser: Browser) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("read")) as opened:
        for path in ("/ledger", f"/experiments/{EXPERIMENT}"):
            opened.open(path)
            specs = opened.page.locator("figure.chart > script").all_text_contents()
            over_time = [spec for spec in specs if '"time"' in spec]
            assert over_time
            for spec in over_time:
                assert "time (UTC)" in spec
                assert '"utc"' in spec
                assert "%H:%M" in spec


def test_an_empty_store(empty_site: Site, browser: Browser) -> None:
    with tab(browser, empty_site, secret=empty_site.secret("admin"), width=390) as opened:
        opened.open("/ledger")
        expect(opened.page.get_by_text("There are no experiments yet")).to_be_visible()
        opened.assert_well_behaved()
        opened.assert_accessible()


def test_what_is_committed_now_is_what_the_firm_has_committed(demo_site: Site) -> None:
    firm = demo_site.service.firm.current()
    with demo_site.client() as client:
        assert sign_in(client, demo_site.secret("read")).status_code == 303
        page = client.get("/ledger", headers=HTML).text
    assert f"Now {nats(firm.committed)} of {in_nats(firm.budget)} committed." in page
