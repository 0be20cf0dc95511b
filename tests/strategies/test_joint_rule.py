"""The joint rule: its promise, its posterior against dense linear algebra, its band against HiGHS."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from deniable.errors import InvalidArgumentError
from deniable.privacy.joint_table import integer_table, keeps_budget
from deniable.strategies import joint_rule
from deniable.strategies.joint_kernel import dynamic_table, mix_floor
from deniable.strategies.joint_model import (
    ARM_SPREADS,
    OWN_SPREADS,
    WARY,
    fit,
    gain_in_deviations,
    moments,
    normal,
    spread_logs,
    weights_of,
)
from deniable.strategies.joint_rule import TUNING, TableMaker

Table = NDArray[np.float64]


# The kernel goes through arms, so it has arms first, and so have the arrays of this file.


def joint_table(shows: ArrayLike, clicks: ArrayLike, *args: Any, **options: Any) -> Table:
    made = joint_rule.joint_table(np.transpose(shows), np.transpose(clicks), *args, **options)
    return np.asarray(made.T)


def pooled_table(shows: ArrayLike, clicks: ArrayLike, *args: Any, **options: Any) -> Table:
    made = joint_rule.pooled_table(np.transpose(shows), np.transpose(clicks), *args, **options)
    return np.asarray(made.T)


PLAIN_CONSTANTS = np.array(
    [
        [0.46909355568816613, 0.29769993170411246],
        [0.4266867698968947, 0.5980803938809485],
        [0.10421967441493916, 0.10421967441493916],
    ]
)


def _counts(rng: np.random.Generator, n_arms: int, n_segments: int, size: int) -> list[Table]:
    shows = rng.poisson(size, (n_arms, n_segments))
    clicks = rng.binomial(shows, rng.uniform(0.01, 0.1, (n_arms, n_segments)))
    return [shows.astype(float), clicks.astype(float)]


@pytest.mark.parametrize("budget", [0.0, 0.1, 1.0, 3.0, 50.0])
@pytest.mark.parametrize(("n_arms", "n_segments"), [(2, 2), (7, 3), (4, 12), (20, 1)])
@pytest.mark.parametrize("size", [0, 1, 50, 10**6])
def test_every_table_keeps_the_budget(
    n_arms: int, n_segments: int, size: int, budget: float
) -> None:
    rng = np.random.default_rng([n_arms, n_segments, size])
    shows, clicks = _counts(rng, n_arms, n_segments, size)
    table = joint_table(shows, clicks, 10**8, budget)
    assert table.sum(axis=0) == pytest.approx(np.ones(n_segments))
    assert table.min() > 0  # the floor
    assert (table.max(axis=1) <= table.min(axis=1) * np.exp(budget) * (1 + 1e-9)).all()
    nano = round(budget * 1e9)
    rows = integer_table(table.T.tolist(), nano)
    assert keeps_budget(rows, nano)
    served = np.array(rows, dtype=float).T / 2**64
    assert served == pytest.approx(table, abs=1e-6)


def test_the_table_is_a_function_of_its_counts() -> None:
    shows, clicks = _counts(np.random.default_rng(1), 5, 4, 300)
    first = joint_table(shows, clicks, 10**5, 1)
    again = joint_table(np.asfortranarray(shows), clicks.astype(int).tolist(), 10**5, 1)
    assert (first == again).all()
    other = joint_table(shows + np.eye(5, 4), clicks, 10**5, 1)
    assert (first != other).any()


def test_pooled_tables_show_everybody_the_same() -> None:
    shows, clicks = _counts(np.random.default_rng(2), 5, 4, 300)
    table = pooled_table(shows, clicks, 10**5)
    assert (table == table[:, :1]).all()
    # Which segment a click came from does not matter.
    merged = pooled_table(shows.sum(axis=1)[:, None], clicks.sum(axis=1)[:, None], 10**5, keep=0)
    apart = pooled_table(shows, clicks, 10**5, keep=0)
    assert apart[:, :1] == pytest.approx(merged)


def test_segments_that_agree_are_pooled_and_others_are_not() -> None:
    """Few counts a segment, many segments: together they say which arm is best."""
    shows = np.full((2, 10), 400.0)
    agree = np.array([[60.0] * 10, [40.0] * 10])
    assert joint_table(shows, agree, 10**4, 3)[0].min() > 0.95
    split = np.array([[60.0] * 5 + [40.0] * 5, [40.0] * 5 + [60.0] * 5])
    table = joint_table(shows, split, 10**4, 3)
    assert table[0, :5].min() > 0.8
    assert table[1, 5:].min() > 0.8


def _dense(
    relative: Table, variance: Table, own: float, common: float
) -> tuple[Table, float, float]:
    """Posterior mean, quadratic form and log determinant, by a full covariance for each arm."""
    mean, quadratic, log_determinant = np.empty_like(relative), 0.0, 0.0
    for a, (y, v) in enumerate(zip(relative, variance, strict=True)):
        prior = common + own * np.eye(len(y))
        total = prior + np.diag(v)
        mean[a] = prior @ np.linalg.solve(total, y)
        quadratic += y @ np.linalg.solve(total, y)
        log_determinant += np.linalg.slogdet(total)[1]
    return mean, quadratic, log_determinant


def test_posterior_against_dense_linear_algebra() -> None:
    rng = np.random.default_rng(3)
    for n_arms, n_segments in [(2, 2), (6, 3), (4, 9)]:
        relative = rng.normal(0, 0.2, (n_arms, n_segments))
        variance = rng.uniform(0.001, 0.1, (n_arms, n_segments))
        weights, means = [], []
        for own in OWN_SPREADS**2:
            for common in ARM_SPREADS**2:
                mean, quadratic, logs = _dense(relative, variance, own, common)
                weights.append(-0.5 * quadratic - 0.5 * (n_arms - 1) / n_arms * logs)
                means.append(mean)
        want = np.exp(np.array(weights) - max(weights))
        want /= want.sum()
        found = spread_logs(relative, variance)
        got = weights_of(found, 0)
        assert got == pytest.approx(want, rel=1e-9)
        wary = np.where(np.arange(want.size) < WARY * ARM_SPREADS.size, 0, want)
        assert weights_of(found, WARY * ARM_SPREADS.size) == pytest.approx(wary / wary.sum())
        mixed = sum(w * mean for w, mean in zip(want, means, strict=True))
        assert moments(relative, variance, got)[0] == pytest.approx(mixed, abs=1e-8)


def test_variances_against_dense_linear_algebra() -> None:
    """With one pair of spreads the posterior covariance is prior - prior total^-1 prior."""
    rng = np.random.default_rng(8)
    relative, variance = rng.normal(0, 0.2, (3, 4)), rng.uniform(0.001, 0.1, (3, 4))
    for i, j in [(1, 0), (3, 2), (5, 5), (0, 3)]:
        weights = np.zeros(OWN_SPREADS.size * ARM_SPREADS.size)
        weights[i * ARM_SPREADS.size + j] = 1.0
        mean, shared, alone = moments(relative, variance, weights)
        change = rng.normal(size=(3, 4))
        want = 0.0
        for a in range(3):
            prior = ARM_SPREADS[j] ** 2 + OWN_SPREADS[i] ** 2 * np.eye(4)
            rest = prior - prior @ np.linalg.solve(prior + np.diag(variance[a]), prior)
            want += change[a] @ rest @ change[a]
        got = gain_in_deviations(change, mean, shared, alone)
        assert got == pytest.approx((change * mean).sum() / want**0.5, rel=1e-6)


def test_without_evidence_the_table_is_the_dynamic_one() -> None:
    """Opposite segments, few counts: randomized response of each segment's best arm."""
    shows, clicks = np.full((2, 2), 40.0), np.array([[13.0, 12.0], [12.0, 13.0]])
    table = joint_table(shows, clicks, 10**6, 3, keep=0)
    rate = min(1, (2 * np.log(80) / 80) ** (1 / 3))
    assert table[0] == pytest.approx([1 - rate / 2, rate / 2])
    assert table == pytest.approx(dynamic_table(shows, clicks, 160.0, np.exp(-3.0)))
    tied = dynamic_table(shows, np.full((2, 2), 12.0), 160.0, 0.1)
    assert tied == pytest.approx(np.full((2, 2), 0.5))


