"""Confidence sequences cover at all looks together, in 2,000 experiments of every setting."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pytest
from tests.inference.experiments import (
    Setting,
    arm_budgets,
    constant,
    dynamic,
    erratic,
    joint,
    one_table_for_two,
    retiring,
    run,
    same,
    thompson,
)

from deniable.inference.intervals import combine, of_sums
from deniable.inference.state import State, Sums
from deniable.strategies.joint_lp import best_table, proved_table

ALPHA = 0.05


@dataclass
class Outcome:
    """Shares of experiments, over all looks; widths at the end, in fixed-horizon widths."""

    asymptotic: float
    exact: float
    peeking: float
    found: float
    found_exact: float
    width: float
    width_exact: float
    looks: int
    ready: float


def outcome(setting: Setting, seed: int) -> Outcome:
    """Every pair of each experiment, alpha split over them."""
    z = NormalDist().inv_cdf(1 - ALPHA / 2)
    missed, missed_exact, peeked, found, found_exact = np.zeros((5, setting.runs), dtype=bool)
    looks = 0
    for n, state, target, _, _ in run(setting, seed):
        if n < 500:
            continue
        looks += 1
        sums = state.between
        each = ALPHA / target.shape[1]
        seen = of_sums(sums, state.planned_between, state.rate, each, -1.0)
        outside = (seen.low > target) | (seen.high < target)
        missed |= (outside & seen.ready).any(axis=1)
        missed_exact |= ((seen.exact_low > target) | (seen.exact_high < target)).any(axis=1)
        with np.errstate(invalid="ignore"):  # nobody was randomised yet
            deviation = np.sqrt(sums.variance) / sums.weight
        peeked |= (np.abs(sums.estimate - target) > z * deviation).any(axis=1)
        found |= (((seen.low > 0) | (seen.high < 0)) & seen.ready).any(axis=1)
        found_exact |= ((seen.exact_low > 0) | (seen.exact_high < 0)).any(axis=1)
    fixed = NormalDist().inv_cdf(1 - each / 2) * deviation
    return Outcome(
        asymptotic=float(missed.mean()),
        exact=float(missed_exact.mean()),
        peeking=float(peeked.mean()),
        found=float(found.mean()),
        found_exact=float(found_exact.mean()),
        width=float(np.median((seen.high - seen.low) / 2 / fixed)),
        width_exact=float(np.median((seen.exact_high - seen.exact_low) / 2 / fixed)),
        looks=looks,
        ready=float(seen.ready.mean()),
    )


def rare(budget: float, n_arms: int = 2) -> float:
    """Probability of an arm that is not the favourite."""
    return 1 / (n_arms - 1 + math.exp(budget))


SETTINGS = {
    **{
        f"A/A, constant {budget}": Setting(
            constant(budget),
            same(0.1, 0.1),
            typical=rare(budget),
            horizon=100_000 if budget == 5 else 20_000,
        )
        for budget in (0.1, 1.0, 3.0, 5.0)
    },
    "A/A, dynamic 3.0": Setting(dynamic(3.0), same(0.1, 0.1), typical=0.05),
    "A/A, dynamic 5.0": Setting(dynamic(5.0), same(0.1, 0.1), typical=0.05, horizon=100_000),
    "A/A, rare rewards": Setting(constant(1.0), same(0.01, 0.01), typical=rare(1.0)),
    "A/A, frequent rewards": Setting(constant(1.0), same(0.6, 0.6), typical=rare(1.0)),
    "A/A, looks every 50": Setting(
        constant(1.0), same(0.1, 0.1), horizon=6000, growth=0.0, first=50, typical=rare(1.0)
    ),
    "small lift, budget 1": Setting(constant(1.0), same(0.1, 0.11), typical=rare(1.0)),
    "small lift, budget 3": Setting(dynamic(3.0), same(0.1, 0.11), typical=0.05),
    "lift, budget 5": Setting(dynamic(5.0), same(0.1, 0.12), typical=0.05),
    "three arms, budget 2": Setting(constant(2.0), same(0.1, 0.1, 0.12), typical=rare(2.0, 3)),
    "arm budgets .5 1 2": Setting(arm_budgets([0.5, 1.0, 2.0]), same(0.1, 0.12, 0.1), typical=0.1),
    "thompson, budget 3": Setting(thompson(3.0), same(0.1, 0.1), typical=rare(3.0)),
    "A/A, joint 1.0": Setting(joint(1.0), same(0.1, 0.1), typical=rare(1.0), runs=4000),
    "A/A, joint 5.0": Setting(joint(5.0), same(0.1, 0.1), typical=0.1, runs=4000),
    "small lift, joint 3.0": Setting(joint(3.0), same(0.1, 0.11), typical=0.1, runs=4000),
    "drift, joint 1.0": Setting(
        joint(1.0), lambda t: (0.15 - 0.1 * t, 0.15 - 0.1 * t), typical=0.1, runs=4000
    ),
    "A/A, erratic 1.0": Setting(erratic(1.0), same(0.1, 0.1), typical=rare(1.0), runs=4000),
    "small lift, erratic 3.0": Setting(erratic(3.0), same(0.1, 0.11), typical=rare(3.0), runs=4000),
    "retiring arm": Setting(retiring(1.0, 5000), same(0.1, 0.12, 0.11), typical=rare(1.0, 3)),
    "revenue": Setting(constant(1.0), same(0.2, 0.2), values=(0.05, 0.2, 1.0), typical=rare(1.0)),
    "drift, both arms": Setting(
        constant(1.0), lambda t: (0.05 + 0.1 * t, 0.05 + 0.1 * t), typical=rare(1.0)
    ),
    "drift, lift fades": Setting(
        dynamic(3.0), lambda t: (0.1, 0.14 if t < 0.3 else 0.1), typical=0.05
    ),
    "drift, arms swap": Setting(
        constant(3.0), lambda t: (0.08 + 0.06 * t, 0.14 - 0.06 * t), typical=rare(3.0)
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_covers_at_all_looks(name: str) -> None:
    found = outcome(SETTINGS[name], seed=17)
    assert found.looks >= 38
    assert found.ready > 0.95  # by the end there was something to be wrong about
    assert found.asymptotic <= ALPHA
    assert found.exact <= ALPHA


def test_tables_for_two_segments_are_those_of_the_strategy() -> None:
    """The rule of the simulation against the product's solver."""
    rng = np.random.default_rng(3)
    for budget in (0.1, 1.0, 5.0):
        rates = rng.random((20, 2, 2))  # experiments, segments, arms
        lifts = rates[:, :, 1] - rates[:, :, 0]
        ours = one_table_for_two(np.concatenate([lifts[:, 0], lifts[:, 1]]), budget)
        for place, rate in enumerate(rates):
            rows = np.array([ours[place], ours[place + len(rates)]])
            worth = 0.5 * float((rows * rate).sum())
            assert worth == pytest.approx(proved_table(rate, [0.5, 0.5], budget).value, abs=1e-9)
            assert rows == pytest.approx(best_table(rate, budget), abs=1e-6)


