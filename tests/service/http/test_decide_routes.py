from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from tests.service.http.site import DECISIONS, Site

from deniable.errors import StoreUnavailableError
from deniable.service.http.app import Options


def test_a_decision_is_what_the_service_stores(site: Site) -> None:
    first = site.decide("v-1")
    assert first.keys() == {"decision", "arm"}
    assert first == site.decide("v-1", "b") == site.decide("v-1", None)
    stored = site.service.decide("checkout", "v-1", "a")
    assert (stored.id, stored.arm) == (first["decision"], first["arm"])


def test_a_batch_answers_in_order_and_agrees_with_single_calls(site: Site) -> None:
    wanted = [{"visitor": f"v-{n}", "segment": "ab"[n % 2]} for n in range(100)]
    answer = site.client.post(
        f"{DECISIONS}/batch", json={"visitors": wanted}, headers=site.headers("decide")
    )
    found = answer.json()["decisions"]
    assert answer.status_code == 200
    assert len(found) == 100
    assert found[7] == site.decide("v-7")
    assert found[99] == site.decide("v-99")


def test_a_reward_counts_once_and_its_answer_tells_nothing(site: Site) -> None:
    first = site.decide("v-1")
    answers = [
        site.client.post("/v1/rewards", json=body, headers=site.headers("reward"))
        for body in (
            {"decision": first["decision"], "value": 1},
            {"decision": first["decision"], "value": 1},
            {"decision": first["decision"], "value": 0},
            {"decision": "0" * 32, "value": 1},
            {"decision": "never an id", "value": 1},
        )
    ]
    assert {(a.status_code, a.content, tuple(a.headers.items())) for a in answers} == {
        (204, b"", (("cache-control", "private, no-store"),))
    }
    assert sum(cell.clicks for cell in site.service.experiments.counts("checkout")) == 1


@pytest.mark.parametrize("path", ["decisions", "decisions/batch"])
def test_a_browser_may_not_decide_for_unobserved_visits(site: Site, path: str) -> None:
    site.service.experiments.create("mail", arms=["x", "y"], segments=["a"], observed=False)
    site.service.experiments.start("mail")
    visit = {"visitor": "v", "segment": "a"}
    body = {"visitors": [visit]} if path.endswith("batch") else visit
    url, own = f"/v1/unobserved/mail/{path}", site.headers("unobserved")
    refused = site.client.post(url, json=body, headers={**own, "Origin": "https://shop.example"})
    assert (refused.status_code, refused.headers["content-type"]) == (
        403,
        "application/problem+json",
    )
    assert "your server only" in refused.json()["detail"]
    assert site.service.experiments.stored("mail") == (0, 0)
    assert site.client.post(url, json=body, headers=own).status_code == 200


def test_rewards_in_a_batch_count(site: Site) -> None:
    ids = [site.decide(f"v-{n}")["decision"] for n in range(10)]
    body = {"rewards": [{"decision": name, "value": n % 2} for n, name in enumerate(ids)]}
    answer = site.client.post("/v1/rewards/batch", json=body, headers=site.headers("reward"))
    assert answer.status_code == 204
    assert sum(cell.clicks for cell in site.service.experiments.counts("checkout")) == 5


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
def test_only_post(site: Site, method: str) -> None:
    answer = site.client.request(method, "/v1/rewards", headers=site.headers())
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_no_answer_may_be_cached(site: Site) -> None:
    for path in ("/healthz", "/readyz", "/storez", "/metrics", "/openapi.json", "/nowhere"):
        assert site.client.get(path).headers["cache-control"] == "private, no-store"


def test_batches_and_bodies_are_bounded(make_site: Callable[..., Site]) -> None:
    site = make_site(Options(batch_limit=3, body_limit=2_000))
    batch = f"{DECISIONS}/batch"

    def status(body: bytes, path: str = batch) -> int:
        headers = {**site.headers("decide"), "Content-Type": "application/json"}
        return site.client.post(path, content=body, headers=headers).status_code

    one = b'{"visitor":"v"}'
    assert status(b'{"visitors":[' + b",".join([one] * 3) + b"]}") == 200
    assert status(b'{"visitors":[' + b",".join([one] * 4) + b"]}") == 422
    assert status(b'{"visitors":[]}') == 422
    assert status(b'{"visitor":"v"' + b" " * 1_985 + b"}", DECISIONS) == 200
    assert status(b'{"visitor":"v"' + b" " * 1_986 + b"}", DECISIONS) == 413
    assert site.client.post("/v1/keys", content=b" " * 2_001, headers=site.headers()).is_error


def test_unknown_members_are_refused(site: Site) -> None:
    visitor = {"visitor": "v", "segment": "a"}
    for unknown in ({**visitor, "country": "b"}, {"visitor": "v", "country": "b"}):
        for path, body in ((DECISIONS, unknown), (f"{DECISIONS}/batch", {"visitors": [unknown]})):
            answer = site.client.post(path, json=body, headers=site.headers("decide"))
            assert answer.status_code == 422, body


@pytest.mark.parametrize(
    ("error", "status"),
    [(StoreUnavailableError("at 10.0.0.7"), 503), (RuntimeError("10.0.0.7"), 500)],
)
def test_a_failure_is_answered_without_its_message(
    site: Site, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    def fail(*_: object, **__: object) -> asyncio.Future[object]:
        future = asyncio.get_running_loop().create_future()
        future.set_exception(error)
        return future

    monkeypatch.setattr(site.app._decide._service, "decide", fail)
    body = {"visitor": "v", "segment": "a"}
    answer = site.client.post(DECISIONS, json=body, headers=site.headers("decide"))
    assert answer.status_code == status
    assert "10.0.0.7" not in answer.text


def test_batches_of_rewards_are_bounded(make_site: Callable[..., Site]) -> None:
    site = make_site(Options(batch_limit=3))
    ids = [site.decide(f"v-{n}")["decision"] for n in range(4)]

    def status(count: int) -> int:
        body = {"rewards": [{"decision": name, "value": 1} for name in ids[:count]]}
        headers = site.headers("reward")
        return site.client.post("/v1/rewards/batch", json=body, headers=headers).status_code

    assert [status(count) for count in (4, 0)] == [422, 422]
    assert sum(cell.clicks for cell in site.service.experiments.counts("checkout")) == 0
    assert status(3) == 204
    assert sum(cell.clicks for cell in site.service.experiments.counts("checkout")) == 3


def test_a_body_without_an_end_is_cut_off(make_site: Callable[..., Site]) -> None:
    site = make_site(Options(body_limit=10_000))
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 1_000_000:
            sent += 1_000
            yield b"x" * 1_000

    answer = site.client.post(DECISIONS, content=endless(), headers=site.headers("decide"))
    assert answer.status_code == 413
    assert sent < 50_000


def test_requests_are_counted_without_saying_who(site: Site) -> None:
    site.decide("v-secret", "a")
    site.client.post("/v1/experiments/no-such/decisions", json={}, headers=site.headers("decide"))
    text = site.client.get("/metrics").text
    assert 'deniable_requests_total{route="decide",status="2xx"} 1.0' in text
    assert 'deniable_requests_total{route="decide",status="4xx"} 1.0' in text
    assert 'deniable_request_seconds_count{route="decide"} 2.0' in text
    labels = {part for line in text.splitlines() if "{" in line for part in _labels(line)}
    assert labels == {"route", "status", "le", "version", "python"}
    assert "secret" not in text


def _labels(line: str) -> list[str]:
    inside = line[line.index("{") + 1 : line.index("}")]
    return [pair.split("=")[0] for pair in inside.split(",")]
