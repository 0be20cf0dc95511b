"""The ground truth as strategies on contexts see it."""

from __future__ import annotations

import numpy as np
import pytest

from deniable.errors import InvalidArgumentError
from deniable.simulation.environment import Environment


def test_contexts_have_the_mean_rates_of_their_segments_and_the_best_of_each() -> None:
    rng = np.random.default_rng(1)
    rates, parts = rng.uniform(size=(5, 3)), rng.dirichlet(np.ones(5))
    contexts = ["a", "b", "a", "c", "b"]
    seen = Environment(rates, 1000, parts, contexts=contexts).by_context()
    for place, name in enumerate(("a", "b", "c")):
        mine = [n for n, own in enumerate(contexts) if own == name]
        assert seen.shares[place] == pytest.approx(parts[mine].sum())
        mean = np.average(rates[mine], axis=0, weights=parts[mine])
        assert seen.rates[place] == pytest.approx(mean)
        best = np.average(rates[mine].max(axis=1), weights=parts[mine])
        assert seen.best[0, place] == pytest.approx(best)
    assert seen.best_reward == pytest.approx(rates.max(axis=1) @ parts)
    with pytest.raises(InvalidArgumentError, match="contexts"):
        Environment(rates, 1000).by_context()
    with pytest.raises(InvalidArgumentError, match="5 names, one for each segment"):
        Environment(rates, 1000, contexts=["a", "b"])
