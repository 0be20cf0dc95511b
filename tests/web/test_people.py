"""People over HTTP: inviting, signing in, ending sessions; who did what; what must not leak."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import cast

import httpx2 as httpx
import pytest
from tests.patience import PATIENCE
from tests.web.site import EXPERIMENT, HOSTILE, Site, running_site, send, sign_in, token_of

from deniable.demo import firm
from deniable.service import passwords
from deniable.service.http.logs import JsonFormatter
from deniable.service.people import LIMITS
from deniable.service.service import Deniable
from deniable.storage.records import UserRole
from deniable.web.access import COOKIE

PASSWORD = "a long walk by the sea"


@pytest.fixture(autouse=True)
def cheap_hashing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from argon2 import PasswordHasher

    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "hasher", lambda: quick)
    passwords._of_nobody.cache_clear()
    yield
    passwords._of_nobody.cache_clear()


def enter(client: httpx.Client, name: str, password: str = PASSWORD) -> httpx.Response:
    token = token_of(client.get("/login"))
    return client.post("/login", data={"form_token": token, "name": name, "password": password})


def join(site: Site, name: str, role: UserRole) -> None:
    site.service.people.accept(site.service.people.invite(name, role).token, PASSWORD)


def test_from_invitation_to_the_ledger(site: Site) -> None:
    with site.signed_in("admin") as admin:
        page = send(
            admin, "/settings", "/settings/people", name="Grace@Firm.example", role="manager"
        )
        link = re.search(r'id="invite-link">([^<]+)<', page.text)
        assert link is not None
        assert link[1] not in admin.get("/settings").text  # shown once
    path = link[1].removeprefix(site.url)
    with site.client() as grace:
        assert grace.get("/").status_code == 303
        opened = grace.get(path)
        assert "grace@firm.example" in opened.text
        fields = {"form_token": token_of(opened), "password": PASSWORD, "again": PASSWORD}
        assert grace.post(path, data=fields).headers["location"] == "/"
        overview = grace.get("/")
        assert "grace@firm.example" in overview.text
        assert send(grace, "/", f"/experiments/{EXPERIMENT}/do/pause").status_code == 303
        entry = site.service.ledger.entries()[-1]
        assert (entry.kind, entry.actor) == ("pause", "user:grace@firm.example")
        assert "By grace@firm.example." in grace.get("/ledger").text
        assert "Paused, by grace@firm.example" in grace.get(f"/experiments/{EXPERIMENT}").text
        last = grace.get("/ledger/ledger.csv").text.splitlines()[-1]
        assert last.endswith(",grace@firm.example")
        assert grace.get("/ledger/visitors").status_code == 403  # a manager, not an officer
    with site.client() as later:
        assert enter(later, "GRACE@firm.example").status_code == 303
        assert later.get("/").status_code == 200


def test_an_api_key_is_the_actor_too(site: Site) -> None:
    secret, _ = site.service.keys.create("deploy", ["run"])
    answer = httpx.post(
        f"{site.url}/v1/experiments/{EXPERIMENT}/pause",
        headers={"authorization": f"Bearer {secret}"},
        timeout=PATIENCE,
    )
    assert answer.status_code == 200
    assert site.service.ledger.entries()[-1].actor == "key:deploy"
    reading = site.secret("read")
    listed = httpx.get(
        f"{site.url}/v1/ledger", headers={"authorization": f"Bearer {reading}"}, timeout=PATIENCE
    )
    assert listed.json()[-2]["by"] == "key:deploy"  # then a key was made
    assert site.service.ledger.entries()[-1].actor is None


def test_an_invitation_cannot_be_replayed(site: Site) -> None:
    invitation = site.service.people.invite("ada", "admin")
    with site.client() as client, site.client() as thief:
        fields = {"password": PASSWORD, "again": PASSWORD}
        token = token_of(client.get(invitation.path))
        stolen = token_of(thief.get(invitation.path))
        assert client.post(invitation.path, data={"form_token": token, **fields}).status_code == 303
        for _ in range(2):
            data = {
                "form_token": stolen,
                "password": "the thief's own one",
                "again": "the thief's own one",
            }
            assert thief.post(invitation.path, data=data).status_code == 404
        assert thief.get(invitation.path).status_code == 404
        assert thief.get("/").status_code == 303
        assert enter(thief, "ada", "the thief's own one").status_code == 403


@pytest.mark.parametrize("token", ["x" * 43, "x", "%00", "..%2f..", "é" * 43])
def test_links_that_never_were(demo_site: Site, token: str) -> None:
    with demo_site.client() as client:
        assert client.get(f"/invite/{token}").status_code == 404


def test_a_bad_choice_of_password_keeps_the_link(site: Site) -> None:
    invitation = site.service.people.invite("ada", "viewer")
    with site.client() as client:
        token = token_of(client.get(invitation.path))
        for password, again, words in (
            ("short", "short", "too easy to guess"),
            (PASSWORD, PASSWORD + "!", "not the same"),
            ("", "", "too easy to guess"),
        ):
            data = {"form_token": token, "password": password, "again": again}
            answer = client.post(invitation.path, data=data)
            assert answer.status_code == 422
            assert words in answer.text
            assert PASSWORD not in answer.text
        data = {"form_token": token, "password": PASSWORD, "again": PASSWORD}
        assert client.post(invitation.path, data=data).status_code == 303


def test_signing_in_begins_a_session_that_nobody_planted(site: Site) -> None:
    join(site, "ada", "admin")
    secret = site.secret("admin")
    with site.client() as thief:
        planted = thief.get("/login").cookies[COOKIE]
        for way in ("password", "key"):
            with site.client() as victim:
                victim.cookies.set(COOKIE, planted, domain="127.0.0.1")
                answer = enter(victim, "ada") if way == "password" else sign_in(victim, secret)
                assert answer.status_code == 303
                assert victim.cookies[COOKIE] != planted
                assert victim.get("/").status_code == 200
            assert thief.get("/").status_code == 303


def test_nothing_tells_whether_a_name_exists(site: Site) -> None:
    join(site, "ada", "admin")
    join(site, "gone", "admin")
    site.service.people.disable("gone")
    site.service.people.invite("invited", "viewer")
    pages = set()
    for name in ("ada", "gone", "invited", "nobody"):
        with site.client() as client:
            for _ in range(LIMITS["pair"]):
                answer = enter(client, name, "a wrong password")
                assert answer.status_code == 403
            last = enter(client, name, PASSWORD)
            assert last.status_code == 429
            assert int(last.headers["retry-after"]) > 0
            for page in (answer, last):
                text = re.sub(r'value="[^"]*"', "", page.text)
                pages.add(re.sub(r"in \d+ minutes", "in some minutes", text))
    assert len(pages) == 2


def test_a_disabled_person_and_an_ended_session_are_out_at_once(site: Site) -> None:
    join(site, "ada", "manager")
    with site.client() as ada, site.client() as elsewhere, site.signed_in("admin") as admin:
        for client in (ada, elsewhere):
            enter(client, "ada")
            assert client.get("/").status_code == 200
        mine = [one for one in site.service.sessions.all() if one.name == "ada"]
        assert (
            send(ada, "/settings", "/settings/sessions/end", session=mine[0].id).status_code == 303
        )
        assert [ada.get("/").status_code, elsewhere.get("/").status_code] == [200, 303]
        send(admin, "/settings", "/settings/people/disable", name="ada")
        assert ada.get("/").status_code == 303
        assert enter(ada, "ada").status_code == 403
        send(admin, "/settings", "/settings/people/enable", name="ada")
        assert ada.get("/").status_code == 303
        assert enter(ada, "ada").status_code == 303


def test_a_role_counts_from_the_next_request_on(site: Site) -> None:
    join(site, "ada", "viewer")
    with site.client() as ada, site.signed_in("admin") as admin:
        enter(ada, "ada")
        assert ada.get("/experiments/new").status_code == 403
        send(admin, "/settings", "/settings/people/role", name="ada", role="analyst")
        assert ada.get("/experiments/new").status_code == 200
        send(admin, "/settings", "/settings/people/role", name="ada", role="root")
        assert site.service.people.get("ada").role == "analyst"


def test_nobody_ends_the_sessions_of_others_but_an_admin(site: Site) -> None:
    join(site, "ada", "privacy-officer")
    join(site, "bob", "admin")
    with site.client() as ada, site.client() as bob:
        enter(ada, "ada")
        enter(bob, "bob")
        sessions = {one.name: one.id for one in site.service.sessions.all()}
        answer = send(ada, "/settings", "/settings/sessions/end", session=sessions["bob"])
        assert answer.status_code == 404
        assert bob.get("/").status_code == 200
        send(bob, "/settings", "/settings/sessions/end", session=sessions["ada"])
        assert ada.get("/").status_code == 303


def test_an_admin_cannot_shut_the_door_behind_oneself(site: Site) -> None:
    join(site, "ada", "admin")
    with site.client() as ada:
        enter(ada, "ada")
        for act, more in (("disable", {}), ("role", {"role": "viewer"})):
            answer = send(ada, "/settings", f"/settings/people/{act}", name="Ada", **more)
            assert answer.status_code == 409
        assert site.service.people.get("ada").active


def test_changing_the_password_ends_other_sessions(site: Site) -> None:
    join(site, "ada", "viewer")
    with site.client() as here, site.client() as there:
        enter(here, "ada")
        enter(there, "ada")
        new = "another walk by the sea"

        def change(old: str, wanted: str, again: str) -> httpx.Response:
            fields = {"old": old, "new": wanted, "again": again}
            return send(here, "/settings", "/settings/password", **fields)

        for old, wanted, again in (
            (PASSWORD, "short", "short"),
            ("wrong", new, new),
            (PASSWORD, new, "x"),
        ):
            assert change(old, wanted, again).status_code == 422
        assert there.get("/").status_code == 200
        assert change(PASSWORD, new, new).status_code == 303
        assert [here.get("/").status_code, there.get("/").status_code] == [200, 303]
        assert enter(there, "ada").status_code == 403
        assert enter(there, "ada", new).status_code == 303


def test_a_key_has_no_password_to_change(site: Site) -> None:
    with site.signed_in("admin") as client:
        assert send(client, "/settings", "/settings/password").status_code == 409


def test_a_key_is_shown_once_and_ends_when_revoked(site: Site) -> None:
    with site.signed_in("admin") as admin:
        token = token_of(admin.get("/settings"))
        wanted = {"form_token": token, "label": "shop", "scope": ["decide", "read"]}
        page = admin.post("/settings/keys", data=wanted)
        found = re.search(r'id="new-secret">(dnb_[^<]+)<', page.text)
        assert found is not None
        assert found[1] not in admin.get("/settings").text
        headers = {"authorization": f"Bearer {found[1]}"}
        assert (
            httpx.get(f"{site.url}/v1/firm", headers=headers, timeout=PATIENCE).status_code == 200
        )
        key = next(key for key in site.service.keys.all() if key.label == "shop")
        assert set(key.scopes) == {"decide", "read"}
        send(admin, "/settings", "/settings/keys/revoke", key=key.id)
        assert (
            httpx.get(f"{site.url}/v1/firm", headers=headers, timeout=PATIENCE).status_code == 401
        )
        for fields in ({"label": ""}, {"label": "x"}, {"label": "x", "scope": "root"}):
            assert send(admin, "/settings", "/settings/keys", **fields).status_code == 422
        assert send(admin, "/settings", "/settings/keys/revoke", key="xx").status_code == 303


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused_or_shown_as_text(busy_site: Site, name: str) -> None:
    with busy_site.signed_in("admin") as admin:
        page = send(admin, "/settings", "/settings/people", name=name, role="viewer")
        assert page.status_code == 422
        key = send(admin, "/settings", "/settings/keys", label=name, scope="read")
        firm = send(admin, "/settings", "/settings/firm", firm_name=name)
        for answer in (page, key, firm, admin.get("/settings"), admin.get("/ledger")):
            assert answer.status_code in (200, 303, 422)
            assert "<script>alert" not in answer.text
            assert "<img src=x" not in answer.text
    with busy_site.client() as client:
        assert enter(client, name, name).status_code in (403, 429)


def test_logs_hold_no_name_password_link_or_session(site: Site) -> None:
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JsonFormatter().format(record))

    handler = Lines()
    ours = logging.getLogger("deniable")
    before = ours.level
    ours.addHandler(handler)
    ours.setLevel(logging.DEBUG)
    try:
        invitation = site.service.people.invite("secretive", "admin")
        with site.client() as client, site.client() as other:
            token = token_of(client.get(invitation.path))
            data = {"form_token": token, "password": PASSWORD, "again": PASSWORD}
            client.post(invitation.path, data=data)
            client.get(invitation.path)
            cookie = client.cookies[COOKIE]
            send(client, "/settings", "/settings/people", name="<bad>", role="viewer")
            enter(other, "secretive", "a wrong password")
    finally:
        ours.removeHandler(handler)
        ours.setLevel(before)
    logged = "\n".join(lines)
    assert '"route":"/invite/{token}"' in logged  # the lines that would tell are there
    secrets = (invitation.token, PASSWORD, "a wrong password", cookie.split(".")[0], "secretive")
    for secret in secrets:
        assert secret not in logged


def test_an_officer_sees_people_and_keys_but_changes_none(site: Site) -> None:
    join(site, "ada", "privacy-officer")
    join(site, "bob", "viewer")
    site.secret("admin")
    with site.client() as ada, site.client() as bob:
        enter(ada, "ada")
        enter(bob, "bob")
        page = ada.get("/settings").text
        assert "test admin" in page
        assert 'action="/settings/people' not in page
        assert 'action="/settings/keys' not in page
        assert send(ada, "/settings", "/settings/firm", firm_name="Acme").status_code == 303
        assert site.service.firm.settings().name == "Acme"
        assert json.loads(site.service.ledger.entries()[-1].detail)["by"] == "user:ada"
        page = bob.get("/settings").text
        assert "test admin" not in page
        assert "privacy-officer" not in page


def test_the_demo_is_entered_by_one_click_unless_somebody_uses_the_store(service: Deniable) -> None:
    secret = firm.prepare(service)
    assert firm.only_demo(service)
    with running_site(service, demo=True) as site:
        site.app.api.state.demo_key = secret
        with site.client() as client:
            page = client.get("/login")
            assert "Enter the demo" in page.text
            data = {"form_token": token_of(page), "demo": "yes"}
            assert client.post("/login", data=data).status_code == 303
            assert client.get("/settings").status_code == 200
        site.app.api.state.demo_key = ""
        with site.client() as client:
            page = client.get("/login")
            assert "Enter the demo" not in page.text
            data = {"form_token": token_of(page), "demo": "yes"}
            assert client.post("/login", data=data).status_code == 403
    service.keys.create("a real one", ["read"])
    assert not firm.only_demo(service)


def test_a_request_is_seen_by_who_asked_and_by_who_may_approve(site: Site) -> None:
    """On the overview and on the experiment's page, until the experiment is started."""
    site.service.firm.change_settings(start_above=0.5)
    site.service.experiments.create("big", arms=["a", "b"], segments=["s"], budget=1)
    for name, role in (("mia", "manager"), ("olga", "privacy-officer"), ("ann", "analyst")):
        join(site, name, cast(UserRole, role))
    with site.client() as mia, site.client() as olga, site.client() as ann:
        for client, name in ((mia, "mia"), (olga, "olga"), (ann, "ann")):
            enter(client, name)
        send(mia, "/experiments/big", "/experiments/big/do/start")
        for place in ("/", "/experiments/big"):
            assert (
                "You asked a second person to approve: <strong>start big: 1 nats"
                in mia.get(place).text
            )
            assert "mia asks you to approve: <strong>start big" in olga.get(place).text
            assert "approve: <strong>" not in ann.get(place).text
            assert "Approve<span" not in mia.get(place).text
        [request] = site.service.approvals.all()
        send(olga, "/", "/settings/approvals", request=request.id, answer="grant")
        assert "olga approved: <strong>start big" in mia.get("/experiments/big").text
        send(mia, "/experiments/big", "/experiments/big/do/start")
        assert site.service.experiments.get("big").status == "running"
        assert "approved: <strong>" not in mia.get("/").text
