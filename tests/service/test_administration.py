"""The firm's budget and an experiment's life, as the promise demands."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import select, update
from tests.service.support import running, serving, shows

from deniable.errors import (
    NANO,
    InsufficientBudgetError,
    InvalidArgumentError,
    UnknownNameError,
    WrongStateError,
)
from deniable.service.drafts import NewArm
from deniable.service.ids import DecisionIds, VisitorHash
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage.records import MICRO, Experiment, Metric, Role
from deniable.storage.schema import arms, decisions, segments

SURE = 60


def roles(service: Deniable) -> list[int]:
    with service._store.read() as connection:
        query = select(decisions.c.role).order_by(decisions.c.writer_id, decisions.c.seq)
        return list(connection.execute(query).scalars())


def test_arms_and_segments_are_read_by_position(store_url: str) -> None:
    """However they lie in the store: a table's columns and rows are arms and segments by position."""
    names = ["c", "a", "b"]
    with serving(store_url) as service:
        service.experiments.create("e", arms=names, segments=names, budget=1)
        with service._store.begin() as connection:
            for table in (arms, segments):
                rows = connection.execute(select(table).order_by(table.c.position.desc())).all()
                connection.execute(table.delete())
                connection.execute(table.insert(), [row._asdict() for row in rows])
        found = service.experiments.get("e")
    assert [arm.key for arm in found.arms] == list(found.segments) == names


