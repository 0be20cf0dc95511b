"""Odds ratios, beliefs and guesses against independent oracles and against logs with a known truth."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy import stats
from tests.audit.bandit import Bandit, promise
from tests.leak.logs import SHARES, TRUTH, counted, drawn

from deniable.audit.trackers import proven_risk
from deniable.leak.counting import Counts
from deniable.leak.measuring import clopper_pearson, measure
from deniable.leak.report import measure_leak

CELLS = [(0, 10), (1, 10), (10, 10), (3, 7), (150, 1_000), (1, 10_000_000), (0, 5_000_000)]


def at_most(k: int, n: int, p: float) -> mpmath.mpf:
    """P(X <= k) of a binomial X, term by term."""
    p, term = mpmath.mpf(p), (1 - mpmath.mpf(p)) ** n
    total = term
    for j in range(1, k + 1):
        term *= mpmath.mpf(n - j + 1) / j * p / (1 - p)
        total += term
    return total


@pytest.mark.parametrize(("k", "n"), CELLS)
@pytest.mark.parametrize("alpha", [0.025, 1e-6, 1e-20])
def test_limits_solve_their_equations(k: int, n: int, alpha: float) -> None:
    """At the low limit, k or more is as rare as alpha; at the high one, k or less."""
    low, high = (float(limit) for limit in clopper_pearson(k, n, alpha))
    with mpmath.workdps(60):
        if k == 0:
            assert low == 0
        else:
            assert float(1 - at_most(k - 1, n, low)) == pytest.approx(alpha, rel=1e-6)
        if k == n:
            assert high == 1
        else:
            assert float(at_most(k, n, high)) == pytest.approx(alpha, rel=1e-6)


@pytest.mark.parametrize(("k", "n"), [*CELLS, (123_456, 10_000_000)])
def test_limits_agree_with_scipy(k: int, n: int) -> None:
    expected = stats.binomtest(k, n).proportion_ci(confidence_level=0.95, method="exact")
    low, high = clopper_pearson(k, n, 0.025)
    assert float(low) == pytest.approx(expected.low, rel=1e-9)
    assert float(high) == pytest.approx(expected.high, rel=1e-9)


def test_without_trials_anything_is_possible() -> None:
    low, high = clopper_pearson(0, 0, 0.01)
    assert (float(low), float(high)) == (0, 1)


@pytest.mark.parametrize("seed", range(20))
def test_the_pair_is_the_best_of_all_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shown = rng.integers(0, 60, size=(int(rng.integers(2, 6)), int(rng.integers(2, 5)))) + 1
    found = measure(counted(shown), alpha=1e-3)
    low, high = clopper_pearson(2 * shown, 2 * shown.sum(axis=1, keepdims=True), 1e-3)
    for leak in found.variants:
        a = int(leak.variant[1:])
        pairs = list(itertools.permutations(range(len(shown)), 2))
        best = max(pairs, key=lambda pair: low[pair[0], a] / high[pair[1], a])
        assert (leak.segment, leak.other) == (f"s{best[0]}", f"s{best[1]}")
        proven = low[best[0], a] / high[best[1], a]
        assert leak.ratio.low == pytest.approx(max(proven, 1))
        assert leak.ratio.high == pytest.approx(max(high[s, a] / low[t, a] for s, t in pairs))
        shares = shown / shown.sum(axis=1, keepdims=True)
        assert leak.ratio.value == pytest.approx(max(shares[best[0], a] / shares[best[1], a], 1))
    assert found.ratio.low == max(leak.ratio.low for leak in found.variants)
    assert found.ratio.high == max(leak.ratio.high for leak in found.variants)


def test_beliefs_are_bayes_rule() -> None:
    found = measure(drawn(np.random.default_rng(5), 2_000_000), alpha=1e-6)
    after = SHARES[:, None] * TRUTH / (SHARES[:, None] * TRUTH).sum(axis=0)
    for s, belief in enumerate(found.beliefs):
        assert belief.before == pytest.approx(SHARES[s], abs=2e-3)
        assert belief.after.low < after[s].max() < belief.after.high
        assert belief.after.value == pytest.approx(after[s].max(), abs=5e-3)
    assert found.worst_belief.segment == "premium"


def test_the_true_ratio_is_within_the_limits_and_a_planted_one_is_not() -> None:
    found = measure(drawn(np.random.default_rng(1), 1_000_000), alpha=1e-12)
    assert found.ratio.low < 5 < found.ratio.high
    assert found.ratio.high / found.ratio.low < 1.3
    fault = TRUTH.copy()
    fault[1] = [0.15, 0.15, 0.70]  # premium sees blue more often: the truth is now 3.5, for red
    found = measure(drawn(np.random.default_rng(1), 1_000_000, fault), alpha=1e-12)
    assert found.ratio.low < 3.5 < found.ratio.high
    assert not found.ratio.low < 5 < found.ratio.high


def _misses(alpha: float, logs: int = 400) -> int:
    rng = np.random.default_rng(7)
    missed = 0
    for _ in range(logs):
        found = measure(drawn(rng, 2_000), alpha)
        missed += bool((found.low > TRUTH).any() or (found.high < TRUTH).any())
    return missed


def test_all_limits_hold_together_and_would_not_without_the_correction() -> None:
    """At 80% together a fifth may miss; limits of 80% each miss far more often (p < 1e-9)."""
    n_limits = 2 * TRUTH.size
    together = _misses(0.2 / n_limits)
    assert stats.binomtest(together, 400, 0.2, alternative="greater").pvalue > 1e-9
    assert together > 0  # not so wide that they cannot fail
    each = _misses(0.1)
    assert stats.binomtest(each, 400, 0.2, alternative="greater").pvalue < 1e-9


def test_a_variant_seen_once_proves_nothing() -> None:
    shown = np.array([[5_000, 4_900, 1], [5_100, 5_000, 0]])
    found = measure(counted(shown), alpha=1e-3)
    once = next(leak for leak in found.variants if leak.variant == "v2")
    assert once.ratio.value == math.inf
    assert once.ratio.low == 1
    assert once.ratio.high == math.inf
    assert found.worst.variant != "v2"


def test_segments_with_variants_of_their_own_are_given_away() -> None:
    found = measure(counted([[900, 0], [0, 100]]), alpha=1e-3)
    assert found.ratio.value == math.inf
    assert found.ratio.low > 20
    assert [belief.after.value for belief in found.beliefs] == [1, 1]
    assert found.guesses is not None
    assert (found.guesses.before, found.guesses.after.value) == (0.9, 1)


def test_guesses_are_tried_on_the_other_half() -> None:
    """Noise that one half shows and the other does not must not count as knowledge."""
    learned, tried = np.array([[60, 40], [40, 60]]), np.array([[40, 60], [60, 40]])
    counts = Counts("noise", ("a", "b"), ("x", "y"), np.stack([learned, tried]).astype(float))
    found = measure(counts, alpha=0.01).guesses
    assert found is not None
    assert found.after.value == 0.4
    assert found.visitors == 200


def test_counts_prove_what_the_audit_says_they_prove() -> None:
    """The audit's adversary, from the same decisions and with the same alpha for each limit."""
    promised, log = Bandit(promise(2.5, strategy="constant")).log(20_000)
    cells = np.zeros((len(promised.segments), len(promised.arms)))
    np.add.at(cells, (log.segment, log.shown), 1)
    names = tuple(map(str, range(cells.shape[1])))
    counts = Counts("bandit", promised.segments, names, np.stack([cells, np.zeros_like(cells)]))
    alpha = 1e-3
    found = measure(counts, alpha / (2 * cells.size))
    assert math.log(found.ratio.low) == pytest.approx(proven_risk(promised, log, alpha).nats)


def test_naming_the_largest_segment_is_right_as_often_as_it_is_large(tmp_path: Path) -> None:
    """Also where a log is so small that the half for testing has nobody of it."""
    log = tmp_path / "log.csv"
    log.write_text("visitor,segment,variant\n1,new,grey\n2,new,green\n3,loyal,green\n")
    guesses = measure_leak(log).experiments[0].guesses
    assert guesses is None or guesses.before == pytest.approx(2 / 3)
    many = [f"{n},{'new' if n % 3 else 'loyal'},{'grey' if n % 2 else 'green'}" for n in range(30)]
    log.write_text("\n".join(["visitor,segment,variant", *many]))
    found = measure_leak(log).experiments[0].guesses
    assert found is not None
    assert found.before == pytest.approx(2 / 3)
