"""Every route of the application against every role: a route without a rule fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import httpx2 as httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from tests.patience import PATIENCE
from tests.web.site import EXPERIMENT, Site, create_demo, running_site

from deniable.service.service import open as open_service
from deniable.storage.records import ROLES, Scope, UserRole
from deniable.web.access import COOKIE, Session

Rule: TypeAlias = Scope | Literal["anybody"]

RULES: dict[tuple[str, str], Rule] = {
    # for programs
    ("GET", "/healthz"): "anybody",
    ("GET", "/readyz"): "anybody",
    ("GET", "/storez"): "anybody",
    ("GET", "/metrics"): "anybody",
    ("GET", "/openapi.json"): "anybody",
    ("POST", "/ofrep/v1/evaluate/flags"): "decide",
    ("GET", "/v1/firm"): "read",
    ("POST", "/v1/firm"): "privacy",
    ("GET", "/v1/experiments"): "read",
    ("POST", "/v1/experiments"): "draft",
    ("GET", "/v1/experiments/{key}"): "read",
    ("PUT", "/v1/experiments/{key}"): "draft",
    ("DELETE", "/v1/experiments/{key}"): "draft",
    ("POST", "/v1/experiments/{key}/copies"): "draft",
    ("POST", "/v1/experiments/{key}/notes"): "draft",
    ("PUT", "/v1/experiments/{key}/labels"): "draft",
    ("GET", "/v1/experiments/{key}/counts"): "read",
    ("GET", "/v1/experiments/{key}/results"): "read",
    ("GET", "/v1/experiments/{key}/summary"): "read",
    ("GET", "/v1/experiments/{key}/export"): "privacy",
    ("POST", "/v1/experiments/{key}/start"): "run",
    ("POST", "/v1/experiments/{key}/pause"): "run",
    ("POST", "/v1/experiments/{key}/resume"): "run",
    ("POST", "/v1/experiments/{key}/stop"): "run",
    ("POST", "/v1/experiments/{key}/arms/{arm}/switch-off"): "run",
    ("POST", "/v1/experiments/{key}/arms"): "run",
    ("POST", "/v1/experiments/{key}/segments"): "run",
    ("POST", "/v1/experiments/{key}/contexts"): "run",
    ("POST", "/v1/plan"): "read",
    ("GET", "/v1/ledger"): "read",
    ("GET", "/v1/ledger/log"): "audit",
    ("GET", "/v1/ledger/verification"): "read",
    ("GET", "/v1/keys"): "admin",
    ("POST", "/v1/keys"): "admin",
    ("POST", "/v1/keys/{key_id}/revoke"): "admin",
    ("POST", "/v1/erasures"): "privacy",
    ("POST", "/v1/purges"): "privacy",
    ("GET", "/v1/masks"): "read",
    ("POST", "/v1/masks"): "privacy",
    ("POST", "/v1/masks/{name}/end"): "privacy",
    ("GET", "/labels"): "read",
    ("POST", "/labels"): "privacy",
    ("POST", "/labels/end"): "privacy",
    # for people
    ("GET", "/static/{release}/{name}"): "anybody",
    ("GET", "/login"): "anybody",
    ("POST", "/login"): "anybody",
    ("GET", "/invite/{token}"): "anybody",
    ("POST", "/invite/{token}"): "anybody",
    ("POST", "/logout"): "read",
    ("GET", "/"): "read",
    ("POST", "/firm"): "privacy",
    ("GET", "/experiments"): "read",
    ("GET", "/overview.csv"): "read",
    ("GET", "/overview/live"): "read",
    ("GET", "/experiments.csv"): "read",
    ("GET", "/experiments/{key}/edit"): "draft",
    ("POST", "/experiments/{key}/edit"): "draft",
    ("POST", "/experiments/{key}/labels"): "draft",
    ("POST", "/experiments/{key}/notes"): "draft",
    ("GET", "/experiments/new"): "draft",
    ("POST", "/experiments/new"): "draft",
    ("GET", "/experiments/{key}"): "read",
    ("GET", "/experiments/{key}/live"): "read",
    ("GET", "/experiments/{key}/do/{name}"): "run",
    ("POST", "/experiments/{key}/do/{name}"): "run",
    ("GET", "/planner"): "read",
    ("GET", "/planner/data"): "read",
    ("GET", "/planner/plan.{ending}"): "read",
    ("POST", "/planner/experiments"): "draft",
    ("GET", "/portfolio"): "read",
    ("POST", "/portfolio/data"): "read",
    ("POST", "/portfolio/what-if"): "read",
    ("POST", "/portfolio/allocation.csv"): "read",
    ("POST", "/portfolio/apply"): "draft",
    ("GET", "/ledger"): "read",
    ("GET", "/ledger/verification"): "read",
    ("GET", "/ledger/ledger.csv"): "read",
    ("GET", "/ledger/promises"): "read",
    ("POST", "/ledger/promises/documents"): "privacy",
    ("GET", "/ledger/promises/{key}"): "read",
    ("GET", "/ledger/promises/{key}/audit"): "audit",
    ("GET", "/ledger/promises/{key}/audit/recording"): "audit",
    ("POST", "/ledger/promises/{key}/audit"): "audit",
    ("POST", "/ledger/promises/{key}/documents"): "privacy",
    ("GET", "/ledger/documents/{name}"): "read",
    ("GET", "/ledger/visitors"): "privacy",
    ("POST", "/ledger/visitors"): "privacy",
    ("POST", "/ledger/visitors/erase"): "privacy",
    ("GET", "/leak"): "read",
    ("GET", "/leak/sample.csv"): "read",
    ("POST", "/leak"): "read",
    ("GET", "/settings"): "read",
    ("POST", "/settings/password"): "read",
    ("POST", "/settings/sessions/end"): "read",
    ("POST", "/settings/firm"): "privacy",
    ("POST", "/settings/approvals"): "privacy",
    ("POST", "/settings/people"): "admin",
    ("POST", "/settings/people/role"): "admin",
    ("POST", "/settings/people/{act}"): "admin",
    ("POST", "/settings/keys"): "admin",
    ("POST", "/settings/keys/revoke"): "admin",
}
"""(method, path) -> the scope that it needs."""

FILLED = {
    "{key}": EXPERIMENT,
    "{arm}": "no-such-arm",
    "{name}": "pause",
    "{act}": "enable",
    "{ending}": "toml",
    "{key_id}": "0" * 32,
    "{token}": "x" * 43,
    "{release}": "none",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    path = tmp_path_factory.mktemp("roles") / "store.db"
    with open_service(f"sqlite:///{path}") as opened:
        create_demo(opened)
        with running_site(opened) as served:
            yield served


def routes_of(api: FastAPI) -> set[tuple[str, str]]:
    """(method, path) of all routes, however they were added."""
    return set(_listed(api.routes, ""))


def _listed(routes: Sequence[Any], prefix: str) -> Iterator[tuple[str, str]]:
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from _listed(included.routes, prefix + route.include_context.prefix)
            continue
        methods = getattr(route, "methods", None)
        assert methods, f"a mount or another kind of route, which no rule covers: {route!r}"
        for method in methods:
            if method != "HEAD" or methods == {"HEAD"}:
                yield method, prefix + route.path


def unruled(api: FastAPI) -> set[tuple[str, str]]:
    return routes_of(api) - set(RULES)


def test_every_route_has_a_rule(site: Site) -> None:
    assert not unruled(site.app.api)
    assert not set(RULES) - routes_of(site.app.api), "rules of routes that are gone"


def test_a_new_route_without_a_rule_would_fail(site: Site) -> None:
    api = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    api.routes.append(APIRoute("/new-page", lambda: None))
    assert unruled(api) == {("GET", "/new-page")}


@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_do_what_its_scopes_say(site: Site, role: UserRole) -> None:
    """As a person in the pages, and with an API key of the same scopes over HTTP."""
    secret, _ = site.service.keys.create(f"as {role}", ROLES[role])
    user = site.service.people.invite(f"one-{role}", role).user
    with httpx.Client(base_url=site.url, timeout=PATIENCE) as client:
        for (method, path), rule in RULES.items():
            answer = _asked(site, client, method, path, user.id, secret)
            kind = _kind(answer)
            wanted = rule == "anybody" or rule in ROLES[role]
            assert (kind != "scope-missing") == wanted, (role, method, path, kind)
            assert answer.status_code not in (401, 500), (role, method, path, answer.text)


def test_whoever_is_not_signed_in_may_do_nothing(site: Site) -> None:
    with httpx.Client(base_url=site.url, timeout=PATIENCE) as client:
        for (method, path), rule in RULES.items():
            answer = client.request(method, _filled(path), json={})
            refused = answer.status_code == 401
            assert refused == (rule != "anybody"), (method, path, answer.status_code)


def test_a_form_without_a_token_does_nothing(site: Site) -> None:
    user = site.service.people.invite("tokenless", "admin").user
    with httpx.Client(base_url=site.url, timeout=PATIENCE) as client:
        for (method, path), rule in RULES.items():
            if method == "GET" or path.startswith(("/v1/", "/ofrep/")) or rule == "anybody":
                continue
            cookie, _ = _session(site, user.id)
            answer = client.request(method, _filled(path), headers={"cookie": f"{COOKIE}={cookie}"})
            assert _kind(answer) == "form-token", (path, answer.status_code)


def _asked(
    site: Site, client: httpx.Client, method: str, path: str, user: str, secret: str
) -> httpx.Response:
    filled = _filled(path)
    if path.startswith(("/v1/", "/ofrep/")):
        return client.request(
            method, filled, content=b"{", headers={"authorization": f"Bearer {secret}"}
        )
    cookie, token = _session(site, user)
    client.cookies.clear()
    return client.request(
        method, filled, headers={"cookie": f"{COOKIE}={cookie}", "x-form-token": token}
    )


def _session(site: Site, user: str) -> tuple[str, str]:
    """A cookie and the token of its forms; one each, because some routes end the session."""
    signer = site.app.api.state.signer
    session: Session = signer.new()
    site.service.sessions.begin(session.token, seconds=600, user=user)
    return signer.written(session), signer.form_token(session.token)


def _filled(path: str) -> str:
    for name, value in FILLED.items():
        path = path.replace(name, value)
    assert "{" not in path
    return path


def _kind(answer: httpx.Response) -> str:
    """The kind of a refusal, from its problem details; empty for any other answer."""
    if answer.headers.get("content-type") != "application/problem+json":
        ofrep = answer.request.url.path.startswith("/ofrep/")  # has a shape of its own
        return "scope-missing" if ofrep and answer.status_code == 403 else ""
    return str(answer.json()["type"]).rpartition(":")[2]
