"""Who is drawn for how: visitor hashes, ids, tables, and shown arms against what was promised."""

from __future__ import annotations

import hmac
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.support import published, running, serving, shows

from deniable.privacy.exact import SPACE, exp_floor
from deniable.privacy.tables import decoded_table, thresholds
from deniable.service import batch
from deniable.service.ids import VisitorHash
from deniable.storage.chain import GENESIS
from deniable.storage.records import Role
from deniable.storage.schema import decisions


@given(st.binary(min_size=32, max_size=100), st.binary(max_size=40), st.text(min_size=1))
def test_visitor_hashes_are_hmacs(key: bytes, scope: bytes, visitor: str) -> None:
    visitor = visitor.encode("utf-8", "ignore").decode()
    expected = hmac.new(key, scope + visitor.encode(), "sha256").digest()[:16]
    assert VisitorHash(key, scope)(visitor) == expected


@pytest.mark.parametrize("strategy", ["constant", "dynamic"])
def test_shown_arms_keep_the_promise_between_segments(strategy: str) -> None:
    """End to end: in one segment an arm always wins, in the other it never does."""
    budget, visitors = 1.0, 30_000
    with serving("memory:") as service:
        running(service, arms=["x", "y"], strategy=strategy, budget=budget)
        for start in range(0, 3_000, 100):  # teach: x is clicked in a, y in b
            pairs = [(f"teach{start + i}", "ab"[i % 2]) for i in range(100)]
            answers = service.decide_batch("checkout", pairs)
            service.reward_batch(
                [
                    (answer.id, int((segment == "a") == (answer.arm == "x")))
                    for (_, segment), answer in zip(pairs, answers, strict=True)
                ]
            )
        shares = {}
        for segment in ("a", "b"):
            drawn = service.decide_batch(
                "checkout", [(f"{segment}{i}", segment) for i in range(visitors)]
            )
            shares[segment] = sum(answer.arm == "x" for answer in drawn) / visitors
    odds = float(exp_floor(10**9))
    top = odds / (1 + odds)
    margin = 7 * (top * (1 - top) / visitors) ** 0.5  # 7 standard deviations: p < 1e-11
    assert shares["a"] == pytest.approx(top, abs=margin)
    assert shares["b"] == pytest.approx(1 - top, abs=margin)


def test_all_spellings_of_an_id_are_one_visitor(store_url: str) -> None:
    spellings = ["Zo\u00eb", "Zoe\u0308", " Zo\u00eb", "Zo\u00eb ", "\tZo\u00eb", "Zoe\u0308\n"]
    with serving(store_url) as service:
        running(service)
        assert len({service.decide("checkout", name, "a") for name in spellings}) == 1
        assert len(set(service.decide_batch("checkout", [(name, "a") for name in spellings]))) == 1
        other = service.decide("checkout", "zo\u00eb", "a")
        assert other.id != service.decide("checkout", "Zo\u00eb", "a").id  # capitals tell ids apart
        assert shows(service) == 2


def test_ids_carry_the_tag_and_chance_alone(store_url: str) -> None:
    with serving(store_url) as service:
        made = running(service)
        answers = service.decide_batch("checkout", [(f"v{i}", "a") for i in range(300)])
        assert {answer.id[:8] for answer in answers} == {made.id[:8]}
        # 12 random bytes each: among 300 neither half repeats, nor does any common mark remain.
        for start in (8, 20):
            assert len({answer.id[start : start + 12] for answer in answers}) == 300


def test_a_decision_names_the_table_that_it_was_drawn_from(store_url: str) -> None:
    with serving(store_url) as service:
        made = running(service, budget=0.3)
        service.decide("checkout", "v1", "a")
        published(service)
        service.decide("checkout", "v2", "b")
        with service._store.read() as connection:
            rows = connection.execute(decisions.select().order_by(decisions.c.seq)).all()
        first, *fillers, last = [(row.table_number, row.role, row.version) for row in rows]
        assert (first, {*fillers}, last) == ((1, 0, 1), {(1, 0, 1)}, (2, 0, 1))
        bound = exp_floor(299_999_999)  # the float .3, rounded down to nano-nats
        for table in service.experiments.tables("checkout"):
            decoded = decoded_table(table.rows, len(made.arms))
            assert max(decoded.worst_ratios()) <= bound


@pytest.mark.parametrize("role", list(Role))
def test_only_members_are_drawn_from_their_segments_row(role: Role) -> None:
    """Rows without chance: segments show the second and third arm, unlisted ones the fourth, the
    neutral row the first."""
    rows = [(0, SPACE, 0, 0), (0, 0, SPACE, 0)]
    state: Any = SimpleNamespace(id=bytes(16), version=1, table_number=1)
    state.neutral = thresholds((SPACE, 0, 0, 0))
    state.unlisted = thresholds((0, 0, 0, SPACE))
    state.rows = [thresholds(row) for row in rows]
    visitors = [(bytes([n]) * 16, segment, int(role)) for n, segment in enumerate((0, 1, -1))]
    made = batch.drawn(state, visitors, batch.randomness(3), 10**15, 7, (0, GENESIS))
    assert [row.shown for row in made.rows] == ([1, 2, 3] if role is Role.MEMBER else [0, 0, 0])
