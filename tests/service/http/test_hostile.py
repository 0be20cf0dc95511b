"""Hostile inputs by hand: refused with a 4xx in one shape, and nothing in the store moves."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.service.http.site import DECISIONS, Site

BATCH = f"{DECISIONS}/batch"
FLAG = "/ofrep/v1/evaluate/flags/checkout"


def _experiment(**changes: Any) -> dict[str, Any]:
    arms = [{"key": "a"}, {"key": "b"}]
    return {"key": "new", "arms": arms, "segments": ["x"], "budget": 1.0, **changes}


RAW: list[tuple[str, bytes]] = [
    ("nothing", b""),
    ("half", b"{"),
    ("NaN", b'{"visitor":NaN}'),
    ("infinity", b'{"visitor":"v","segment":Infinity}'),
    ("not UTF-8", b'{"visitor":"\xff\xfe"}'),
    ("UTF-16", '{"visitor":"v"}'.encode("utf-16")),
    ("lone surrogate", b'{"visitor":"\\ud800"}'),
    ("a list", b"[]"),
    ("text", b'"v"'),
    ("null", b"null"),
    ("a number", b"1e308"),
    ("deep", b'{"visitor":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
    ("1 MB of spaces", b" " * 1_000_000),
    ("1 MB visitor", b'{"visitor":"' + b"x" * 1_000_000 + b'"}'),
    ("trailing", b'{"visitor":"v"}{"visitor":"w"}'),
    ("BOM", b'\xef\xbb\xbf{"visitor":"v"}'),
]
DOCUMENTS: list[tuple[str, Any]] = [
    (DECISIONS, {}),
    (DECISIONS, {"segment": "a"}),
    (DECISIONS, {"visitor": None}),
    (DECISIONS, {"visitor": ""}),
    (DECISIONS, {"visitor": 7}),
    (DECISIONS, {"visitor": True}),
    (DECISIONS, {"visitor": 1e308}),
    (DECISIONS, {"visitor": ["v"]}),
    (DECISIONS, {"visitor": {"$ne": ""}}),
    (DECISIONS, {"visitor": "v" * 513}),
    (DECISIONS, {"visitor": "v", "segment": 1}),
    (DECISIONS, {"visitor": "v", "segmnet": "a"}),
    (DECISIONS, {"Visitor": "v"}),
    (BATCH, {"visitors": []}),
    (BATCH, {"visitors": {"visitor": "v"}}),
    (BATCH, {"visitors": [{"visitor": "v"}, {"visitor": ""}]}),
    (BATCH, {"visitors": [{"visitor": "v"}, None]}),
    (BATCH, {"visitors": [{"visitor": "v"}] * 1_001}),
    (BATCH, {"visitors": [{"visitor": "v"}], "more": 1}),
    ("/v1/rewards", {}),
    ("/v1/rewards", {"decision": "0" * 32}),
    ("/v1/rewards", {"decision": "0" * 32, "value": 1_000_001}),
    ("/v1/rewards", {"decision": "0" * 32, "value": -1}),
    ("/v1/rewards", {"decision": "0" * 32, "value": 1, "metric": ""}),
    ("/v1/rewards", {"decision": "0" * 32, "value": 1, "metric": 7}),
    ("/v1/rewards", {"decision": "0" * 32, "value": 1, "metric": "m" * 513}),
    ("/v1/rewards", {"decision": "0" * 32, "value": 1e308}),
    ("/v1/rewards", {"decision": "0" * 32, "value": 10**30}),
    ("/v1/rewards", {"decision": "0" * 32, "value": True}),
    ("/v1/rewards", {"decision": "0" * 32, "value": "1"}),
    ("/v1/rewards", {"decision": "0" * 32, "value": None}),
    ("/v1/rewards", {"decision": 7, "value": 1}),
    ("/v1/rewards", {"decision": "0" * 65, "value": 1}),
    ("/v1/rewards/batch", {"rewards": [{"decision": "0" * 32, "value": 1}, {"value": 1}]}),
    (FLAG, {}),
    (FLAG, {"context": None}),
    (FLAG, {"context": {}}),
    (FLAG, {"context": {"targetingKey": ""}}),
    (FLAG, {"context": {"targetingKey": 7}}),
    (FLAG, {"context": {"targetingKey": "v" * 513}}),
    (FLAG, {"context": {"targetingKey": "v", "segment": {}}}),
    ("/ofrep/v1/evaluate/flags", {"context": {}}),
    ("/v1/firm", {"budget": -1}),
    ("/v1/firm", {"budget": 1e308}),
    ("/v1/firm", {"budget": "3"}),
    ("/v1/firm", {"budget": True}),
    ("/v1/firm", {"budget": 0.5}),  # less than what runs
    ("/v1/firm", {"budget": 3, "window_days": 0}),
    ("/v1/firm", {"budget": 3, "window_days": 1e308}),
    ("/v1/experiments", {}),
    ("/v1/experiments", _experiment(key="")),
    ("/v1/experiments", _experiment(key="checkout")),
    ("/v1/experiments", _experiment(key="a/b")),
    ("/v1/experiments", _experiment(key="a b")),
    ("/v1/experiments", _experiment(key="a\x00")),
    ("/v1/experiments", _experiment(key="сheckout")),  # a Cyrillic letter
    ("/v1/experiments", _experiment(key="'; DROP TABLE experiments; --")),
    ("/v1/experiments", _experiment(arms=[{"key": "a"}])),
    ("/v1/experiments", _experiment(arms=[{"key": "a"}, {"key": "a"}])),
    ("/v1/experiments", _experiment(arms=[{"key": "a"}, {"key": "а"}])),
    ("/v1/experiments", _experiment(arms=[{"key": "a"}, {"key": "b", "budget": 1}])),
    ("/v1/experiments", _experiment(segments=[])),
    ("/v1/experiments", _experiment(segments=["x", "x"])),
    ("/v1/experiments", _experiment(segments=["x\x00"])),
    ("/v1/experiments", _experiment(budget=-1)),
    ("/v1/experiments", _experiment(budget=1e308)),
    ("/v1/experiments", _experiment(budget=None)),
    ("/v1/experiments", _experiment(strategy="greedy")),
    ("/v1/experiments", _experiment(planned_visitors=10**400)),
    ("/v1/experiments", _experiment(default_arm="c")),
    ("/v1/experiments", _experiment(bugdet=2)),
    ("/v1/keys", {"label": "", "scopes": ["read"]}),
    ("/v1/keys", {"label": "k", "scopes": []}),
    ("/v1/keys", {"label": "k", "scopes": ["root"]}),
    ("/v1/keys", {"label": "k\x00", "scopes": ["read"]}),
    ("/v1/erasures", {"visitors": []}),
    ("/v1/erasures", {"visitors": ["v" * 513]}),
    ("/v1/purges", {"before": "yesterday"}),
    ("/v1/purges", {"before": 0}),
    ("/v1/experiments/checkout/start", {}),
    ("/v1/experiments/checkout/stop", {"promote": "nobody"}),
    ("/v1/experiments/checkout/arms/nobody/switch-off", {}),
    ("/v1/experiments/checkout/arms/old/switch-off", {}),  # two must stay
]
PATHS = [
    "/v1/experiments//decisions",
    "/v1/experiments/%00/decisions",
    "/v1/experiments/..%2f..%2fetc/decisions",
    "/v1/experiments/checkout'--/decisions",
    "/v1/experiments/%ff%fe/decisions",
    "/v1/experiments/checkout%0a/decisions",
    f"/v1/experiments/{'x' * 5_000}/decisions",
    "/v1/experiments/checkout/x/decisions",
    "/v1/experiments/сheckout/decisions",
    "/ofrep/v1/evaluate/flags/%00",
    "/ofrep/v1/evaluate/flags/checkout/x",
    "/v1/keys/zz/revoke",
    "/v1/keys/%00/revoke",
    "/v1/nowhere",
    "//v1/rewards",
]


def _dump(site: Site) -> list[str]:
    """Everything that is stored, besides remembered replies and the hour of a key's last use."""
    path = Path(site.service._store.url.removeprefix("sqlite:///"))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE api_keys SET last_used_hour = NULL")
        return [line for line in connection.iterdump() if "INSERT INTO replies" not in line]