def test_the_dynamic_table_is_left_as_evidence_grows() -> None:
    """Segments that agree: from the dynamic table to one arm for all, and never back."""
    shares = []
    for shows in (100.0, 1_000.0, 4_000.0, 20_000.0, 100_000.0):
        clicks = shows * np.array([[0.31, 0.31], [0.30, 0.30]])
        table = joint_table(np.full((2, 2), shows), clicks, 10**6, 1, keep=0)
        shares.append(float(table[0].min()))
    assert shares == sorted(shares)
    assert shares[0] < 0.8 < 0.99 < shares[-1]


def test_at_budget_0_it_is_one_bandit_for_everybody() -> None:
    rng = np.random.default_rng(6)
    shows = rng.integers(50, 900, (4, 3)).astype(float)
    clicks = rng.binomial(shows.astype(int), 0.3).astype(float)
    table = joint_table(shows, clicks, 10**5, 0)
    assert table.tolist() == pooled_table(shows, clicks, 10**5).tolist()
    assert (table == table[:, :1]).all()
    assert joint_table(shows, clicks, 10**5, 1.0).tolist() != table.tolist()


def test_half_the_evidence_is_half_the_way() -> None:
    """The table lies on the line from the dynamic table to the one that it is without doubt."""
    shows = np.full((2, 2), 2_000.0)
    clicks = shows * np.array([[0.33, 0.33], [0.30, 0.30]])
    dynamic = dynamic_table(shows, clicks, 8_000.0, np.exp(-1.0))

    def table(doubt: float) -> Table:
        tuning = TUNING._replace(keep=0.0, doubt_rising=0.0, doubt=doubt)
        made = TableMaker("joint", 2, 2, 10**5, 1.0, tuning)
        return made.next_table(shows.T, clicks.T).T

    sure = table(1e-9)
    z = [4.0, 8.0, 16.0]
    weights = [((table(one**2) - dynamic) / (sure - dynamic)).ravel() for one in z]
    for one in weights:
        assert one == pytest.approx(np.full(4, one[0]))
    assert 0 < weights[2][0] < weights[0][0] < 1
    assert weights[0][0] == pytest.approx(2 * weights[1][0])
    assert weights[0][0] == pytest.approx(4 * weights[2][0])


