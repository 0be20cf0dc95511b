"""The firm's budget and an experiment's life, as the promise demands."""

from __future__ import annotations

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
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage import times
from deniable.storage.schema import decisions, periods

SURE = 60


def risks(service: Deniable) -> list[int]:
    with service._store.read() as connection:
        query = select(decisions.c.risk_nano).order_by(decisions.c.writer_id, decisions.c.seq)
        return list(connection.execute(query).scalars())


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
        service.firm.set(budget=1)
        assert service.experiments.start("second").status == "running"


def test_a_group_costs_its_largest_and_shares_no_visitor(store_url: str) -> None:
    with serving(store_url, budget=2) as service:
        for key, budget in (("small", 0.5), ("large", 2.0), ("middle", 1.0)):
            running(service, key, budget=budget, group="page", strategy="constant")
        assert service.firm.current().committed_nano == 2 * NANO
        for key in ("small", "large", "middle"):
            service.decide(key, "v", "a")
        assert sorted(risks(service)) == [0, 0, NANO // 2]  # the first takes the visitor
        service.decide("large", "w", "a")
        assert sorted(risks(service)) == [0, 0, NANO // 2, 2 * NANO]


def test_members_of_a_group_within_one_batch(service: Deniable) -> None:
    """Two experiments of a group in the same transaction still share no visitor."""
    for key in ("x", "y"):
        running(service, key, group="page", strategy="constant")
    done: list[Any] = []
    with service._store.begin():  # holds up SQLite's writer: both jobs become one batch
        for key in ("x", "y"):
            service.submit_decisions(key, ["v"], ["a"], done.append)
    service.decide("x", "last", "a")
    assert sorted(risks(service)) == [0, NANO, NANO]
    assert service.ledger.verify().sound


def test_what_carries_the_promise_cannot_change(service: Deniable) -> None:
    running(service)
    with pytest.raises(WrongStateError, match="exists already"):
        service.experiments.create("checkout", arms=["x", "y"], segments=["s"], budget=3)
    with pytest.raises(WrongStateError, match="is running"):
        service.experiments.start("checkout")
    with pytest.raises(WrongStateError, match="paused"):
        service.experiments.resume("checkout")
    service.experiments.stop("checkout")
    for act in (service.stop, service.pause, service.resume, service.start):
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
        here.stop("checkout", promote="bold")
        assert there.decide("checkout", "v", "a").arm == "bold"
        assert there.decide("checkout", "w", "a").arm == "bold"


def test_paused_means_uniform_for_new_visitors(service: Deniable) -> None:
    running(service, strategy="constant")
    kept = service.decide("checkout", "v", "a")
    service.experiments.pause("checkout")
    paused = service.decide("checkout", "w", "a")
    assert service.decide("checkout", "v", "a") == kept
    service.experiments.resume("checkout")
    assert service.decide("checkout", "w", "a") == paused  # stored and sticky like any other
    service.decide("checkout", "x", "a")
    assert risks(service) == [NANO, 0, NANO]


def test_a_period_that_is_over_means_uniform(service: Deniable) -> None:
    running(service, strategy="constant")
    service.firm.set(budget=5, days=1)
    service.decide("checkout", "v", "a")
    with service._store.begin() as connection:
        connection.execute(update(periods).where(periods.c.current).values(ends_at=times.now() - 1))
    service.experiments.pause("checkout")
    service.experiments.resume("checkout")  # a change, so that the writer reads the period again
    service.decide("checkout", "w", "a")
    assert risks(service) == [NANO, 0]


def test_switching_an_arm_off(service: Deniable) -> None:
    running(service)
    before = service.decide_batch("checkout", [(f"v{i}", "a") for i in range(SURE)])
    assert {d.arm for d in before} == {"old", "new", "bold"}
    assert service.experiments.switch_off("checkout", "new").version == 2
    after = service.decide_batch("checkout", [(f"w{i}", "a") for i in range(SURE)])
    assert {d.arm for d in after} == {"old", "bold"}
    assert service.decide_batch("checkout", [(f"v{i}", "b") for i in range(SURE)]) == before
    with pytest.raises(WrongStateError, match="already"):
        service.experiments.switch_off("checkout", "new")
    with pytest.raises(WrongStateError, match="two arms"):
        service.experiments.switch_off("checkout", "old")
    with pytest.raises(UnknownNameError):
        service.experiments.switch_off("checkout", "nope")


def test_attribution_window(service: Deniable) -> None:
    running(service, attribution_seconds=60)
    answers = [service.decide("checkout", v, "a") for v in ("early", "late")]
    with service._store.begin() as connection:
        connection.execute(
            update(decisions)
            .where(decisions.c.id == bytes.fromhex(answers[1].id))
            .values(decided_at=decisions.c.decided_at - 61_000_000)
        )
    for answer in answers:
        service.reward(answer.id, 1)
    assert sum(cell.clicks for cell in service.experiments.counts("checkout")) == 1


def test_the_dynamic_risk_follows_the_clock_up_to_the_budget(service: Deniable) -> None:
    running(service, arms=["old", "new"], budget=0.4)
    for i in range(20):
        service.decide("checkout", f"v{i}", "a")
    found = risks(service)
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, 400_000_000)


def test_the_arm_specific_clock_is_shared_by_segments_and_writers(store_url: str) -> None:
    with serving(store_url) as here, open_service(store_url) as there:
        running(here, arms=[NewArm("x", budget=0.5), NewArm("y", budget=2.0)])
        for i in range(60):
            here.decide("checkout", f"v{i}", "a")
        there.decide("checkout", "new segment, new writer", "b")
        here.decide("checkout", "old segment, old writer", "a")
        with here._store.read() as connection:
            last = connection.execute(
                select(decisions.c.clock, decisions.c.risk_nano).order_by(decisions.c.decided_at)
            ).all()[-2:]
        assert last[0].risk_nano > 0
        assert abs(last[0].clock - last[1].clock) <= 1


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
        ({"budget": -1}, "nats"),
        ({"budget": float("nan")}, "nats"),
        ({"budget": float("inf")}, "nats"),
        ({"budget": 1e308}, "budget"),
        ({"strategy": "greedy"}, "strategy"),
        ({"default_arm": "nope"}, "default_arm"),
        ({"planned_visitors": 0}, "planned_visitors"),
        ({"attribution_seconds": -5}, "attribution_seconds"),
        ({"group": "a b"}, "group"),
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
def test_bad_firms_are_refused(options: dict[str, float]) -> None:
    with open_service("memory:") as service:
        with pytest.raises(InvalidArgumentError):
            service.firm.set(**options)
        with pytest.raises(UnknownNameError):
            service.firm.current()
        for days in (0, -1, 1e9):
            with pytest.raises(InvalidArgumentError):
                service.firm.set(budget=1, days=days)


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
