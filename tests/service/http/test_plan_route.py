"""`POST /v1/plan`: the library's plan as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.service.http.site import Site

import deniable

ASKED: dict[str, Any] = {
    "arms": 3,
    "visitors": 100_000,
    "segments": 2,
    "max_belief": 0.5,
    "base_rate": 0.05,
    "lift": 0.1,
    "heterogeneity": 0.25,
    "per_day": 5000,
}


def test_it_is_the_library_s_plan(site: Site) -> None:
    answer = site.client.post("/v1/plan", json=ASKED, headers=site.headers())
    assert answer.status_code == 200
    known = {name: ASKED[name] for name in ("max_belief", "base_rate", "lift", "heterogeneity")}
    plan = deniable.plan(n_arms=3, horizon=100_000, n_segments=2, **known, per_day=5000)
    assert answer.json() == json.loads(json.dumps(plan.to_dict()))
    assert answer.json()["expected"]["days"] == 20


def test_segments_of_different_sizes_are_told(site: Site) -> None:
    body = {**ASKED, "segments": None, "shares": [0.9, 0.1]}
    told = site.client.post("/v1/plan", json=body, headers=site.headers()).json()
    assert told["n_segments"] == 2
    assert "differ in size" in told["expected"]["note"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"arms": 1},
        {"visitors": 0},
        {"visitors": "many"},
        {"base_rate": 0},
        {"base_rate": 1},
        {"lift": 0},
        {"heterogeneity": 2},
        {"shares": [0.5, 0.4]},
        {"colour": "red"},
        {"per_day": 0},
    ],
)
def test_bad_questions_are_refused_in_one_line(site: Site, wrong: dict[str, Any]) -> None:
    answer = site.client.post("/v1/plan", json={**ASKED, **wrong}, headers=site.headers())
    assert answer.status_code == 422
    assert next(iter(wrong)) in answer.json()["detail"]


def test_it_needs_a_key(site: Site) -> None:
    assert site.client.post("/v1/plan", json=ASKED).status_code == 401