def test_with_many_arms_it_explores_what_segments_may_need() -> None:
    """Six of eight arms are bad for everybody: the dynamic table keeps showing them."""
    shows = np.full((8, 2), 300.0)
    clicks = np.array([[36.0, 33.0], [33.0, 36.0], *[[9.0, 9.0]] * 6])
    doubtful = TUNING._replace(keep=0.0, doubt_rising=0.0, doubt=1e18)
    made = TableMaker("joint", 8, 2, 10**5, 2.0, doubtful)
    table = made.next_table(shows.T, clicks.T).T
    dynamic = dynamic_table(shows, clicks, shows.sum(), np.exp(-2.0))
    assert dynamic[2:].sum(axis=0).min() > 3 * table[2:].sum(axis=0).max()
    assert table[:2].min() > 0.2  # neither of the others is given up


def test_the_wary_table_is_dynamic_in_part() -> None:
    """Endless doubt leaves the wary table: two of K parts dynamic, the rest draws."""
    rng = np.random.default_rng(9)
    shows, clicks = _counts(rng, 5, 3, 400)
    tuning = TUNING._replace(keep=0.0, doubt_rising=0.0, doubt=1e18)
    made = TableMaker("joint", 5, 3, 10**5, 1.0, tuning)
    table = made.next_table(shows.T, clicks.T).T
    dynamic = dynamic_table(shows, clicks, shows.sum(), np.exp(-1.0))
    drawn = (table - 0.4 * dynamic) / 0.6
    assert drawn.sum(axis=0) == pytest.approx(np.ones(3))
    assert drawn.min() > -1e-9
    assert (drawn.max(axis=1) <= math.e * drawn.min(axis=1) + 1e-9).all()
    assert abs(drawn - dynamic).max() > 0.1