def test_hostile_requests_change_nothing(site: Site) -> None:
    site.decide("v-1")
    site.service.ready()
    before = _dump(site)
    json_headers = {**site.headers(), "Content-Type": "application/json"}
    for name, body in RAW:
        for path in (DECISIONS, BATCH, "/v1/rewards", FLAG, "/v1/firm", "/v1/experiments"):
            answer = site.client.post(path, content=body, headers=json_headers)
            assert 400 <= answer.status_code < 500, (name, path, answer.text)
    for path, document in DOCUMENTS:
        answer = site.client.post(path, json=document, headers=site.headers())
        assert 400 <= answer.status_code < 500, (path, document, answer.text)
        _check_shape(path, answer.json(), answer.headers["content-type"])
    for path in PATHS:
        answer = site.client.post(path, json={"visitor": "v"}, headers=site.headers())
        assert 400 <= answer.status_code < 500, path
    assert _dump(site) == before


def _check_shape(path: str, body: dict[str, Any], content_type: str) -> None:
    if path.startswith("/ofrep"):
        assert {"errorCode", "errorDetails"} <= body.keys()
    else:
        assert content_type == "application/problem+json"
        assert {"type", "title", "status", "detail"} <= body.keys()


def test_refusals_do_not_repeat_what_was_sent(site: Site) -> None:
    secret = "very-secret-segment"
    for path, document in [
        (DECISIONS, {"visitor": "v", "segment": [secret]}),
        (DECISIONS, {"visitor": "v", secret: 1}),
        (BATCH, {"visitors": [{"visitor": secret * 100}]}),
        (FLAG, {"context": {"targetingKey": "v", "segment": [secret]}}),
        ("/v1/experiments", _experiment(segments=[secret, secret])),
        ("/v1/experiments", _experiment(segments=[secret * 20])),
    ]:
        answer = site.client.post(path, json=document, headers=site.headers())
        assert 400 <= answer.status_code < 500
        assert secret not in answer.text


def test_strange_but_legal_visitors_are_each_their_own(site: Site) -> None:
    """SQL, capitals and markup are ids like any other; twins in Unicode are one person."""
    visitors = ["\u00e9", "v", "v x", "V", "'; DROP TABLE decisions; --", "<b>"]
    found = [site.decide(visitor)["decision"] for visitor in visitors]
    assert len(set(found)) == len(visitors)
    assert found == [site.decide(visitor)["decision"] for visitor in visitors]
    assert site.decide("e\u0301")["decision"] == site.decide(" \u00e9 ")["decision"] == found[0]
    assert site.decide("v\x00")["decision"] == found[1]


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "x"])
def test_only_json(site: Site, media_type: str) -> None:
    headers = {**site.headers(), "Content-Type": media_type}
    body = b'{"visitor":"v"}'
    assert site.client.post(DECISIONS, content=body, headers=headers).status_code == 415
