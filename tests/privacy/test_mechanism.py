"""Both mechanisms against 50 digits, exact fractions and OpenDP."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from tests import oracle
from tests.agreement import BUDGETS, agree, grid

import deniable
from deniable.privacy import ArmSpecificResponse, RandomizedResponse

arm_risks = st.lists(st.floats(1e-9, 700), min_size=2, max_size=12)
some_arms = st.integers(2, 40)

UNEQUAL = (
    [0.5, 1, 2],
    [1e-9, 700],
    [1e-9, 1e-9, 1],
    [700, 700],
    [1e-300, 1],
    [0.001, 0.1, 10, 20, 50],
    [3] * 7,
    [1e-6 * 1.5**i for i in range(45)],
)


def test_symmetric_matrix_to_the_last_digits() -> None:
    for k, x in grid((2, 3, 12), BUDGETS):
        g = mp.exp(mpf(x))
        want = [[(g if i == j else 1) / (k - 1 + g) for j in range(k)] for i in range(k)]
        response = RandomizedResponse(k, x)
        flat = [cell for row in want for cell in row]
        agree([(k, x)] * k * k, response.matrix, flat, 1e-15)
        agree([(k, x)], [response.exploration], [oracle.eps(k, x)], 1e-15)
        assert response.risks.tolist() == [x] * k
        assert response.global_risk == x
        assert response.weights == pytest.approx([1 / k] * k, rel=1e-15, abs=0)


def test_ten_thousand_arms() -> None:
    shown = RandomizedResponse(10_000, 5.0).shown_distribution(9_999)
    g = mp.exp(5)
    agree([()] * 2, shown[[0, 9_999]], [1 / (9_999 + g), g / (9_999 + g)], 1e-15)
    assert shown.sum() == pytest.approx(1, rel=1e-14, abs=0)


@pytest.mark.parametrize("risks", UNEQUAL)
def test_arm_specific_matrix_to_the_last_digits(risks: list[float]) -> None:
    response = ArmSpecificResponse(risks)
    want = oracle.arm_matrix(risks)
    k = len(risks)
    rows = [(risks, i, j) for i in range(k) for j in range(k)]
    agree(rows, response.matrix, [cell for row in want for cell in row], 1e-14)
    c = [oracle.inverse_odds(x) for x in risks]
    agree([(risks, i) for i in range(k)], response.weights, [x / sum(c) for x in c], 1e-14)
    agree([(risks,)], [response.exploration], [sum(c) / (1 + sum(c))], 1e-14)
    assert response.global_risk == max(risks)


@pytest.mark.parametrize("risks", [[710, 720], [745, 2000], [5000, 5000]])
def test_risks_beyond_the_range_of_floats_are_purely_greedy(risks: list[float]) -> None:
    response = ArmSpecificResponse(risks)
    np.testing.assert_allclose(response.matrix, np.eye(2), atol=1e-300)
    assert response.weights.sum() == 1


def test_zero_risks_are_uniform() -> None:
    for response in (ArmSpecificResponse([0, 0, 0]), RandomizedResponse(3, 0)):
        assert response.exploration == pytest.approx(1, rel=1e-15, abs=0)
        np.testing.assert_allclose(response.matrix, 1 / 3, rtol=1e-15)


def test_infinite_risk_is_purely_greedy() -> None:
    np.testing.assert_array_equal(RandomizedResponse(4, np.inf).matrix, np.eye(4))


@given(arm_risks)
def test_columns_sum_to_one(risks: list[float]) -> None:
    for response in (ArmSpecificResponse(risks), RandomizedResponse(len(risks), risks[0])):
        np.testing.assert_allclose(response.matrix.sum(axis=0), 1, rtol=1e-14)
        assert (response.matrix >= 0).all()


@given(arm_risks, st.data())
def test_a_shown_distribution_is_a_column(risks: list[float], data: st.DataObject) -> None:
    greedy = data.draw(st.integers(0, len(risks) - 1))
    for response in (ArmSpecificResponse(risks), RandomizedResponse(len(risks), risks[0])):
        column = response.matrix[:, greedy]
        np.testing.assert_array_equal(response.shown_distribution(greedy), column)


@given(arm_risks)
def test_each_arm_moves_the_odds_by_its_own_risk(risks: list[float]) -> None:
    """Largest over smallest of row j is e^risk_j, exactly the promise and not less."""
    matrix = ArmSpecificResponse(risks).matrix
    for row, risk in zip(matrix, risks, strict=True):
        if row.min() > 1e-300:
            got = float(mp.log(mpf(row.max()) / mpf(row.min())))
            # A tiny risk is the distance of two nearly equal numbers.
            assert got == pytest.approx(risk, rel=1e-13, abs=1e-15)


@given(some_arms, st.floats(1e-9, 600))
def test_equal_risks_are_the_symmetric_mechanism(n_arms: int, risk: float) -> None:
    np.testing.assert_allclose(
        ArmSpecificResponse([risk] * n_arms).matrix,
        RandomizedResponse(n_arms, risk).matrix,
        rtol=1e-13,
    )


@pytest.mark.parametrize("n_arms", [2, 3, 8, 50])
@pytest.mark.parametrize("risk", [1e-6, 1e-3, 0.05, 0.5, 1, 3, 10, 20])
def test_opendp_maps_the_matrix_to_the_same_risk(n_arms: int, risk: float) -> None:
    truthful = float(RandomizedResponse(n_arms, risk).matrix[0, 0])
    # OpenDP sees only the diagonal: its last bit is 1/(1 - p) as much of the risk.
    rounding = 2**-52 * (2 + 1 / truthful + 1 / (1 - truthful))
    assert _opendp_risk(n_arms, truthful) == pytest.approx(risk, abs=rounding)
    off = truthful + 0.001 * (1 - truthful)
    assert abs(_opendp_risk(n_arms, off) - risk) > 10 * rounding


def _opendp_risk(n_arms: int, truthful: float) -> float:
    dp: Any = pytest.importorskip("opendp.prelude", reason="OpenDP, the second opinion, is missing")
    dp.enable_features("contrib")
    measurement = dp.m.make_randomized_response(categories=list(range(n_arms)), prob=truthful)
    return float(measurement.map(1))


def test_value_objects() -> None:
    assert RandomizedResponse(2, 1) == RandomizedResponse(2.0, 1.0)  # type: ignore[arg-type]
    assert ArmSpecificResponse([1, 2]) == ArmSpecificResponse(np.array([1.0, 2.0]))
    assert ArmSpecificResponse([1, 2]) != ArmSpecificResponse([2, 1])
    assert len({ArmSpecificResponse([1, 2]), ArmSpecificResponse([1.0, 2.0])}) == 1
    given_risks = np.array([1.0, 2.0])
    response = ArmSpecificResponse(given_risks)
    given_risks[0] = 9
    assert response.risks.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        response.risks[0] = 9
    with pytest.raises(AttributeError):
        deniable.privacy.RandomizedResponse(2, 1).risk = 3  # type: ignore[misc]
