from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest
from tests.loops import run_apart
from tests.service.http.site import DECISIONS, Site

from deniable.errors import StoreUnavailableError
from deniable.service.http.auth import Authenticator
from deniable.service.http.messages import Problem
from deniable.storage.records import SCOPES, ApiKey, Scope

ROUTES: list[tuple[str, str, Scope]] = [
    ("POST", DECISIONS, "decide"),
    ("POST", f"{DECISIONS}/batch", "decide"),
    ("POST", "/v1/unobserved/checkout/decisions", "unobserved"),
    ("POST", "/v1/unobserved/checkout/decisions/batch", "unobserved"),
    ("POST", "/ofrep/v1/evaluate/flags/checkout", "decide"),
    ("POST", "/ofrep/v1/evaluate/flags", "decide"),
    ("POST", "/v1/rewards", "reward"),
    ("POST", "/v1/rewards/batch", "reward"),
    ("PUT", "/v1/experiments/checkout/labels", "draft"),
    ("POST", "/v1/experiments/checkout/notes", "draft"),
    ("POST", "/v1/experiments/checkout/copies", "draft"),
    ("DELETE", "/v1/experiments/checkout", "draft"),
    ("PUT", "/v1/experiments/checkout", "draft"),
    ("GET", "/v1/firm", "read"),
    ("GET", "/v1/experiments", "read"),
    ("GET", "/v1/experiments/checkout", "read"),
    ("GET", "/v1/experiments/checkout/counts", "read"),
    ("GET", "/v1/experiments/checkout/results", "read"),
    ("GET", "/v1/experiments/checkout/summary", "read"),
    ("GET", "/v1/ledger", "read"),
    ("POST", "/v1/plan", "read"),
    ("GET", "/v1/ledger/verification", "read"),
    ("POST", "/v1/firm", "privacy"),
    ("POST", "/v1/experiments", "draft"),
    ("POST", "/v1/experiments/checkout/start", "run"),
    ("POST", "/v1/experiments/checkout/pause", "run"),
    ("POST", "/v1/experiments/checkout/resume", "run"),
    ("POST", "/v1/experiments/checkout/stop", "run"),
    ("POST", "/v1/experiments/checkout/arms/old/switch-off", "run"),
    ("POST", "/v1/experiments/checkout/arms", "run"),
    ("POST", "/v1/experiments/checkout/segments", "run"),
    ("POST", "/v1/experiments/checkout/contexts", "run"),
    ("GET", "/v1/experiments/checkout/export", "privacy"),
    ("GET", "/v1/keys", "admin"),
    ("POST", "/v1/keys", "admin"),
    ("POST", f"/v1/keys/{'0' * 32}/revoke", "admin"),
    ("POST", "/v1/erasures", "privacy"),
    ("POST", "/v1/purges", "privacy"),
    ("GET", "/v1/ledger/log", "audit"),
    ("GET", "/v1/masks", "read"),
    ("POST", "/v1/masks", "privacy"),
    ("POST", "/v1/masks/checkout/end", "privacy"),
    ("POST", "/v1/masks/checkout/labels", "label"),
    ("POST", "/v1/masks/checkout/labels/batch", "label"),
]
OPEN = {"/healthz", "/readyz", "/storez", "/metrics"}


def test_the_table_is_complete(site: Site) -> None:
    declared = site.app.api.openapi()["paths"]
    listed = {
        (method.upper(), path)
        for path, methods in declared.items()
        for method in methods
        if path not in OPEN
    }
    filled = {
        (
            method,
            path.replace("{key}", "checkout").replace("{arm}", "old").replace("{name}", "checkout"),
        )
        for method, path in listed
    }
    filled = {(method, path.replace("{key_id}", "0" * 32)) for method, path in filled}
    assert filled == {(method, path) for method, path, _ in ROUTES}


