"""The neutral row: fixed at the start, from no data, whoever comes back or is not a member."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update
from tests.promise.support import entries_of
from tests.service.support import serving

from deniable.errors import BrokenPromiseError, InvalidArgumentError
from deniable.privacy.exact import SPACE
from deniable.privacy.tables import (
    Row,
    decoded_table,
    neutral_row,
    thresholds,
    with_arm,
    without_arm,
)
from deniable.service.drafts import NewArm
from deniable.service.service import Deniable
from deniable.storage import commitments, experiments, promises
from deniable.storage.records import Role
from deniable.storage.schema import commitments as ledger

ARMS, SEGMENTS = ("a", "b", "c", "d"), ("x", "y")


def begun(service: Deniable, arms: Sequence[str | NewArm] = ARMS, **options: Any) -> None:
    service.experiments.create(
        "e", arms=arms, segments=SEGMENTS, budget=0.1, strategy="joint", **options
    )
    service.experiments.start("e")


def neutral(service: Deniable) -> Row:
    with service._store.read() as connection:
        return promises.check(connection, experiments.by_key(connection, "e")).neutral[-1]


def served(service: Deniable) -> tuple[list[int] | None, list[int] | None]:
    """Where the writer draws non-members and unlisted segments from."""
    service.decide("e", "somebody", "x")
    state = service.writer.engine.state("e")
    assert state is not None
    return state.neutral, state.unlisted


def history(service: Deniable, segment: str) -> None:
    """One visitor of a segment clicks, and others bring the next table about."""
    begun(service)
    shown = service.decide("e", "victim", segment)
    service.reward(shown.id, 1)
    for number in range(98):
        other = service.decide("e", f"s{number}", "x" if number % 10 else "y")
        service.reward(other.id, int(number % 7 == 0))
    service.decide("e", "last", "not listed")
    assert service.experiments.get("e").table_number == 2


def test_an_erased_visitor_is_served_from_a_row_without_the_own_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ratio over both segments is exactly 1, though tables in force differ by more than e^budget."""
    rows, unlisted = [], []
    for segment in SEGMENTS:
        with monkeypatch.context() as patch:
            draws: Iterator[int] = iter(range(10**9))

            def fixed(count: int, draws: Iterator[int] = draws) -> bytes:
                return next(draws).to_bytes(8, "big") * (count // 8) + bytes(count % 8)

            patch.setattr("deniable.service.experiment_state.os.urandom", fixed)
            with serving("memory:") as service:
                history(service, segment)
                service.visitors.erase(["victim"])
                service.decide("e", "victim", segment)
                assert entries_of(service, "e")[-1][1] == Role.ERASED
                rows.append(neutral(service))
                assert served(service)[0] == thresholds(rows[-1])
                table = decoded_table(service.experiments.tables("e")[-1].rows, 4)
                unlisted.append(table.unlisted)
    assert rows[0] == rows[1] == neutral_row([1, 1, 1, 1])
    apart = max(Fraction(max(pair), min(pair)) for pair in zip(*unlisted, strict=True) if min(pair))
    assert apart > Fraction(1106, 1000)  # e^.1: what a mean row would have told


@pytest.mark.parametrize("way", ["holdout", "pause", "erased"])
def test_whoever_is_not_a_member_is_drawn_from_it(way: str) -> None:
    """All chances on one arm: with weights of a million to one, everybody else sees it."""
    arms = [NewArm("a", weight=1_000_000), *(NewArm(key, weight=1) for key in ARMS[1:])]
    with serving("memory:") as service:
        begun(service, arms, holdout=0.5 if way == "holdout" else 0.0)
        service.decide_batch("e", [(f"w{n}", "x") for n in range(200)])
        if way == "pause":
            service.experiments.pause("e")
        if way == "erased":
            service.visitors.erase([f"w{n}" for n in range(200)])
        before = len(entries_of(service, "e"))
        names = "w" if way == "erased" else "v"
        service.decide_batch("e", [(f"{names}{n}", "x") for n in range(200)])
        new = [entry for entry in entries_of(service, "e")[before:] if entry[1] != Role.MEMBER]
        assert len(new) > 50
        assert {arm for _, _, _, arm in new} == {0}
        assert service.audits.run("e").sound
        assert service.ledger.verify().sound


def test_newcomers_of_unlisted_segments_get_the_mean_row_inside_the_bound() -> None:
    with serving("memory:") as service:
        history(service, "x")
        table = decoded_table(service.experiments.tables("e")[-1].rows, 4)
        drawn, unlisted = served(service)
        assert unlisted == thresholds(table.unlisted)
        assert drawn == thresholds(neutral_row([1] * 4))
        for column in zip(*table.rows, table.unlisted, strict=True):
            assert min(column[:-1]) <= column[-1] <= max(column[:-1])


def test_switching_an_arm_off_follows_from_the_old_row_and_the_arm_alone() -> None:
    arms = [NewArm(key, weight=weight) for key, weight in zip(ARMS, (4, 3, 2, 1), strict=True)]
    with serving("memory:") as service:
        begun(service, arms)
        service.decide_batch("e", [(f"v{n}", "x") for n in range(150)])
        assert neutral(service) == neutral_row([4, 3, 2, 1])
        service.experiments.switch_off("e", "b")
        off = next(event for event in service.experiments.events("e") if event.kind == "switch_off")
        assert tuple(json.loads(off.detail)["neutral"]) == neutral(service)
        assert neutral(service) == without_arm(neutral_row([4, 3, 2, 1]), 1)
        service.experiments.add_arm("e", "new")
        assert neutral(service) == with_arm(without_arm(neutral_row([4, 3, 2, 1]), 1))
        service.experiments.pause("e")
        service.decide_batch("e", [(f"w{n}", "y") for n in range(150)])
        assert service.audits.run("e").sound


def test_the_nested_family_has_its_own() -> None:
    with serving("memory:") as service:
        arms = [NewArm("a", budget=0.5), NewArm("b", budget=1), NewArm("c", budget=2)]
        service.experiments.create("e", arms=arms, segments=SEGMENTS, strategy="constant")
        service.experiments.start("e")
        assert [round(entry / SPACE, 3) for entry in neutral(service)] == [0.676, 0.255, 0.069]
        drawn, unlisted = served(service)
        assert drawn == unlisted == thresholds(neutral(service))
        with pytest.raises(InvalidArgumentError, match="weight"):
            service.experiments.create(
                "f",
                arms=["a", NewArm("b", weight=2)],
                segments=SEGMENTS,
                budget=1,
                strategy="dynamic",
            )
        service.experiments.create(
            "f", arms=["a", NewArm("b", weight=2)], segments=SEGMENTS, budget=1, strategy="joint"
        )
        with pytest.raises(InvalidArgumentError, match="weight"):
            service.experiments.redraft("f", strategy="dynamic")
        assert service.experiments.redraft("f", arms=["a", "b", "c"]).arms[1].weight == 2


@pytest.mark.parametrize("kind", ["start", "switch_off"])
def test_another_row_in_the_chain_is_not_believed(kind: str) -> None:
    """Written by somebody who can extend the chain: its links hold, and what it says does not."""
    with serving("memory:") as service:
        begun(service)
        with service._store.begin() as connection:
            experiment = experiments.by_key(connection, "e")
            detail: dict[str, Any] = {"band": None, "neutral": [SPACE - 3, 1, 1, 1], "slots": None}
            if kind == "switch_off":
                detail |= {"arm": "d", "version": 2, "neutral": [SPACE - 2, 1, 1, 0]}
            commitments.record(connection, kind, experiment, **detail)
            with pytest.raises(BrokenPromiseError, match="cannot follow"):
                promises.promise_of(connection, experiment)


def test_a_changed_entry_is_noticed() -> None:
    with serving("memory:") as service:
        begun(service)
        with service._store.begin() as connection:
            mine = ledger.c.kind == "start"
            text = connection.execute(ledger.select().where(mine)).one().detail
            other = json.loads(text) | {"neutral": [SPACE - 3, 1, 1, 1]}
            connection.execute(update(ledger).where(mine).values(detail=json.dumps(other)))
        assert not service.ledger.verify().sound


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=12).filter(any))
def test_rows_of_weights_sum_up_and_follow_them(weights: list[int]) -> None:
    row = neutral_row(weights)
    assert sum(row) == SPACE
    for weight, entry in zip(weights, row, strict=True):
        assert abs(Fraction(SPACE * weight, sum(weights)) - entry) < 1
        assert (entry > 0) == (weight > 0)
    more = with_arm(row)
    assert sum(more) == SPACE
    shown = sum(entry > 0 for entry in more)
    assert abs(more[-1] * shown - SPACE) < 2 * shown


def test_an_outage_is_answered_from_it() -> None:
    arms = [NewArm("a", weight=1_000_000), *(NewArm(key, weight=1) for key in ARMS[1:])]
    with serving("memory:") as service:
        begun(service, arms)
        drawn = {service.decide("e", f"v{n}", "x").arm for n in range(100)}
        assert len(drawn) > 1
        state = service.writer.engine.state("e")
        assert state is not None
        assert {state.unstored(b"key").arm for _ in range(100)} == {"a"}
