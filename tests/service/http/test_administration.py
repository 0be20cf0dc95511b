from __future__ import annotations

from typing import Any

import httpx2 as httpx
from tests.service.http.site import Site


def _post(site: Site, path: str, body: Any = None, key: str | None = None) -> httpx.Response:
    headers = site.headers() | ({"Idempotency-Key": key} if key else {})
    return site.client.post(path, json=body, headers=headers)


HERO = {
    "key": "hero",
    "arms": [{"key": "a", "label": "A"}, {"key": "b"}, {"key": "c"}],
    "segments": ["x", "y"],
    "budget": 2.0,
    "strategy": "constant",
}


def test_an_experiment_from_draft_to_winner(site: Site) -> None:
    created = _post(site, "/v1/experiments", HERO)
    assert (created.status_code, created.json()["status"]) == (201, "draft")
    arm = {"key": "a", "label": "A", "budget": None, "active": True, "weight": 1}
    assert created.json()["arms"][0] == arm
    assert _post(site, "/v1/experiments/hero/start").json()["status"] == "running"
    assert site.client.get("/v1/firm", headers=site.headers()).json()["committed"] == 3.0
    assert _post(site, "/v1/experiments/hero/pause").json()["status"] == "paused"
    assert _post(site, "/v1/experiments/hero/resume").json()["status"] == "running"
    switched = _post(site, "/v1/experiments/hero/arms/c/switch-off").json()
    assert ([arm["active"] for arm in switched["arms"]], switched["version"]) == (
        [True, True, False],
        2,
    )
    stopped = _post(site, "/v1/experiments/hero/stop", {"promote": "b"}).json()
    assert (stopped["status"], stopped["winner"]) == ("stopped", "b")
    kinds = [
        entry["kind"] for entry in site.client.get("/v1/ledger", headers=site.headers()).json()
    ]
    assert [kind for kind in kinds if kind != "table"][-6:] == [
        "create",
        "start",
        "pause",
        "resume",
        "switch_off",
        "stop",
    ]
    checked = site.client.get("/v1/ledger/verification", headers=site.headers()).json()
    assert (checked["sound"], checked["problem"]) == (True, None)


def test_an_arm_may_be_just_its_key(site: Site) -> None:
    made = _post(site, "/v1/experiments", {**HERO, "arms": ["a", {"key": "b", "label": "B"}]})
    assert made.status_code == 201
    assert [(arm["key"], arm["label"]) for arm in made.json()["arms"]] == [("a", ""), ("b", "B")]
    changed = site.client.request(
        "PUT", "/v1/experiments/hero", json={"arms": ["c", "d"]}, headers=site.headers()
    )
    assert [arm["key"] for arm in changed.json()["arms"]] == ["c", "d"]
    for wrong in (["a", "no spaces"], ["a", 3], ["a", ["b"]], ["a", None], ["a", "a"], "ab"):
        refused = _post(site, "/v1/experiments", {**HERO, "key": "other", "arms": wrong})
        assert (refused.status_code, "arms" in refused.json()["detail"]) == (422, True)


def test_arms_and_segments_are_added_while_it_runs(site: Site) -> None:
    _post(site, "/v1/experiments", HERO)
    draft = _post(site, "/v1/experiments/hero/arms", {"key": "d"})
    assert (draft.status_code, "draft" in draft.json()["detail"]) == (409, True)
    _post(site, "/v1/experiments/hero/start")
    listed = _post(site, "/v1/experiments/hero/segments", {"segment": "z"})
    assert (listed.status_code, listed.json()["version"]) == (201, 1)
    assert listed.json()["segments"] == ["x", "y", "z"]
    added = _post(site, "/v1/experiments/hero/arms", {"key": "d", "label": "D"})
    assert (added.status_code, added.json()["version"]) == (201, 2)
    arm = {"key": "d", "label": "D", "budget": None, "active": True, "weight": 1}
    assert added.json()["arms"][3] == arm
    for path, body in (
        ("arms", {"key": "d"}),
        ("arms", {"key": "e", "budget": 1.0}),
        ("arms", {}),
        ("arms", {"key": "not a key"}),
        ("segments", {"segment": "z"}),
        ("segments", {"segment": ""}),
        ("segments", {"segment": "w", "row": 1}),
    ):
        refused = _post(site, f"/v1/experiments/hero/{path}", body)
        assert refused.status_code == 422, refused.text
        assert refused.headers["content-type"] == "application/problem+json"
    assert _post(site, "/v1/experiments/nobody/arms", {"key": "d"}).status_code == 404
    decided = _post(site, "/v1/experiments/hero/decisions", {"visitor": "v", "segment": "z"})
    assert decided.json()["arm"] in {"a", "b", "c", "d"}
    checked = site.client.get("/v1/ledger/verification", headers=site.headers()).json()
    assert checked["sound"]


def test_keys_that_the_audit_reserves_are_refused(site: Site) -> None:
    for key in ("experiment", "firm", "log"):
        refused = _post(site, "/v1/experiments", HERO | {"key": key})
        assert refused.status_code == 422
        assert "`deniable audit` reserves" in refused.text


def test_a_refusal_says_what_remains_and_what_was_requested(site: Site) -> None:
    _post(site, "/v1/experiments", HERO | {"budget": 9.5})
    refused = _post(site, "/v1/experiments/hero/start")
    body = refused.json()
    assert refused.status_code == 409
    assert refused.headers["content-type"] == "application/problem+json"
    assert body["type"] == "urn:problem-type:deniable:insufficient-budget"
    assert (body["remaining"], body["requested"]) == (9.0, 9.5)