def test_beyond_twenty_arms_the_plain_constants_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with one row for everybody."""
    shows = np.array([[400.0, 300.0], [350.0, 420.0], [390.0, 310.0]])
    clicks = np.array([[40.0, 24.0], [30.0, 45.0], [20.0, 18.0]])
    many_shows, many_clicks = _counts(np.random.default_rng(1), 21, 2, 300)
    cases = [(shows, clicks, 1), (many_shows, many_clicks, 1), (shows, clicks, 0)]

    def made() -> list[Table]:
        return [joint_table(s, c, 10**5, budget) for s, c, budget in cases]

    few = made()
    monkeypatch.setattr(joint_rule, "MOST_ARMS", 2)
    plain = made()
    assert plain[0] == pytest.approx(PLAIN_CONSTANTS, abs=1e-9)
    assert abs(few[0] - plain[0]).max() > 0.01
    assert [table.tolist() for table in few[1:]] == [table.tolist() for table in plain[1:]]


@pytest.mark.parametrize("n_arms", [2, 6])
def test_the_floor_vanishes_with_all_visitors(n_arms: int) -> None:
    """Arms that nobody needs are as likely as pooled shows them."""
    shows = np.full((n_arms, 8), 1e4)
    clicks = np.array([[2000.0] * 8] + [[100.0] * 8] * (n_arms - 1))
    visitors = shows.sum()
    floor = 0.05 * (n_arms * np.log(visitors) / visitors) ** (1 / 3)
    table = joint_table(shows, clicks, 10**7, 1)
    assert table[1:] == pytest.approx(np.full((n_arms - 1, 8), floor / n_arms))
    assert table == pytest.approx(pooled_table(shows, clicks, 10**7))


def test_two_arms_in_many_segments_need_less_evidence() -> None:
    """z^2 is 2 log(T/t) + 2 for two segments and falls to 2 log(T/t) with their number."""
    for n_segments in (2, 4, 16):
        shows = np.full((2, n_segments), 1_000.0)
        clicks = np.tile([[300 + 40 * (2 / n_segments) ** 0.5], [300.0]], n_segments)
        left = 2 * np.log(10**6 / shows.sum())
        dynamic = dynamic_table(shows, clicks, shows.sum(), np.exp(-3.0))
        # The doubt of two segments, and of this many.
        steps = []
        for doubt in (TUNING.doubt * n_segments / 2, TUNING.doubt):
            tuning = TUNING._replace(keep=0.0, doubt=doubt)
            maker = TableMaker("joint", 2, n_segments, 10**6, 3.0, tuning)
            table = maker.next_table(shows.T, clicks.T).T
            steps.append(table[1, 0] - dynamic[1, 0])
        assert steps[0] < -0.01
        assert steps[1] / steps[0] == pytest.approx(((left + 2) / (left + 4 / n_segments)) ** 0.5)


@pytest.mark.parametrize("n_arms", [2, 6])
def test_the_floor_is_no_more_than_is_missing(n_arms: int) -> None:
    tuning = TUNING._replace(keep=0.1, lean=1.0)
    floor = 0.1 * (n_arms * np.log(1000) / 1000) ** (1 / 3)
    high = np.full((n_arms, 2), 1 / n_arms)
    mix_floor(2000.0, 2, tuning, high)
    assert high == pytest.approx(np.full((n_arms, 2), 1 / n_arms))
    low = np.zeros((n_arms, 2))
    low[0] = 1 - 0.3 * floor * (n_arms - 1) / n_arms
    low[1:] = 0.3 * floor / n_arms
    mix_floor(2000.0, 2, tuning, low)
    assert low.sum(axis=0) == pytest.approx(np.ones(2))
    assert low.min() == pytest.approx(floor / n_arms)
    whole = np.zeros((n_arms, 2))
    whole[0] = 1 - 0.3 * floor * (n_arms - 1) / n_arms
    whole[1:] = 0.3 * floor / n_arms
    mix_floor(2000.0, 2, tuning._replace(lean=0.0), whole)
    assert whole.min() > 1.2 * floor / n_arms


def test_fit_gives_every_cell_a_variance() -> None:
    rng = np.random.default_rng(4)
    base, arms = np.array([0.02, 0.04, 0.08]), np.array([0.8, 1.0, 1.2, 1.0])
    shows = np.full((4, 3), 1e7)
    clicks = rng.binomial(10**7, arms[:, None] * base).astype(float)
    relative, variance = np.empty((4, 3)), np.empty((4, 3))
    fitted = fit(shows, clicks, relative, variance)
    assert fitted == pytest.approx(base, rel=0.01)
    assert relative == pytest.approx(np.tile(arms[:, None] - 1, 3), abs=0.01)
    rate = np.maximum(arms, 1)[:, None] * base  # a low rate is taken for an average one
    assert variance == pytest.approx(rate * (1 - rate) / 1e7 / base**2, rel=0.02)
    shows[0, 0] = clicks[0, 0] = clicks[1, 1] = 0
    shows[1, 1] = 5
    fit(shows, clicks, relative, variance)
    assert variance[0, 0] > 1e9
    assert variance[1, 1] > 1  # no click, and yet no certainty
    # 30 shows without a click are likely at the other arms' rate of .05: two deviations, not more.
    few = np.array([[30.0], [300.0], [300.0]])
    relative, variance = np.empty((3, 1)), np.empty((3, 1))
    fit(few, np.array([[0.0], [15.0], [15.0]]), relative, variance)
    assert -1.3 < relative[0, 0] / np.sqrt(variance[0, 0]) < -1.1


def test_the_counted_numbers_are_normal() -> None:
    draws = np.array([normal(np.uint64(7), np.uint64(i)) for i in range(20_000)])
    assert stats.kstest(draws, "norm").pvalue > 1e-9
    seeds = np.array([normal(np.uint64(i), np.uint64(3)) for i in range(20_000)])
    assert stats.kstest(seeds, "norm").pvalue > 1e-9
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 6 / 20_000**0.5
    assert stats.kstest(draws * 1.1, "norm").pvalue < 1e-9  # the test has power


def test_an_open_end_is_a_horizon_ten_times_away() -> None:
    shows, clicks = _counts(np.random.default_rng(5), 4, 3, 100)
    passed = joint_table(shows, clicks, 10, 1)
    assert (joint_table(shows, clicks, None, 1) == passed).all()
    total = int(shows.sum())
    assert joint_table(shows, clicks, 10 * total, 1) == pytest.approx(passed)


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("clicks", {"clicks": [[9, 1], [1, 1]]}),
        ("clicks", {"clicks": [[1, 1]]}),
        ("shows", {"shows": [[-1, 5], [5, 5]]}),
        ("shows", {"shows": [5, 5], "clicks": [1, 1]}),
        ("shows", {"shows": np.ones((10_001, 2)), "clicks": np.zeros((10_001, 2))}),
        ("budget", {"budget": -0.1}),
        ("budget", {"budget": [1, 1]}),
        ("horizon", {"horizon": 0}),
        ("keep", {"keep": 1.5}),
    ],
)
def test_refusals(argument: str, given: dict[str, object]) -> None:
    usual: dict[str, object] = {
        "shows": [[5, 5], [5, 5]],
        "clicks": [[1, 1], [1, 1]],
        "horizon": 100,
        "budget": 1,
    }
    with pytest.raises(InvalidArgumentError) as caught:
        joint_table(**{**usual, **given})  # type: ignore[arg-type]
    assert caught.value.argument == argument
