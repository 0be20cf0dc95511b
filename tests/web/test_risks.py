"""Risk by segment: what is told equals what is served, and small segments are not told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from deniable.service.runtime import rounded_clock, serving_schedule
from hypothesis import given
from hypothesis import strategies as st
from tests.web.making import cells_of, experiment_of

from deniable.errors import NANO
from deniable.privacy.serving import SPACE
from deniable.storage.records import Arm
from deniable.web.risks import (
    SMALLEST_CELL,
    random_share,
    regret_bound,
    segment_risks,
    told_segments,
    waiting_words,
)
from deniable.web.standing import Standing

NOW = datetime(2026, 1, 12, tzinfo=UTC)


def standing(shows: Sequence[tuple[int, ...]], **more: object) -> Standing:
    experiment = experiment_of(n_arms=len(shows[0]), n_segments=len(shows) - 1, **more)  # type: ignore[arg-type]
    return Standing(experiment, cells_of(experiment, shows, [(0,) * len(shows[0])] * len(shows)))


@pytest.mark.parametrize("strategy", ["constant", "dynamic"])
@pytest.mark.parametrize("visitors", [60, 200, 5_000, 400_000])
def test_the_told_risk_is_the_served_one(strategy: str, visitors: int) -> None:
    """Against the exact integer table of the next visitor, whose clock is rounded down."""
    found = standing([(visitors // 2,) * 2, (visitors,) * 2, (0, 0)], strategy=strategy, budget=2.0)
    table = serving_schedule(found.experiment).table(rounded_clock(visitors + 1))
    risk = segment_risks(found, NOW)[0]
    served = max(table.budgets) / NANO
    assert served <= risk.risk + 1e-9
    assert served == pytest.approx(risk.risk, abs=0.02)
    greedy = table.count(0, greedy=0) / SPACE
    assert risk.random_share == pytest.approx((1 - greedy) * 2, abs=0.02)
    assert risk.risk <= risk.cap


def test_the_moment_the_cap_binds() -> None:
    """Budget 2 and three arms bind at visitor 587; 10 days brought 400."""
    found = standing([(134, 133, 133), (300, 300, 300), (0, 0, 0)], budget=2.0)
    first, second = segment_risks(found, NOW)
    assert (first.binds_at, first.bound, second.bound) == (587, False, True)
    assert first.expected == pytest.approx(
        NOW + timedelta(days=10) * (186 / 400), abs=timedelta(hours=1)
    )
    assert waiting_words(first, NOW) == "at its visitor 587, at this pace in about 5 days"
    assert waiting_words(second, NOW) == "since its visitor 587"
    constant = segment_risks(standing([(50, 50), (50, 50), (0, 0)], strategy="constant"), NOW)
    assert waiting_words(constant[0], NOW) == "from the first visitor"


def test_arm_specific_budgets_share_one_clock() -> None:
    arms = (Arm("x", "", NANO // 2), Arm("y", "", NANO), Arm("z", "", 2 * NANO))
    found = standing([(400,) * 3, (1, 0, 0), (0, 0, 0)], arms=arms, budget=2.0)
    only = segment_risks(found, NOW)
    assert [one.segment for one in only] == [None]
    assert only[0].visitors == 1_201


def test_what_is_closed_is_random() -> None:
    shows = [(5_000, 5_000), (5_000, 5_000), (0, 0)]
    assert random_share(standing(shows)) < 0.6
    assert random_share(standing(shows, status="paused")) == 1
    assert random_share(standing(shows, exhausted=True)) == 1
    assert random_share(standing(shows, budget=0.0)) == 1
    unlisted = standing([(0, 0), (0, 0), (900, 100)])
    assert random_share(unlisted) == 1


counts = st.lists(
    st.tuples(st.integers(0, 4 * SMALLEST_CELL), st.integers(0, 4 * SMALLEST_CELL)),
    min_size=2,
    max_size=7,
)


@given(counts)
def test_no_small_cell_is_told_or_follows_from_what_is_told(shows: list[tuple[int, int]]) -> None:
    found = standing(shows)
    told = told_segments(found)
    for position in told:
        assert min(shows[position]) >= SMALLEST_CELL
    # The page also tells the total: what is hidden must not be one small group alone.
    hidden = [i for i in range(len(shows)) if i not in told and any(shows[i])]
    if told and len(hidden) == 1:
        assert hidden[0] == len(shows) - 1  # visitors of no listed segment...
        assert sum(shows[-1]) >= SMALLEST_CELL  # ...and enough of them


def test_the_bound_never_promises_less_than_nothing_or_more_than_everything() -> None:
    experiment = experiment_of(n_arms=3, n_segments=4)
    bounds = [regret_bound(experiment, n) for n in (0, 1, 2, 3, 50, 10_000, 10**9)]
    assert bounds[:4] == [0, 1, 2, 3]
    assert bounds == sorted(bounds)
    assert bounds[-1] < 10**9
