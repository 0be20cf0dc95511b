"""Small segments and rare variants: what counts prove about them is little, and told as that."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.leak.logs import counted

from deniable.leak.measuring import clopper_pearson, measure


def test_a_small_segment_is_not_compared_with_itself() -> None:
    """Its own limits are further apart than any two segments' are."""
    shown = np.array([[1, 1], [5_000, 5_000], [5_000, 5_100]])
    found = measure(counted(shown), alpha=1e-3)
    low, high = clopper_pearson(2 * shown, 2 * shown.sum(axis=1, keepdims=True), 1e-3)
    for leak in found.variants:
        a = int(leak.variant[1:])
        pairs = list(itertools.permutations(range(3), 2))
        assert leak.ratio.high == pytest.approx(max(high[s, a] / low[t, a] for s, t in pairs))
        assert leak.ratio.high < high[0, a] / low[0, a]


def test_the_variant_that_tells_most_is_not_one_that_was_seen_once() -> None:
    found = measure(counted(np.array([[5_000, 1], [5_000, 0]])), alpha=1e-3)
    assert [belief.variant for belief in found.beliefs] == ["v0", "v0"]
    assert found.beliefs[0].after.value == 0.5
