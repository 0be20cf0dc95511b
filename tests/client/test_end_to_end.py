"""Full experiments against a real server: four kinds of clients, and the better arm wins each time.

A visitor clicks with 5% on `old` and with 60% on `new`; the budget is 3 nats, so that the greedy arm
is shown with 95%. After 300 visitors the better arm has most of them, with a chance of failure far
below 1e-9.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx
import pytest
from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import Reason
from openfeature.provider import AbstractProvider
from openfeature.track import TrackingEventDetails
from tests.loops import run_apart
from tests.patience import PATIENCE
from tests.service.http.process import serving

from deniable.client import AsyncClient, Client
from deniable.client.openfeature import DeniableProvider
from deniable.service.service import open as open_service

VISITORS = 300
RATES = {"old": 0.05, "new": 0.6}
DRIVERS = ("client", "async-client", "provider", "stock-ofrep-provider")


@dataclass(frozen=True)
class Service:
    url: str
    admin: str
    secret: str

    def post(self, path: str, body: object = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.admin}"}
        return httpx.post(self.url + path, json=body, headers=headers, timeout=PATIENCE)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("end-to-end")
    with open_service(f"sqlite:///{folder / 'store.db'}") as service:
        service.firm.set(budget=12.0)
        admin, _ = service.keys.create("admin", ["admin"])
        secret, _ = service.keys.create("shop", ["decide", "reward"])
    with serving(folder) as server:
        yield Service(server.url, admin, secret)


def _clicks(rng: random.Random, arm: str) -> int:
    return int(rng.random() < RATES[arm])


def _with_client(service: Service, key: str, rng: random.Random) -> None:
    with Client(service.url, service.secret, timeout_seconds=PATIENCE) as client:
        for number in range(VISITORS):
            decision = client.decide(key, f"v-{number}", "a")
            assert client.decide(key, f"v-{number}", "b") == decision
            client.reward(decision.id, _clicks(rng, decision.arm))


def _with_async_client(service: Service, key: str, rng: random.Random) -> None:
    async def drive() -> None:
        async with AsyncClient(service.url, service.secret, timeout_seconds=PATIENCE) as client:
            for start in range(0, VISITORS, 10):
                visitors = [(f"v-{number}", "a") for number in range(start, start + 10)]
                found = await client.decide_batch(key, visitors)
                await client.reward_batch((d.id, _clicks(rng, d.arm)) for d in found)
            assert await client.stored("v-0") == {key: await client.decide(key, "v-0")}
            assert await client.stored("nobody") == {}

    run_apart(drive())


def _with_provider(service: Service, key: str, rng: random.Random) -> None:
    provider = DeniableProvider(
        Client(service.url, service.secret, timeout_seconds=PATIENCE), events={"purchase": [key]}
    )
    with _provided(provider) as flags:
        for number in range(VISITORS):
            context = EvaluationContext(f"v-{number}", {"segment": "a"})
            arm = flags.get_string_value(key, "default", context)
            value = float(_clicks(rng, arm))
            flags.track("purchase", context, TrackingEventDetails(value=value))


def _with_stock_provider(service: Service, key: str, rng: random.Random) -> None:
    headers = {"Authorization": f"Bearer {service.secret}"}
    provider = OFREPProvider(service.url, headers_factory=lambda: headers, timeout=PATIENCE)
    with _provided(provider) as flags, httpx.Client(headers=headers, timeout=PATIENCE) as http:
        for number in range(VISITORS):
            context = EvaluationContext(f"v-{number}", {"segment": "a"})
            details = flags.get_string_details(key, "default", context)
            assert details.reason == Reason.SPLIT
            reward = {
                "decision": details.flag_metadata["decision"],
                "value": _clicks(rng, details.value),
            }
            assert http.post(f"{service.url}/v1/rewards", json=reward).status_code == 204
        missing = flags.get_string_details("no-such-flag", "default", context)
        assert (missing.value, missing.error_code) == ("default", ErrorCode.FLAG_NOT_FOUND)


_DRIVE: dict[str, Callable[[Service, str, random.Random], None]] = {
    "client": _with_client,
    "async-client": _with_async_client,
    "provider": _with_provider,
    "stock-ofrep-provider": _with_stock_provider,
}


@contextmanager
def _provided(provider: AbstractProvider) -> Iterator[OpenFeatureClient]:
    """A client of OpenFeature on this provider, until the block ends."""
    api.set_provider(provider)
    try:
        yield api.get_client()
    finally:
        api.clear_providers()


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_better_arm_wins(running: Service, driver: str) -> None:
    experiment = {
        "key": driver,
        "arms": [{"key": "old"}, {"key": "new"}],
        "segments": ["a", "b"],
        "budget": 3.0,
        "strategy": "constant",
    }
    assert running.post("/v1/experiments", experiment).status_code == 201
    assert running.post(f"/v1/experiments/{driver}/start").status_code == 200
    _DRIVE[driver](running, driver, random.Random(7))
    counts = httpx.get(
        f"{running.url}/v1/experiments/{driver}/counts",
        headers={"Authorization": f"Bearer {running.admin}"},
        timeout=PATIENCE,
    ).json()
    shows = {cell["arm"]: cell["shows"] for cell in counts if cell["segment"] == "a"}
    clicks = {cell["arm"]: cell["clicks"] for cell in counts if cell["segment"] == "a"}
    assert sum(shows.values()) == VISITORS
    assert shows["new"] > VISITORS / 2
    assert clicks["new"] > 0.4 * shows["new"]
    promoted = running.post(f"/v1/experiments/{driver}/stop", {"promote": "new"})
    assert promoted.json()["winner"] == "new"
    with Client(running.url, running.secret, timeout_seconds=PATIENCE) as client:
        assert {client.decide(driver, f"v-{n}", s).arm for n in range(20) for s in "ab"} == {"new"}


def test_our_provider_tells_what_is_wrong(running: Service) -> None:
    client = Client(running.url, running.secret, timeout_seconds=PATIENCE)
    with _provided(DeniableProvider(client)) as flags:
        nobody = flags.get_string_details("x", "default")
        assert (nobody.value, nobody.error_code) == ("default", ErrorCode.TARGETING_KEY_MISSING)
        unknown = flags.get_string_details("x", "default", EvaluationContext("v"))
        assert unknown.error_code == ErrorCode.FLAG_NOT_FOUND
        typed = flags.get_boolean_details("x", True, EvaluationContext("v"))
        assert (typed.value, typed.error_code) == (True, ErrorCode.TYPE_MISMATCH)
        flags.track("x", EvaluationContext("never-decided-for"))  # no decision: nothing happens
        flags.track("x")
