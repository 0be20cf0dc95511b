"""The study of the joint strategy: its arithmetic, its claims, and the bound against simulation."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from deniable import Environment, simulate
from deniable.strategies.joint import Joint
from deniable.theory.joint import joint_regret
from research import joint
from research.joint_checks import TOLD, horizon_claim, horizon_table, optimistic_regret
from research.study import Claim, Context


def test_shares_lie_between_random_and_perfect(tmp_path: Path) -> None:
    """A small world with known answers: pooled gains nothing, the limit is the closed form."""
    rates = np.array([[0.4, 0.1], [0.1, 0.4]])
    places = {"opposite": Environment(rates, 20_000, name="opposite")}
    table = joint.shares_table(Context(kept=tmp_path, quick=True), places, 4)
    for budget in joint.BUDGETS:
        # J = 2: P = e^g / (1 + e^g) for the own best arm; shares run from 1/2 (random) to 1.
        limit = 2 * math.exp(budget) / (1 + math.exp(budget)) - 1
        assert joint.share_of(table, "opposite", "limit", budget) == pytest.approx(limit)
        for name in ("constant", "dynamic", "joint"):
            assert joint.share_of(table, "opposite", name, budget) <= limit + 0.02
        assert joint.share_of(table, "opposite", "random", budget) == 0
        assert abs(joint.share_of(table, "opposite", "pooled", budget)) < 0.02
    assert joint.share_of(table, "opposite", "joint", 3.0) > 0.8
    assert (table["low"] <= table["share"]).all()
    assert (table["share"] <= table["high"]).all()


def test_a_horizon_that_is_wrong(tmp_path: Path) -> None:
    """The rows name what was told; the truth is the joint policy itself."""
    rates = np.array([[0.4, 0.1], [0.1, 0.4]])
    places = {"opposite": Environment(rates, 20_000, name="opposite")}
    table = horizon_table(Context(kept=tmp_path, quick=True), places, 4)
    assert table["told_visitors"].to_list() == [20_000, 2_000, 200_000, 0]
    assert (table["low"] <= table["share"]).all()
    assert (table["share"] <= table["high"]).all()
    limit = 2 * math.e / (1 + math.e) - 1
    assert (table["share"] <= limit + 0.02).all()
    same = simulate(places["opposite"], [Joint(1)], repetitions=4, seed=0, workers=1)
    gain = joint.perfect_gain(places["opposite"])
    assert table["share"][0] == pytest.approx(1 - same.summary("regret")["mean"].item() / gain)


def test_the_claim_about_the_horizon_follows_its_numbers() -> None:
    def claim(*shares: float) -> Claim:
        rows = {"world": ["w"] * 4, "told": list(TOLD), "share": list(shares)}
        return horizon_claim(pl.DataFrame(rows))

    near = claim(0.8, 0.77, 0.81, 0.79)
    assert near.verdict == "holds"
    assert "told a tenth: 3.0 on average, 3.0 at most (w)" in near.ours
    assert claim(0.8, 0.8, 0.72, 0.8).verdict == "holds in part"
    assert claim(0.8, 0.8, 0.8, 0.6).verdict == "does not hold"


def _table(**shares: list[float]) -> pl.DataFrame:
    rows = [
        {"world": "w", "arms": 3, "strategy": name, "budget": budget, "share": value}
        for name, values in shares.items()
        for budget, value in zip(joint.BUDGETS, values, strict=True)
    ]
    return pl.DataFrame(rows)


def test_claims_follow_their_numbers() -> None:
    table = _table(
        joint=[0.3, 0.4, 0.5, 0.7, 0.8],
        dynamic=[0.01, 0.05, 0.1, 0.4, 0.6],
        pooled=[0.32] * 5,
    )
    match = joint.matching_budgets(table)["budget"].item()
    assert match == pytest.approx(1.5)  # halfway between .5 at 1 and .7 at 2
    assert joint._multiple(table, 0.5, 3.0).verdict == "holds"
    assert joint._multiple(table, 3.0, 1.5).verdict == "does not hold"
    assert "w at 0.1: 2.0" in joint._losses(table).ours
    worse = table.with_columns(share=pl.lit(0.5))
    assert joint.matching_budgets(worse)["budget"].item() == pytest.approx(0.1)
    never = _table(joint=[0.1] * 5, dynamic=[0.2] * 5)
    assert math.isnan(joint.matching_budgets(never)["budget"].item())


def test_without_data_it_says_so(tmp_path: Path) -> None:
    assert joint._real_data(Context(kept=tmp_path)) is None


def test_segments_are_drawn_from_the_stated_prior() -> None:
    rates = joint.segmented(np.full(20_000, 0.05), np.random.default_rng(1))
    assert rates.mean() == pytest.approx(0.05, rel=0.01)
    assert rates.std() == pytest.approx(0.05 * joint.SPREAD, rel=0.02)
    assert rates.min() >= 0.005


@pytest.mark.parametrize(
    ("n_arms", "n_segments", "visitors", "budget"), [(2, 2, 3000, 1.0), (5, 3, 3000, 0.3)]
)
def test_the_bound_holds_for_the_optimistic_variant(
    n_arms: int, n_segments: int, visitors: int, budget: float
) -> None:
    rng = np.random.default_rng(3)
    bound = joint_regret(n_arms, visitors, budget, n_segments)
    shares = np.full(n_segments, 1 / n_segments)
    lost = [
        optimistic_regret(rng.uniform(0, 1, (n_segments, n_arms)), shares, visitors, budget, rng)
        for _ in range(5)
    ]
    assert max(lost) <= bound
    # And it is regret: above what the best private table loses, below that of random arms.
    known = np.array([[0.9, 0.1], [0.1, 0.9]])
    one = optimistic_regret(known, np.array([0.5, 0.5]), visitors, 1.0, rng)
    price = 0.8 / (1 + math.e) * visitors
    assert price * 0.999 <= one < 0.4 * visitors
