"""What visitors meet of a group, and what is committed, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from deniable.portfolio.participation import realized_risk
from deniable.portfolio.problem import Portfolio

NANO = 10**9


def test_a_visitor_of_a_group_meets_one_of_it_each_as_likely() -> None:
    """Budgets 1 and 3 in a group that half of the visitors meet: 0, 1 and 3 nats."""
    pair = [{"id": name, "arms": 2, "visitors": 1_000, "layer": "home"} for name in "ab"]
    found = realized_risk(Portfolio.of(pair), np.array([1, 3]) * NANO, 0.5)
    assert (found.worst_case, found.mean) == (3.0, 1.0)
    assert found.risk == pytest.approx([0, 1, 3], abs=1e-3)
    assert found.probability == pytest.approx([0.5, 0.75, 1.0])


@pytest.mark.parametrize("column", ["committed", "min_budget"])
@pytest.mark.parametrize(
    ("nats", "exact"), [(0.8, 8 * 10**8), (1e-10, 1), (1.0000000001, NANO + 1)]
)
def test_what_is_promised_already_is_rounded_up(column: str, nats: float, exact: int) -> None:
    row = {"id": "a", "arms": 2, "visitors": 1_000, column: nats}
    assert Portfolio.of([row]).min_nano.tolist() == [exact]