def test_every_route_wants_its_scope_and_admin_may_everything(site: Site) -> None:
    """The body is not even looked at before the key is."""
    for method, path, wanted in ROUTES:
        for scope in SCOPES:
            answer = site.client.request(method, path, content=b"{", headers=site.headers(scope))
            refused = answer.status_code == 403
            assert refused == (scope not in (wanted, "admin")), (method, path, scope)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer dnb_wrong"},
        {"Authorization": "Basic ZG5iOng="},
        {"Authorization": "Bearer " + "x" * 10_000},
        {"Authorization": "Bearer \x80\xff"},
        {"Authorization": "Bearer dnb_x' OR '1'='1"},
    ],
)
def test_nobody_unknown_gets_in(site: Site, headers: dict[str, str]) -> None:
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    for method, path, _scope in ROUTES:
        answer = site.client.request(method, path, headers=encoded)
        assert answer.status_code == 401, (method, path)
        assert answer.headers["www-authenticate"] == "Bearer"


def test_open_routes_need_no_key(site: Site) -> None:
    assert [site.client.get(path).status_code for path in sorted(OPEN)] == [200] * 4


def test_a_revoked_key_is_refused_at_once_here(site: Site) -> None:
    secret, key = site.service.keys.create("short-lived", ["read"])
    headers = {"Authorization": f"Bearer {secret}"}
    assert site.client.get("/v1/firm", headers=headers).status_code == 200
    site.client.post(f"/v1/keys/{key.id}/revoke", headers=site.headers())
    assert site.client.get("/v1/firm", headers=headers).status_code == 401


class _Keys:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.known = {"dnb_right"}

    def authenticate(self, secret: str) -> ApiKey | None:
        self.asked.append(secret)
        now = datetime.datetime.now(datetime.UTC)
        return ApiKey("0" * 32, "test", ("read",), now, None) if secret in self.known else None

    def note_use(self, key: ApiKey) -> None:
        """Nothing is asked, and nobody waits."""


@pytest.fixture
def clocked() -> tuple[_Keys, Authenticator, Callable[[float], None]]:
    keys, time = _Keys(), [0.0]
    authenticator = Authenticator(keys, max_age_seconds=5, clock=lambda: time[0])

    def advance(seconds: float) -> None:
        time[0] += seconds

    return keys, authenticator, advance


Clocked = tuple[_Keys, Authenticator, Callable[[float], None]]


def test_the_store_is_asked_once_in_a_while(clocked: Clocked) -> None:
    keys, authenticator, advance = clocked

    async def use() -> None:
        for _ in range(100):
            await authenticator.caller(b"Bearer dnb_right")
        advance(5.1)
        keys.known.clear()  # revoked elsewhere
        with pytest.raises(Problem):
            await authenticator.caller(b"Bearer dnb_right")

    run_apart(use())
    assert keys.asked == ["dnb_right", "dnb_right"]


def test_an_outage_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that was valid is accepted for as long as was said while the store fails, not longer."""
    keys, time = _Keys(), [0.0]
    authenticator = Authenticator(
        keys, max_age_seconds=5, outage_seconds=100, clock=lambda: time[0]
    )

    def fail(_secret: str) -> ApiKey | None:
        raise StoreUnavailableError("gone")

    async def use() -> None:
        first = await authenticator.caller(b"Bearer dnb_right")
        monkeypatch.setattr(keys, "authenticate", fail)
        for moment in (6, 50, 99):
            time[0] = moment
            assert await authenticator.caller(b"Bearer dnb_right") == first
        time[0] = 120
        for secret in (b"Bearer dnb_right", b"Bearer dnb_other"):
            with pytest.raises(StoreUnavailableError):
                await authenticator.caller(secret)

    run_apart(use())
    authenticator.close()


def test_guessing_does_not_reach_the_store_twice(clocked: Clocked) -> None:
    keys, authenticator, _advance = clocked

    async def guess() -> None:
        for _ in range(100):
            with pytest.raises(Problem) as refused:
                await authenticator.caller(b"Bearer dnb_guess")
            assert refused.value.status == 401

    run_apart(guess())
    assert keys.asked == ["dnb_guess"]


def test_the_memory_of_secrets_is_bounded_and_holds_none(clocked: Clocked) -> None:
    _keys, authenticator, _advance = clocked

    async def guess() -> None:
        for number in range(10_050):
            with pytest.raises(Problem):
                await authenticator.caller(b"Bearer dnb_%d" % number)

    run_apart(guess())
    assert 0 < len(authenticator._refused) <= 10_000
    assert not any(b"dnb_" in digest for digest in authenticator._refused)
