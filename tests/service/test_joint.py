"""The joint strategy, served: tables from recorded counts, two grades, refusals, audits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import deniable
from deniable.audit.exact import exact_proof
from deniable.errors import BrokenPromiseError, InvalidArgumentError
from deniable.privacy.exact import SPACE
from deniable.privacy.tables import Table, decoded_table
from deniable.service import publisher as publishing
from deniable.service import table_making
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
        assert set(first.rows) == {first.zero}  # before anything is known, uniform
        assert last.rows[0][0] > 2 * last.rows[1][0]
        assert last.rows[1][1] > 2 * last.rows[0][1]
        for _, table, counts in found:
            table.check((10**9,) * 3)
            assert counts["horizon"] == 3_000
            assert counts["floors"] is None
            for arm in range(3):
                column = [row[arm] for row in table.rows]
                assert min(column) <= table.zero[arm] <= max(column)
        audit = service.audits.run("e")
        assert audit.sound, [check for check in audit.checks if check.outcome == "broken"]
        assert audit.promise.stated_grade == "given the time"


def test_across_time_all_tables_after_the_switch_lie_in_one_band() -> None:
    with deniable.open("memory:") as service:
        begun(service, across_time=True)
        serve(service, range(2_000))
        found = tables(service)
        lottery = [table for _, table, counts in found if counts["floors"] is None]
        settled = [(table, counts) for _, table, counts in found if counts["floors"] is not None]
        assert lottery
        assert len(settled) > 3
        assert all(len({*table.rows, table.zero}) == 1 for table in lottery)
        assert len({json.dumps(counts["floors"]) for _, counts in settled}) == 1
        for arm in range(3):
            column = [row[arm] for table, _ in settled for row in (*table.rows, table.zero)]
            assert max(column) <= 2.718281828459045 * min(column) * (1 + 1e-15)
        audit = service.audits.run("e")
        assert audit.sound, [check for check in audit.checks if check.outcome == "broken"]
        assert audit.promise.stated_grade == "across time"
        # The band is in the chain, and a table outside of it cannot be put into force.
        last, table, _ = found[-1]
        rows = tuple((row[0] // 2, row[1], row[2] + row[0] - row[0] // 2) for row in table.rows)
        promise = service.audits.promise("e")
        wrong = replace(promise.tables[-1], table=Table(rows, table.zero))
        proof = exact_proof(replace(promise, tables=(*promise.tables[:-1], wrong)))[0]
        assert last.number in proof.outside_band
        assert last.number in proof.not_replayed
        assert not proof.holds
        # So would other floors than those of the moment of the switch.
        first = next(one for one in promise.tables if one.floors is not None)
        assert first.floors is not None
        half = tuple(floor // 2 for floor in first.floors)
        others = tuple(
            one if one.floors is None else replace(one, floors=half) for one in promise.tables
        )
        assert first.number in exact_proof(replace(promise, tables=others))[0].not_replayed


def test_tables_name_the_rule_that_made_them() -> None:
    """An auditor replays each by its own rule; a table without a number is of the first."""
    with deniable.open("memory:") as service:
        begun(service)
        serve(service, range(300))
        assert {counts["rule"] for _, _, counts in tables(service)} == {3}
        promise = service.audits.promise("e")
        shows = ((100, 110, 90), (95, 105, 100))
        rewards = tuple(tuple(10**6 * n for n in row) for row in ((14, 12, 9), (9, 13, 11)))
        asked = replace(promise.tables[-1], shows=shows, rewards=rewards)
        made = {}
        for rule in (1, 2):
            recipe = promise.recipe(asked.version, asked.horizon, rule)
            made[rule] = recipe.table(recipe.counts(shows, rewards))
        for rule, maker in [(1, 1), (2, 2), (1, 2), (2, 1), (3, 2), (3, 1), (0, 1), (4, 2)]:
            named = replace(asked, rule=rule, table=made[maker])
            # With three arms rule 3 is rule 2; there is no rule 0 or 4.
            assert promise.replays(named) == ((rule, maker) in [(1, 1), (2, 2), (3, 2)])


def test_across_time_is_kept_before_the_switch_too() -> None:
    """A lottery: tables differ from each other by any factor, and tell nothing about segments."""
    with deniable.open("memory:") as service:
        begun(service, across_time=True, planned_visitors=10**9)
        for number in range(600):  # everybody likes x: the common row moves far from uniform
            decision = service.decide("e", f"v{number}", SEGMENTS[number % 2])
            if decision.arm == "x":
                service.reward(decision.id, 1)
        found = tables(service)
        assert all(counts["floors"] is None for _, _, counts in found)
        assert max(t.zero[0] for _, t, _ in found) > 2 * min(t.zero[0] for _, t, _ in found)
        audit = service.audits.run("e")
        assert audit.sound, [check for check in audit.checks if check.outcome == "broken"]


def test_a_trace_budget_and_an_arm_switched_off() -> None:
    with deniable.open("memory:") as service:
        begun(service, trace_budget=2)
        serve(service, range(500))
        service.experiments.switch_off("e", "z")
        serve(service, range(500, 1_100))
        assert service.audits.run("e").sound
        for published, table, counts in tables(service):
            assert counts["additions"] == published.number - 1
            if published.version == 2:
                assert all(row[2] == 0 for row in (*table.rows, table.zero))
        promise = service.audits.promise("e")
        fewer = tuple(replace(one, additions=0) for one in promise.tables)
        # What noise the table allowed for is replayed too; the last table is not sure of anything
        # without it, or sure of more: in either case of something else.
        assert not all(proof.holds for proof in exact_proof(replace(promise, tables=fewer)))


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
        assert last.rows[0] == last.zero  # nothing can leak
        assert last.zero[0] > 0.9 * SPACE  # and yet it has learned, at budget 0
        assert service.audits.run("e").sound


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"arms": [f"a{i}" for i in range(201)]}, "arms=201: expected at most 200 with the joint"),
        ({"segments": [f"s{i}" for i in range(201)]}, "segments=201: expected at most 200"),
        ({"budget": 700}, "budget=700: expected a budget in nats, 0 to 40"),
        (
            {
                "arms": [deniable.NewArm("x", budget=1), deniable.NewArm("y", budget=2)],
                "budget": None,
            },
            "one budget for all arms with the joint strategy",
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


def test_the_grade_in_the_row_must_be_the_chains() -> None:
    from sqlalchemy import text

    with deniable.open("memory:") as service:
        begun(service, across_time=True)
        service._store.retried(
            lambda connection: connection.execute(text("UPDATE experiments SET across_time = 0"))
        )
        with pytest.raises(BrokenPromiseError, match="across_time"):
            service.experiments.publish("e")


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

    monkeypatch.setattr(publishing, "next_table", noted)
    with deniable.open(f"sqlite:///{tmp_path}/store.db") as service:
        begun(service)
        started = len(made_by)
        serve(service, range(300))
    assert set(made_by[started:]) <= {"deniable-publisher"}
