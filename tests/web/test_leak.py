"""The page that measures an exposure log: what the command says, and nothing is kept."""

from __future__ import annotations

import html
import re
import tempfile
from pathlib import Path
from urllib.parse import parse_qsl

import httpx2 as httpx
import pytest
from playwright.sync_api import Browser, FilePayload, expect
from tests.web.site import HOSTILE, Site, token_of
from tests.web.watching import tab

from deniable.leak.page import report
from deniable.leak.report import measure_leak
from deniable.service.http.app import UPLOAD_LIMIT

LOG = "segment,variant,count\n" + "".join(
    f"{segment},{variant},{count}\n"
    for segment, counts in {"new": (900, 100), "returning": (300, 700)}.items()
    for variant, count in zip(("grey", "green"), counts, strict=True)
)


def upload(
    client: httpx.Client, content: str, name: str = "log.csv", **more: str
) -> httpx.Response:
    token = token_of(client.get("/leak"))
    files = {"log": (name, content.encode(), "text/csv")}
    return client.post("/leak", data={"form_token": token, **more}, files=files)


def test_the_report_is_the_commands(demo_site: Site, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(LOG)
    with demo_site.signed_in("read") as client:
        answer = upload(client, LOG)
    assert answer.status_code == 200
    told = html.unescape(answer.text)
    made = report(measure_leak(tmp_path / "log.csv"))
    assert made.headline in told
    assert all(section.title in told for section in made.sections)
    assert all(value in told and meaning in told for value, meaning, _ in made.figures)
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_the_report_is_a_page_of_the_site_and_leads_to_a_plan(demo_site: Site) -> None:
    with demo_site.signed_in("read") as client:
        answer = upload(client, LOG)
        assert '<a href="/leak" aria-current="page">' in answer.text
        [link] = re.findall(r'href="(/planner\?[^"]+)"', answer.text)
        assert set(parse_qsl(html.unescape(link).partition("?")[2])) == {
            ("arms", "2"),
            ("segments", "2"),
            ("visitors", "2000"),
        }
        assert client.get(html.unescape(link)).status_code == 200
        sample = client.get("/leak/sample.csv").text
        assert "What log.csv tells a tracker" in upload(client, sample).text


def test_nothing_is_kept(demo_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other tests use the usual one
    with demo_site.signed_in("read") as client:
        upload(client, LOG)
        upload(client, "nonsense")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "empty"),
        ("a,b\n1,2\n", "segment"),
        ("segment,variant\nnew,grey\n", "two or more segments"),
        ("PK\x03\x04 an excel file", "CSV"),
    ],
)
def test_bad_files_are_told_beside_the_field(demo_site: Site, content: str, words: str) -> None:
    with demo_site.signed_in("read") as client:
        answer = upload(client, content, reward="-", time="-")
        assert answer.status_code == 422
        told = html.unescape(answer.text)
        error = told[told.index('id="log-error"') :][:400]
        assert words in error, error
        assert 'name="time" type="text" value="-"' in told, "what was typed is kept"
        missing = client.post("/leak", data={"form_token": token_of(client.get("/leak"))})
        assert missing.status_code == 422


@pytest.mark.parametrize("name", [*HOSTILE, "../../etc/passwd", "", "..", "C:\\log.csv"])
def test_hostile_names_stay_names(demo_site: Site, name: str) -> None:
    with demo_site.signed_in("read") as client:
        token = token_of(client.get("/leak"))
        form = {"form_token": token}
        try:
            answer = client.post("/leak", data=form, files={"log": (name, LOG.encode())})
        except (UnicodeError, ValueError):  # a name that cannot be sent at all
            return
        assert answer.status_code in (200, 400, 422)
        assert "<script>alert" not in answer.text


def test_who_may_send_what(demo_site: Site) -> None:
    """Nobody's file is read before it is known who sends it, and nobody's is read beyond the limit."""
    with demo_site.client() as client:
        answer = client.post("/leak", files={"log": ("log.csv", b"x" * 1_000_000)})
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login")
    with demo_site.signed_in("read") as client:
        files = {"log": ("log.csv", LOG.encode())}
        assert client.post("/leak", files=files).status_code == 403
        long = LOG + "new,grey,1\n" * (UPLOAD_LIMIT // 11)
        assert upload(client, long).status_code == 413
        good = LOG + "new,grey,1\n" * 50_000  # more than other requests may send
        assert upload(client, good).status_code == 200


def test_in_a_browser(demo_site: Site, browser: Browser) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("read")) as opened:
        opened.open("/leak")
        opened.assert_accessible()
        opened.assert_well_behaved()
        page = opened.page
        log = FilePayload(name="log.csv", mimeType="text/csv", buffer=LOG.encode())
        page.locator("#log").set_input_files(log)
        page.get_by_role("button", name="Measure").click()
        expect(page.locator("h1")).to_have_text("What log.csv tells a tracker")
        opened.assert_well_behaved()
        expect(page.locator(".report svg").first).to_be_visible()


def test_the_columns_of_a_file_are_offered(demo_site: Site, browser: Browser) -> None:
    with tab(browser, demo_site, secret=demo_site.secret("read")) as opened:
        opened.open("/leak")
        for name, content in (
            ("log.csv", "group;shown\na;b\n"),
            ("log.jsonl", '{"group": 1, "shown": 2}'),
        ):
            log = FilePayload(name=name, mimeType="text/plain", buffer=content.encode())
            opened.page.locator("#log").set_input_files(log)
            expect(opened.page.locator("#columns option")).to_have_count(2)
            found = opened.page.locator("#columns option").evaluate_all(
                "all => all.map(e => e.value)"
            )
            assert found == ["group", "shown"]
            opened.page.locator("#log").set_input_files([])
            expect(opened.page.locator("#columns option")).to_have_count(0)
