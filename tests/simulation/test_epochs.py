"""The epoch simulator against a plain loop over visitors, in distribution, with planted faults."""

from __future__ import annotations

import math

import numpy as np
import pytest
from deniable.simulation._epochs import ACROSS, GIVEN, JOINT, POOLED, run_epochs
from numpy.typing import NDArray
from tests.simulation.two_samples import NEVER, least_p_value

from deniable.simulation.kernels.random_numbers import generator_state
from deniable.strategies.joint_lp import best_table, workspace
from deniable.strategies.joint_rule import (
    GROWTH,
    band_floors,
    first_epoch,
    joint_table,
    pooled_table,
    tuning,
)

Table = NDArray[np.float64]
RATES = np.array([[0.5, 0.2], [0.2, 0.4], [0.3, 0.3]])
SHARES = np.array([0.7, 0.3])
HORIZON = 120
BUDGET = 1.0
LOTTERY = 0.3
BEST = best_table(RATES, SHARES, BUDGET).table
KINDS = {"joint": JOINT, "across time": ACROSS, "pooled": POOLED, "best private": GIVEN}


def _next_table(kind: int, shows: Table, clicks: Table, floors: list[Table]) -> Table:
    done = shows.sum()
    if kind == GIVEN:
        return BEST
    if kind == POOLED or (kind == ACROSS and done < LOTTERY * HORIZON):
        return pooled_table(shows, clicks, HORIZON)
    if kind == JOINT:
        return joint_table(shows, clicks, HORIZON, BUDGET)
    if floors:
        return joint_table(shows, clicks, HORIZON, BUDGET, floors=floors[0])
    table = joint_table(shows, clicks, HORIZON, BUDGET, keep=0)
    floors.append(band_floors(table))
    return table


def _by_steps(
    kind: int, rng: np.random.Generator, growth: float = GROWTH, shares: Table = SHARES
) -> list[float]:
    """One repetition, visitor by visitor."""
    shows, clicks = np.zeros(RATES.shape), np.zeros(RATES.shape)
    table = BEST if kind == GIVEN else np.full(RATES.shape, 1 / 3)
    until = first_epoch(*RATES.shape)
    floors: list[Table] = []
    for visitor in range(HORIZON):
        if visitor == until:
            table = _next_table(kind, shows, clicks, floors)
            until += math.ceil(visitor * growth)
        s = int(rng.random() >= shares[0])
        a = int(np.searchsorted(np.cumsum(table[:, s]), rng.random(), "right"))
        a = min(a, 2)
        shows[a, s] += 1
        clicks[a, s] += rng.random() < RATES[a, s]
    return [*shows.ravel(), *clicks.ravel(), clicks.sum()]


def _by_epochs(kind: int, seed: int, repetition: int) -> list[float]:
    shows, clicks = np.zeros(RATES.shape), np.zeros(RATES.shape)
    run_epochs(
        kind,
        BUDGET,
        tuning(),
        GROWTH,
        LOTTERY,
        BEST,
        RATES,
        SHARES,
        HORIZON,
        generator_state(np.random.SeedSequence([seed, repetition])),
        workspace(*RATES.shape),
        shows,
        clicks,
    )
    return [*shows.ravel(), *clicks.ravel(), clicks.sum()]


def _epoch_sample(kind: int, size: int = 2000) -> Table:
    return np.array([_by_epochs(kind, 1, i) for i in range(size)])


@pytest.mark.parametrize("name", KINDS)
def test_epochs_are_steps_in_law(name: str) -> None:
    rng = np.random.default_rng(2)
    steps = np.array([_by_steps(KINDS[name], rng) for _ in range(600)])
    assert least_p_value(_epoch_sample(KINDS[name]), steps) > NEVER


def test_planted_faults_are_found() -> None:
    rng = np.random.default_rng(3)
    epochs = _epoch_sample(JOINT)
    slow = np.array([_by_steps(JOINT, rng, growth=3.0) for _ in range(600)])
    assert least_p_value(epochs, slow) < NEVER
    skewed = np.array([_by_steps(JOINT, rng, shares=np.array([0.65, 0.35])) for _ in range(600)])
    assert least_p_value(epochs, skewed) < NEVER


def test_same_seed_same_run() -> None:
    assert _by_epochs(JOINT, 5, 9) == _by_epochs(JOINT, 5, 9)
    assert _by_epochs(JOINT, 5, 9) != _by_epochs(JOINT, 5, 10)


def test_expected_clicks_of_known_rates() -> None:
    shows, clicks = np.zeros(RATES.shape), np.zeros(RATES.shape)
    expected = run_epochs(
        GIVEN,
        BUDGET,
        tuning(),
        GROWTH,
        LOTTERY,
        BEST,
        RATES,
        SHARES,
        10**12,
        generator_state(np.random.SeedSequence(1)),
        workspace(*RATES.shape),
        shows,
        clicks,
    )
    assert expected == pytest.approx(10**12 * best_table(RATES, SHARES, BUDGET).value)
    assert clicks.sum() == pytest.approx(expected, rel=1e-5)
    assert shows.sum() == 10**12
