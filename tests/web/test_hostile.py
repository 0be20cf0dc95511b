"""Hostile names in every field: refused in words, or shown harmlessly."""

from __future__ import annotations

import base64
import html
import json
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from tests.web.site import HOSTILE, HTML, Site, send, sign_in, token_of

from deniable.service.drafts import NewArm

GOOD = {
    "key": "fine",
    "arms": "old: As it was\nnew",
    "segments": "a\nb",
    "budget": "1",
    "strategy": "dynamic",
}
FIELDS = (
    "key",
    "arms",
    "segments",
    "budget",
    "strategy",
    "planned_visitors",
    "arm_budgets",
    "default_arm",
    "layer",
    "attribution_days",
)


class Tags(HTMLParser):
    """Collects the tags and attributes of a page, as a browser would find them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: list[dict[str, str | None]] = []
        self.handlers: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self.scripts.append(dict(attrs))
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def assert_harmless(page: str) -> None:
    found = Tags(page)
    assert all("src" in one or one.get("type") == "application/json" for one in found.scripts)
    assert not found.handlers
    assert "<img src=x" not in page
    assert "49 {%" not in page  # no template in a name is filled in


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_field_of_the_form(busy_site: Site, field: str, value: str) -> None:
    with busy_site.signed_in("admin") as client:
        answer = send(client, "/experiments/new", "/experiments/new", **{**GOOD, field: value})
        assert answer.status_code in (303, 422), answer.text
        assert_harmless(answer.text)
        if answer.status_code == 303:
            assert_harmless(client.get(answer.headers["location"]).text)
            assert_harmless(client.get("/experiments").text)
        else:
            assert 'aria-invalid="true"' in answer.text or 'class="error"' in answer.text


@pytest.mark.parametrize(
    "value", [text for text in HOSTILE if len(text) < 120 and text.isprintable()]
)
def test_hostile_labels_and_segments_are_shown_as_text(site: Site, value: str) -> None:
    site.service.experiments.create(
        "odd", arms=[NewArm("a", value), NewArm("b", value)], segments=[value, "x"], budget=1
    )
    site.service.experiments.start("odd")
    pairs = [(f"v{i}", value if i % 2 else "x") for i in range(600)]
    site.service.decide_batch("odd", pairs)
    with site.signed_in("admin") as client:
        for path in ("/", "/experiments", "/experiments/odd", "/experiments/odd/do/promote"):
            page = client.get(path)
            assert page.status_code == 200
            assert_harmless(page.text)
        shown = client.get("/experiments/odd").text
        assert html.escape(value).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in shown
        live = client.get("/experiments/odd/live").json()
        for part in live["parts"].values():
            assert_harmless(part)


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_addresses(demo_site: Site, value: str) -> None:
    with demo_site.signed_in("admin") as client:
        for path in ("/experiments/{}", "/experiments/{}/live", "/nothing/{}"):
            answer = client.get(path.format(quote(value, safe="")))
            assert answer.status_code == 404
            assert_harmless(answer.text)
        for parameters in ({"q": value}, {"status": value}):
            answer = client.get("/experiments", params=parameters)
            assert answer.status_code == 200
            assert_harmless(answer.text)
        answer = client.get("/experiments/new", params=dict.fromkeys(FIELDS, value[:4_000]))
        assert answer.status_code == 200
        assert_harmless(answer.text)


def test_a_hostile_label_of_an_api_key(site: Site) -> None:
    secret, _ = site.service.keys.create('"><script>alert(1)</script>', ["admin"])
    with site.client() as client:
        assert sign_in(client, secret).status_code == 303
        page = client.get("/").text
        assert_harmless(page)
        assert "&lt;script&gt;" in page


def test_a_forged_message_is_not_shown(demo_site: Site) -> None:
    text = base64.urlsafe_b64encode(json.dumps(["good", "Send money"]).encode()).decode()
    with demo_site.signed_in("read") as client:
        client.cookies.set("deniable_message", f"{text}.{'0' * 64}")
        assert "Send money" not in client.get("/").text


def test_a_body_that_is_too_large_is_refused(demo_site: Site) -> None:
    with demo_site.signed_in("admin") as client:
        token = token_of(client.get("/"))
        answer = client.post(
            "/experiments/new",
            data={"form_token": token, "arms": "x" * 300_000},
            headers=HTML,
        )
        assert answer.status_code == 413
