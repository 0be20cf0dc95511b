"""Totals over time: from the start to the end, and no moment counts twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.web.making import cells_of, experiment_of

from deniable.analysis.history import (
    committed_at,
    experiment_history,
    regret_curves,
    spending_history,
)
from deniable.analysis.leaderboard import Leaderboard
from deniable.analysis.segment_risk import regret_bound
from deniable.storage import times
from deniable.storage.account import Balance
from deniable.storage.counts import Sample

START = datetime(2026, 1, 2, tzinfo=UTC)
DAY = timedelta(days=1)
SHOWS, CLICKS = [(700, 300), (0, 0)], [(210, 30), (0, 0)]
SAMPLES = [
    Sample(START + DAY, (40, 60), (9, 3), 6.5),
    Sample(START + 2 * DAY, (300, 200), (90, 20), 30.0),
]


def board_of(**more: object) -> Leaderboard:
    experiment = experiment_of(n_segments=1, started_at=START, **more)  # type: ignore[arg-type]
    return Leaderboard(experiment, cells_of(experiment, SHOWS, CLICKS))


def test_it_begins_at_the_start_and_ends_with_the_experiment() -> None:
    board, now = board_of(), START + 9 * DAY
    found = experiment_history(board, SAMPLES, now)
    assert [one.time for one in found] == [START, START + DAY, START + 2 * DAY, now]
    assert [one.visitors for one in found] == [0, 100, 500, 1_000]
    assert [one.clicks_lost for one in found] == [0.0, 6.5, 30.0, board.lost]
    assert found[1].shows == {"arm0": 40, "arm1": 60}
    assert found[-1].clicks == {"arm0": 210, "arm1": 30}
    assert [one.regret_bound for one in found] == [
        regret_bound(board.experiment, one.visitors) for one in found
    ]
    stopped = board_of(status="stopped", stopped_at=START + 3 * DAY)
    ended = experiment_history(stopped, SAMPLES, now)
    assert [one.time for one in ended] == [one.time for one in found[:-1]] + [START + 3 * DAY]


def test_a_draft_has_only_the_present() -> None:
    experiment = experiment_of(n_segments=1, status="draft", started_at=None)
    board = Leaderboard(experiment, cells_of(experiment, [(0, 0)] * 2, [(0, 0)] * 2))
    (only,) = experiment_history(board, [], START)
    assert (only.visitors, only.clicks_lost) == (0, 0)


def test_curves_of_regret_meet_the_present() -> None:
    board = board_of()
    curves = regret_curves(board, experiment_history(board, SAMPLES, START + 9 * DAY))
    assert curves.lost == [(0, 0.0), (100, 6.5), (500, 30.0), (1_000, board.lost)]
    assert curves.at_random[0] == (0, 0.0)
    assert curves.at_random[-1][0] == 1_000
    assert curves.at_random[-1][1] == pytest.approx(board.lost_at_random)
    assert curves.bound[-1] == (1_000, regret_bound(board.experiment, 1_000))
    for points in curves:
        assert [n for n, _ in points] == sorted({n for n, _ in points})


def test_what_the_firm_had_committed() -> None:
    moments = [START + n * DAY for n in range(4)]
    balances = [
        Balance(times.as_stored(moments[1]), 10**9, 3 * 10**9),
        Balance(times.as_stored(moments[3]), 2 * 10**9, 3 * 10**9),
    ]
    assert committed_at(balances, moments) == [0, 1, 1, 2]
    assert committed_at([], moments) == [0] * 4
    points = spending_history(balances, 200, now=START + 9 * DAY)
    assert [(one.time, one.committed, one.budget) for one in points] == [
        (moments[1], 1, 3), (moments[3], 2, 3), (START + 9 * DAY, 2, 3),
    ]  # fmt: skip
    assert spending_history([], 200) == []
