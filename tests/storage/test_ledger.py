"""`verify` names the first thing that was changed, removed or reordered, on both stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import Connection, Table, delete, insert, select, update
from tests.storage.support import NAT, Writer, changed, draft, load, publish, start

from deniable.storage import account, chain, commitments, erasure
from deniable.storage.account_rules import HOUR
from deniable.storage.chain import GENESIS
from deniable.storage.connect import connect
from deniable.storage.ledger import Verification, verify
from deniable.storage.records import MICRO, Role
from deniable.storage.schema import (
    arms,
    counters,
    decisions,
    experiments,
    facts,
    metadata,
    rewards,
    segments,
    tables,
    writers,
)
from deniable.storage.schema import commitments as entries
from deniable.storage.store import Store

PLACE = 7
"""The place in the chain of the row that is tampered with: a decision. The next is its reward."""

KEY = b"k" * 32


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """20 decisions, each with a reward behind it, drawn from two tables."""
    opened = connect(store_url)
    with opened.begin() as connection:
        for table, rows in filled():
            connection.execute(table.delete())  # a new store has the first writer's row
            connection.execute(insert(table), rows)
    yield opened
    opened.close()


@lru_cache(maxsize=1)
def filled() -> list[tuple[Table, list[dict[str, Any]]]]:
    """All rows of such a store, which is sound; made once."""
    made = connect("memory:")
    with made.begin() as connection:
        fill(connection)
    assert check(made).problem is None
    with made.read() as connection:
        rows = [
            (table, [dict(row) for row in connection.execute(select(table)).mappings()])
            for table in metadata.sorted_tables
        ]
    made.close()
    return [(table, found) for table, found in rows if found]


def test_what_is_copied_is_sound(store: Store) -> None:
    assert check(store).problem is None


def test_what_is_written_is_sound(store_url: str) -> None:
    store = connect(store_url)
    with store.begin() as connection:
        fill(connection)
    assert check(store).problem is None
    store.close()


def fill(connection: Connection) -> None:
    connection.execute(insert(facts).values(name="visitor_key", value=b"f" * 32))
    commitments.record(connection, "key", None, fingerprint=(b"f" * 32).hex())
    account.set_firm(connection, budget_nano=3 * NAT, window_days=90)
    running = start(connection, draft(connection, "checkout"))
    writer = Writer()
    writer.begin(connection)
    for number in range(20):
        if number == 10:
            running = publish(connection, running)
        role = Role.HOLDOUT if number % 5 == 4 else Role.MEMBER
        visitor = number.to_bytes(16, "big")
        decision = writer.decide(connection, running, visitor, number % 2, number % 2, role)
        writer.reward(connection, decision, MICRO if number % 3 else 0)
    writer.reward(connection, decision, 30 * MICRO, metric=1)


def check(store: Store, **noted: str) -> Verification:
    with store.read() as connection:
        return verify(connection, noted)


def tamper(store: Store, *statements: Any) -> Verification:
    """The verification after somebody changed the store by hand."""
    with store.begin() as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0
    return check(store)


def row_at(store: Store, place: int) -> Any:
    with store.read() as connection:
        return connection.execute(select(decisions).where(decisions.c.seq == place)).one()


CHANGES: dict[str, Any] = {
    "visitor": b"x" * 16,
    "salt": b"x" * 16,
    "segment": 5,
    "shown": 5,
    "version": 5,
    "decided_at": 5,
    "table_number": 2,
    "role": Role.CLOSED,
    "hash": b"x" * 32,
    "id": b"x" * 16,
}


@pytest.mark.parametrize("column", CHANGES)
def test_a_changed_decision_is_named(store: Store, column: str) -> None:
    change = update(decisions).where(decisions.c.seq == PLACE).values({column: CHANGES[column]})
    result = tamper(store, change)
    assert result.seq == PLACE
    assert result.decision == row_at(store, PLACE).id.hex()
    assert "changed or reordered" in (result.problem or "")


@pytest.mark.parametrize("column", ["id", "visitor", "salt"])
@pytest.mark.parametrize("place", [PLACE, PLACE + 6])
def test_a_longer_value_is_named(store: Store, column: str, place: int) -> None:
    """What is hashed has a fixed width; the rest of a longer value must not go unnoticed."""
    longer = getattr(row_at(store, place), column) + b"\0"
    change = update(decisions).where(decisions.c.seq == place).values({column: longer})
    assert tamper(store, change).seq == place


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("value", MICRO // 2),
        ("value", None),
        ("metric", 1),
        ("rewarded_at", 5),
        ("hash", b"x" * 32),
    ],
)
def test_a_changed_reward_is_named(store: Store, column: str, value: Any) -> None:
    place = PLACE + 1
    change = update(rewards).where(rewards.c.seq == place).values({column: value})
    result = tamper(store, change)
    assert (result.seq, result.decision) == (place, row_at(store, PLACE).id.hex())


@pytest.mark.parametrize("table", [decisions, rewards])
def test_a_removed_row_is_named(store: Store, table: Any) -> None:
    place = PLACE + (table is rewards)
    result = tamper(store, delete(table).where(table.c.seq == place))
    assert (result.seq, "removed" in (result.problem or "")) == (place, True)


def test_the_removed_end_is_named(store: Store) -> None:
    result = tamper(store, delete(rewards).where(rewards.c.seq == 41))
    assert (result.seq, "removed" in (result.problem or "")) == (41, True)


def test_swapped_decisions_are_named(store: Store) -> None:
    seq = decisions.c.seq
    result = tamper(
        store,
        update(decisions).where(seq == PLACE).values(seq=-1),
        update(decisions).where(seq == PLACE + 2).values(seq=PLACE),
        update(decisions).where(seq == -1).values(seq=PLACE + 2),
    )
    assert result.seq == PLACE


def test_a_decision_made_up_is_named(store: Store) -> None:
    row = row_at(store, PLACE)._asdict()
    made_up = {**row, "id": b"y" * 16, "visitor": b"y" * 16, "seq": 42}
    assert tamper(store, insert(decisions).values(**made_up)).decision == (b"y" * 16).hex()


def test_a_decision_of_a_writer_that_never_was(store: Store) -> None:
    row = row_at(store, PLACE)._asdict()
    made_up = {**row, "id": b"y" * 16, "visitor": b"y" * 16, "writer_id": 1, "seq": 1}
    result = tamper(store, insert(decisions).values(**made_up))
    assert "unknown writer" in (result.problem or "")


def test_an_erasure_by_hand_is_not_one(store: Store) -> None:
    """Removing the values without the commitment breaks the chain."""
    gone = dict.fromkeys(erasure.ERASABLE)
    result = tamper(store, update(decisions).where(decisions.c.seq == PLACE).values(**gone))
    assert result.seq == PLACE


def test_a_silent_erasure_is_noticed(store: Store) -> None:
    """Even one that keeps the chain whole, if the commitments do not tell of it."""
    row = row_at(store, PLACE)
    with store.read() as connection:
        reward = connection.execute(select(rewards).where(rewards.c.decision_id == row.id)).one()
    kept = chain.salted_hash(row.visitor, row.salt, row.segment, row.shown)
    gone: dict[str, Any] = {**dict.fromkeys(erasure.ERASABLE), "commitment": kept}
    committed = chain.reward_salted_hash(row.salt, 0, reward.value)
    result = tamper(
        store,
        update(decisions).where(decisions.c.seq == PLACE).values(**gone),
        update(rewards)
        .where(rewards.c.decision_id == row.id)
        .values(value=None, commitment=committed),
    )
    assert "not recorded" in (result.problem or "")


@pytest.mark.parametrize("change", ["amount_nano", "detail", "kind", "recorded_at"])
def test_a_changed_commitment_is_named(store: Store, change: str) -> None:
    value: Any = 5 if change in ("amount_nano", "recorded_at") else "{}"
    result = tamper(store, update(entries).where(entries.c.seq == 2).values({change: value}))
    assert (result.chain, result.seq) == ("commitments", 2)


@pytest.mark.parametrize("place", [1, 3, 6])
def test_a_removed_commitment_is_named(store: Store, place: int) -> None:
    result = tamper(store, delete(entries).where(entries.c.seq == place))
    assert (result.chain, result.seq) == ("commitments", place)
    assert result.problem == f"commitment {place} was removed"


@pytest.mark.parametrize("name", ["shows", "rewarded", "value", "square"])
@pytest.mark.parametrize("by", [-1, 1])
def test_counters_must_be_what_rows_add_up_to(store: Store, name: str, by: int) -> None:
    column = counters.c[name]
    here = (counters.c.metric == 0) & (counters.c.segment == 1) & (counters.c.role == 0)
    change = update(counters).where(here, counters.c.table_number == 2)
    assert "counters" in (tamper(store, change.values({name: column + by})).problem or "")


def test_a_fingerprint_that_was_replaced_or_removed(store: Store) -> None:
    assert "visitor key" in (tamper(store, update(facts).values(value=b"g" * 32)).problem or "")
    assert "visitor key" in (tamper(store, delete(facts)).problem or "")


@pytest.mark.parametrize("name", ["rows", "counts", "version", "decisions"])
def test_a_changed_table_is_named(store: Store, name: str) -> None:
    value: Any = b"x" * 54 if name in ("rows", "counts") else 9
    result = tamper(store, update(tables).where(tables.c.number == 1).values({name: value}))
    assert "table 1 of experiment" in (result.problem or "")
    assert "was changed" in (result.problem or "")


def test_a_removed_or_added_table_is_named(store: Store) -> None:
    change = update(tables).where(tables.c.number == 2).values(number=3)
    assert "table 3" in (tamper(store, change).problem or "")
    removed = tamper(store, delete(tables).where(tables.c.number == 3))
    assert "table 2" in (removed.problem or "")
    assert "was removed" in (removed.problem or "")


def test_a_decision_from_a_table_that_was_never_published(store: Store) -> None:
    """Chained in due form, by a service that drew from a table of its own."""
    with store.begin() as connection:
        running = changed(connection, load(connection, "checkout"), table_number=3)
        end = connection.execute(select(writers).where(writers.c.id == 7)).one()
        writer = Writer(seq=end.seq, head=end.head)
        writer.decide(connection, running, b"z" * 16, 0, 0)
    result = check(store)
    assert result.seq == 42
    assert "never published" in (result.problem or "")


def _drawn(store: Store, segment: int, arm: int, **different: Any) -> Verification:
    """The verification after a service drew and chained one more decision."""
    with store.begin() as connection:
        running = replace(load(connection, "checkout"), **different)
        end = connection.execute(select(writers).where(writers.c.id == 7)).one()
        Writer(seq=end.seq, head=end.head).decide(connection, running, b"z" * 16, segment, arm)
    return check(store)


def test_a_decision_from_a_table_of_another_version(store: Store) -> None:
    assert "another version" in (_drawn(store, 0, 0, version=2).problem or "")


@pytest.mark.parametrize(("segment", "arm"), [(0, 5), (7, 0), (-2, 0)])
def test_an_arm_that_the_table_never_shows(store: Store, segment: int, arm: int) -> None:
    result = _drawn(store, segment, arm)
    assert result.seq == 42
    assert "its row of the table does not" in (result.problem or "")


def test_a_decision_from_before_its_table(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from deniable.storage import times

    now = times.now()
    with store.begin() as connection:
        running = load(connection, "checkout")
        end = connection.execute(select(writers).where(writers.c.id == 7)).one()
        writer = Writer(seq=end.seq, head=end.head)
        monkeypatch.setattr(times, "now", lambda: now - HOUR // 2)
        writer.decide(connection, running, b"y" * 16, 0, 0)  # clocks may differ a little
    assert check(store).sound
    with store.begin() as connection:
        monkeypatch.setattr(times, "now", lambda: now - 3 * HOUR)
        writer.decide(connection, running, b"z" * 16, 0, 0)
    assert "older than its table" in (check(store).problem or "")


ROWS: dict[str, Any] = {
    "key": "other",
    "status": "paused",
    "strategy": "dynamic",
    "budget_nano": 5 * NAT,
    "layer": "page",
    "slots": bytes(125),
    "holdout": 10,
    "default_arm": 1,
    "attribution_seconds": 5,
    "metrics": "[]",
    "version": 2,
    "winner": 1,
    "planned_visitors": 7,
    "table_number": 1,
    "has_tombstones": True,
}


@pytest.mark.parametrize("column", ROWS)
def test_a_changed_experiment_is_noticed(store: Store, column: str) -> None:
    result = tamper(store, update(experiments).values({column: ROWS[column]}))
    assert column in (result.problem or "")


@pytest.mark.parametrize("change", [{"key": "x"}, {"budget_nano": 9}, {"off_since_version": 1}])
def test_a_changed_arm_is_noticed(store: Store, change: dict[str, Any]) -> None:
    result = tamper(store, update(arms).where(arms.c.position == 1).values(**change))
    assert "arms" in (result.problem or "")


def test_swapped_segments_are_noticed(store: Store) -> None:
    name = segments.c.name
    result = tamper(
        store,
        update(segments).where(name == "x").values(name="tmp"),
        update(segments).where(name == "y").values(name="x"),
        update(segments).where(name == "tmp").values(name="y"),
    )
    assert "segments" in (result.problem or "")


def test_a_rebuilt_chain_is_caught_by_a_noted_head(store: Store) -> None:
    heads = check(store).heads
    assert check(store, **heads).sound
    with store.begin() as connection:
        end = connection.execute(select(writers).where(writers.c.id == 7)).one()
        running = load(connection, "checkout")
        Writer(seq=end.seq, head=end.head).decide(connection, running, b"n" * 16, 0, 0)
    assert check(store, **heads).sound  # a longer chain still holds the old head
    for name, end_of in heads.items():
        assert check(store, **{name: end_of[:-4] + "beef"}).chain == name


def test_a_truncated_chain_with_a_moved_end_needs_the_noted_head(store: Store) -> None:
    """What a store alone cannot show: its end cut off and rewritten. The noted head shows it."""
    heads = check(store).heads
    with store.read() as connection:
        before = connection.execute(select(rewards).where(rewards.c.seq == 40)).one()
    result = tamper(
        store,
        delete(rewards).where(rewards.c.seq == 41),
        update(writers).where(writers.c.id == 7).values(seq=40, head=before.hash),
        delete(counters).where(counters.c.metric == 1),
    )
    assert result.problem is None
    assert check(store, **heads).chain == "7"


def test_the_form_of_the_chain_stays() -> None:
    """Byte by byte, from the fields alone: stores of any version must verify for ever."""

    def signed(value: int, size: int) -> bytes:
        return value.to_bytes(size, "big", signed=True)

    visitor, salt, experiment, decision = (bytes([letter]) * 16 for letter in b"vsed")
    committed = chain.salted_hash(visitor, salt, -1, 300)
    assert committed == sha256(visitor + salt + signed(-1, 2) + signed(300, 2)).digest()
    link = chain.decision_hash(GENESIS, experiment, decision, 2, 3, 1, 10**15, 7, 9, committed)
    fields = [signed(2, 4), signed(3, 4), signed(1, 2), signed(10**15, 8), signed(7, 4)]
    body = experiment + decision + b"".join(fields) + signed(9, 8) + committed
    assert link == sha256(GENESIS + b"D" + body).digest()
    valued = chain.reward_salted_hash(salt, 1, 5 * MICRO)
    assert valued == sha256(salt + signed(1, 2) + signed(5 * MICRO, 8)).digest()
    given = chain.reward_hash(link, experiment, decision, 1, 10**15, 7, 10, valued)
    fields = [signed(1, 2), signed(10**15, 8), signed(7, 4), signed(10, 8)]
    body = experiment + decision + b"".join(fields) + valued
    assert given == sha256(link + b"R" + body).digest()
