"""Where an experiment stands: every number from the layer that knows it, no small segment told."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from tests.web.making import cells_of, experiment_of, table_of

from deniable.analysis.leaderboard import Leaderboard
from deniable.analysis.segment_risk import common_share, segment_risks
from deniable.analysis.small_cells import SMALLEST_CELL
from deniable.analysis.summary import ExperimentSummary, summarize

NOW = datetime(2026, 1, 12, tzinfo=UTC)
SHOWS = [(400, 100), (90, 210), (SMALLEST_CELL - 1, 70), (3, 5), (6, 7)]
CLICKS = [(80, 30), (9, 84), (11, 13), (1, 2), (2, 1)]


def summary_of(**more: Any) -> tuple[Leaderboard, ExperimentSummary]:
    experiment = experiment_of(n_segments=4, **more)
    board = Leaderboard(experiment, cells_of(experiment, SHOWS, CLICKS))
    return board, summarize(board, table_of(experiment, SHOWS, CLICKS), [], NOW)


def test_every_number_is_that_of_its_layer() -> None:
    board, found = summary_of()
    assert (found.visitors, found.clicks) == (sum(map(sum, SHOWS)), sum(map(sum, CLICKS)))
    assert found.click_rate == found.clicks / found.visitors
    assert (found.clicks_lost, found.clicks_lost_at_random) == (board.lost, board.lost_at_random)
    assert list(found.leaderboard) == board.rows()
    published = table_of(board.experiment, SHOWS, CLICKS)
    assert list(found.segment_risks) == segment_risks(board, published, NOW)
    assert found.common_share == common_share(board, published)
    assert [one.rates for one in found.segments] == [
        {"arm0": 0.2, "arm1": 0.3},
        {"arm0": 0.1, "arm1": 0.4},
    ]
    assert [one.best_arm for one in found.segments] == ["arm1", "arm1"]
    assert found.history[-1].visitors == found.visitors


def test_small_segments_are_counted_and_not_told() -> None:
    _, found = summary_of()
    assert (found.hidden_segments, found.smallest_cell) == (2, SMALLEST_CELL)
    for part in (found.segments, found.segment_risks):
        assert [one.segment for one in part] == ["segment0", "segment1"]
    told = json.dumps(found.to_dict(), default=str)
    assert "segment2" not in told
    assert "segment3" not in told


def test_before_the_first_table_there_is_no_risk() -> None:
    experiment = experiment_of(n_segments=4, status="draft", started_at=None)
    board = Leaderboard(experiment, cells_of(experiment, [(0, 0)] * 5, [(0, 0)] * 5))
    found = summarize(board, None, [], NOW)
    assert (found.visitors, found.click_rate, found.segment_risks) == (0, None, ())
    assert found.common_share == 1


def test_an_arm_that_is_off_has_no_rate_by_segment() -> None:
    experiment = experiment_of(n_arms=3, n_segments=4, off=(2,))
    shows, clicks = ([(*row, 40) for row in rows] for rows in (SHOWS, CLICKS))
    found = summarize(Leaderboard(experiment, cells_of(experiment, shows, clicks)), None, [], NOW)
    assert [one.rates for one in found.segments] == [
        {"arm0": 0.2, "arm1": 0.3},
        {"arm0": 0.1, "arm1": 0.4},
    ]
    assert [(one.arm, one.active) for one in found.leaderboard][-1] == ("arm2", False)
