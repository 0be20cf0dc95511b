"""Greedy arms, tables and visitor hashes against independent oracles."""

from __future__ import annotations

import hmac
import os
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.support import running, serving

from deniable.privacy.serving import SPACE, exp_floor
from deniable.service.greedy import greedy_arm
from deniable.service.runtime import next_rounded_clock, rounded_clock
from deniable.service.visitors import VisitorHash
from deniable.storage.schema import decisions

COUNTS = st.integers(0, 2**62)


@given(
    cells=st.lists(st.tuples(COUNTS, COUNTS), min_size=2, max_size=8),
    draw=st.integers(0, SPACE - 1),
)
def test_the_greedy_arm_is_the_largest_exact_rate(cells: list[tuple[int, int]], draw: int) -> None:
    shows = [max(pair) for pair in cells]
    clicks = [min(pair) for pair in cells]
    rates = [Fraction(c, n) if n else Fraction(0) for c, n in zip(clicks, shows, strict=True)]
    highest = [arm for arm, rate in enumerate(rates) if rate == max(rates)]
    chosen = greedy_arm(shows, clicks, range(len(cells)), draw)
    assert chosen == highest[draw * len(highest) // SPACE]


def test_ties_that_floats_would_miss_or_invent() -> None:
    big = 2**61
    assert greedy_arm([big, big + 1], [big - 1, big], [0, 1], 0) == 1  # equal as floats
    assert greedy_arm([3, 9], [1, 3], [0, 1], SPACE - 1) == 1  # a tie: the draw decides
    assert greedy_arm([0, 5], [0, 0], [0, 1], SPACE - 1) == 1  # never shown counts as 0


def test_ties_are_broken_evenly() -> None:
    draws = [int.from_bytes(os.urandom(8), "little") for _ in range(30_000)]
    found = Counter(greedy_arm([0] * 3, [0] * 3, range(3), draw) for draw in draws)
    # 10,000 each; 600 is more than 7 standard deviations: p < 1e-11
    assert all(abs(count - 10_000) < 600 for count in found.values())


@given(st.integers(1, 2**60))
def test_rounded_clocks_are_never_late_and_little_early(clock: int) -> None:
    rounded = rounded_clock(clock)
    assert rounded <= clock < rounded + max(1, rounded // 32 + 1)
    after = next_rounded_clock(clock)
    assert rounded_clock(after - 1) == rounded
    assert rounded_clock(after) == after


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


def test_every_stored_risk_is_within_the_budget(store_url: str) -> None:
    with serving(store_url) as service:
        running(service, budget=0.3)
        service.decide_batch("checkout", [(f"v{i}", "ab"[i % 2]) for i in range(3_000)])
        with service._store.read() as connection:
            risks = list(connection.execute(decisions.select()).mappings())
    assert max(row["risk_nano"] for row in risks) == 299_999_999  # the float .3, rounded down
    assert min(row["risk_nano"] for row in risks) == 0