def test_starting_commits_and_refusal_says_how_much(store_url: str) -> None:
    with serving(store_url, budget=1.5) as service:
        running(service, "first", budget=1)
        service.experiments.create("second", arms=["a", "b"], segments=["s"], budget=1)
        with pytest.raises(InsufficientBudgetError) as refused:
            service.experiments.start("second")
        assert (refused.value.remaining, refused.value.requested) == (NANO // 2, NANO)
        assert service.experiments.get("second").status == "draft"
        assert service.firm.current().committed_nano == NANO
        service.experiments.stop("first")  # what was spent on its visitors stays spent
        with pytest.raises(InsufficientBudgetError):
            service.experiments.start("second")
        with pytest.raises(InsufficientBudgetError):  # and setting the budget again frees nothing
            service.firm.set(budget=0.5)
        service.firm.set(budget=2, reason="a second experiment")
        assert service.experiments.start("second").status == "running"
        assert service.firm.current().committed_nano == 2 * NANO


def test_a_change_returns_what_is_stored(store_url: str) -> None:
    arms = [NewArm("old", "as it is", 1), NewArm("new", "", 0.5), NewArm("bold", "", 0.25)]
    metrics = [Metric("click"), Metric("cost", 5 * MICRO, "less")]
    with serving(store_url) as service:
        change = service.experiments
        steps: list[Callable[[], Experiment]] = [
            lambda: change.create("e", arms=arms, segments=["b", "a"], metrics=metrics),
            lambda: change.redraft("e", segments=["a", "b", "é"], layer="page", holdout=0.1),
            lambda: change.redraft("e", arms=arms, default_arm="new", attribution_seconds=60),
            lambda: change.start("e", share=0.5),
            lambda: change.pause("e"),
            lambda: change.resume("e"),
            lambda: change.switch_off("e", "new"),
            lambda: change.add_arm("e", "last", budget=0.5, label="one more"),
            lambda: change.switch_off("e", "old"),
            lambda: change.add_segment("e", '"c"'),
            lambda: change.stop("e", promote="bold"),
            lambda: change.duplicate("e", "f"),
            lambda: change.redraft("f", arms=["x", "y"], budget=1),
            lambda: change.replan({"f": (NANO // 4, "dynamic")})[0],
            lambda: change.start("f", share=0.5),
            lambda: change.stop("f"),
        ]
        for step in steps:
            returned = step()
            assert returned == change.get(returned.key)


def test_raising_the_budget_needs_a_reason_and_is_recorded(service: Deniable) -> None:
    with pytest.raises(InvalidArgumentError, match="reason"):
        service.firm.set(budget=101)
    service.firm.set(budget=101, reason="two more pages")
    last = service.ledger.entries()[-1]
    assert last.kind == "firm"
    assert json.loads(last.detail)["reason"] == "two more pages"
    service.firm.set(budget=50)  # a smaller one needs none


def test_a_layer_costs_its_largest_and_shares_no_visitor(store_url: str) -> None:
    with serving(store_url, budget=2) as service:
        for key, budget in (("small", 0.5), ("large", 2.0), ("middle", 1.0)):
            service.experiments.create(
                key, arms=["x", "y"], segments=["a", "b"], budget=budget, layer="page"
            )
            service.experiments.start(key, share=0.3)
        assert service.firm.current().committed_nano == 2 * NANO
        visitors = [(f"v{i}", "ab"[i % 2]) for i in range(400)]
        for key in ("small", "large", "middle"):
            service.decide_batch(key, visitors)
        members = {key: shows(service, key) for key in ("small", "large", "middle")}
        # Each has 300 of the 1,000 slots: about 120 of 400 visitors, and nobody twice.
        assert all(60 < count < 180 for count in members.values())
        with service._store.read() as connection:
            rows = connection.execute(
                select(decisions.c.role).where(decisions.c.role == Role.MEMBER)
            ).all()
        assert len(rows) == sum(members.values()) <= 400
        service.experiments.create("late", arms=["x", "y"], segments=["a"], budget=1, layer="page")
        with pytest.raises(WrongStateError, match="slots free"):
            service.experiments.start("late", share=0.2)
        assert service.experiments.start("late", share=0.1).status == "running"


def test_membership_depends_on_no_order_and_no_segment(store_url: str) -> None:
    """Whoever is asked first, and as which segment: the same visitors are members of the same."""
    with serving(store_url) as service:
        for key in ("x", "y"):
            service.experiments.create(
                key, arms=["one", "two"], segments=["a", "b"], budget=1, layer="page"
            )
            service.experiments.start(key, share=0.5)
        first = [f"v{i}" for i in range(60)]
        for visitor in first:
            for key in ("x", "y") if visitor < "v3" else ("y", "x"):
                service.decide(key, visitor, "ab"[key == "x"])
        with service._store.read() as connection:
            rows = connection.execute(
                select(decisions.c.experiment_id, decisions.c.visitor, decisions.c.role)
            ).all()
        member = {(row.experiment_id, row.visitor): row.role == Role.MEMBER for row in rows}
        secret = bytes.fromhex("5a" * 32)
        for name in ("x", "y"):
            made = service.experiments.get(name)
            slots = int.from_bytes(made.slots or b"", "little")
            for visitor in first:
                scope = b"layer" + sha256(b"page").digest()
                digest = hmac.new(secret, scope + visitor.encode(), "sha256").digest()
                slot = int.from_bytes(digest[:8], "big") % 1000
                hashed = VisitorHash(secret, bytes.fromhex(made.id))(visitor)
                assert member[bytes.fromhex(made.id), hashed] == bool(slots >> slot & 1)


def test_the_holdout_is_fixed_and_never_counted(service: Deniable) -> None:
    running(service, holdout=0.25)
    service.decide_batch("checkout", [(f"v{i}", "ab"[i % 2]) for i in range(800)])
    held = roles(service).count(Role.HOLDOUT)
    assert 120 < held < 280  # 200 on average, 80 is more than six standard deviations
    assert shows(service) == 800 - held


def test_what_carries_the_promise_cannot_change(service: Deniable) -> None:
    running(service)
    with pytest.raises(WrongStateError, match="exists already"):
        service.experiments.create("checkout", arms=["x", "y"], segments=["s"], budget=3)
    with pytest.raises(WrongStateError, match="is running"):
        service.experiments.start("checkout")
    with pytest.raises(WrongStateError, match="paused"):
        service.experiments.resume("checkout")
    service.experiments.stop("checkout")
    for act in (
        service.experiments.stop,
        service.experiments.pause,
        service.experiments.resume,
        service.experiments.start,
    ):
        with pytest.raises(WrongStateError, match="is stopped"):
            act("checkout")


def test_before_the_start_and_after_the_stop_everybody_gets_one_arm(service: Deniable) -> None:
    service.experiments.create(
        "checkout", arms=["old", "new"], segments=["a", "b"], budget=1, default_arm="new"
    )
    visitors = [(f"v{i}", "ab"[i % 2]) for i in range(SURE)]
    assert {d.arm for d in service.decide_batch("checkout", visitors)} == {"new"}
    assert shows(service) == 0
    service.experiments.start("checkout")
    assert {d.arm for d in service.decide_batch("checkout", visitors)} == {"old", "new"}
    service.experiments.stop("checkout", promote="old")
    assert {d.arm for d in service.decide_batch("checkout", visitors)} == {"old"}
    assert shows(service) == SURE


def test_a_stop_in_another_process_holds_from_the_next_decision(store_url: str) -> None:
    with serving(store_url) as here, open_service(store_url) as there:
        running(here)
        there.decide("checkout", "v", "a")
        here.experiments.stop("checkout", promote="bold")
        assert there.decide("checkout", "v", "a").arm == "bold"
        assert there.decide("checkout", "w", "a").arm == "bold"


def test_paused_means_the_zero_row_for_new_visitors(service: Deniable) -> None:
    running(service, strategy="constant")
    kept = service.decide("checkout", "v", "a")
    service.experiments.pause("checkout")
    paused = service.decide("checkout", "w", "a")
    assert service.decide("checkout", "v", "a") == kept
    service.experiments.resume("checkout")
    assert service.decide("checkout", "w", "a") == paused  # stored and sticky like any other
    service.decide("checkout", "x", "a")
    assert roles(service) == [Role.MEMBER, Role.CLOSED, Role.MEMBER]
    assert shows(service) == 2


def test_switching_an_arm_off(service: Deniable) -> None:
    running(service)
    before = service.decide_batch("checkout", [(f"v{i}", "a") for i in range(SURE)])
    assert {d.arm for d in before} == {"old", "new", "bold"}
    assert service.experiments.switch_off("checkout", "new").version == 2
    after = service.decide_batch("checkout", [(f"w{i}", "a") for i in range(SURE)])
    assert {d.arm for d in after} == {"old", "bold"}
    assert service.decide_batch("checkout", [(f"v{i}", "b") for i in range(SURE)]) == before
    promised = next(e for e in service.ledger.entries() if e.kind == "switch_off")
    assert json.loads(promised.detail)["version"] == 2
    assert service.audits.promise("checkout").grade == "given the time"
    with pytest.raises(WrongStateError, match="already"):
        service.experiments.switch_off("checkout", "new")
    with pytest.raises(WrongStateError, match="two arms"):
        service.experiments.switch_off("checkout", "old")
    with pytest.raises(UnknownNameError):
        service.experiments.switch_off("checkout", "nope")


def test_attribution_window(service: Deniable) -> None:
    ids = DecisionIds(service._key, bytes.fromhex(running(service, attribution_seconds=60).id))
    answers = [service.decide("checkout", v, "a") for v in ("early", "late")]
    with service._store.begin() as connection:
        connection.execute(
            update(decisions)
            .where(decisions.c.id == ids.stored(bytes.fromhex(answers[1].id)))
            .values(decided_at=decisions.c.decided_at - 61_000_000)
        )
    for answer in answers:
        service.reward(answer.id, 1)
    assert sum(cell.clicks for cell in service.experiments.counts("checkout")) == 1


def test_rewards_have_values_metrics_and_caps(service: Deniable) -> None:
    metrics = [Metric("revenue", 50 * MICRO), Metric("returned")]
    running(service, metrics=metrics)
    answer = service.decide("checkout", "v", "a")
    with pytest.raises(InvalidArgumentError, match="0 to 50"):
        service.reward_batch([(answer.id, 1), (answer.id, 50.5)])
    with pytest.raises(InvalidArgumentError, match="one of revenue, returned"):
        service.reward(answer.id, 1, "clicks")
    for value in (float("nan"), float("inf"), -1, "1"):
        with pytest.raises(InvalidArgumentError, match="value"):
            service.reward(answer.id, value)  # type: ignore[arg-type]
    service.reward(answer.id, 12.345678)
    service.reward(answer.id, 49)  # only the first one counts
    service.reward(answer.id, 1, "returned")
    (cell,) = [cell for cell in service.experiments.counts("checkout") if cell.shows]
    assert (cell.shows, cell.rewarded, cell.value_micro) == (1, 1, 12_345_678)
    assert service.ledger.verify().problem is None


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"arms": ["a"]}, "arms"),
        ({"arms": ["a", "a"]}, "arms"),
        ({"arms": ["a", "b c"]}, "arms"),
        ({"arms": ["a", ""]}, "arms"),
        ({"arms": ["a", "b\0"]}, "arms"),
        ({"arms": [f"a{i}" for i in range(300)]}, "arms"),
        ({"arms": [NewArm("a", budget=1), NewArm("b")], "budget": None}, "arms"),
        ({"arms": [NewArm("a", budget=1), NewArm("b", budget=1)]}, "budget"),
        ({"arms": [NewArm("a", budget=0), NewArm("b", budget=1)], "budget": None}, "arms"),
        ({"segments": []}, "segments"),
        ({"segments": ["s", "s"]}, "segments"),
        ({"segments": ["\ud800"]}, "segments"),
        ({"budget": None}, "budget"),
        ({"budget": -1}, "budget"),
        ({"budget": float("nan")}, "budget"),
        ({"budget": float("inf")}, "budget"),
        ({"budget": 1e308}, "budget"),
        ({"strategy": "greedy"}, "strategy"),
        ({"default_arm": "nope"}, "default_arm"),
        ({"planned_visitors": 0}, "planned_visitors"),
        ({"attribution_seconds": -5}, "attribution_seconds"),
        ({"layer": "a b"}, "layer"),
        ({"holdout": 0.6}, "holdout"),
        ({"metrics": [Metric("a"), Metric("a")]}, "metrics"),
        ({"metrics": [Metric("a", 0)]}, "metrics"),
        ({"key": "a/b"}, "key"),
        ({"key": ""}, "key"),
        ({"key": "x" * 129}, "key"),
    ],
)
def test_bad_experiments_are_refused(change: dict[str, Any], argument: str) -> None:
    options = {"key": "k", "arms": ["a", "b"], "segments": ["s"], "budget": 1.0, **change}
    with serving("memory:") as service:
        with pytest.raises(InvalidArgumentError) as refused:
            service.experiments.create(**options)
        assert refused.value.argument == argument
        assert service.experiments.all() == []


@pytest.mark.parametrize("options", [{"budget": -1}, {"budget": float("nan")}, {"budget": 1e308}])
def test_bad_firms_are_refused(options: dict[str, Any]) -> None:
    with open_service("memory:") as service:
        with pytest.raises(InvalidArgumentError):
            service.firm.set(**options)
        with pytest.raises(UnknownNameError):
            service.firm.current()
        for days in (0, -1, 10**9, 1.5):
            with pytest.raises(InvalidArgumentError):
                service.firm.set(budget=1, window_days=days)  # type: ignore[arg-type]


def test_api_keys(service: Deniable) -> None:
    secret, key = service.keys.create("app", ["reward", "decide"])
    assert (secret[:4], key.scopes) == ("dnb_", ("decide", "reward"))
    assert service.keys.authenticate(secret) == key
    assert service.keys.authenticate(secret + "x") is None
    assert service.keys.revoke(key.id).revoked_at is not None
    assert service.keys.authenticate(secret) is None
    with pytest.raises(UnknownNameError):
        service.keys.revoke("00" * 16)
    with pytest.raises(InvalidArgumentError, match="scopes"):
        service.keys.create("app", ["root"])  # type: ignore[list-item]
