"""Who may see and do what, over HTTP: keys, sessions, tokens, scopes."""

from __future__ import annotations

import html
import re
import shlex
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2 as httpx
import pytest
from tests.patience import PATIENCE
from tests.web.site import EXPERIMENT, HTML, Site, send, sign_in, token_of

from deniable.cli import main
from deniable.web.access import COOKIE, Session, Signer

PAGES = ("/", "/experiments", "/experiments/new", f"/experiments/{EXPERIMENT}")
ADMIN_PAGES = ("/experiments/new", f"/experiments/{EXPERIMENT}/do/pause")


@pytest.mark.parametrize("path", PAGES)
def test_whoever_is_not_signed_in_is_sent_to_the_sign_in_page(demo_site: Site, path: str) -> None:
    with demo_site.client() as client:
        answer = client.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login")


def test_a_program_that_is_not_signed_in_gets_401_and_no_redirect(demo_site: Site) -> None:
    answer = httpx.get(f"{demo_site.url}/experiments/{EXPERIMENT}/live", timeout=PATIENCE)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("secret", ["dnb_wrong", "x" * 5_000, "dnb_\u202e\U0001f600", "", " "])
def test_a_wrong_key_is_refused_in_words(demo_site: Site, secret: str) -> None:
    with demo_site.client() as client:
        answer = sign_in(client, secret)
        assert answer.status_code == 403
        assert 'role="alert"' in answer.text
        assert client.get("/").status_code == 303


def test_a_revoked_key_ends_its_sessions(site: Site) -> None:
    secret, key = site.service.keys.create("gone soon", ["admin"])
    with site.client() as client:
        assert sign_in(client, secret).status_code == 303
        assert client.get("/").status_code == 200
        site.service.keys.revoke(key.id)
        assert client.get("/").status_code == 303
        assert sign_in(client, secret).status_code == 403


@pytest.mark.parametrize("scopes", [("decide",), ("reward",), ("decide", "reward")])
def test_keys_that_may_not_read_see_no_page(demo_site: Site, scopes: tuple[str, ...]) -> None:
    with demo_site.client() as client:
        answer = sign_in(client, demo_site.secret(*scopes))  # type: ignore[arg-type]
        assert answer.status_code == 403
        assert "read" in answer.text
        assert client.get("/").status_code == 303


def _session(site: Site, key: str) -> str:
    """The cookie of a session that the store knows, without the sign-in page."""
    signer: Signer = site.app.api.state.signer
    session = signer.new()
    site.service.sessions.begin(session.token, seconds=3600, key=key)
    return signer.written(session)


def test_a_session_made_for_a_decide_only_key_is_refused_all_the_same(demo_site: Site) -> None:
    _, key = demo_site.service.keys.create("decides", ["decide"])
    cookie = _session(demo_site, key.id)
    for path in (*PAGES, f"/experiments/{EXPERIMENT}/live"):
        answer = httpx.get(
            demo_site.url + path, cookies={COOKIE: cookie}, headers=HTML, timeout=PATIENCE
        )
        assert answer.status_code == 403, path


@pytest.mark.parametrize("path", ADMIN_PAGES)
def test_readers_look_but_do_not_touch(demo_site: Site, path: str) -> None:
    with demo_site.signed_in("read") as client:
        assert client.get(path).status_code == 403
        page = client.get(f"/experiments/{EXPERIMENT}")
        assert page.status_code == 200
        assert "/do/" not in page.text
        token = token_of(page)
        answer = client.post(f"/experiments/{EXPERIMENT}/do/stop", data={"form_token": token})
        assert answer.status_code == 403
    assert demo_site.service.experiments.get(EXPERIMENT).status == "running"


def test_an_expired_session_is_over(demo_site: Site) -> None:
    """By its own end, and by the store's, whichever comes first."""
    _, key = demo_site.service.keys.create("yesterday", ["admin"])
    signer: Signer = demo_site.app.api.state.signer
    now = int(time.time())
    for token, kept_seconds, expires, status in (
        ("aa" * 32, 3600, now + 3600, 200),
        ("bb" * 32, 3600, now - 1, 303),
        ("cc" * 32, -1, now + 3600, 303),
        ("dd" * 32, None, now + 3600, 303),  # signed by us, but never begun
    ):
        if kept_seconds is not None:
            demo_site.service.sessions.begin(token, seconds=kept_seconds, key=key.id)
        cookie = signer.written(Session(token, expires))
        answer = httpx.get(demo_site.url, cookies={COOKIE: cookie}, headers=HTML, timeout=PATIENCE)
        assert answer.status_code == status, token


