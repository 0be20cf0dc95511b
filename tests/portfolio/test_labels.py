"""A label against the best division of the same firm budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deniable.charts.portfolio import allocation_chart
from deniable.errors import InvalidArgumentError
from deniable.expectations.expected import expected_loss
from deniable.expectations.labels import expected_on_labels
from deniable.portfolio.allocation import allocate
from deniable.portfolio.labels import compare_label, label_words
from deniable.portfolio.problem import Portfolio

KNOWN: dict[str, Any] = {"base_rate": 0.05, "lift": 0.2, "heterogeneity": 0.8}


def firm(size: int, **changes: Any) -> Portfolio:
    row = {"arms": 4, "visitors": 200_000, "segments": 4, **KNOWN, **changes}
    return Portfolio.of([{"id": str(number), **row} for number in range(size)])


def test_a_label_is_what_a_plan_says_of_each_experiment() -> None:
    found = allocate(firm(6), 2)
    compared = compare_label(found, [2])
    step = expected_on_labels(4, 200_000, 4, **KNOWN, budget=2)
    assert compared.label[0] == pytest.approx(6 * float(step.lost))
    assert compared.divided[0] == pytest.approx(found.total_regret)
    pooled = expected_loss("pooled", 4, 200_000, 4, **KNOWN)
    assert compared.pooled == pytest.approx(6 * float(pooled.lost))


def test_more_experiments_favour_the_label() -> None:
    leads = []
    for size in (1, 2, 10):
        compared = compare_label(allocate(firm(size), 2), [2])
        leads.append(float((compared.divided[0] - compared.label[0]) / size))
    assert leads[0] < 0 < leads[1] < leads[2]


def test_values_and_segments_of_each_experiment_count() -> None:
    rows = [
        {"id": "a", "arms": 4, "visitors": 200_000, "segments": 4, **KNOWN, "value": 3},
        {"id": "b", "arms": 3, "visitors": 50_000, "shares": [0.5, 0.3, 0.2], **KNOWN},
        {"id": "c", "arms": 2, "visitors": 50_000, "segments": 1, **KNOWN},
    ]
    whole = compare_label(allocate(Portfolio.of(rows), 2), [2])
    parts = [compare_label(allocate(Portfolio.of([row]), 2), [2]) for row in rows]
    assert whole.label[0] == pytest.approx(sum(part.label[0] for part in parts))
    assert whole.pooled == pytest.approx(sum(part.pooled for part in parts))


def test_one_bandit_for_everybody_is_used_where_it_is_better() -> None:
    alike = compare_label(allocate(firm(3, heterogeneity=0.0), 1))
    assert (alike.label <= alike.pooled).all()
    assert alike.label[-1] == pytest.approx(alike.pooled, rel=0.02)


def test_the_budgets_start_at_what_is_committed() -> None:
    rows = [
        {"id": "a", "arms": 4, "visitors": 200_000, "segments": 4, **KNOWN, "committed": 1.5},
        {"id": "b", "arms": 4, "visitors": 200_000, "segments": 4, **KNOWN},
    ]
    found = allocate(Portfolio.of(rows), 2)
    compared = compare_label(found)
    assert compared.firm_budgets[0] == 1.5
    assert compared.at(2)[0] == pytest.approx(found.total_regret)
    assert (np.diff(compared.divided) <= 1e-6).all()


def test_words_and_chart() -> None:
    found = allocate(firm(10), 3)
    compared = compare_label(found)
    words = label_words(found, compared)
    assert f"About {compared.at(3)[1]:,.0f} clicks are expected to be lost on it" in words
    drawn = str(allocation_chart(found, label=compared).to_dict())
    for name in ("one label", "best division", "one bandit for everybody"):
        assert name in drawn
    assert "One label for all" not in str(allocation_chart(found).to_dict())


def test_base_rates_are_needed() -> None:
    rows = [{"id": "a", "arms": 4, "visitors": 1000}, {"id": "b", "arms": 2, "visitors": 1000}]
    with pytest.raises(InvalidArgumentError, match="labels need base rates"):
        compare_label(allocate(Portfolio.of(rows), 2))
