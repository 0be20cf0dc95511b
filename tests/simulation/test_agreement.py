"""Leap against step in distribution: many settings, no flakes (faults: test_planted_faults)."""

from __future__ import annotations

import pytest
from tests.simulation.two_samples import NEVER, least_p_value, named, sample, world_of

from deniable.simulation.scenario import POLICIES, Settings
from deniable.strategies.custom import Custom

LEAPING = [
    name
    for name, make in POLICIES.items()
    if not isinstance(make(Settings(1.0, (1.0, 2.0))), Custom)
]
"""Policies with a leap kernel; those in Python have one kernel alone (test_custom.py)."""

REPETITIONS = 2000
FEWER, MORE_LEAPS = 1_150, 8_000
"""As sharp as 2,000 of each, since 1/1,150 + 1/8,000 < 2/2,000: for horizons where steps are slow."""

TWO = [
    ((0.324, 0.295), 3000),
    ((0.1955, 0.195), 4000),
    ((0.5, 0.5), 700),
    ((0.001, 0.002), 6000),
    ((0.9, 0.85), 600),
    ((0.02, 0.03), 2000),
]
MORE = [
    ((0.3, 0.35, 0.25), 1500),
    ((0.1, 0.1, 0.12, 0.05), 2000),
    ((0.0027, 0.0022, 0.0013, 0.0026, 0.0011, 0.0025, 0.0046, 0.0053), 6000),
    ((0.6, 0.61, 0.59, 0.6, 0.62), 900),
]
LONGER = [(0.1955, 0.195), (0.324, 0.295), (0.3, 0.35, 0.25)]
RULES = [("constant", 0.05), ("constant", 1), ("constant", 3), ("dynamic", 1), ("dynamic", 5)]
OTHERS = ["epsilon-greedy", "gittins", "random", "perfect", "arm-constant", "arm-dynamic"]


SETTINGS = [
    *((name, budget, rates, 1, horizon) for rates, horizon in TWO for name, budget in RULES),
    *((name, budget, rates, 1, horizon) for rates, horizon in MORE for name, budget in RULES[1:4]),
    *((name, 1, rates, 1, horizon) for rates, horizon in (TWO[0], MORE[0]) for name in OTHERS),
    *((name, 2, MORE[0][0], 3, 1200) for name in LEAPING),
    # Long enough for blocks that are held by a bound, and for many steps of a falling schedule.
    *((name, 5, rates, 1, 100_000) for name in ("constant", "dynamic") for rates in LONGER),
]


def test_there_are_enough_settings() -> None:
    assert len(SETTINGS) >= 40
    assert {setting[0] for setting in SETTINGS} == set(LEAPING)


@pytest.mark.parametrize(
    ("name", "budget", "rates", "segments", "horizon"),
    SETTINGS,
    ids=[f"{s[0]}-{s[1]}-K{len(s[2])}-{s[2][0]}-J{s[3]}-T{s[4]}" for s in SETTINGS],
)
def test_leap_is_step_in_law(
    name: str, budget: float, rates: tuple[float, ...], segments: int, horizon: int
) -> None:
    world = world_of(rates, segments, horizon)
    policy = named(name, budget, len(rates))
    steps, leaps = (FEWER, MORE_LEAPS) if horizon >= 100_000 else (REPETITIONS, REPETITIONS)
    leap = sample(world, policy, "leap", leaps, seed=1)
    step = sample(world, policy, "step", steps, seed=2)
    assert least_p_value(leap, step) > NEVER
