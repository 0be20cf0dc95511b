"""What an allocation gives to a data scientist: policies, charts, words, typed errors."""

from __future__ import annotations

from typing import Any

import pytest

from deniable.errors import InvalidArgumentError, InvalidTableError
from deniable.portfolio.allocation import allocate
from deniable.portfolio.problem import Portfolio

ROWS: list[dict[str, Any]] = [
    {"id": "<home>", "arms": 2, "visitors": 90_000, "base_rate": 0.1, "lift": 0.1},
    {"id": "search", "arms": 8, "visitors": 400_000, "segments": 3, "base_rate": 0.05},
]


@pytest.mark.parametrize("given", [ROWS, None, 3, "portfolio.csv"])
def test_what_is_no_portfolio_is_told(given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"expected a Portfolio: Portfolio.of\(rows\)"):
        allocate(given, 3)


def test_rows_that_are_no_rows_are_told() -> None:
    wrong: list[Any] = [ROWS[0], "search", 3]
    with pytest.raises(InvalidTableError, match="2 problems: row 2: expected columns id, arms"):
        Portfolio.of(wrong)


def test_policies_are_those_of_the_allocation() -> None:
    found = allocate(Portfolio.of(ROWS, objective="bound"), 3)
    policies = found.policies()
    assert list(policies) == ["<home>", "search"]
    for name, strategy, budget in zip(
        found.portfolio.ids, found.strategies, found.budgets, strict=True
    ):
        assert policies[name].name == strategy
        assert policies[name].risk_cap == budget


@pytest.mark.parametrize("objective", ["expected", "bound"])
def test_charts_and_notebooks_tell_which_loss_it_is(objective: str) -> None:
    found = allocate(Portfolio.of(ROWS, objective=objective), 2)
    words = {"expected": "expected loss", "bound": "total regret bound"}[objective]
    assert words in str(found.chart().to_dict())
    html = found._repr_html_()
    assert words in html
    assert "&lt;home&gt;" in html
    assert "<home>" not in html
    assert "<svg" in html
    assert found.certificate in html
    assert found.to_dict()["objective"] == objective
    assert found.to_dict()["certificate"] == found.certificate
