"""The leaderboard of an experiment, against brute force and against what was planted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats
from tests.web.making import cells_of, experiment_of

from deniable.analysis.leaderboard import DRAWS, PRIOR_VISITORS, Leaderboard


def board_of(shows: Sequence[Sequence[int]], clicks: Sequence[Sequence[int]]) -> Leaderboard:
    experiment = experiment_of(n_arms=len(shows[0]), n_segments=len(shows) - 1)
    return Leaderboard(experiment, cells_of(experiment, shows, clicks))


def test_two_arms_against_an_integral() -> None:
    """P(best) and the interval of one segment, by quadrature over the Beta densities."""
    shows, clicks = (400, 100), (80, 26)
    found = {one.arm: one for one in board_of([shows, (0, 0)], [clicks, (0, 0)]).rows()}
    average = (sum(clicks) + 1) / (sum(shows) + 2)
    won, lost = PRIOR_VISITORS * average, PRIOR_VISITORS * (1 - average)
    first, second = (stats.beta(c + won, n - c + lost) for c, n in zip(clicks, shows, strict=True))
    chance, _ = integrate.quad(lambda x: second.pdf(x) * first.cdf(x), 0, 1, points=[0.2, 0.26])
    assert found["arm1"].best_chance == pytest.approx(chance, abs=0.03)
    for one, exact in ((found["arm0"], first), (found["arm1"], second)):
        assert one.rate == pytest.approx(exact.mean(), abs=0.003)
        assert one.low == pytest.approx(exact.ppf(0.025), abs=0.01)
        assert one.high == pytest.approx(exact.ppf(0.975), abs=0.01)


def test_an_arm_is_not_flattered_by_the_segments_that_see_it() -> None:
    """Simpson: arm 1 is better in both segments and has the lower plain rate."""
    shows = [(900, 100), (100, 900), (0, 0)]
    clicks = [(540, 70), (10, 180), (0, 0)]
    plain = [550 / 1000, 250 / 1000]
    assert plain[0] > plain[1]
    best = board_of(shows, clicks).rows()[0]
    assert best.arm == "arm1"
    assert best.best_chance > 0.99
    assert best.rate == pytest.approx((0.7 + 0.2) / 2, abs=0.02)


def test_clicks_lost_and_won_by_hand() -> None:
    found = board_of([(500, 1_500), (1_200, 800), (0, 0)], [(50, 450), (360, 80), (0, 0)])
    # rates .1 and .3 in the first segment, .3 and .1 in the second
    assert found.lost == pytest.approx(500 * 0.2 + 800 * 0.2, rel=0.01)
    assert found.lost_at_random == pytest.approx(2_000 * 0.1 + 2_000 * 0.1, rel=0.01)
    assert found.random_clicks == pytest.approx(4_000 * 0.2, rel=0.01)
    assert found.gain_over_random == pytest.approx(940 / 800 - 1, rel=0.02)


def test_little_is_said_of_little() -> None:
    nothing = board_of([(0, 0), (0, 0)], [(0, 0), (0, 0)])
    assert nothing.click_rate is None
    assert nothing.gain_over_random is None
    assert nothing.lost == 0
    board = nothing.rows()
    assert [one.best_chance for one in board] == pytest.approx([0.5, 0.5], abs=0.05)
    assert board[0].high - board[0].low > 0.8


def test_an_arm_that_is_off_cannot_be_the_best() -> None:
    experiment = experiment_of(n_arms=3, n_segments=1, off=(2,))
    shows = [(100, 100, 100), (0, 0, 0)]
    cells = cells_of(experiment, shows, [(10, 20, 90), (0, 0, 0)])
    board = Leaderboard(experiment, cells).rows()
    assert [one.arm for one in board] == ["arm1", "arm0", "arm2"]
    assert board[-1].best_chance == 0
    assert sum(one.best_chance for one in board) == pytest.approx(1)


def test_many_segments_agree_with_drawing_every_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    shows = rng.integers(5, 400, (101, 4))
    clicks = rng.binomial(shows, [0.1, 0.12, 0.121, 0.05])
    fast = board_of(shows.tolist(), clicks.tolist()).rows()
    monkeypatch.setattr("deniable.analysis.leaderboard.MOST_CELLS", 10**9)
    exact = {one.arm: one for one in board_of(shows.tolist(), clicks.tolist()).rows()}
    for one in fast:
        other = exact[one.arm]
        assert one.rate == pytest.approx(other.rate, abs=5e-4)
        assert one.low == pytest.approx(other.low, abs=2e-3)
        assert one.high == pytest.approx(other.high, abs=2e-3)
        assert one.best_chance == pytest.approx(other.best_chance, abs=0.04)


class _Counted:
    """A generator that counts the numbers it is asked for."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self.drawn = 0

    def __getattr__(self, law: str) -> Any:
        def draw(*arguments: Any) -> Any:
            numbers = getattr(self._rng, law)(*arguments)
            self.drawn += np.size(numbers)
            return numbers

        return draw


def test_the_largest_experiment_is_not_drawn_cell_by_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """256,256 cells: drawing each would take a page half a minute and 8 GB."""
    rng = np.random.default_rng(1)
    shows = rng.integers(1, 50, (1_001, 256))
    clicks = rng.integers(0, 2, (1_001, 256))
    counted = _Counted(np.random.default_rng(2))
    monkeypatch.setattr(np.random, "default_rng", lambda _seed: counted)
    assert len(board_of(shows.tolist(), clicks.tolist()).rows()) == 256
    assert counted.drawn == DRAWS * 256
    counted.drawn = 0
    board_of(shows[:51, :4].tolist(), clicks[:51, :4].tolist()).rows()
    assert counted.drawn == DRAWS * 51 * 4  # few cells are
