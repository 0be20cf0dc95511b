"""e^risk from below, as a fraction: never above, and close."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.rational import exp_bounds

from deniable.errors import NANO
from deniable.privacy.exact import exp_floor


@pytest.mark.parametrize("risk", [1, 2, 999, 10**6, NANO, 20 * NANO, 700 * NANO, 1000 * NANO])
def test_exp_floor_is_below_and_close(risk: int) -> None:
    low, high = exp_bounds(Fraction(risk, NANO))
    assert exp_floor(risk) < high
    assert 0 <= 1 - exp_floor(risk) / low + Fraction(1, 10**78) <= Fraction(1, 10**75)


def test_exp_floor_is_below_e_for_risks_of_every_size() -> None:
    rng = np.random.default_rng(7)
    for risk in (10 ** rng.uniform(0, 12, 200)).astype(int).tolist():
        low, high = exp_bounds(Fraction(risk, NANO))
        assert exp_floor(risk) < high
        assert exp_floor(risk) >= low * (1 - Fraction(1, 10**75))


def test_exp_floor_of_any_risk_is_finite() -> None:
    assert exp_floor(0) == 1
    assert exp_floor(10**30) == exp_floor(1000 * NANO)