def test_widths() -> None:
    """Where the plan is right: a typical rate, a typical table, the horizon reached."""
    for budget in (0.1, 1.0, 3.0):
        setting = Setting(constant(budget), same(0.1, 0.1), typical=rare(budget), runs=200)
        found = outcome(setting, seed=3)
        assert found.width <= 1.7
        assert found.width_exact <= 2.4


def test_peeking_at_a_fixed_horizon_interval_fails() -> None:
    """The planted fault: the simulation notices an interval that is only valid once."""
    assert outcome(SETTINGS["A/A, constant 1.0"], seed=17).peeking > 0.25


def test_rare_rewards_would_fail_if_shown_too_early() -> None:
    """The planted fault: asymptotic intervals after 500 visitors whatever the scores did."""
    setting = Setting(constant(3.0), same(0.01, 0.01), typical=rare(3.0))
    missed = np.zeros(setting.runs, dtype=bool)
    for n, state, target, _, _ in run(setting, 17):
        if n >= 500:
            seen = of_sums(state.between, state.planned_between, state.rate, ALPHA, -1.0)
            missed |= ((seen.low > target) | (seen.high < target))[:, 0]
    assert missed.mean() > ALPHA
    assert outcome(setting, seed=17).asymptotic <= ALPHA


def test_whole_and_family_cover_together() -> None:
    """Three segments that come by chance, three arms: nine comparisons and three of the whole."""
    runs, shares = 2000, np.array([0.6, 0.3, 0.1])
    rates = ((0.1, 0.1, 0.12), (0.05, 0.06, 0.05), (0.2, 0.2, 0.2))
    each = ALPHA / 12
    streams = [
        run(
            Setting(
                constant(1.0),
                same(*rate),
                horizon=30_000,
                growth=0.15,
                typical=rare(1.0, 3),
                share=float(share),
            ),
            seed=29 + place,
        )
        for place, (rate, share) in enumerate(zip(rates, shares, strict=True))
    ]
    truth = np.array([[r[1] - r[0], r[2] - r[0], r[2] - r[1]] for r in rates])
    missed = {kind: np.zeros(runs, dtype=bool) for kind in ("near", "far", "whole", "whole far")}
    looks = 0
    for steps in zip(*streams, strict=False):
        states: list[State] = [step[1] for step in steps]
        parts = [state.between for state in states]
        sums = stacked(parts)
        planned = np.stack([np.broadcast_to(s.planned_between, (runs, 3)) for s in states])
        seen = of_sums(sums, planned, 0.1, each, -1.0)
        target = np.broadcast_to(truth[:, None], sums.weight.shape)
        note(missed["near"], ((seen.low > target) | (seen.high < target)) & seen.ready)
        note(missed["far"], (seen.exact_low > target) | (seen.exact_high < target))
        whole = combine(sums, shares[:, None, None], planned, 0.1, each, -1.0)
        goal = shares @ truth
        outside = (whole.low > goal) | (whole.high < goal)
        note(missed["whole"], (outside & whole.ready)[None])
        note(missed["whole far"], ((whole.exact_low > goal) | (whole.exact_high < goal))[None])
        looks += 1
    assert looks > 30
    assert whole.ready.all()
    assert (missed["near"] | missed["whole"]).mean() <= ALPHA
    assert (missed["far"] | missed["whole far"]).mean() <= ALPHA
    assert np.median(whole.high - whole.low) < np.median(whole.exact_high - whole.exact_low)


def test_arm_values_cover() -> None:
    setting = Setting(dynamic(3.0), same(0.1, 0.12, 0.05), typical=0.05)
    missed = np.zeros((2, setting.runs), dtype=bool)
    for _, state, _, target, _ in run(setting, 5):
        own = of_sums(state.alone, state.planned_alone, state.rate, ALPHA / 3, 0.0)
        missed[0] |= (((own.low > target) | (own.high < target)) & own.ready).any(axis=1)
        missed[1] |= ((own.exact_low > target) | (own.exact_high < target)).any(axis=1)
    assert (missed.mean(axis=1) <= ALPHA).all()


def stacked(parts: list[Sums]) -> Sums:
    return Sums(
        *(
            np.stack([getattr(part, name) for part in parts])
            for name in ("visitors", "weight", "total", "variance")
        )
    )


def note(missed: np.ndarray, wrong: np.ndarray) -> None:
    missed |= wrong.any(axis=(0, 2))
