"""The ladder: steps against their formulas and simulations, the choice, what is greyed."""

from __future__ import annotations

import numpy as np
import pytest

from deniable.errors import InvalidArgumentError
from deniable.expectations.expected import expected_loss
from deniable.expectations.labels import expected_on_labels
from deniable.expectations.prior import Prior
from deniable.masks.limit import best_groups, group_channel
from deniable.planning.experiment import PlannedExperiment
from deniable.planning.ladder import NEAR_BEST, TITLES, Ladder, ladder
from deniable.planning.plan import plan
from deniable.planning.report import ladder_rows
from deniable.privacy.belief import highest_belief
from deniable.simulation.environment import Environment
from deniable.simulation.job import make_job, run_repetition
from deniable.strategies.joint_lp import best_table
from deniable.strategies.unbounded import Unbounded

FIRM = Prior(0.05, 0.2, 0.8)
SIZE = PlannedExperiment(n_arms=4, horizon=200_000, n_segments=4)


def clicks(found: Ladder, step: str) -> float:
    told = found[step].clicks
    assert told is not None
    return told


def test_steps_without_contexts_are_those_of_the_surface_and_of_labels() -> None:
    found = ladder(SIZE, FIRM, 2.0)
    known = {"base_rate": 0.05, "lift": 0.2, "heterogeneity": 0.8}
    pooled = expected_loss("pooled", 4, 200_000, 4, **known)
    joint = expected_loss("joint", 4, 200_000, 4, **known, budgets=2)
    free = expected_loss("joint", 4, 200_000, 4, **known, budgets=6)
    label = expected_on_labels(4, 200_000, 4, **known, budget=2)
    assert clicks(found, "one bandit") == pytest.approx(float(pooled.clicks))
    assert clicks(found, "joint") == pytest.approx(float(joint.clicks))
    assert clicks(found, "label") == pytest.approx(float(label.clicks))
    assert clicks(found, "no privacy") == pytest.approx(float(free.clicks))
    assert found["label"].belief == pytest.approx(float(highest_belief(0.2, 2)))
    assert [step.step for step in found.steps] == list(TITLES)


def test_contexts_gain_more_than_segments_where_they_explain_as_much() -> None:
    """Six arms, 30% by 4 contexts, 30% by 3 segments; `research.contexts` simulates the same setting."""
    size = PlannedExperiment(6, 10**6, 3)
    found = ladder(size, Prior(0.05, 0.2, 0.3), 1.0, contexts=4, by_context=0.3)
    random = expected_loss("random", 6, 10**6, base_rate=0.05, lift=0.2)
    shares = {
        step.step: (step.clicks - float(random.clicks)) / float(random.lost)
        for step in found.steps
        if step.clicks is not None
    }
    limits = {"one bandit": known_share(None), "joint": known_share(1.0)}
    limits["contexts"] = float(np.sqrt(0.7 + 0.3 / 3))
    for step, limit in limits.items():
        assert limit - 0.06 < shares[step] < limit + 0.01, step
    assert found.recommended == "contexts"


def known_share(budget: float | None) -> float:
    """What segments gain at a budget (None: one arm for everybody) if click rates are known."""
    rng = np.random.default_rng(38)
    gained = possible = 0.0
    for _ in range(300):
        by_context, by_segment = rng.standard_normal((4, 1, 6)), rng.standard_normal((3, 6))
        z = 0.4**0.5 * rng.standard_normal(6) + 0.3**0.5 * (by_context + by_segment)
        rates = Prior(0.05, 0.2).clipped(z)
        seen = rates.mean(axis=0)
        table = 1.0 if budget is None else best_table(seen, budget, np.full(3, 1 / 3))
        earned = seen.mean(axis=0).max() if budget is None else (table * seen).sum(axis=1).mean()
        gained += float(earned - rates.mean())
        possible += float(rates.max(axis=2).mean() - rates.mean())
    return gained / possible


@pytest.mark.parametrize(
    ("step", "contexts", "by_context"),
    [("label", 1, 0.0), ("label", 3, 0.4), ("contexts", 3, 0.4), ("contexts", 2, 0.2)],
)
def test_labels_and_contexts_against_simulated_bandits(
    step: str, contexts: int, by_context: float
) -> None:
    n_segments, prior, horizon, budget = 3, Prior(0.1, 0.25, 0.5), 50_000, 2.0
    found = ladder(
        PlannedExperiment(4, horizon, n_segments),
        prior,
        budget,
        contexts=contexts,
        by_context=by_context,
    )
    sizes = np.full(n_segments, 1 / n_segments)
    channel = np.ones((n_segments, 1))
    if step == "label":
        channel = group_channel(best_groups(sizes, budget, 0.5), budget)
    rng = np.random.default_rng(2)
    gained, possible = [], []
    for run in range(60):
        parts = [
            np.sqrt(0.5 - by_context) * rng.standard_normal((1, 1, 4)),
            np.sqrt(by_context) * rng.standard_normal((contexts, 1, 4)),
            np.sqrt(0.5) * rng.standard_normal((1, n_segments, 4)),
        ]
        rates = prior.clipped(np.asarray(sum(parts)))
        rows = np.einsum("s,sz,xsk->xzk", sizes, channel, rates)
        by_label = sizes @ channel
        rows = (rows / by_label[None, :, None]).reshape(-1, 4)
        world = Environment(rows, horizon, np.tile(by_label / contexts, contexts))
        shows, _ = run_repetition(make_job(world, Unbounded()), 5, run)
        gained.append(float((shows[-1] * rows).sum()) - horizon * rates.mean())
        possible.append(horizon * (rates.max(axis=2).mean() - rates.mean()))
    share = np.sum(gained) / np.sum(possible)
    error = np.std(np.array(gained) - share * np.array(possible)) / np.mean(possible) / 60**0.5
    random = expected_loss("random", 4, horizon, base_rate=0.1, lift=0.25)
    told = (clicks(found, step) - float(random.clicks)) / float(random.lost)
    assert error < 0.03
    assert abs(told - share) < 0.05 + 3 * error


