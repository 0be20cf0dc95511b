"""Beyond the paper: segments, the tracker, tightness, participation and groups."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from deniable import Portfolio, allocate, highest_belief
from deniable.privacy import Tracker, lowest_belief
from research import groups, participation, segments, tracker
from research.study import Context
from research.tightness import _against_bounds, _hold, spend_on_curves


def test_segments_gain_where_they_differ_and_cost_where_not(tmp_path: Path) -> None:
    result = segments.run(Context(kept=tmp_path, quick=True))
    gain, cost, order = (claim.verdict for claim in result.claims)
    assert (gain, cost) == ("holds", "holds")
    assert order in ("holds", "holds in part")  # near its limit with the quick run's few visitors
    table = result.figures[0].data
    pooled = segments._lost(table, "segments differ", "pooled", 20)
    assert pooled == pytest.approx(15 * 3 / 4, abs=0.1)  # all arms alike on average: 3 of 4 miss
    alone = [segments._lost(table, "segments differ", way, 1) for way in ("by segment", "pooled")]
    assert alone[0] == pytest.approx(alone[1], rel=0.15)  # with one segment they are the same
    changed = table.with_columns(learning=table["learning"].reverse())
    assert segments._gain(changed).verdict == "does not hold"


def test_beliefs_stay_within_the_bound_and_reach_it() -> None:
    found = tracker.beliefs("constant", 1.0, 300, 50, np.random.default_rng(1))
    shown = found["shown arm"]
    assert shown.max() == pytest.approx(float(highest_belief(0.2, 1.0)), abs=1e-12)
    assert shown.min() == pytest.approx(float(lowest_belief(0.2, 1.0)), abs=1e-12)
    assert found["shown arm and response"].max() > shown.max() + 0.1
    # A tracker that reasons right is right on average: its mean belief is the share of members.
    for channel in tracker.CHANNELS:
        belief, member = found[channel], found["member"]
        error = (belief - member).std() / member.size**0.5
        assert abs((belief - member).mean()) < 5 * error


def test_a_mechanism_over_its_budget_is_found() -> None:
    """The fault: risk 1.2 is spent while 1 is promised."""
    found = tracker.beliefs("constant", 1.2, 300, 50, np.random.default_rng(1))
    row = tracker._summary("constant", 1.0, found)
    assert tracker._within(row).verdict == "does not hold"


def test_the_tracker_here_is_the_packages_tracker() -> None:
    """The vectorized update equals `deniable.privacy.Tracker` for each arm and response."""
    exploration, greedy = np.array([0.4, 0.7]), (0, 2)
    shown = np.full((3, 2), exploration / 3)
    for segment, arm in enumerate(greedy):
        shown[arm, segment] += 1 - exploration[segment]
    theirs = Tracker(shown.T, tracker.RATES.T, sees_response=True)
    for arm, clicked in product(range(3), (True, False)):
        rates = tracker.RATES[arm]
        likelihood = shown[arm] * (rates if clicked else 1 - rates)
        mine = tracker._posterior(likelihood[:, None])[0]
        expected = theirs.update([0.2, 0.8], shown_arm=arm, clicked=clicked)[0]
        assert mine == pytest.approx(float(expected), abs=1e-14)


def test_spending_on_curves_is_optimal() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        curves = rng.random((4, 5)).round(2)
        units = int(rng.integers(0, 12))
        best = min(
            sum(curve[u] for curve, u in zip(curves, choice, strict=True))
            for choice in product(range(5), repeat=4)
            if sum(choice) <= units
        )
        chosen = spend_on_curves(curves, units)
        assert chosen.sum() <= units
        total = sum(curve[u] for curve, u in zip(curves, chosen, strict=True))
        assert total == pytest.approx(best, abs=1e-12)


def test_bounds_hold_and_a_bound_of_a_tenth_would_not(tmp_path: Path) -> None:
    table = _against_bounds(Context(kept=tmp_path, quick=True), 10)
    assert _hold(table).verdict == "holds"
    tenth = table.with_columns(bound=table["bound"] / 10)
    assert _hold(tenth).verdict == "does not hold"


def test_participation_agrees_with_sampled_visitors(tmp_path: Path) -> None:
    result = participation.run(Context(kept=tmp_path, quick=True))
    verdicts = [claim.verdict for claim in result.claims]
    assert verdicts[0] == "holds"
    assert verdicts[2] == "holds"
    quantiles = result.tables["quantiles"]
    assert np.allclose(quantiles["mean"], quantiles["share"] * quantiles["worst_case"])
    curve = result.figures[0].data
    assert curve["part"].max() == pytest.approx(1.0)


def test_groups_cost_their_largest_budget() -> None:
    portfolio = Portfolio.from_sizes(
        [2, 2, 2, 2], [100_000, 100_000, 200_000, 50_000], form="paper"
    )
    alone, paired, one = (
        allocate(groups.grouped(portfolio, size), 4.0, regime="dynamic") for size in (1, 2, 4)
    )
    assert alone.total_regret > paired.total_regret > one.total_regret
    assert one.budgets.max() <= 4.0 + 1e-9
    assert one.budgets.sum() > 4.0  # which only a group may
    assert alone.budgets.sum() <= 4.0 + 1e-9
