"""Sums from counts against the definitions row by row; order, merging, retirement, text."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import ville
from tests.inference.row_by_row import batches_of, log_of_one_segment, pair_scores

from deniable.errors import InvalidArgumentError
from deniable.inference.intervals import compare, of_sums
from deniable.inference.state import (
    State,
    VisitorBatch,
    guesses,
    merge,
    new_state,
    state_from_json,
    update,
    update_all,
)

SIZES = [30, 1, 45, 80, 120]


def after(batches: list[VisitorBatch], rate: float = 0.1, typical: float | None = None) -> State:
    shape = batches[0].shows.shape
    state = new_state(shape[0], shape[1], horizon=1000, rate=rate, typical=typical)
    for batch in batches:
        state = update(state, batch)
    return state


@pytest.mark.parametrize("seed", range(4))
def test_sums_are_those_of_the_rows(seed: int) -> None:
    log = log_of_one_segment(np.random.default_rng(seed), SIZES, n_arms=3)
    state = after(batches_of(log, 3))
    for column, (a, b) in enumerate(state.pairs.tolist()):
        weights, scores, centres = pair_scores(log, a, b, rate=0.1)
        rows = list(zip(weights, scores, centres, strict=True))
        found = state.between
        assert found.visitors[0, column] == len(rows)
        assert found.weight[0, column] == pytest.approx(math.fsum(weights), rel=1e-12)
        total = math.fsum(w * h for w, h, _ in rows)
        assert found.total[0, column] == pytest.approx(total, rel=1e-9, abs=1e-11)
        squares = math.fsum((w * (h - c)) ** 2 for w, h, c in rows)
        assert found.variance[0, column] == pytest.approx(squares, rel=1e-9)
        assert max(abs(w * (h - c)) for w, h, c in rows) <= 1


def test_arm_sums_are_those_of_the_rows() -> None:
    log = log_of_one_segment(np.random.default_rng(9), SIZES, n_arms=2)
    state = after(batches_of(log, 2))
    weight = math.fsum(v.row[1] for v in log)
    total = 0.0
    before = new_state(1, 2, horizon=1000)
    for batch in batches_of(log, 2):
        m = float(guesses(before)[0, 1])
        mine = [v for v in log if v.row == batch.probabilities[0].tolist()]
        total += math.fsum(v.row[1] * m + (v.reward - m) * (v.arm == 1) for v in mine)
        before = update(before, batch)
    assert state.alone.weight[0, 1] == pytest.approx(weight, rel=1e-12)
    assert state.alone.total[0, 1] == pytest.approx(total, rel=1e-10)


def test_a_score_has_the_right_mean_whatever_the_guesses() -> None:
    """In fractions, over all arms and rewards of one visitor: E[h] = mu_b - mu_a exactly."""
    p = [Fraction(1, 7), Fraction(2, 7), Fraction(4, 7)]
    rates = [Fraction(1, 10), Fraction(3, 10), Fraction(1, 2)]
    m = [Fraction(9, 10), Fraction(0), Fraction(1, 3)]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        mean = Fraction(0)
        for arm in range(3):
            for reward, chance in ((1, rates[arm]), (0, 1 - rates[arm])):
                h = m[b] - m[a]
                h += (reward - m[b]) / p[b] if arm == b else 0
                h -= (reward - m[a]) / p[a] if arm == a else 0
                mean += p[arm] * chance * h
        assert mean == rates[b] - rates[a]


def test_ville_agrees_on_the_same_log() -> None:
    """One table: all weights are equal, so ville's sequence for the mean score is comparable."""
    rng = np.random.default_rng(4)
    state, scores = new_state(1, 2, horizon=4000, typical=0.3), []
    for size in [100] * 40:
        shows = rng.multinomial(size, [[0.7, 0.3]])
        rewards = rng.binomial(shows, [[0.2, 0.3]])
        m = guesses(state)[0]
        state = update(state, VisitorBatch([[0.7, 0.3]], shows, rewards))
        for arm, sign, p in ((0, -1, 0.7), (1, 1, 0.3)):
            values = [1.0] * rewards[0, arm] + [0.0] * (shows[0, arm] - rewards[0, arm])
            scores += [m[1] - m[0] + sign * (value - m[arm]) / p for value in values]
    ours = of_sums(state.between, state.planned_between, state.rate, 0.05, -1.0)
    theirs = ville.AsymptoticCS(alpha=0.05, t_opt=4000).fit(scores)
    low, high = theirs.interval()
    width = high - low
    assert float(ours.low[0, 0]) == pytest.approx(low, abs=0.01 * width)
    assert float(ours.high[0, 0]) == pytest.approx(high, abs=0.01 * width)
    largest = 1 / 0.3 + 1
    exact = ville.EmpiricalBernsteinCS(bounds=(-largest, largest), alpha=0.05, intersect=False)
    low, high = exact.fit(scores).interval()
    assert low < 0.1 < high
    assert ours.exact_low[0, 0] < 0.1 < ours.exact_high[0, 0]
    assert width < float(ours.exact_high[0, 0] - ours.exact_low[0, 0]) < high - low


def test_guesses_look_only_backwards() -> None:
    """Changing the rewards of a batch changes no guess that its own scores used."""
    first = VisitorBatch([[0.5, 0.5]], [[50, 50]], [[10, 20]])
    low, high = (VisitorBatch([[0.5, 0.5]], [[50, 50]], [[r, r]]) for r in (0, 50))
    start = update(new_state(1, 2, horizon=100), first)
    m = guesses(start)[0]
    for batch in (low, high):
        added = update(start, batch).between.total - start.between.total
        w, r = 0.25, batch.rewards[0]
        expected = w * (100 * (m[1] - m[0]) + ((r[1] - 50 * m[1]) - (r[0] - 50 * m[0])) / 0.5)
        assert added[0, 0] == pytest.approx(expected, rel=1e-12)


