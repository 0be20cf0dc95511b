"""Indices against published values, markovianbandit, and a brute-force calibration.

The tables are computed here: what an earlier run has left in the user's cache proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq

from deniable.errors import InvalidArgumentError
from deniable.simulation.kernels import gittins_table as module
from deniable.simulation.kernels.gittins_table import (
    GittinsTable,
    compute_table,
    gittins_index,
    gittins_table,
    look_up,
)

computed = lru_cache(maxsize=None)(compute_table)


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "gittins_table", computed)


# Gittins, Glazebrook and Weber (2011), tables of the Bernoulli index, Beta(a, b) with a + b small.
PUBLISHED = {
    0.9: {(1, 1): 0.7029, (1, 2): 0.5001, (2, 1): 0.8001, (2, 2): 0.6346},
    0.99: {(1, 1): 0.8699, (1, 2): 0.7005, (2, 1): 0.9102},
}


@pytest.mark.parametrize(
    ("discount", "state", "value"),
    [(d, state, value) for d, table in PUBLISHED.items() for state, value in table.items()],
)
def test_published_values(discount: float, state: tuple[int, int], value: float) -> None:
    a, b = state
    assert abs(gittins_index(a - 1, a + b - 2, discount) - value) < 6e-5


Worth = Callable[[float], float]


def _is_root(worth: Worth, index: float, tolerance: float) -> bool:
    """Whether the payment that is as good as going on is this near, which two payments tell.

    Whatever the later choices, going on is worth less the more is paid: there is one root.
    """
    return worth(index - tolerance) > 0 > worth(index + tolerance)


def _going_on(clicks: int, shows: int, discount: float, horizon: int) -> Worth:
    """What going on is worth by payment: one plain dynamic program for each."""

    def going_on_is_worth(payment: float) -> float:
        means = (np.arange(horizon + 1) + 1) / (horizon + 2)
        values = np.maximum(0.0, means - payment)
        for n in range(horizon - 1, shows - 1, -1):
            m = (np.arange(n + 1) + 1) / (n + 2)
            going_on = (1 - discount) * (m - payment) + discount * (
                m * values[1 : n + 2] + (1 - m) * values[: n + 1]
            )
            values = np.maximum(0.0, going_on)
        return float(going_on[clicks])

    return going_on_is_worth


@pytest.mark.parametrize(
    ("clicks", "shows"), [(0, 0), (0, 3), (3, 3), (5, 20), (1, 60), (40, 90), (100, 200), (3, 250)]
)
def test_first_shows_against_dynamic_programs(clicks: int, shows: int) -> None:
    for discount, horizon in ((0.9, 700), (0.99, 2600)):
        worth = _going_on(clicks, shows, discount, horizon)
        assert _is_root(worth, gittins_index(clicks, shows, discount), 1e-5)


def test_a_wrong_index_is_not_taken_for_the_root() -> None:
    worth, right = _going_on(5, 20, 0.9, 700), gittins_index(5, 20, 0.9)
    assert not _is_root(worth, right + 2e-5, 1e-5)
    assert not _is_root(worth, right - 2e-5, 1e-5)


@pytest.mark.parametrize(("clicks", "shows"), [(30, 400), (300, 400), (5, 900), (600, 1200)])
def test_the_approximation_for_many_shows(clicks: int, shows: int) -> None:
    worth = _going_on(clicks, shows, 0.99, shows + 2400)
    assert _is_root(worth, gittins_index(clicks, shows, 0.99), 2e-4)


def _going_on_by_failures(failures: int, shows: int, discount: float) -> Worth:
    """The same in numbers of failures, of which a good arm has few: never more than 150."""
    horizon, misses = shows + 12_000, np.arange(151)
    shown = np.arange(shows, horizon)[:, None]
    means = (shown - misses + 1) / (shown + 2)
    now, kept = (1 - discount) * means, discount * means

    def going_on_is_worth(payment: float) -> float:
        last = np.maximum(0.0, (horizon - misses + 1) / (horizon + 2) - payment)
        states = np.append(last, 0.0)
        values, failed = states[:-1], states[1:]  # with one more failure
        for n in range(horizon - shows - 1, -1, -1):
            going_on = values - failed
            going_on *= kept[n]
            going_on += discount * failed
            going_on += now[n]
            going_on -= (1 - discount) * payment
            np.maximum(0.0, going_on, out=values)
        return float(going_on[failures])

    return going_on_is_worth


@pytest.mark.parametrize(
    ("failures", "shows", "tolerance"),
    [(0, 255, 4e-5), (1, 255, 4e-5), (0, 256, 1e-4), (3, 700, 1e-4)],
)
def test_arms_that_were_nearly_always_clicked(failures: int, shows: int, tolerance: float) -> None:
    """Where the table of states ends, at the largest discount; it was off by 1.5e-3 there."""
    worth = _going_on_by_failures(failures, shows, 0.9999)
    assert _is_root(worth, gittins_index(shows - failures, shows, 0.9999), tolerance)


def test_beyond_the_grid_the_index_is_close_to_the_mean() -> None:
    for shows in (20_000, 10**6, 10**12):
        index = gittins_index(shows // 5, shows, 0.9999)
        assert 0.2 < index < 0.2 + 1 / np.sqrt(shows)


def _calibrated_nearby(clicks: int, shows: int, discount: float) -> float:
    """The root for any number of shows: of the states, only those that can be reached in time."""
    steps = math.ceil(36 / (1 - discount))  # then a click is worth 1e-16

    def going_on_is_worth(payment: float) -> float:
        more = np.arange(steps + 1)
        values = np.maximum(0.0, (clicks + more + 1) / (shows + steps + 2) - payment)
        for n in range(steps - 1, -1, -1):
            m = (clicks + more[: n + 1] + 1) / (shows + n + 2)
            going_on = (1 - discount) * (m - payment) + discount * (
                m * values[1 : n + 2] + (1 - m) * values[: n + 1]
            )
            values = np.maximum(0.0, going_on)
        return float(going_on[0])

    mean = (clicks + 1) / (shows + 2)
    return float(brentq(going_on_is_worth, mean, 1.0, xtol=1e-13))


@pytest.mark.parametrize("shows", [9_000, 20_000, 100_000, 1_000_000])
def test_beyond_the_grid_the_bonus_is_that_of_a_dynamic_program(shows: int) -> None:
    """The grid of discount .9 ends at 8,192 shows; beyond, the bonus falls faster than 1/sqrt(n)."""
    table = computed(0.9)
    assert table.grid[3] == 8192
    for share in (0.1, 0.5):
        clicks = round(share * shows)
        mean = (clicks + 1) / (shows + 2)
        bonus = look_up(clicks, shows, table) - mean
        assert bonus == pytest.approx(_calibrated_nearby(clicks, shows, 0.9) - mean, rel=0.1)


def test_against_markovianbandit() -> None:
    import markovianbandit as bandit

    discount, size = 0.9, 24  # the chain of all states with fewer than `size` shows
    states = [(s, n) for n in range(size) for s in range(n + 1)]
    place = {state: i for i, state in enumerate(states)}
    moves = np.zeros((len(states), len(states)))
    rewards = np.array([(s + 1) / (n + 2) for s, n in states])
    for (s, n), i in place.items():
        mean = (s + 1) / (n + 2)
        if n + 1 < size:
            moves[i, place[s + 1, n + 1]] = mean
            moves[i, place[s, n + 1]] = 1 - mean
        else:
            moves[i, i] = 1.0
    indices = bandit.restless_bandit_from_P0P1_R0R1(
        np.eye(len(states)), moves, np.zeros(len(states)), rewards
    ).whittle_indices(discount=discount)
    for state in [(0, 0), (0, 1), (1, 1), (1, 3), (3, 4)]:
        want = indices[place[state]]
        # The chain stops learning after 24 shows, worth at most .9^20 of the bonus.
        assert abs(gittins_index(*state, discount) - want) < 4e-3


def test_the_index_rises_with_clicks_and_falls_with_failures() -> None:
    rng = np.random.default_rng(1)
    table = computed(0.9999)
    for shows in [*range(0, 300, 7), 255, 256, 500, 2000, 9999, 10_001, 50_000, 10**7]:
        for clicks in {0, shows, *rng.integers(0, shows + 1, 12).tolist()}:
            here = look_up(clicks, shows, table)
            assert look_up(clicks + 1, shows + 1, table) >= here - 5e-5
            assert look_up(clicks, shows + 1, table) <= here + 5e-5
            assert here > (clicks + 1) / (shows + 2)


def test_a_table_is_kept_until_its_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[float] = []

    def compute(discount: float) -> GittinsTable:
        made.append(discount)
        return GittinsTable(*(np.full((2, 2), len(made), float) for _ in range(3)))

    def table(discount: float) -> tuple[float, int]:
        gittins_table.cache_clear()
        found = gittins_table(discount)
        return float(found.bonus[0, 0]), len(made)

    monkeypatch.setenv("DENIABLE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "compute_table", compute)
    try:
        assert [table(0.9), table(0.9), table(0.8)] == [(1, 1), (1, 1), (2, 2)]
        (kept,) = tmp_path.glob("cache/gittins-*-0.9.npz")
        kept.write_bytes(b"half a file")
        assert [table(0.9), table(0.9)] == [(3, 3), (3, 3)]
        monkeypatch.setattr(module, "__file__", str(tmp_path / "gittins_table.py"))
        for source in ("gittins_table.py", "gittins_calibration.py"):
            for other in ("gittins_table.py", "gittins_calibration.py"):
                (tmp_path / other).write_text("as it was")
            before = table(0.9)
            assert table(0.9) == before
            (tmp_path / source).write_text("as it is")
            assert table(0.9)[1] == before[1] + 1, source
    finally:
        gittins_table.cache_clear()


@pytest.mark.parametrize("discount", [0.0, 1.0, 0.99999, -1])
def test_bad_discounts_are_named(discount: float) -> None:
    with pytest.raises(InvalidArgumentError, match="discount"):
        gittins_table(discount)
