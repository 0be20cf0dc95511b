"""A plan's step with a label: against division, break-even, and its words."""

from __future__ import annotations

import pytest

from deniable.errors import InvalidArgumentError
from deniable.expectations.prior import Prior
from deniable.planning.experiment import PlannedExperiment
from deniable.planning.labels import label_step, label_words
from deniable.planning.plan import plan
from deniable.planning.report import plan_sections

FIRM = Prior(0.05, 0.05**0.5, 0.8)


def planned(n_segments: int = 4) -> PlannedExperiment:
    return PlannedExperiment(n_arms=5, horizon=100_000, n_segments=n_segments)


def test_a_label_costs_no_more_for_more_experiments() -> None:
    steps = [label_step(planned(), FIRM, 3, n) for n in (1, 2, 5, 20, 78)]
    assert len({step.gain for step in steps}) == 1
    divided = [step.divided_gain for step in steps]
    assert divided == sorted(divided, reverse=True)
    assert steps[0].divided_gain == pytest.approx(0.775, abs=0.02)
    # In the end the budget serves one experiment, and the others are one bandit for everybody.
    last = steps[-1]
    alone = steps[0].divided_gain
    assert last.divided_gain >= last.pooled_gain + (alone - last.pooled_gain) / 78 - 1e-12
    assert last.divided_gain == pytest.approx(last.pooled_gain, abs=0.01)


def test_break_even_is_the_first_number_at_which_a_label_gains_more() -> None:
    for budget, first, last in ((1, 3, 6), (3, 2, 2)):
        found = label_step(planned(), FIRM, budget).break_even
        assert found is not None
        assert first <= found <= last
        assert label_step(planned(), FIRM, budget, found - 1).divided_gain > found_gain(budget)
        assert label_step(planned(), FIRM, budget, found).divided_gain <= found_gain(budget)


def found_gain(budget: float) -> float:
    return label_step(planned(), FIRM, budget).gain


def test_a_label_that_gains_nothing_has_no_break_even() -> None:
    alike = label_step(planned(), Prior(0.05, 0.1, 0.0), 1, 10)
    assert alike.break_even is None
    assert alike.gain <= alike.pooled_gain + 0.01
    assert "no more than a divided budget" in label_words(alike)


def test_words_say_when_a_label_gains_little() -> None:
    assert "below a budget of 1.5" in label_words(label_step(planned(), FIRM, 1, 5))
    assert "below a budget" not in label_words(label_step(planned(), FIRM, 3, 5))


def test_a_plan_compares_the_label() -> None:
    told = plan(n_arms=5, horizon=100_000, n_segments=4, base_rate=0.05, budget=2, experiments=20)
    assert told.label == label_step(planned(), Prior(0.05), 2, 20)
    sections = {section.title: section for section in plan_sections(told)}
    assert sections["One label for life"].text == label_words(told.label)
    rows = next(iter(sections.values())).table.rows
    assert f"{told.label.clicks:,.0f}" in next(row for row in rows if "label" in row[0])
    for changes in ({"n_segments": 1}, {"base_rate": None}, {"budget": 0}):
        settings = {"n_arms": 5, "horizon": 10**5, "base_rate": 0.05, "budget": 2, **changes}
        assert plan(**settings).label is None  # type: ignore[arg-type]


@pytest.mark.parametrize("experiments", [0, 2.5, 1001])
def test_the_number_of_experiments_is_checked(experiments: float) -> None:
    with pytest.raises(InvalidArgumentError, match="experiments"):
        plan(n_arms=2, horizon=1000, base_rate=0.1, experiments=experiments)  # type: ignore[arg-type]
