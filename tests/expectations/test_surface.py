"""The surface of expected gains: where it is known exactly, and against direct simulation."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from deniable.errors import InvalidArgumentError
from deniable.expectations import surface as surfaces
from deniable.expectations.expected import RIVALS, expected_loss
from deniable.expectations.prior import Prior, best_rate, mean_rate
from deniable.expectations.surface import Question, best_private, first_table, surface
from deniable.privacy.epochs import epochs_of
from deniable.simulation.environment import Environment
from deniable.simulation.job import make_job, run_from, run_repetition
from deniable.simulation.kernels.random_numbers import generator_state
from deniable.strategies import STRATEGIES
from deniable.strategies.joint import Joint
from deniable.strategies.joint_lp import proved_table
from deniable.strategies.pooled import Pooled
from research.surface_check import Difference, compare
from research.surface_runs import draw_questions, names, policy_of

USUAL: dict[str, Any] = {
    "n_arms": 4,
    "horizon": 200_000,
    "n_segments": 3,
    "base_rate": 0.1,
    "lift": 0.1,
}


def asked(**changed: Any) -> Question:
    given = {
        "arms": 4,
        "visitors": 200_000,
        "segments": 3,
        "base_rate": 0.1,
        "lift": 0.1,
        "heterogeneity": 0.5,
        "budget": 1.0,
    }
    return Question.of(**given | changed)


def test_it_is_small_and_has_every_strategy() -> None:
    stored = files("deniable.expectations").joinpath("surface.json").read_bytes()
    assert len(stored) < 300_000
    assert set(surface()) == set(names())
    assert {*STRATEGIES, "pooled", "random"} <= set(surface())


def test_rivals_are_what_they_are_called() -> None:
    found = {name: expected_loss(name, **USUAL, heterogeneity=0.5) for name in RIVALS}
    best, mean = float(best_rate(4, 0.1, 0.1)), float(mean_rate(0.1, 0.1))
    assert found["perfect"].clicks == pytest.approx(200_000 * best)
    assert found["perfect"].lost == 0
    assert found["random"].clicks == pytest.approx(200_000 * mean)
    assert found["random"].lost == pytest.approx(200_000 * (best - mean))
    assert 0 < found["pooled"].lost < found["random"].lost
    for one in found.values():
        assert one.clicks + one.lost == pytest.approx(200_000 * best)
        assert one.low <= one.lost <= one.high


@pytest.mark.parametrize("strategy", [n for n in STRATEGIES if n in ("constant", "dynamic")])
def test_budget_0_is_random_and_more_clicks_cannot_be_lost(strategy: str) -> None:
    none = expected_loss(strategy, **USUAL, budgets=0.0)
    random = expected_loss("random", **USUAL)
    assert none.lost == pytest.approx(float(random.lost))
    curve = expected_loss(strategy, **USUAL, budgets=np.linspace(0, 8, 50))
    assert (curve.lost <= random.lost * (1 + 1e-9)).all()
    assert (curve.lost >= 0).all()


def test_a_cap_that_never_binds_changes_nothing() -> None:
    for segments in (1, 3):
        size = USUAL | {"n_segments": segments}
        curve = expected_loss("dynamic", **size, budgets=np.array([6.0, 7.0, 8.0, 30.0]))
        assert curve.lost == pytest.approx(float(curve.lost[0]), rel=1e-12)


def test_segments_that_learn_apart_are_experiments_of_their_own() -> None:
    """Five segments lose 2.5 times what two of their size do, as their first tables come as late."""
    for strategy, budget in (("constant", 1.0), ("constant", 7.0), ("dynamic", 2.0)):
        two, five = (
            expected_loss(
                strategy,
                **USUAL | {"n_arms": 12, "horizon": 50_000 * segments, "n_segments": segments},
                budgets=budget,
            )
            for segments in (2, 5)
        )
        assert float(five.lost) == pytest.approx(2.5 * float(two.lost), rel=1e-9)


SIZES = [(2, 1), (2, 9), (12, 2), (20, 20), (50, 2)]


@pytest.mark.parametrize(("arms", "segments"), SIZES)
def test_segments_that_learn_apart_have_their_first_table_when_the_service_publishes(
    arms: int, segments: int
) -> None:
    first = first_table("constant", asked(arms=arms, segments=segments))
    assert float(first) == epochs_of(arms, segments).least


@pytest.mark.parametrize("strategy", ["constant", "joint", "pooled"])
@pytest.mark.parametrize(("arms", "segments"), SIZES)
def test_everybody_before_the_first_table_sees_random_arms(
    strategy: str, arms: int, segments: int
) -> None:
    """With arms of which one is always clicked, the first table leaves random arms behind."""
    first = int(first_table(strategy, asked(arms=arms, segments=segments)))
    rates = np.zeros((segments, arms))
    rates[:, 0] = 1.0
    points = [first, first + 5_000]
    job = make_job(Environment(rates, points[1]), policy_of(strategy, asked(arms=arms, budget=6.0)),
                   checkpoints=points)  # fmt: skip
    shows = run_repetition(job, 1, 0)[0][:, :, 0].sum(axis=1)
    assert shows[0] < first * (1 / arms + 5 / first**0.5)
    assert shows[1] - shows[0] > 5_000 * (1 / arms + 0.3)


def test_with_few_visitors_nothing_is_learned() -> None:
    """All come before the first table."""
    few = USUAL | {"n_arms": 20, "horizon": 1_000, "n_segments": 20}
    random = expected_loss("random", **few)
    for strategy in ("constant", "dynamic", "pooled"):
        found = expected_loss(strategy, **few, budgets=3.0)
        assert float(found.lost) == pytest.approx(float(random.lost))


def test_the_best_private_table_is_between_one_row_for_all_and_no_limit() -> None:
    for part in (0.2, 0.9):
        shared = 1 - part + part / 3
        assert best_private(asked(heterogeneity=part, budget=0.0)) == pytest.approx(shared**0.5)
        assert best_private(asked(heterogeneity=part, budget=40.0)) == pytest.approx(1, abs=1e-3)
    assert best_private(asked(heterogeneity=0.0, budget=0.3)) == pytest.approx(1)
    curve = best_private(asked(budget=np.linspace(0, 8, 60)))
    assert (np.diff(curve) > 0).all()


def private_shares(arms: int, segments: int, part: float, budget: float) -> tuple[float, float]:
    """The best private table's share of the gain, by linear programmes, and its standard error.

    What is 0 on average is taken off: by how much the best arms, and the best arm for all, were better
    than usual.
    """
    draws, equal = 4_000, np.full(segments, 1 / segments)
    rates = Prior(0.05, 0.02, part).draw(arms, segments, draws, np.random.default_rng(arms))
    unit = float(best_rate(arms, 0.05, 0.02)) - 0.05
    best, alone = rates.max(axis=2).mean(axis=1), rates.mean(axis=1).max(axis=1)
    table = np.array([proved_table(one, equal, budget).value for one in rates])
    share, best, alone = ((one - 0.05) / unit for one in (table, best, alone))
    shared = (1 - part + part / segments) ** 0.5
    terms = np.column_stack([np.ones(draws), best - 1, alone - shared])
    weights = np.linalg.lstsq(terms, share, rcond=None)[0]
    spread = float((share - terms @ weights).std())
    return float(weights[0]), spread / draws**0.5


@pytest.mark.parametrize(
    ("arms", "segments", "part", "budget"),
    [(2, 9, 0.53, 1.43), (3, 3, 0.99, 1.69), (6, 7, 0.95, 0.2), (12, 10, 0.87, 2.91)],
)
def test_the_best_private_table_is_what_linear_programmes_say(
    arms: int, segments: int, part: float, budget: float
) -> None:
    """Within .3%; a first fit was 1 to 2% off at these."""
    found, noise = private_shares(arms, segments, part, budget)
    size = {"arms": arms, "segments": segments, "heterogeneity": part, "budget": budget}
    assert noise < 0.0015
    assert float(best_private(asked(**size))) == pytest.approx(found, abs=0.003 + 4.5 * noise)


def test_few_clicks_and_clipped_rates_are_beyond_the_surface() -> None:
    few = {"n_arms": 10, "horizon": 20_000, "n_segments": 2, "lift": 0.1, "budgets": 1.0}
    for name in ("constant", "dynamic", "pooled", "joint"):
        assert expected_loss(name, **few, base_rate=0.0051).on_surface
        assert not expected_loss(name, **few, base_rate=0.0049).on_surface  # 9.8 clicks an arm
        wide = few | {"base_rate": 0.5}
        assert expected_loss(name, **wide | {"lift": 0.31}).on_surface
        assert not expected_loss(name, **wide | {"lift": 0.32}).on_surface  # 2.97 deviations


def test_where_everybody_likes_the_same_pooled_loses_what_one_segment_would() -> None:
    pooled = expected_loss("pooled", **USUAL, heterogeneity=0.0)
    alone = expected_loss("pooled", **USUAL | {"n_segments": 1}, heterogeneity=0.7)
    assert float(pooled.lost) == pytest.approx(float(alone.lost))


def test_with_one_segment_the_joint_strategy_is_one_bandit_for_everybody() -> None:
    """Its simulator says so too: the same counts at any budget, and the law of the pooled policy."""
    one = USUAL | {"n_segments": 1}
    pooled = expected_loss("pooled", **one)
    for budget in (0.0, 1.0, 8.0):
        joint = expected_loss("joint", **one, budgets=budget)
        assert float(joint.lost) == pytest.approx(float(pooled.lost), rel=1e-12)
    page = Environment([0.1, 0.11, 0.105], 20_000)
    job = {budget: make_job(page, Joint(budget)) for budget in (0.0, 4.0)}
    shows = [run_repetition(job[budget], 5, 0)[0].tolist() for budget in job]
    assert shows[0] == shows[1]


def test_at_budget_0_the_joint_strategy_is_one_bandit_for_everybody() -> None:
    """On the surface, and in the simulator to the last visitor; with any budget neither."""
    pooled = expected_loss("pooled", **USUAL)
    joint = expected_loss("joint", **USUAL, budgets=np.array([0.0, 1e-9, 1.0]))
    assert joint.lost[0] == pytest.approx(float(pooled.lost), rel=1e-9)
    # With the smallest budget it leaves fewer random arms behind, and gains a little.
    assert joint.lost[1] != pytest.approx(float(pooled.lost), rel=1e-4)
    assert joint.lost[1] == pytest.approx(float(pooled.lost), rel=0.1)
    assert joint.lost[2] != pytest.approx(float(pooled.lost), rel=1e-4)
    page = Environment([[0.1, 0.11, 0.105], [0.2, 0.17, 0.19]], 20_000)
    policies = (Pooled(), Joint(0), Joint(1e-9), Joint(2))
    shows = [
        run_from(make_job(page, policy), generator_state(np.random.SeedSequence(5)))[0].tolist()
        for policy in policies
    ]
    assert shows[0] == shows[1] != shows[2] != shows[3]


def test_arrays_are_many_scalars() -> None:
    arms, budgets = np.array([[2], [5], [20]]), np.array([0.5, 1, 4])
    for name in (*STRATEGIES, *RIVALS):
        for segments in (1, 2, np.array([[1], [2], [7]])):
            given = {"horizon": 10**6, "n_segments": segments, "base_rate": 0.05}
            whole = expected_loss(name, arms, **given, budgets=budgets)
            sizes = np.broadcast_to(segments, (3, 1))
            for row, column in np.ndindex(3, 3):
                one = expected_loss(
                    name,
                    int(arms[row, 0]),
                    **given | {"n_segments": int(sizes[row, 0])},
                    budgets=float(budgets[column]),
                )
                for part in ("clicks", "lost", "low", "high"):
                    found = np.broadcast_to(getattr(whole, part), (3, 3))[row, column]
                    assert found == pytest.approx(float(getattr(one, part)), rel=1e-9)


def test_beyond_its_domain_the_edge_is_taken_and_told() -> None:
    inside = expected_loss("joint", **USUAL, budgets=6.0)
    assert inside.on_surface.all()
    for beyond in ({"budgets": 6.01}, {"horizon": 200_000_001}, {"lift": 0.0049}):
        assert not expected_loss("joint", **USUAL | {"budgets": 1.0} | beyond).on_surface
    assert expected_loss(
        "dynamic", **USUAL | {"horizon": 10**10, "lift": 0.01}, budgets=8.0
    ).on_surface
    assert not expected_loss("joint", **USUAL | {"n_arms": 150}, budgets=1.0).on_surface
    assert not expected_loss("dynamic", **USUAL | {"horizon": 10}, budgets=1.0).on_surface
    for name in (*STRATEGIES, *RIVALS):
        for extreme in ({"horizon": 1}, {"horizon": 10**12}, {"n_arms": 10_000}, {"lift": 1.0}):
            found = expected_loss(name, **USUAL | extreme, budgets=np.array([0.0, 1.0, 700.0]))
            assert np.isfinite(found.lost).all()
            assert (found.lost >= 0).all()


def test_unknown_strategies_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="strategy"):
        expected_loss("best", **USUAL)


def differences(strategy: str, priors: int, repetitions: int) -> list[Difference]:
    rng = np.random.default_rng(7)
    drawn = draw_questions(strategy, priors, rng)
    return [compare(strategy, one, repetitions, seed) for seed, one in enumerate(drawn)]


def too_far(found: list[Difference]) -> list[Difference]:
    """Beyond 2% of the gain, and beyond what noise explains."""
    return [one for one in found if abs(one.error) > 0.02 + 4.5 * one.noise]


@pytest.mark.parametrize(
    ("strategy", "priors", "repetitions"),
    [("constant", 8, 150), ("dynamic", 8, 150), ("joint", 3, 60)],
)
def test_it_is_what_the_simulator_says(strategy: str, priors: int, repetitions: int) -> None:
    assert not too_far(differences(strategy, priors, repetitions))


def test_pooled_gains_no_less_than_it_says() -> None:
    """Its surface was fitted before pooled explored more: with few clicks it gains more than told."""
    found = differences("pooled", 6, 60)
    assert not [one for one in found if one.told > one.found + 0.02 + 4.5 * one.noise]
    assert any(one.found > one.told + 0.02 + 4.5 * one.noise for one in found), "fitted anew"


def test_a_surface_for_another_signal_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison has power: a signal three times too large is found."""
    right: Any = vars(Question)["signal"]
    wrong = property(lambda self: 3 * right.fget(self))
    rng = np.random.default_rng(7)
    drawn = draw_questions("dynamic", 8, rng)
    monkeypatch.setattr(surfaces.Question, "signal", wrong)
    found = [compare("dynamic", one, 150, seed) for seed, one in enumerate(drawn)]
    assert too_far(found)
