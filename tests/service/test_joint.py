"""The joint strategy, served: tables from recorded counts, two grades, refusals, audits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import deniable
from deniable.audit.exact import exact_proof
from deniable.errors import InvalidArgumentError
from deniable.privacy.exact import SPACE
from deniable.privacy.tables import Table, decoded_table
from deniable.service import table_making
from deniable.service.drafts import NewArm
from deniable.service.service import Deniable
from deniable.storage.records import PublishedTable

pytestmark = pytest.mark.usefixtures("strict_audits", "fixed_entropy")

ARMS, SEGMENTS = ["x", "y", "z"], ["a", "b"]
LIKED = {("a", "x"), ("b", "y")}


def begun(service: Deniable, **options: object) -> None:
    service.firm.set(budget=30)
    given = {"budget": 1, "planned_visitors": 3_000, **options}
    service.experiments.create("e", arms=ARMS, segments=SEGMENTS, strategy="joint", **given)  # type: ignore[arg-type]
    service.experiments.start("e")


def serve(service: Deniable, visitors: range) -> None:
    """Everybody rewards the arm that the segment likes, and no other: no doubt what is best."""
    for number in visitors:
        segment = SEGMENTS[number % 2]
        decision = service.decide("e", f"v{number}", segment)
        if (segment, decision.arm) in LIKED:
            service.reward(decision.id, 1)


def tables(service: Deniable) -> list[tuple[PublishedTable, Table, dict[str, object]]]:
    return [
        (published, decoded_table(published.rows, 3), json.loads(published.counts))
        for published in service.experiments.tables("e")
    ]


def test_it_learns_what_each_segment_likes_and_keeps_the_budget() -> None:
    with deniable.open("memory:") as service:
        begun(service)
        serve(service, range(1_200))
        found = tables(service)
        first, last = found[0][1], found[-1][1]
        assert set(first.rows) == {first.unlisted}  # before anything is known, uniform
        assert last.rows[0][0] > 2 * last.rows[1][0]
        assert last.rows[1][1] > 2 * last.rows[0][1]
        for _, table, counts in found:
            table.check((10**9,) * 3)
            assert counts["horizon"] == 3_000
            for arm in range(3):
                column = [row[arm] for row in table.rows]
                assert min(column) <= table.unlisted[arm] <= max(column)
        audit = service.audits.run("e")
        assert audit.sound, [check for check in audit.checks if check.outcome == "broken"]
        assert audit.promise.grade == "given the time"


def test_a_table_that_the_rule_does_not_make_is_found() -> None:
    with deniable.open("memory:") as service:
        begun(service)
        serve(service, range(500))
        last, table, _ = tables(service)[-1]
        rows = tuple((row[0] // 2, row[1], row[2] + row[0] - row[0] // 2) for row in table.rows)
        promise = service.audits.promise("e")
        wrong = replace(promise.tables[-1], table=Table(rows, table.unlisted))
        proof = exact_proof(replace(promise, tables=(*promise.tables[:-1], wrong)))[0]
        assert last.number in proof.not_replayed
        assert not proof.holds


def test_an_arm_switched_off() -> None:
    with deniable.open("memory:") as service:
        begun(service)
        serve(service, range(500))
        service.experiments.switch_off("e", "z")
        serve(service, range(500, 1_100))
        assert service.audits.run("e").sound
        found = tables(service)
        assert found[-1][0].version == 2
        for published, table, _ in found:
            if published.version == 2:
                assert all(row[2] == 0 for row in (*table.rows, table.unlisted))


def test_open_ended_and_one_segment() -> None:
    with deniable.open("memory:") as service:
        service.firm.set(budget=30)
        service.experiments.create(
            "e", arms=["x", "y"], segments=["all"], budget=0, strategy="joint"
        )
        service.experiments.start("e")
        for number in range(400):
            decision = service.decide("e", f"v{number}", "all")
            if decision.arm == "x":
                service.reward(decision.id, 1)
        last = decoded_table(service.experiments.tables("e")[-1].rows, 2)
        assert last.rows[0] == last.unlisted  # nothing can leak
        assert last.unlisted[0] > 0.9 * SPACE  # and yet it has learned, at budget 0
        assert service.audits.run("e").sound


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"arms": [f"a{i}" for i in range(201)]}, "arms=201: expected at most 200 with the joint"),
        ({"segments": [f"s{i}" for i in range(201)]}, "segments=201: expected at most 200"),
        ({"budget": 700}, "budget=700: expected a budget in nats, 0 to 40"),
        (
            {
                "arms": [NewArm("x", budget=1), NewArm("y", budget=2)],
                "budget": None,
            },
            "no budgets of their own with the joint strategy",
        ),
    ],
)
def test_refusals(wanted: dict[str, object], told: str) -> None:
    given: dict[str, object] = {"arms": ["x", "y"], "segments": ["s"], "budget": 1, **wanted}
    with (
        deniable.open("memory:") as service,
        pytest.raises(InvalidArgumentError) as raised,
    ):
        service.experiments.create("e", strategy="joint", **given)  # type: ignore[arg-type]
    assert told in str(raised.value)


def test_nothing_is_solved_where_visitors_are_decided_for(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a durable store the thread that decides never makes a table: the publisher's does."""
    import threading

    made_by: list[str] = []
    make = table_making.next_table

    def noted(*given: object, **options: object) -> PublishedTable | None:
        made_by.append(threading.current_thread().name)
        return make(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(table_making, "next_table", noted)
    with deniable.open(f"sqlite:///{tmp_path}/store.db") as service:
        begun(service)
        started = len(made_by)
        serve(service, range(300))
    assert set(made_by[started:]) <= {"deniable-publisher"}