def test_the_lowest_step_near_the_best_is_recommended() -> None:
    for limit in (0.5, 1.0, 2.0, 3.0):
        for experiments in (1, 20):
            found = ladder(SIZE, Prior(0.05, 0.4, 0.9), limit, experiments=experiments)
            offered = [step for step in found.steps[:-1] if step.clicks is not None]
            best = max(step.clicks or 0 for step in offered)
            first = next(s for s in offered if (s.clicks or 0) >= (1 - NEAR_BEST) * best)
            assert found.recommended == first.step
    assert ladder(SIZE, Prior(0.05, 0.4, 0.9), 3.0, experiments=20).recommended == "label"


def test_a_trivial_gain_is_not_personalised_for() -> None:
    found = ladder(SIZE, Prior(0.05, 0.03, 0.5), 1.0)
    assert found.recommended == "one bandit"
    assert found.sentence.startswith("No personalisation needed: one bandit for everybody brings ")
    assert "random" not in found.sentence


def test_steps_that_do_not_apply_say_why() -> None:
    found = ladder(PlannedExperiment(4, 100_000, 1), FIRM, 1.0)
    greyed = {step.step: step.sentence for step in found.steps if step.clicks is None}
    assert greyed == {
        "contexts": "No contexts are given, such as device or country.",
        **dict.fromkeys(
            ("unobserved", "label", "joint", "no privacy"),
            "There is one segment: nothing to personalise by.",
        ),
    }
    assert "leaves no budget" in ladder(SIZE, FIRM, 0.0)["label"].sentence
    large = ladder(PlannedExperiment(4, 10**6, 300), FIRM, 1.0)
    assert large["joint"].clicks is None
    assert large["label"].clicks is not None


def test_unobserved_visits_are_added_to_every_later_step() -> None:
    none, some, all_of_them = (ladder(SIZE, FIRM, 1.0, unobserved=u) for u in (0.0, 0.3, 1.0))
    assert none["unobserved"].clicks is None
    assert clicks(some, "one bandit") < clicks(some, "unobserved") < clicks(some, "no privacy")
    assert clicks(some, "label") > clicks(none, "label")
    assert clicks(all_of_them, "unobserved") == pytest.approx(clicks(none, "no privacy"), rel=1e-4)


def test_what_differs_cannot_be_more_than_all() -> None:
    with pytest.raises(InvalidArgumentError, match=r"at most 0\.2"):
        ladder(SIZE, FIRM, 1.0, contexts=3, by_context=0.5)
    with pytest.raises(InvalidArgumentError, match="unobserved"):
        ladder(SIZE, FIRM, 1.0, unobserved=1.5)


@pytest.mark.parametrize(("contexts", "experiments"), [(0, 1), (51, 1), (1, 0), (1, 1001)])
def test_numbers_of_contexts_and_experiments_are_checked(contexts: int, experiments: int) -> None:
    field = "contexts" if experiments == 1 else "experiments"
    with pytest.raises(InvalidArgumentError, match=field):
        ladder(SIZE, FIRM, 1.0, contexts=contexts, experiments=experiments)


def test_experiments_divide_a_budget_as_well_as_possible() -> None:
    """At worst one experiment has the whole budget, and the others are one bandit for everybody."""
    divided = [clicks(ladder(SIZE, FIRM, 3.0, experiments=n), "joint") for n in (1, 2, 5, 80)]
    assert divided == sorted(divided, reverse=True)
    alone, pooled = divided[0], clicks(ladder(SIZE, FIRM, 3.0), "one bandit")
    for n, mean in zip((2, 5, 80), divided[1:], strict=True):
        assert mean >= pooled + (alone - pooled) / n - 1e-9
    known = {"base_rate": 0.05, "lift": 0.2, "heterogeneity": 0.8}
    halves = float(expected_loss("joint", 4, 200_000, 4, **known, budgets=1.5).clicks)
    assert divided[1] == pytest.approx(max(halves, (alone + pooled) / 2))


def test_a_plan_has_its_ladder_at_the_limit_or_at_the_budget() -> None:
    known = {"n_arms": 4, "horizon": 200_000, "n_segments": 3, "base_rate": 0.05}
    limited = plan(**known, max_belief=0.5).ladder  # type: ignore[arg-type]
    assert limited is not None
    assert limited["joint"].belief == pytest.approx(0.5)
    more = {"experiments": 5, "unobserved": 0.2, "contexts": 3, "by_context": 0.2}
    given = plan(**known, max_belief=0.5, budget=1, **more)  # type: ignore[arg-type]
    assert given.ladder == ladder(
        PlannedExperiment(4, 200_000, 3),
        Prior(0.05),
        1.0,
        experiments=5,
        unobserved=0.2,
        contexts=3,
        by_context=0.2,
    )
    assert plan(n_arms=4, horizon=1000).ladder is None
    rows = ladder_rows(given)
    assert sum("(recommended)" in row[0] for row in rows) == 1
    assert given.to_dict()["ladder"]["recommended"] == given.ladder.recommended
