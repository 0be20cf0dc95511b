"""Environments on labels, against people who are labelled one by one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from deniable.errors import InvalidArgumentError
from deniable.expectations.prior import Prior
from deniable.masks.mask import Mask
from deniable.simulation.environment import Environment
from deniable.simulation.run import simulate
from deniable.simulation.scenario import make_scenario
from deniable.strategies.benchmarks import Perfect, Random
from deniable.strategies.kernel_rules import Simulated
from deniable.strategies.unbounded import Unbounded

SEGMENTS = ("a", "b", "c")
PAGE = Environment(
    [[0.5, 0.2], [0.1, 0.4], [0.2, 0.3]], 100_000, shares=[0.6, 0.3, 0.1], segments=SEGMENTS
)


def mask(budget: float = 1.5, **changes: object) -> Mask:
    given = {"segments": SEGMENTS, "budget": budget, "key": bytes(range(32)), "name": "m"}
    return Mask(**{**given, **changes})  # type: ignore[arg-type]


def labelled_people(page: Environment, mask: Mask, count: int) -> np.ndarray:
    """Click counts by label, arm and click of people who are all shown a random arm."""
    rng = np.random.default_rng(11)
    segments = rng.choice(page.n_segments, count, p=page.shares)
    labels = mask.labels(
        (f"v-{n}" for n in range(count)), [page.segments[s] for s in segments.tolist()]
    )
    arms = rng.integers(page.n_arms, size=count)
    clicks = (rng.random(count) < page.rates[segments, arms]).astype(int)
    counts = np.zeros((len(mask.labels_in_order), page.n_arms, 2), int)
    places = {label: place for place, label in enumerate(mask.labels_in_order)}
    np.add.at(counts, (np.array([places[label] for label in labels]), arms, clicks), 1)
    return counts


@pytest.mark.parametrize("groups", [None, {"x": ["a", "c"], "y": ["b"]}])
def test_shares_and_rates_are_those_of_labelled_people(groups: dict[str, list[str]] | None) -> None:
    chosen = mask(groups=groups)
    counts = labelled_people(PAGE, chosen, 200_000)

    def p_value(world: Environment) -> float:
        clicks = world.rates[..., None] * [-1, 1] + [1, 0]
        expected = world.shares[:, None, None] / world.n_arms * clicks * counts.sum()
        return float(stats.chisquare(counts.ravel(), expected.ravel()).pvalue)

    masked = PAGE.masked(chosen)
    assert masked.segments == chosen.labels_in_order
    assert p_value(masked) > 1e-9
    # The fault of mixing with P(label | segment) instead of P(segment | label) would show.
    wrong = (PAGE.rates.T @ chosen.by_segment / chosen.by_segment.sum(axis=0)).T
    assert p_value(Environment(wrong, 1, masked.shares)) < 1e-9


def test_the_order_of_the_mask_does_not_matter() -> None:
    one, other = PAGE.masked(mask()), PAGE.masked(mask(segments=("c", "a", "b")))
    order = [other.segments.index(label) for label in one.segments]
    np.testing.assert_allclose(one.rates, other.rates[order])


def test_regret_is_against_the_best_arm_of_the_own_segment() -> None:
    masked = PAGE.masked(mask())
    assert masked.best_reward == pytest.approx(PAGE.best_reward)
    lost = simulate(masked, [Random()], repetitions=20, seed=1, workers=1).summary("regret")
    on_segments = simulate(PAGE, [Random()], repetitions=20, seed=1, workers=1).summary("regret")
    assert lost["mean"][0] == pytest.approx(on_segments["mean"][0], rel=0.01)
    assert (masked.gaps.min(axis=1) > 0.02).all()  # no arm is best for all people of a label


def test_perfect_information_about_labels_reaches_the_limit() -> None:
    prior, shares = Prior(0.5, 0.05, 0.7), np.array([0.4, 0.3, 0.2, 0.1])
    names = ("p", "q", "r", "s")
    chosen = mask(2, segments=names)
    reached = possible = 0.0
    for rates in prior.draw(4, 4, 4000, np.random.default_rng(12)):
        page = Environment(rates, 1, shares, segments=names)
        masked = page.masked(chosen)
        reached += float(masked.rates.max(axis=1) @ masked.shares) - 0.5
        possible += page.best_reward - 0.5
    limit = chosen.expected_limit(shares.tolist(), heterogeneity=0.7)
    assert reached / possible == pytest.approx(limit, abs=0.01)


def test_changes_of_click_rates_are_masked_too() -> None:
    later = PAGE.rates[:, ::-1]
    page = Environment(
        PAGE.rates, 1000, PAGE.shares, segments=SEGMENTS, changes=[(501, later)], values=[2, 3]
    )
    masked = page.masked(mask())
    np.testing.assert_allclose(masked.phases[1], masked.phases[0][:, ::-1])
    assert masked.best.shape == (2, 3)
    np.testing.assert_allclose(masked.best[0] @ masked.shares, page.best_reward)


def test_a_bandit_on_labels_gains_what_labels_can_tell() -> None:
    page = Environment(0.05 + 0.02 * np.eye(3), 200_000, segments=SEGMENTS)
    policies: list[Simulated] = [Unbounded(), Perfect(), Random()]

    def shares(world: Environment) -> tuple[float, float]:
        lost = simulate(world, policies, repetitions=4, seed=1, workers=1).summary("regret")["mean"]
        learned, known, random = lost.to_list()
        return 1 - learned / random, 1 - known / random

    on_segments, _ = shares(page)
    on_labels, known = shares(page.masked(mask(3)))
    own = float(mask(3).channel[0][0])
    assert known == pytest.approx(1.5 * own - 0.5, abs=0.01)
    assert 0.8 * known < on_labels < known < on_segments + 0.1
    assert on_labels < on_segments


def test_other_segments_and_values_by_segment_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="a mask of the segments a, b, c"):
        PAGE.masked(mask(segments=("a", "b")))
    page = Environment(PAGE.rates, 10, segments=SEGMENTS, values=[[1, 1], [2, 1], [1, 1]])
    with pytest.raises(InvalidArgumentError, match="the same value in all segments"):
        page.masked(mask())


def test_a_scenario_can_mask_its_segments() -> None:
    values = {"rates": PAGE.rates.tolist(), "visitors": 1000, "shares": [0.6, 0.3, 0.1]}
    world = make_scenario({**values, "mask_budget": 1.5, "policies": ["unbounded"]}).environment
    np.testing.assert_allclose(world.rates, PAGE.masked(mask()).rates)
    with pytest.raises(InvalidArgumentError, match="mask_budget"):
        make_scenario({"rates": [0.1, 0.2], "visitors": 10, "mask_budget": 1})
    with pytest.raises(InvalidArgumentError, match="budget"):
        make_scenario({**values, "mask_budget": 0})
