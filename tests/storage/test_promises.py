"""Promises are read from the chain: one UPDATE of a row, a table or an entry is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, delete, select, update
from tests.storage.support import NAT, changed, draft, empty_store, fixed_band, load, publish, start

from deniable.errors import BrokenPromiseError
from deniable.privacy.tables import Table, without_arm
from deniable.storage import account, commitments, experiments, promise_entries, promises
from deniable.storage.account_rules import bitmap_slots
from deniable.storage.records import Metric
from deniable.storage.schema import commitments as entries
from deniable.storage.schema import experiments as rows
from deniable.storage.schema import segments, tables


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = empty_store()
    with engine.begin() as opened:
        account.set_firm(opened, budget_nano=9 * NAT, window_days=90)
        yield opened
    engine.dispose()


def test_a_promise_says_all_that_was_promised(connection: Connection) -> None:
    made = draft(
        connection,
        "a",
        budget_nano=2 * NAT,
        arm_budgets=(NAT, 2 * NAT, NAT),
        layer="page",
        holdout=50,
    )
    assert promises.promise_of(connection, made).status == "draft"
    running = start(connection, made, 250)
    promise = promises.check(connection, running)
    assert promise.arms == (("arm0", NAT, True), ("arm1", 2 * NAT, True), ("arm2", NAT, True))
    assert (promise.budget_nano, promise.holdout) == (2 * NAT, 50)
    assert (promise.layer, promise.slots) == ("page", bitmap_slots((1 << 250) - 1))
    assert promise.band == fixed_band(running)
    assert promise.metrics == (Metric("reward"), Metric("spend", 50_000_000))
    assert (promise.version, promise.status, promise.winner) == (1, "running", None)


def test_every_act_changes_the_promise(connection: Connection) -> None:
    running = start(connection, draft(connection, "a", arm_budgets=(NAT, NAT, NAT)))
    off = experiments.switch_off(connection, running, "arm1")
    detail = promise_entries.switch_off_detail(
        "arm1", off.version, None, without_arm(fixed_band(running).neutral, 1)
    )
    commitments.record(connection, "switch_off", off, **detail)
    commitments.record(connection, "pause", off)
    paused = publish(connection, changed(connection, off, status="paused"))
    promise = promises.check(connection, paused)
    assert (promise.version, promise.status, promise.band) == (2, "paused", None)
    assert [active for _, _, active in promise.arms] == [True, False, True]
    assert promise.last_table is not None
    assert promise.last_table.number == 2
    stopped = changed(connection, paused, status="stopped", winner="arm2")
    assert promises.differences(stopped, promise) == ["status", "winner"]
    detail = promise_entries.stop_detail(
        "arm2", account.last_hour(connection, bytes.fromhex(paused.id))
    )
    commitments.record(connection, "stop", paused, **detail)
    assert promises.check(connection, stopped).winner == "arm2"


def test_a_draft_can_be_planned_again(connection: Connection) -> None:
    planned = changed(connection, draft(connection, "a"), budget_nano=2 * NAT, strategy="dynamic")
    with pytest.raises(BrokenPromiseError, match="budget_nano, strategy"):
        promises.check(connection, planned)
    commitments.record(connection, "replan", planned, **promise_entries.replan_detail(planned))
    assert promises.check(connection, planned).budget_nano == 2 * NAT


def test_every_field_is_compared(connection: Connection) -> None:
    running = start(connection, draft(connection, "a", layer="page"))
    promise = promises.promise_of(connection, running)
    others: dict[str, object] = {
        "band": None,  # the row has no band to compare with
        "last_table": None,
        "metrics": (Metric("other"),),
        "arms": (),
        "segments": ("y", "x"),
        "slots": bytes(125),
        "tombstones": 1,
    }
    named = {
        "band": [],
        "arms_since": [],  # the row does not say since when
        "segments_since": [],
        "contexts_since": [],
        "restarts": [],
        "last_table": ["table_number"],
        "tombstones": ["has_tombstones"],
        "weights": ["arms"],
        "neutral": [],  # the row has none; the chain is checked on its own
    }
    for field in fields(promise):
        change: dict[str, Any] = {field.name: others.get(field.name, "another")}
        other = replace(promise, **change)
        expected = named.get(field.name, [field.name])
        assert promises.differences(running, other) == expected


def test_one_update_is_noticed(connection: Connection) -> None:
    start(connection, draft(connection, "a"))
    connection.execute(update(rows).values(budget_nano=5 * NAT))
    with pytest.raises(BrokenPromiseError, match="budget_nano"):
        promises.check(connection, load(connection, "a"))
    connection.execute(update(rows).values(budget_nano=NAT))
    connection.execute(update(segments).where(segments.c.name == "x").values(name="z"))
    with pytest.raises(BrokenPromiseError, match="segments"):
        promises.check(connection, load(connection, "a"))


@pytest.mark.parametrize("kind", ["create", "start", "table"])
def test_a_changed_entry_is_not_believed(connection: Connection, kind: str) -> None:
    """Row and entry changed alike: the link of the entry shows it."""
    running = start(connection, draft(connection, "a"))
    entry = connection.execute(select(entries).where(entries.c.kind == kind)).one()
    connection.execute(
        update(entries)
        .where(entries.c.seq == entry.seq)
        .values(detail=entry.detail.replace("1", "2"))
    )
    with pytest.raises(BrokenPromiseError, match=f"commitment {entry.seq} was changed"):
        promises.promise_of(connection, running)


def test_an_experiment_that_nobody_created(connection: Connection) -> None:
    made = draft(connection, "a")
    connection.execute(delete(entries).where(entries.c.kind == "create"))
    with pytest.raises(BrokenPromiseError, match="does not say"):
        promises.promise_of(connection, made)


def test_a_table_is_what_was_chained(connection: Connection) -> None:
    running = start(connection, draft(connection, "a"))
    chained = promises.promise_of(connection, running).last_table
    assert chained is not None
    promise = promises.promise_of(connection, running)
    read = partial(promises.chained_table, connection, running, promise, chained)
    assert read().unlisted == fixed_band(running).neutral
    for name in ("rows", "counts"):
        with connection.begin_nested() as savepoint:
            stored = connection.execute(select(tables)).one()
            other = getattr(stored, name)[:-1] + b"\x01"
            connection.execute(update(tables).values({name: other}))
            with pytest.raises(BrokenPromiseError, match="was changed"):
                read()
            savepoint.rollback()
    connection.execute(delete(tables))
    with pytest.raises(BrokenPromiseError, match="was removed"):
        read()
    assert promises.promised_tables(connection, running) == [chained]


def test_worst_ratios_are_exact() -> None:
    table = Table(rows=((2**63, 2**63), (2**62, 3 * 2**62)), unlisted=(2**63, 2**63))
    detail = promise_entries.table_detail(3, 2, table, b"{}", 100, "constant", 0)
    assert [Fraction(ratio) for ratio in detail["ratios"]] == [Fraction(2), Fraction(3, 2)]
    assert detail["rows"] == table.digest()
