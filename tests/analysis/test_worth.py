"""Does personalising pay? Scores against rows one by one, policies by enumeration, errors by draws."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from tests.leak.folded import folds_of, log_of

from deniable.analysis import worth as module
from deniable.analysis.worth import (
    FOLDS,
    LABEL_BUDGETS,
    Folds,
    Worth,
    policies,
    shrunk_rates,
    worth_of_folds,
)
from deniable.errors import InvalidArgumentError
from deniable.masks.limit import best_groups, group_channel

PAYS = np.array([[0.13, 0.10], [0.10, 0.13]])
NOTHING_TO_GAIN = {
    "all arms alike": (np.full((3, 3), 0.1), [1 / 3] * 3, 6_000),
    "one arm best everywhere": (np.array([[0.05, 0.055], [0.2, 0.22]]), [0.5, 0.5], 6_000),
    "best or as good everywhere": (np.array([[0.1, 0.1], [0.1, 0.05]]), [0.7, 0.3], 6_000),
    "many segments, rare clicks": (np.full((8, 4), 0.01), [0.3] + [0.1] * 7, 10_000),
    "few visitors": (np.full((2, 3), 0.2), [0.9, 0.1], 600),
}


def measured(folds: Folds, **options: Any) -> Worth:
    names = [[str(n) for n in range(size)] for size in folds.shown.shape[1:]]
    return worth_of_folds(folds, segments=names[0], arms=names[1], **options)


def test_scores_are_those_of_the_rows_one_by_one() -> None:
    """The doubly robust score of every visitor, in a loop, with propensities that differ by visitor."""
    rng = np.random.default_rng(4)
    size, rates = 3_000, np.array([[0.3, 0.5, 0.1], [0.5, 0.2, 0.4]])
    chances = rng.dirichlet([4, 4, 4], size)
    segment, fold = rng.integers(2, size=size), rng.integers(FOLDS, size=size)
    arm = (rng.random((size, 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    reward = rng.random(size) * 2 * rates[segment, arm]
    drawn = chances[np.arange(size), arm]
    folds = log_of(fold, segment, arm, reward, drawn, (2, 3))
    found = measured(folds, known=True)
    values, gains, others = [], [], []
    m, _, shares = shrunk_rates(folds, slice(None))
    everybody = policies(m, shares)[0][0]
    for place in range(1, FOLDS):
        m, _, shares = shrunk_rates(folds, slice(place))
        ladder = policies(m, shares)
        for i in np.flatnonzero(fold == place):
            s, a = segment[i], arm[i]
            scores = [
                float(pi[s] @ m[s] + pi[s, a] / drawn[i] * (reward[i] - m[s, a])) for pi in ladder
            ]
            values.append(scores)
            gains.append([score - scores[0] for score in scores])
            base = everybody @ m[s] + everybody[a] / drawn[i] * (reward[i] - m[s, a])
            others.append([score - float(base) for score in scores])
    for column in range(len(found.steps)):
        value, gain, other = (np.array(rows)[:, column] for rows in (values, gains, others))
        step = found.steps[column]
        assert step.value == pytest.approx(value.mean(), abs=1e-12)
        assert step.gain == pytest.approx(gain.mean(), abs=1e-12)
        half = 1.959963984540054 * value.std() / len(value) ** 0.5
        assert step.value_high - step.value == pytest.approx(half, rel=1e-9)
        half = 1.959963984540054 * gain.std() / len(gain) ** 0.5
        assert step.high - step.gain == pytest.approx(half, rel=1e-9, abs=1e-14)
        if column > 0:
            low = other.mean() - 1.959963984540054 * other.std() / len(other) ** 0.5
            assert step.low == pytest.approx(min(step.gain - half, low), abs=1e-12)


def test_policies_by_enumeration_and_by_another_solver() -> None:
    rng = np.random.default_rng(5)
    for _ in range(5):
        rates, shares = rng.random((3, 3)), rng.dirichlet([3, 3, 3])
        ladder = policies(rates, shares)
        worths = [float((shares[:, None] * rates * policy).sum()) for policy in ladder]
        assert worths[0] == pytest.approx((shares @ rates).max())
        assert worths[-1] == pytest.approx(shares @ rates.max(axis=1))
        for budget, found in zip(LABEL_BUDGETS, worths[1:4], strict=True):
            channel = group_channel(best_groups(shares, budget, module.HETEROGENEITY), budget)
            best = max(
                sum(
                    shares[s] * channel[s, z] * rates[s, a]
                    for s in range(3)
                    for z, a in enumerate(chosen)
                )
                for chosen in product(range(3), repeat=channel.shape[1])
            )
            assert found == pytest.approx(best)
        pairs = [(a, s, t) for a in range(3) for s in range(3) for t in range(3) if s != t]
        bounds = np.zeros((len(pairs), 9))
        for row, (a, s, t) in enumerate(pairs):
            bounds[row, 3 * s + a], bounds[row, 3 * t + a] = 1, -np.e
        solved = linprog(
            -(shares[:, None] * rates).ravel(),
            A_ub=bounds,
            b_ub=np.zeros(len(pairs)),
            A_eq=np.kron(np.eye(3), np.ones(3)),
            b_eq=np.ones(3),
        )
        assert worths[4] == pytest.approx(-solved.fun, abs=1e-9)


@pytest.mark.parametrize("name", NOTHING_TO_GAIN)
def test_false_verdicts_are_rare(name: str) -> None:
    """Of 100 logs by setting, 500 in all, where nothing can be gained, at most 5% say that it pays."""
    rates, shares, visitors = NOTHING_TO_GAIN[name]
    rng = np.random.default_rng(6)
    said = [measured(folds_of(rng, rates, visitors, shares)).answer for _ in range(100)]
    assert said.count("pays") <= 5


def test_policies_judged_by_their_own_visitors_would_be_credited_with_luck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted fault that the test above is for."""
    kept = module.shrunk_rates
    monkeypatch.setattr(module, "shrunk_rates", lambda folds, _: kept(folds, slice(None)))
    rng = np.random.default_rng(6)
    folds = [folds_of(rng, np.full((8, 4), 0.1), 6_000) for _ in range(40)]
    assert sum(measured(one).answer == "pays" for one in folds) > 8


