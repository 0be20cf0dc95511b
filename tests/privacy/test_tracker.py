"""The tracker's Bayes rule against exact fractions, through open and closed channels."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from mpmath import mp
from tests.agreement import agree

from deniable import Dynamic, highest_belief
from deniable.errors import InvalidArgumentError
from deniable.privacy import Tracker, lowest_belief

Table = list[list[float]]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Table, Table, list[float]]:
    """Rows of shown-arm probabilities, click rates and a prior; some as small as 1e-300."""
    n_arms, n_segments = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    weight = st.one_of(st.floats(1e-3, 1), st.floats(1e-300, 1e-290), st.just(0.0))
    rate = st.one_of(st.floats(0, 1), st.floats(1e-300, 1e-290))
    rows = [draw(st.lists(weight, min_size=n_arms, max_size=n_arms)) for _ in range(n_segments)]
    prior = draw(st.lists(weight, min_size=n_segments, max_size=n_segments))
    assume(sum(prior) > 1e-3)
    assume(all(sum(row) > 1e-3 for row in rows))
    shown = [[part / sum(row) for part in row] for row in rows]
    clicks = [draw(st.lists(rate, min_size=n_arms, max_size=n_arms)) for _ in range(n_segments)]
    return shown, clicks, [p / sum(prior) for p in prior]


def _exactly(
    prior: list[float], shown: list[float] | None, rates: list[float] | None, clicked: bool
) -> list[Fraction]:
    after = [Fraction(p) for p in prior]
    if shown is not None:
        after = [a * Fraction(s) for a, s in zip(after, shown, strict=True)]
    if rates is not None:
        after = [a * Fraction(r if clicked else 1 - r) for a, r in zip(after, rates, strict=True)]
    return after


@given(worlds(), st.sampled_from([(True, True), (True, False), (False, False)]), st.data())
def test_update_is_bayes_rule(
    world: tuple[Table, Table, list[float]], channels: tuple[bool, bool], data: st.DataObject
) -> None:
    shown, clicks, prior = world
    sees_output, sees_response = channels
    arm, clicked = data.draw(st.integers(0, len(shown[0]) - 1)), data.draw(st.booleans())
    tracker = Tracker(shown, clicks, sees_output=sees_output, sees_response=sees_response)
    after = _exactly(
        prior,
        [row[arm] for row in shown] if sees_output else None,
        [row[arm] for row in clicks] if sees_response else None,
        clicked,
    )
    if sum(after) == 0:
        with pytest.raises(InvalidArgumentError, match="shown_arm"):
            tracker.update(prior, shown_arm=arm, clicked=clicked)
        return
    posterior = tracker.update(prior, shown_arm=arm, clicked=clicked)
    want = [a / sum(after) for a in after]
    as_real = [mp.mpf(w.numerator) / w.denominator for w in want]
    agree([(world,)] * len(want), posterior, as_real, 1e-15 * 4)


def test_odds_are_the_product_of_the_factors() -> None:
    tracker = Tracker([[0.6, 0.4], [0.3, 0.7]], [[0.1, 0.2], [0.4, 0.2]], sees_response=True)
    after = tracker.update([0.2, 0.8], shown_arm=0, clicked=True)
    output = tracker.output_factor(shown_arm=0, segment=0, other=1)
    response = tracker.response_factor(shown_arm=0, clicked=True, segment=0, other=1)
    assert (output, response) == pytest.approx((2.0, 0.25), rel=1e-15, abs=0)
    assert after[0] / after[1] == pytest.approx(0.25 * output * response, rel=1e-15, abs=0)


def test_closed_channels_say_nothing() -> None:
    shown, clicks = [[0.6, 0.4], [0.3, 0.7]], [[0.1, 0.2], [0.4, 0.2]]
    blind = Tracker(shown, clicks, sees_output=False)
    assert blind.output_factor(shown_arm=0, segment=0, other=1) == 1
    assert blind.response_factor(shown_arm=0, clicked=True, segment=0, other=1) == 1
    assert blind.update([0.2, 0.8], shown_arm=0, clicked=True).tolist() == [0.2, 0.8]
    deaf = Tracker(shown, clicks)
    assert deaf.output_factor(shown_arm=0, segment=0, other=1) == 2
    assert deaf.response_factor(shown_arm=0, clicked=True, segment=0, other=1) == 1


def test_extreme_factors_do_not_overflow() -> None:
    tracker = Tracker([[1.0, 0.0], [0.0, 1.0], [5e-324, 1.0]])
    assert tracker.output_factor(shown_arm=0, segment=0, other=1) == np.inf
    assert tracker.output_factor(shown_arm=0, segment=1, other=0) == 0
    assert tracker.output_factor(shown_arm=0, segment=0, other=2) == np.inf
    assert tracker.update([1e-300, 1, 0], shown_arm=0).tolist() == [1, 0, 0]


@given(
    st.integers(2, 6),
    st.floats(0, 20),
    st.lists(st.integers(1, 10**6), min_size=2, max_size=5),
    st.floats(1e-6, 1 - 1e-6),
    st.data(),
)
def test_beliefs_stay_within_the_budgets_bounds(
    n_arms: int, budget: float, clocks: list[int], prior: float, data: st.DataObject
) -> None:
    """Segments with any clocks and greedy arms: no shown arm moves a belief beyond the bounds."""
    strategy = Dynamic(budget)
    greedy = data.draw(
        st.lists(st.integers(0, n_arms - 1), min_size=len(clocks), max_size=len(clocks))
    )
    shown = np.stack(
        [
            strategy.mechanism(n, n_arms).shown_distribution(g)
            for n, g in zip(clocks, greedy, strict=True)
        ]
    )
    rest = (1 - prior) / (len(clocks) - 1)
    before = np.array([prior, *[rest] * (len(clocks) - 1)])
    tracker = Tracker(shown)
    for arm in range(n_arms):
        belief = tracker.update(before, shown_arm=arm)[0]
        assert belief <= float(highest_belief(prior, budget)) * (1 + 1e-12)
        assert belief >= float(lowest_belief(prior, budget)) * (1 - 1e-12)


def test_value_objects() -> None:
    shown = np.array([[0.6, 0.4], [0.3, 0.7]])
    tracker = Tracker(shown)
    shown[0, 0] = 0
    assert tracker.output_factor(shown_arm=0, segment=0, other=1) == 2
    assert tracker == tracker
    assert tracker != Tracker(shown * 0 + 0.5)
    assert isinstance(hash(tracker), int)