def test_an_export_holds_every_decision_and_public_ones_no_segment(site: Site) -> None:
    for number in range(20):
        site.decide(f"v-{number}")
    path = "/v1/experiments/checkout/export"
    public = site.client.get(path, headers=site.headers()).text.splitlines()
    private = site.client.get(path, params={"shape": "private"}, headers=site.headers()).text
    assert len(public) == 21
    assert "segment" not in public[0]
    assert "segment" in private.splitlines()[0]


def test_erasure_forgets_and_costs_nothing(site: Site) -> None:
    """Whoever comes back gets the neutral row: there is no second spend."""
    _post(site, "/v1/experiments", HERO)
    _post(site, "/v1/experiments/hero/start")
    before = site.service.decide("hero", "v-1", "x")
    answer = _post(site, "/v1/erasures", {"visitors": ["v-1", "never-seen"]}).json()
    assert answer == {"decisions": 1}
    assert site.service.decide("hero", "v-1", "x").id != before.id
    assert site.client.get("/v1/firm", headers=site.headers()).json()["committed"] == 3.0


def test_a_retry_with_the_same_key_acts_once(site: Site) -> None:
    first = _post(site, "/v1/experiments", HERO, "k-1")
    again = _post(site, "/v1/experiments", HERO, "k-1")
    assert first.status_code == again.status_code == 201
    assert first.content == again.content
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert len(site.service.experiments.all()) == 2
    assert _post(site, "/v1/experiments/hero/start", None, "k-2").json()["status"] == "running"
    assert _post(site, "/v1/experiments/hero/start", None, "k-2").json()["status"] == "running"
    assert _post(site, "/v1/experiments/hero/start").status_code == 409


def test_a_key_belongs_to_one_request_of_one_caller(site: Site) -> None:
    twenty = {"budget": 20.0, "reason": "more pages"}
    assert _post(site, "/v1/firm", twenty, "k").status_code == 201
    other = _post(site, "/v1/firm", twenty | {"budget": 30.0}, "k")
    assert other.status_code == 422
    assert other.json()["type"].endswith("idempotency-key-reused")
    secret, _ = site.service.keys.create("another admin", ["admin"])
    headers = {"Authorization": f"Bearer {secret}", "Idempotency-Key": "k"}
    fresh = site.client.post("/v1/firm", json=twenty | {"budget": 30.0}, headers=headers)
    assert fresh.status_code == 201


def test_refusals_are_not_remembered(site: Site) -> None:
    assert _post(site, "/v1/experiments/hero/start", None, "k").status_code == 404
    _post(site, "/v1/experiments", HERO)
    assert _post(site, "/v1/experiments/hero/start", None, "k").status_code == 200


def test_a_remembered_reply_holds_no_secret(site: Site) -> None:
    wanted = {"label": "ci", "scopes": ["read"]}
    first, again = (_post(site, "/v1/keys", wanted, "k").json() for _ in range(2))
    assert first["secret"].startswith("dnb_")
    assert again == first | {"secret": None}
    assert len([key for key in site.service.keys.all() if key.label == "ci"]) == 1


def test_an_idempotency_key_is_checked(site: Site) -> None:
    for bad in ("", " ", "x" * 201, "a b"):
        headers = site.headers() | {"Idempotency-Key": bad}
        answer = site.client.post("/v1/firm", json={"budget": 20.0}, headers=headers)
        assert answer.status_code == 400, bad
    headers = {"Authorization": "Bearer dnb_unknown", "Idempotency-Key": "k"}
    assert site.client.post("/v1/firm", json={}, headers=headers).status_code == 401


def test_a_request_at_work_is_not_started_twice(site: Site) -> None:
    """The first one's reservation stands for it until it is done."""
    from hashlib import sha256

    from deniable.service.http.idempotency import reply_key

    admin = next(key for key in site.service.keys.all() if key.label == "admin")
    key = reply_key(admin.id, "POST", "/v1/experiments/checkout/pause", b"k")
    assert site.service.idempotency.reserve(key, sha256(b"").digest()) is None
    busy = site.client.post(
        "/v1/experiments/checkout/pause", headers=site.headers() | {"Idempotency-Key": "k"}
    )
    assert (busy.status_code, busy.json()["type"].rpartition(":")[2]) == (
        409,
        "idempotency-key-busy",
    )
    site.service.idempotency.finish(key, 500, None)
    done = site.client.post(
        "/v1/experiments/checkout/pause", headers=site.headers() | {"Idempotency-Key": "k"}
    )
    assert done.json()["status"] == "paused"


def test_lists_come_in_pages(site: Site) -> None:
    for number in range(4):  # one experiment is there already
        _post(site, "/v1/experiments", HERO | {"key": f"e-{number}"})
    for path, name in (("/v1/experiments", "key"), ("/v1/ledger", "seq")):
        whole = site.client.get(path, headers=site.headers())
        assert "link" not in whole.headers
        assert len(whole.json()) >= 5
        pages, place = [], f"{path}?limit=2"
        while place:
            answer = site.client.get(place, headers=site.headers())
            assert 1 <= len(answer.json()) <= 2
            pages += answer.json()
            link = answer.headers.get("link", "")
            place = link.partition("<")[2].partition(">")[0]
        assert [entry[name] for entry in pages] == [entry[name] for entry in whole.json()]
        assert site.client.get(f"{path}?limit=0", headers=site.headers()).status_code == 422