def test_a_session_cannot_be_stretched_or_guessed(demo_site: Site) -> None:
    _, key = demo_site.service.keys.create("mine", ["read"])
    good = _session(demo_site, key.id)
    token, expires, signature = good.split(".")
    for forged in (
        f"{'0' * 64}.{expires}.{signature}",
        f"{token}.{int(expires) + 9_999}.{signature}",
        f"{token}.{expires}.{'0' * 64}",
        f"{token}.{expires}",
        token,
        "",
        "....",
        "\u00e9" * 20,
    ):
        cookie = f"{COOKIE}={forged}".encode("latin-1")
        answer = httpx.get(
            demo_site.url,
            headers=[(b"accept", b"text/html"), (b"cookie", cookie)],
            timeout=PATIENCE,
        )
        assert answer.status_code == 303, forged
    assert (
        httpx.get(demo_site.url, cookies={COOKIE: good}, headers=HTML, timeout=PATIENCE).status_code
        == 200
    )


def test_the_cookie_is_unseen_by_scripts_and_stays_on_our_pages(demo_site: Site) -> None:
    with demo_site.client() as client:
        answer = sign_in(client, demo_site.secret("read"))
        cookie = answer.headers["set-cookie"]
        for part in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age="):
            assert part in cookie
        assert "Secure" not in cookie  # plain HTTP on loopback
        assert "dnb_" not in cookie
    with demo_site.client() as client:
        client.headers["x-forwarded-proto"] = "https"
        assert "Secure" in client.get("/login").headers["set-cookie"]


@pytest.mark.parametrize("token", [None, "", "0" * 64, "é"])
def test_a_form_without_the_right_token_does_nothing(site: Site, token: str | None) -> None:
    with site.signed_in("admin") as client:
        data = {} if token is None else {"form_token": token}
        answer = client.post(f"/experiments/{EXPERIMENT}/do/stop", data=data)
        assert answer.status_code == 403
        assert client.post("/firm", data={**data, "budget": "9"}).status_code == 403
        assert client.post("/experiments/new", data=data).status_code == 403
        assert client.post("/logout", data=data).status_code == 403
    assert site.service.experiments.get(EXPERIMENT).status == "running"
    assert site.service.firm.current().budget == 6.0


def test_a_token_of_another_session_does_nothing(site: Site) -> None:
    with site.signed_in("admin") as mine, site.signed_in("admin") as theirs:
        token = token_of(theirs.get("/"))
        answer = mine.post(f"/experiments/{EXPERIMENT}/do/stop", data={"form_token": token})
        assert answer.status_code == 403
    assert site.service.experiments.get(EXPERIMENT).status == "running"


def test_signing_in_needs_the_token_of_its_own_page(site: Site) -> None:
    secret = site.secret("admin")
    with site.client() as client:
        assert client.post("/login", data={"key": secret}).status_code == 403
        client.get("/login")
        assert client.post("/login", data={"key": secret}).status_code == 403
        assert client.get("/").status_code == 303


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ("/experiments", "/experiments"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("/a\r\nSet-Cookie: x=1", "/"),
        ("javascript:alert(1)", "/"),
    ],
)
def test_signing_in_leads_only_to_our_own_pages(demo_site: Site, wanted: str, place: str) -> None:
    with demo_site.client() as client:
        answer = sign_in(client, demo_site.secret("read"), next=wanted)
        assert answer.headers["location"] == place


def test_signing_out_ends_it(demo_site: Site) -> None:
    with demo_site.signed_in("read") as client:
        assert send(client, "/", "/logout").status_code == 303
        assert client.get("/").status_code == 303


def test_a_copy_of_the_session_ends_with_it(demo_site: Site) -> None:
    with demo_site.signed_in("read") as client, demo_site.client() as thief:
        stolen = client.cookies["deniable_session"]
        thief.cookies.set("deniable_session", stolen)
        assert thief.get("/").status_code == 200
        send(client, "/", "/logout")
        assert thief.get("/").status_code == 303


@pytest.mark.parametrize("path", ["/", "/login", "/nothing-here", f"/experiments/{EXPERIMENT}"])
def test_every_page_forbids_foreign_and_inline_code(demo_site: Site, path: str) -> None:
    with demo_site.signed_in("read") as client:
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "private, no-store"
        assert not re.search(r"<script(?![^>]*(src=|application/json))", answer.text)
        assert not re.search(r"\son\w+=|\sstyle=|<style|javascript:", answer.text)
        assert not re.search(r"""(?:src|href|action)=["'](?!/|#)""", answer.text)


def test_a_mistyped_secret_does_not_lose_the_link(demo_site: Site) -> None:
    """Refused once, then let in: the address that somebody shared, with its query, comes next."""
    wanted = "/planner?arms=3&visitors=5000"
    with demo_site.client() as client:
        asked = client.get(client.get(wanted).headers["location"])
        action = html.unescape(re.findall(r'action="(/login[^"]*)"', asked.text)[-1])
        token = token_of(asked)
        refused = client.post(action, data={"form_token": token, "key": "dnb_wrong"})
        assert refused.status_code == 403
        left = html.unescape(re.findall(r'name="next" value="([^"]*)"', refused.text)[-1])
        assert left == wanted
        data = {"form_token": token_of(refused), "key": demo_site.secret("read"), "next": left}
        assert client.post("/login", data=data).headers["location"] == wanted
        again = client.get("/login", params={"next": wanted})  # who is signed in need not sign in
        assert again.headers["location"] == wanted


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