def test_merging_two_halves_adds_their_sums() -> None:
    log = log_of_one_segment(np.random.default_rng(2), SIZES, n_arms=3)
    batches = batches_of(log, 3)
    one, two = after(batches[:2]), after(batches[2:])
    both = merge(one, two)
    for name in ("visitors", "weight", "total", "variance"):
        expected = getattr(one.between, name) + getattr(two.between, name)
        np.testing.assert_array_equal(getattr(both.between, name), expected)
    np.testing.assert_array_equal(both.shows, one.shows + two.shows)
    with pytest.raises(InvalidArgumentError):
        merge(one, new_state(1, 2, horizon=10))


def test_a_comparison_stops_when_an_arm_retires_and_resumes_if_it_returns() -> None:
    open_table = VisitorBatch([[0.5, 0.3, 0.2]], [[50, 30, 20]], [[5, 4, 3]])
    closed = VisitorBatch([[0.6995, 0.3, 0.0005]], [[70, 30, 0]], [[7, 4, 0]])
    state = update(new_state(1, 3, horizon=1000), open_table)
    assert (state.stopped_at == -1).all()
    stopped = update(update(state, closed), closed)
    assert stopped.stopped_at.tolist() == [[-1, 100, 100]]
    assert compare(stopped).stopped.tolist() == [[False, True, True]]
    for name in ("visitors", "weight", "total", "variance"):
        was, now = getattr(state.between, name), getattr(stopped.between, name)
        assert (was[0, 1:] == now[0, 1:]).all()
        assert name == "total" or was[0, 0] < now[0, 0]
    assert stopped.visitors.tolist() == [300]
    assert (update(stopped, open_table).stopped_at == -1).all()


def test_text_restores_every_bit() -> None:
    log = log_of_one_segment(np.random.default_rng(3), SIZES, n_arms=4)
    state = after(batches_of(log, 4), rate=0.3, typical=0.07)
    again = state_from_json(state.to_json())
    assert again.to_json() == state.to_json()
    assert (again.rate, again.typical) == (0.3, 0.07)
    np.testing.assert_array_equal(again.between.total, state.between.total)
    np.testing.assert_array_equal(again.pairs, state.pairs)
    batch = batches_of(log, 4)[0]
    assert update(again, batch).to_json() == update(state, batch).to_json()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "pairs": [[0, 1]], "rate": 0.1}']
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="text="):
        state_from_json(text)


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("probabilities", {"probabilities": [[0.5, 0.4]]}),
        ("probabilities", {"probabilities": [0.5, 0.5]}),
        ("shows", {"shows": [[1, -1]]}),
        ("shows", {"shows": [[1.5, 2]]}),
        ("shows", {"shows": [[10, 10, 10]]}),
        ("rewards", {"rewards": [[11, 0]]}),
        ("rewards", {"rewards": [[float("nan"), 0]]}),
        ("squares", {"squares": [[6, 0]]}),
        ("squares", {"squares": [[1, 1]]}),
    ],
)
def test_impossible_counts_are_refused(argument: str, wrong: dict[str, Any]) -> None:
    good: dict[str, Any] = {"probabilities": [[0.5, 0.5]], "shows": [[10, 10]], "rewards": [[5, 5]]}
    VisitorBatch(**good)
    with pytest.raises(InvalidArgumentError, match=argument):
        VisitorBatch(**{**good, **wrong})


def test_plans_are_checked() -> None:
    mistakes: tuple[dict[str, Any], ...] = (
        {"horizon": 0},
        {"horizon": [1, 2, 3]},
        {"horizon": 10, "pairs": []},
        {"horizon": 10, "pairs": [(0, 0)]},
        {"horizon": 10, "pairs": [(0, 1), (1, 0)]},
        {"horizon": 10, "typical": 0.6},
        {"horizon": 10, "rate": 1.5},
    )
    for wrong in mistakes:
        with pytest.raises(InvalidArgumentError):
            new_state(2, 2, **wrong)
    with pytest.raises(InvalidArgumentError, match="batch"):
        update(new_state(2, 2, horizon=10), VisitorBatch([[0.5, 0.5]], [[1, 1]], [[0, 0]]))


@pytest.mark.parametrize(("n_segments", "n_arms"), [(1, 2), (3, 4)])
def test_many_batches_at_once_are_the_same_to_the_last_bit(n_segments: int, n_arms: int) -> None:
    rng = np.random.default_rng(4)
    tables = rng.dirichlet(np.full(n_arms, 2.0), (30, n_segments))
    tables[10:15, 0, 1:] *= 1e-5  # an arm retires and comes back
    tables /= tables.sum(axis=-1, keepdims=True)
    shows = rng.integers(0, 50, tables.shape).astype(float)
    rewards = np.floor(shows * rng.random(tables.shape))
    squares = rewards * 0.9 + 0.1 * np.divide(rewards**2, shows, out=shows * 0, where=shows > 0)
    one_by_one = new_state(n_segments, n_arms, horizon=1_000)
    for parts in zip(tables, shows, rewards, squares, strict=True):
        one_by_one = update(one_by_one, VisitorBatch(*parts))
    first = new_state(n_segments, n_arms, horizon=1_000)
    assert update_all(first, tables, shows, rewards, squares).to_json() == one_by_one.to_json()
    half = update_all(first, *(part[:13] for part in (tables, shows, rewards, squares)))
    both = update_all(half, *(part[13:] for part in (tables, shows, rewards, squares)))
    assert both.to_json() == one_by_one.to_json()
