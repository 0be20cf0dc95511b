"""Risk by segment: what is told equals what is served, and small segments are not told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.web.making import cells_of, experiment_of, table_of

from deniable.analysis.leaderboard import Leaderboard
from deniable.analysis.segment_risk import (
    SegmentRisk,
    common_share,
    regret_bound,
    segment_risks,
)
from deniable.analysis.small_cells import SMALLEST_CELL
from deniable.errors import NANO
from deniable.privacy.tables import dynamic_bonus
from deniable.storage.records import Arm, PublishedTable
from deniable.strategies.constant import Constant
from deniable.strategies.dynamic import Dynamic

NOW = datetime(2026, 1, 12, tzinfo=UTC)


def board_of(shows: Sequence[tuple[int, ...]], **more: object) -> Leaderboard:
    experiment = experiment_of(n_arms=len(shows[0]), n_segments=len(shows) - 1, **more)  # type: ignore[arg-type]
    return Leaderboard(experiment, cells_of(experiment, shows, clicked(shows)))


def clicked(shows: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Only the first arm of every segment earns anything, so that it is greedy."""
    return [(count // 2, *(0 for _ in rest)) for count, *rest in shows]


def published(found: Leaderboard) -> PublishedTable:
    """The table that would be published now."""
    shows = [tuple(map(int, row)) for row in found.shows.tolist()]
    return table_of(found.experiment, shows, clicked(shows))


def risks(found: Leaderboard) -> list[SegmentRisk]:
    return segment_risks(found, published(found), NOW)


@pytest.mark.parametrize("strategy", ["constant", "dynamic"])
@pytest.mark.parametrize("visitors", [60, 200, 5_000, 400_000])
def test_the_told_risk_is_that_of_the_theory(strategy: str, visitors: int) -> None:
    """What the table's row says, against the strategy's own formulas."""
    found = board_of([(visitors // 2,) * 2, (visitors,) * 2, (0, 0)], strategy=strategy, budget=2.0)
    kind = Constant if strategy == "constant" else Dynamic
    theory = kind(2.0)
    risk = risks(found)[0]
    assert risk.risk == pytest.approx(float(theory.risk(visitors + 1, 2)), abs=1e-6)
    assert risk.common_share == pytest.approx(float(theory.exploration(visitors + 1, 2)), abs=1e-6)
    assert risk.risk <= risk.cap
    assert risk.binds_at == theory.binds_at(2)


def test_the_moment_the_cap_binds() -> None:
    """Budget 2 and three arms bind at visitor 587; 10 days brought 400."""
    found = board_of([(134, 133, 133), (300, 300, 300), (0, 0, 0)], budget=2.0)
    first, second = risks(found)
    assert (first.binds_at, first.reached, second.reached) == (587, False, True)
    assert first.expected == pytest.approx(
        NOW + timedelta(days=10) * (186 / 400), abs=timedelta(hours=1)
    )
    assert first.when == "at visitor 587, at this pace in about 5 days"
    assert second.when == "since visitor 587"
    constant = risks(board_of([(50, 50), (50, 50), (0, 0)], strategy="constant"))
    assert constant[0].when == "from the first visitor"


def test_budgets_by_arm_bind_when_their_bonus_does() -> None:
    arms = (Arm("x", "", NANO // 2), Arm("y", "", NANO), Arm("z", "", 2 * NANO))
    found = board_of([(400,) * 3, (50,) * 3, (0, 0, 0)], arms=arms, budget=2.0)
    budgets = found.experiment.budgets
    first, second = risks(found)
    assert first.binds_at == second.binds_at
    assert first.binds_at is not None
    clock = int(first.binds_at)
    assert dynamic_bonus(budgets, clock - 1) < 1
    assert dynamic_bonus(budgets, clock) == 1
    # The first arm is greedy everywhere: its own budget is what its row uses.
    assert first.risk == pytest.approx(0.5, abs=1e-6)


def test_what_is_closed_tells_nothing() -> None:
    shows = [(5_000, 5_000), (5_000, 5_000), (0, 0)]
    open_one = board_of(shows)
    assert common_share(open_one, published(open_one)) < 0.6
    assert common_share(open_one, None) == 1
    for more in ({"status": "paused"}, {"budget": 0.0}):
        closed = board_of(shows, **more)
        assert common_share(closed, published(closed)) == 1
    unlisted = board_of([(0, 0), (0, 0), (900, 100)])
    assert common_share(unlisted, published(unlisted)) == 1


counts = st.lists(
    st.tuples(st.integers(0, 4 * SMALLEST_CELL), st.integers(0, 4 * SMALLEST_CELL)),
    min_size=2,
    max_size=7,
)


@given(counts)
def test_no_small_cell_is_told_or_follows_from_what_is_told(shows: list[tuple[int, int]]) -> None:
    found = board_of(shows)
    told = found.visible
    for position in told:
        assert min(shows[position]) >= SMALLEST_CELL
    # The page also tells the total: what is hidden must not be one small group alone.
    hidden = [i for i in range(len(shows)) if i not in told and any(shows[i])]
    if told and len(hidden) == 1:
        assert hidden[0] == len(shows) - 1  # visitors of no listed segment...
        assert sum(shows[-1]) >= SMALLEST_CELL  # ...and enough of them


@pytest.mark.parametrize(
    ("shows", "told"),
    [
        ([(100, 100), (60, 60), (40, 40), (0, 0)], [0, 1, 2]),  # nothing is hidden
        ([(100, 100), (60, 60), (5, 5), (0, 0)], [0]),  # alone, it would be the rest of the total
        ([(100, 100), (60, 60), (5, 5), (5, 0)], [0]),  # unlisted visitors change nothing
        ([(100, 100), (60, 60), (5, 5), (4, 5), (0, 0)], [0, 1]),
        ([(100, 100), (60, 60), (5, 5), (50, 0)], [0]),
        ([(100, 100), (60, 60), (40, 40), (5, 0)], [0, 1, 2]),
        ([(100, 100), (60, 60), (40, 40), (0, 30)], [0, 1, 2]),
        ([(30, 30), (500, 29), (500, 29), (0, 0)], [0]),  # 29 of one arm are too few, 30 are not
        ([(29, 500), (29, 500), (0, 0)], []),
        ([(100, 100), (5, 5), (0, 0)], []),
    ],
)
def test_a_small_group_is_never_hidden_alone(shows: list[tuple[int, int]], told: list[int]) -> None:
    assert board_of(shows).visible == told


def test_small_cells_of_an_arm_that_is_off_do_not_matter() -> None:
    shows = [(100, 3), (60, 4), (0, 0)]
    assert board_of(shows).visible == []
    arms = (Arm("x"), Arm("y", active=False))
    experiment = experiment_of(n_segments=2, arms=arms)
    found = Leaderboard(experiment, cells_of(experiment, shows, clicked(shows)))
    assert found.visible == [0, 1]


def test_the_bound_never_promises_less_than_nothing_or_more_than_everything() -> None:
    experiment = experiment_of(n_arms=3, n_segments=4)
    bounds = [regret_bound(experiment, n) for n in (0, 1, 2, 3, 50, 10_000, 10**9)]
    assert bounds[:4] == [0, 1, 2, 3]
    assert bounds == sorted(bounds)
    assert bounds[-1] < 10**9