def test_a_gain_is_seen_and_lies_in_its_interval() -> None:
    """Power and coverage: 20,000 visitors see a gain of 13% in more than 90% of the logs."""
    rng = np.random.default_rng(7)
    n_pays = covered = 0
    for _ in range(100):
        folds = folds_of(rng, PAYS, 20_000)
        found = measured(folds)
        n_pays += found.answer == "pays"
        true = []
        for place in range(1, FOLDS):
            m, _, shares = shrunk_rates(folds, slice(place))
            ladder = policies(m, shares)
            size = folds.shown[place].sum()
            true.append((size, float(((ladder[-1] - ladder[0]) * PAYS).sum() / 2)))
        target = sum(n * gain for n, gain in true) / sum(n for n, _ in true)
        covered += found.no_privacy.low <= target <= found.no_privacy.high
    assert n_pays > 90
    assert covered >= 88  # of 95 expected: fewer in one of 1,000 series


def test_an_experiment_that_learned_is_judged_by_its_propensities() -> None:
    """An adaptive log: with propensities the arms' values are right, without them they are not."""
    rng = np.random.default_rng(8)
    known, ignorant = [], []
    for _ in range(60):
        parts = [np.zeros((2, 2)) for _ in range(3)]
        tables = []
        for _ in range(FOLDS):  # each table is made from the clicks before it; a greedy one
            shown, clicks = parts[0] + 1, parts[1] + 0.5
            favourite = (clicks / shown).argmax(axis=1)
            table = np.full((2, 2), 0.1)
            table[np.arange(2), favourite] = 0.9
            new = np.stack([rng.multinomial(25, row) for row in table])
            won = rng.binomial(new, 0.2)
            parts = [old + more for old, more in zip(parts, (new, won, won), strict=True)]
            tables.append((table, new, won, won))
        chances, shown, clicks, squares = (
            np.array(part, float) for part in zip(*tables, strict=True)
        )
        known.append(Folds.drawn_with(chances, shown, clicks, squares))
        ignorant.append(Folds.estimated(shown, clicks, squares))
    arm = np.array([[1.0, 0.0], [1.0, 0.0]])

    def all_values(folds: Folds) -> float:
        parts = [module._scores(folds, k, arm[None], np.zeros((2, 2)))[0, 0] for k in range(FOLDS)]
        return float(sum(parts) / folds.shown.sum())

    error = np.std([all_values(one) for one in known]) / 60**0.5
    assert np.mean([all_values(one) for one in known]) == pytest.approx(0.2, abs=4 * error)
    assert np.mean([all_values(one) for one in ignorant]) < 0.2 - 0.005


def test_arms_that_a_segment_never_saw_are_left_out() -> None:
    rng = np.random.default_rng(9)
    folds = folds_of(rng, np.array([[0.1, 0.2, 0.9], [0.2, 0.1, 0.9]]), 20_000)
    cut = Folds.estimated(
        *(
            part * np.array([[1, 1, 1], [1, 1, 0]])
            for part in (folds.shown, folds.reward, folds.square)
        )
    )
    found = measured(cut)
    assert found.left_out == ("2",)
    assert found.arms == ("0", "1")
    assert found.answer == "pays"
    assert found.no_privacy.value == pytest.approx(0.2, abs=0.02)


def test_what_cannot_be_compared_is_refused() -> None:
    rng = np.random.default_rng(10)
    with pytest.raises(InvalidArgumentError, match="2 or more segments"):
        measured(folds_of(rng, np.array([[0.1, 0.2]]), 1_000))
    apart = folds_of(rng, np.full((2, 2), 0.1), 1_000)
    own = [part * np.eye(2) for part in (apart.shown, apart.reward, apart.square)]
    with pytest.raises(InvalidArgumentError, match="every segment was shown"):
        measured(Folds.estimated(*own))


def test_a_log_without_a_click_says_nothing() -> None:
    shown = np.full((FOLDS, 2, 2), 100.0)
    found = measured(Folds.estimated(shown, 0 * shown, 0 * shown))
    assert found.answer != "pays"
    assert found.no_privacy.gain == 0
