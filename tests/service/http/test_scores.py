"""`PUT /v1/experiments/{key}/scores`, as a stranger would try it."""

from __future__ import annotations

import json
from typing import Any

import httpx2 as httpx
import pytest
from tests.service.http.site import Site

from deniable.client import calls

PATH = "/v1/experiments/hero/scores"
SCORES = {
    "vip-returning": {"old": 0.30, "new": 0.10},
    "vip-new": {"old": 0.10, "new": 0.30},
}


@pytest.fixture(autouse=True)
def hero(site: Site) -> None:
    site.service.experiments.create(
        "hero", arms=["old", "new"], segments=list(SCORES), budget=1, strategy="gate"
    )
    site.service.experiments.start("hero")


def put(site: Site, body: Any, path: str = PATH, scope: Any = "scores") -> httpx.Response:
    headers = site.headers(scope) | {"Content-Type": "application/json"}
    content = body if isinstance(body, str) else json.dumps(body)
    return site.client.request("PUT", path, content=content, headers=headers)


def test_the_answer_says_what_the_gate_costs_and_when_it_takes_effect(site: Site) -> None:
    """By hand: e/(1+e) of .3 and the rest of .1, against .3."""
    answer = put(site, {"scores": SCORES})
    assert answer.status_code == 200
    told = answer.json()
    assert told["wanted"] == pytest.approx(0.3)
    assert told["kept"] == pytest.approx(0.1 + 0.2 * 0.7310585786)
    assert told["cost"] == pytest.approx(told["wanted"] - told["kept"])
    assert (told["table"], told["decisions"], told["next_at"]) == (1, 0, 100)
    assert told["recorded"] is True
    assert put(site, {"scores": SCORES}).json()["recorded"] is False
    assert site.service.experiments.get("hero").table_number == 1
    chances = {segment: {"old": 0.5, "new": 0.5} for segment in SCORES}
    again = put(site, {"kind": "probabilities", "scores": chances}).json()
    assert (again["kept"], again["recorded"]) == (pytest.approx(1), True)


def test_the_client_reads_the_answer(site: Site) -> None:
    call = calls.put_scores("hero", SCORES, "scores")
    answer = put(site, call.body, call.path)
    report = calls.answer(call, answer)
    assert call.method == "PUT"
    assert (report.experiment, report.next_at) == ("hero", 100)
    assert report.cost == pytest.approx(answer.json()["cost"])
    assert report.words == answer.json()["words"]


@pytest.mark.parametrize("scope", ["decide", "reward", "read", "audit"])
def test_only_its_own_scope_and_administration_may(site: Site, scope: str) -> None:
    assert put(site, {"scores": SCORES}, scope=scope).status_code == 403
    assert put(site, {"scores": SCORES}, scope="admin").status_code == 200
    nobody = site.client.request("PUT", PATH, json={"scores": SCORES})
    assert nobody.status_code == 401


def test_its_scope_allows_nothing_else(site: Site) -> None:
    for method, path in (("GET", "/v1/experiments"), ("POST", "/v1/experiments/hero/pause")):
        answer = site.client.request(method, path, headers=site.headers("scores"))
        assert answer.status_code == 403


BAD: list[tuple[Any, int, str]] = [
    ("{", 400, "malformed"),
    ("[]", 422, "invalid-argument"),
    ({}, 422, "invalid-argument"),
    ({"scores": {}}, 422, "invalid-argument"),
    ({"scores": [1]}, 422, "invalid-argument"),
    (SCORES, 422, "invalid-argument"),  # without the member `scores`
    ({"scores": SCORES, "vip-secret": 1}, 422, "invalid-argument"),
    ({"scores": SCORES, "kind": "vip"}, 422, "invalid-argument"),
    ({"scores": SCORES | {"vip-secret": {"old": 1, "new": 1}}}, 422, "invalid-argument"),
    ({"scores": SCORES | {"vip-new": {"old": 1}}}, 422, "invalid-argument"),
    ({"scores": SCORES | {"vip-new": {"old": 1, "vip": 1}}}, 422, "invalid-argument"),
    ({"scores": SCORES | {"vip-new": {"old": "1", "new": 1}}}, 422, "invalid-argument"),
    ('{"scores": {"vip-new": {"old": NaN, "new": 1}}}', 422, "invalid-argument"),
    ('{"scores": {"vip-new": {"old": 1e999, "new": 1}}}', 422, "invalid-argument"),
    ('{"scores": {"vip-new": {"old": -Infinity, "new": 1}}}', 422, "invalid-argument"),
    ({"kind": "probabilities", "scores": SCORES}, 422, "invalid-argument"),
    ({"scores": {f"vip-{i}": {"a" * 100: 1} for i in range(3000)}}, 413, "too-large"),
]


@pytest.mark.parametrize(("body", "status", "code"), BAD)
def test_a_bad_request_is_told_as_a_problem_that_names_no_segment(
    site: Site, body: Any, status: int, code: str
) -> None:
    answer = put(site, body)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"].rpartition(":")[2] == code
    assert "vip" not in answer.text
    assert "scores" not in [entry.kind for entry in site.service.ledger.entries()]


def test_who_takes_no_scores(site: Site) -> None:
    assert put(site, {"scores": SCORES}, "/v1/experiments/checkout/scores").status_code == 409
    assert put(site, {"scores": SCORES}, "/v1/experiments/nobody/scores").status_code == 404
    site.service.experiments.stop("hero")
    assert put(site, {"scores": SCORES}).status_code == 409


def test_a_trace_budget_is_refused_where_the_experiment_is_made(site: Site) -> None:
    body = {
        "key": "banner",
        "arms": [{"key": "a"}, {"key": "b"}],
        "segments": ["x"],
        "budget": 1,
        "strategy": "gate",
        "trace_budget": 1,
    }
    answer = site.client.post("/v1/experiments", json=body, headers=site.headers())
    assert answer.status_code == 422
    assert "counted with noise" in answer.json()["detail"]
