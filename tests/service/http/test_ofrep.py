from __future__ import annotations

from typing import Any

from tests.service.http.site import Site

from deniable.service.http.messages import Problem
from deniable.service.http.ofrep import refusal

FLAGS = "/ofrep/v1/evaluate/flags"


def _evaluate(site: Site, visitor: str | None, path: str = f"{FLAGS}/checkout") -> Any:
    context = {"segment": "a", "country": "NL"} | ({"targetingKey": visitor} if visitor else {})
    return site.client.post(path, json={"context": context}, headers=site.headers("decide"))


def test_an_evaluation_is_a_decision(site: Site) -> None:
    answer = _evaluate(site, "v-1")
    decision = site.decide("v-1", "b")
    assert answer.status_code == 200
    assert answer.json() == {
        "key": "checkout",
        "reason": "SPLIT",
        "variant": decision["arm"],
        "value": decision["arm"],
        "metadata": {"decision": decision["decision"]},
    }


def test_errors_have_the_shape_of_the_protocol(site: Site) -> None:
    missing = _evaluate(site, None)
    assert (missing.status_code, missing.json()["errorCode"]) == (400, "TARGETING_KEY_MISSING")
    unknown = _evaluate(site, "v-1", f"{FLAGS}/nothing")
    assert (unknown.status_code, unknown.json()["errorCode"]) == (404, "FLAG_NOT_FOUND")
    assert unknown.json()["key"] == "nothing"
    broken = site.client.post(f"{FLAGS}/checkout", content=b"{", headers=site.headers("decide"))
    assert (broken.status_code, broken.json()["errorCode"]) == (400, "PARSE_ERROR")


def test_bulk_never_draws(site: Site) -> None:
    before = site.service.experiments.counts("checkout")
    assert _evaluate(site, "v-1", FLAGS).json() == {"flags": []}
    assert site.service.experiments.counts("checkout") == before
    decision = site.decide("v-1")
    flags = _evaluate(site, "v-1", FLAGS).json()["flags"]
    assert [(flag["key"], flag["metadata"]["decision"]) for flag in flags] == [
        ("checkout", decision["decision"])
    ]
    assert _evaluate(site, "v-2", FLAGS).json() == {"flags": []}


def test_bulk_tells_nothing_of_a_stopped_experiment(site: Site) -> None:
    """Everybody gets its winner then; a visitor's old arm would be another one."""
    site.decide("v-1")
    site.service.experiments.stop("checkout", promote="new")
    assert _evaluate(site, "v-1", FLAGS).json() == {"flags": []}
    assert _evaluate(site, "v-1").json()["variant"] == "new"


def test_bulk_costs_the_same_however_many_experiments_there_are(site: Site) -> None:
    from sqlalchemy import event

    statements: list[str] = []

    def noted(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        statements.append(statement)

    for number in range(40):
        key = f"more-{number}"
        site.service.experiments.create(key, arms=["a", "b"], segments=["x"], budget=0.1)
        site.service.experiments.start(key)
        if number % 2:
            site.service.decide(key, "v-1", "x")
    site.client.post(FLAGS, json={}, headers=site.headers("decide"))  # the key is known now
    engine = site.service._store.engine  # type: ignore[attr-defined]
    event.listen(engine, "before_cursor_execute", noted)
    flags = _evaluate(site, "v-1", FLAGS).json()["flags"]
    event.remove(engine, "before_cursor_execute", noted)
    assert {flag["key"] for flag in flags} == {f"more-{n}" for n in range(1, 40, 2)}
    for flag in flags:
        stored = site.service.decide(flag["key"], "v-1", "x")
        assert (flag["metadata"]["decision"], flag["variant"]) == (stored.id, stored.arm)
    # Experiments with their arms, and decisions: one statement each.
    assert sum(text.startswith("SELECT") for text in statements) == 2


def test_a_status_that_the_protocol_does_not_know_is_told_as_400() -> None:
    for status, told in ((422, 400), (404, 404), (503, 503)):
        assert refusal("checkout", Problem(status, "some-code", "why"))[0] == told
