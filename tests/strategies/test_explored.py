"""Random arms over all visitors of a segment, against the sum, visitor by visitor."""

from __future__ import annotations

import numpy as np
import pytest

from deniable.strategies import STRATEGIES
from deniable.strategies.symmetric import SymmetricStrategy


@pytest.mark.parametrize("name", ["constant", "dynamic"])
@pytest.mark.parametrize(
    ("n_arms", "visitors", "budget"),
    [(2, 1000, 1.0), (2, 100_000, 3.0), (5, 10**6, 8.0), (20, 50_000, 0.5), (50, 1000, 6.0)],
)
def test_explored_is_the_mean_of_the_schedule(
    name: str, n_arms: int, visitors: int, budget: float
) -> None:
    strategy = STRATEGIES[name]
    shares = np.asarray(strategy(budget).exploration(np.arange(1, visitors + 1), n_arms))
    assert strategy.explored(n_arms, visitors, budget) == pytest.approx(shares.mean(), rel=1e-3)
    assert strategy.explored_last(n_arms, visitors, budget) == pytest.approx(shares[-1])
    generic = SymmetricStrategy.explored.__func__  # type: ignore[attr-defined]
    assert generic(strategy, n_arms, visitors, budget) == pytest.approx(shares.mean(), rel=1e-3)
    last = SymmetricStrategy.explored_last.__func__  # type: ignore[attr-defined]
    assert last(strategy, n_arms, visitors, budget) == pytest.approx(shares[-1])


def test_a_strategy_whose_tables_depend_on_counts_does_not_know() -> None:
    assert STRATEGIES["joint"].explored(2, 1000, 1.0) is None
    assert STRATEGIES["joint"].explored_last(2, 1000, 1.0) is None
