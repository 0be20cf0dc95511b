"""`verify` names the first row that was changed, removed or reordered, on both stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import delete, select, update
from tests.service.support import running, serving

from deniable.service.service import Deniable
from deniable.storage import chain
from deniable.storage.schema import commitments, counters, decisions, periods, rewards, writers

PLACE = 7
"""The place in the chain of the row that is tampered with."""


@pytest.fixture
def service(store_url: str) -> Iterator[Deniable]:
    with serving(store_url) as opened:
        running(opened)
        pairs = [(f"v{i}", "ab"[i % 2]) for i in range(20)]
        answers = opened.decide_batch("checkout", pairs)
        opened.reward_batch([(answer.id, 1) for answer in answers])
        assert opened.ledger.verify().sound
        yield opened


def tamper(service: Deniable, statement: Any) -> None:
    with service._store.begin() as connection:
        assert connection.execute(statement).rowcount != 0


def row_at(service: Deniable, place: int) -> Any:
    with service._store.read() as connection:
        return connection.execute(select(decisions).where(decisions.c.seq == place)).one()


CHANGES: dict[str, Any] = {
    "visitor": b"x" * 16,
    "salt": b"x" * 16,
    "segment": 5,
    "greedy": 5,
    "shown": 5,
    "clock": 5_000,
    "risk_nano": 5,
    "version": 5,
    "decided_at": 5,
    "hash": b"x" * 32,
    "id": b"x" * 16,
}


@pytest.mark.parametrize("column", CHANGES)
def test_a_changed_decision_is_named(service: Deniable, column: str) -> None:
    tamper(
        service, update(decisions).where(decisions.c.seq == PLACE).values({column: CHANGES[column]})
    )
    result = service.ledger.verify()
    assert result.seq == PLACE
    assert result.decision == row_at(service, PLACE).id.hex()
    assert "changed or reordered" in (result.problem or "")


@pytest.mark.parametrize("place", [1, PLACE, 20])
def test_a_removed_decision_is_named(service: Deniable, place: int) -> None:
    tamper(service, delete(decisions).where(decisions.c.seq == place))
    result = service.ledger.verify()
    assert (result.seq, "removed" in (result.problem or "")) == (place, True)


def test_swapped_decisions_are_named(service: Deniable) -> None:
    tamper(service, update(decisions).where(decisions.c.seq == PLACE).values(seq=-1))
    tamper(service, update(decisions).where(decisions.c.seq == PLACE + 1).values(seq=PLACE))
    tamper(service, update(decisions).where(decisions.c.seq == -1).values(seq=PLACE + 1))
    assert service.ledger.verify().seq == PLACE


def test_a_decision_made_up_is_named(service: Deniable) -> None:
    row = row_at(service, 20)._asdict()
    made_up = {**row, "id": b"y" * 16, "visitor": b"y" * 16, "seq": 21}
    tamper(service, decisions.insert().values(**made_up))
    assert service.ledger.verify().decision == (b"y" * 16).hex()


def test_a_decision_of_a_writer_that_never_was(service: Deniable) -> None:
    row = row_at(service, 20)._asdict()
    made_up = {**row, "id": b"y" * 16, "visitor": b"y" * 16, "writer_id": 1, "seq": 1}
    tamper(service, decisions.insert().values(**made_up))
    assert "unknown writer" in (service.ledger.verify().problem or "")


def test_an_erasure_by_hand_is_not_one(service: Deniable) -> None:
    """Removing the values without the commitment breaks the chain."""
    gone = dict.fromkeys(
        ("visitor", "salt", "segment", "greedy", "shown", "clock", "risk_nano"), None
    )
    tamper(service, update(decisions).where(decisions.c.seq == PLACE).values(**gone))
    assert service.ledger.verify().seq == PLACE


def test_a_silent_erasure_is_noticed(service: Deniable) -> None:
    """Even one that keeps the chain whole, if the commitments do not tell of it."""
    row = row_at(service, PLACE)
    kept = chain.commitment(
        row.visitor, row.salt, row.segment, row.greedy, row.shown, row.clock, row.risk_nano
    )
    gone: dict[str, Any] = dict.fromkeys(
        ("visitor", "salt", "segment", "greedy", "shown", "clock", "risk_nano"), None
    )
    change = update(decisions).where(decisions.c.seq == PLACE).values(**gone, commitment=kept)
    tamper(service, change)
    tamper(service, delete(rewards).where(rewards.c.decision_id == row.id))
    assert "not recorded" in (service.ledger.verify().problem or "")


def test_a_doctored_account_is_noticed(service: Deniable) -> None:
    tamper(service, update(periods).values(committed_nano=periods.c.committed_nano - 1))
    assert "account" in (service.ledger.verify().problem or "")


@pytest.mark.parametrize("change", ["amount_nano", "detail", "kind", "recorded_at"])
def test_a_changed_commitment_is_named(service: Deniable, change: str) -> None:
    value: Any = 5 if change in ("amount_nano", "recorded_at") else "x"
    tamper(service, update(commitments).where(commitments.c.seq == 2).values({change: value}))
    result = service.ledger.verify()
    assert (result.chain, result.seq) == ("commitments", 2)


@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_removed_commitment_is_named(service: Deniable, place: int) -> None:
    tamper(service, delete(commitments).where(commitments.c.seq == place))
    result = service.ledger.verify()
    assert (result.chain, result.seq) == ("commitments", place)


def test_counters_must_be_what_rows_add_up_to(service: Deniable) -> None:
    tamper(service, update(counters).values(shows=counters.c.shows + 1))
    assert "counters" in (service.ledger.verify().problem or "")


def test_a_removed_reward_shows_in_the_totals(service: Deniable) -> None:
    tamper(service, delete(rewards).where(rewards.c.decision_id == row_at(service, PLACE).id))
    assert "counters" in (service.ledger.verify().problem or "")


def test_a_rebuilt_chain_is_caught_by_a_noted_head(service: Deniable) -> None:
    heads = service.ledger.verify().heads
    assert service.ledger.verify(noted=heads).sound
    service.decide("checkout", "another", "a")
    assert service.ledger.verify(noted=heads).sound  # a longer chain still holds the old head
    for name, end in heads.items():
        assert service.ledger.verify(noted={name: end[:-4] + "beef"}).chain == name


def test_a_truncated_chain_with_a_moved_end_needs_the_noted_head(service: Deniable) -> None:
    """What a store alone cannot show: its end cut off and rewritten. The noted head shows it."""
    heads = service.ledger.verify().heads
    last, before = row_at(service, 20), row_at(service, 19)
    tamper(service, delete(rewards).where(rewards.c.decision_id == last.id))
    tamper(service, delete(decisions).where(decisions.c.seq == 20))
    tamper(
        service,
        update(writers).where(writers.c.id == last.writer_id).values(seq=19, head=before.hash),
    )
    tamper(
        service,
        update(counters)
        .where(counters.c.segment == last.segment, counters.c.arm == last.shown)
        .values(shows=counters.c.shows - 1, clicks=counters.c.clicks - 1),
    )
    assert service.ledger.verify().sound
    assert service.ledger.verify(noted=heads).chain == str(last.writer_id)
