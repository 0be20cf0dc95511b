"""Sign-in by a proxy: only from listed addresses, only the header that was configured."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2 as httpx
import pytest
from starlette.requests import Request
from tests.patience import PATIENCE
from tests.web.site import EXPERIMENT, Site, running_site, token_of

from deniable.errors import InvalidArgumentError
from deniable.service.service import Deniable
from deniable.web.access import TrustedProxy


def request(host: str, *headers: tuple[str, str]) -> Request:
    encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    return Request({"type": "http", "headers": encoded, "client": (host, 1)})


@pytest.mark.parametrize(
    ("host", "headers", "user"),
    [
        ("10.0.0.7", [("Remote-User", "Ada ")], "ada"),
        ("10.0.0.8", [("Remote-User", "ada")], None),
        ("fd00::1", [("Remote-User", "ada")], "ada"),
        ("fe80::1", [("Remote-User", "ada")], None),
        ("not an address", [("Remote-User", "ada")], None),
        ("10.0.0.7", [("Remote-User", "")], None),
        ("10.0.0.7", [("Remote-User", "ada"), ("Remote-User", "bob")], None),
        ("10.0.0.7", [("X-Remote-User", "ada")], None),
        ("10.0.0.8", [("X-Forwarded-For", "10.0.0.7"), ("Remote-User", "ada")], None),
    ],
)
def test_whose_word_counts(host: str, headers: list[tuple[str, str]], user: str | None) -> None:
    proxy = TrustedProxy.of("Remote-User", "10.0.0.7, fd00::/8")
    assert proxy.user(request(host, *headers)) == user
    assert TrustedProxy().user(request(host, *headers)) is None


def test_addresses_for_the_limits() -> None:
    proxy = TrustedProxy.of("", "10.0.0.7")
    chain = ("X-Forwarded-For", "1.1.1.1, 2.2.2.2")
    assert proxy.address(request("10.0.0.7", chain)) == "2.2.2.2"
    assert proxy.address(request("10.0.0.8", chain)) == "10.0.0.8"
    assert proxy.address(request("10.0.0.7")) == "10.0.0.7"


@pytest.mark.parametrize(
    ("header", "addresses", "argument"),
    [
        ("Remote-User", "", "trusted_proxies"),
        ("Remote-User", "everywhere", "trusted_proxies"),
        ("Remote User", "10.0.0.7", "sign_in_header"),
        ("", "10.0.0.7/8", "trusted_proxies"),
    ],
)
def test_mistakes_are_told(header: str, addresses: str, argument: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        TrustedProxy.of(header, addresses)
    assert refused.value.argument == argument


@pytest.fixture
def proxied(service: Deniable) -> Iterator[Site]:
    service.firm.set(budget=3)
    service.experiments.create(EXPERIMENT, arms=["a", "b"], segments=["s"], budget=1)
    service.people.invite("ada", "manager")
    with running_site(service) as site:
        site.app.api.state.proxy = TrustedProxy.of("Remote-User", "127.0.0.1")
        yield site


def test_a_proxy_signs_in_whom_it_names(proxied: Site) -> None:
    with httpx.Client(
        base_url=proxied.url, headers={"accept": "text/html"}, timeout=PATIENCE
    ) as client:
        assert client.get("/").status_code == 303
        ada = {"remote-user": "Ada"}
        page = client.get("/", headers=ada)
        assert page.status_code == 200
        assert client.get("/settings", headers=ada).status_code == 200
        for name in ("nobody", "<script>", "x" * 5_000):
            assert client.get("/", headers={"remote-user": name}).status_code == 303
        where = f"/experiments/{EXPERIMENT}/do/start"
        assert client.post(where, headers=ada, data={}).status_code == 403  # no token
        data = {"form_token": token_of(page)}
        assert client.post(where, headers=ada, data=data).status_code == 303
        entry = [e for e in proxied.service.ledger.entries() if e.kind == "start"][-1]
        assert entry.actor == "user:ada"
        assert client.get("/ledger/visitors", headers=ada).status_code == 403
        proxied.service.people.disable("ada")
        assert client.get("/", headers=ada).status_code == 303


def test_it_is_off_unless_configured_and_from_listed_addresses_only(proxied: Site) -> None:
    for proxy in (TrustedProxy(), TrustedProxy.of("Remote-User", "10.0.0.7")):
        proxied.app.api.state.proxy = proxy
        headers = {"accept": "text/html", "remote-user": "ada"}
        assert httpx.get(proxied.url, headers=headers, timeout=PATIENCE).status_code == 303
