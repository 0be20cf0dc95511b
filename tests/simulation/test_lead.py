"""The bound on a lost lead between two arms, against its exact probability."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from deniable._compile import as_python
from deniable.simulation.kernels import lead

SIZE = 40
FALL = 0.8  # exploration falls to this share in the block
LOG_LIMIT = -4.0  # loose enough that the exact probability is not far below
STATES = {
    "both fluctuate": (400, 98, 400, 96, 0.4, 0.25, 0.25),
    "a clear lead": (400, 104, 400, 96, 0.4, 0.25, 0.25),
    "few explore": (800, 164, 90, 14, 0.1, 0.2, 0.25),
    "the leader alone": (400, 100, 4000, 980, 0.1, 0.25, 0.25),
    "the leader is the better arm": (200, 70, 200, 65, 0.3, 0.4, 0.25),
    "high rates": (300, 253, 300, 250, 0.5, 0.84, 0.84),
    "low rates": (900, 30, 500, 12, 0.5, 0.02, 0.03),
}


def _lost_and_kept(
    n: int, c: int, k: int, d: int, wander: float, own_rate: float, other_rate: float
) -> tuple[Any, Any]:
    """P(totals, and the lead was lost) and P(totals, and it never was), by others, wins and hits."""
    others, wins, hits = np.indices((SIZE + 1,) * 3)
    lost, kept = np.zeros((2, SIZE + 1, SIZE + 1, SIZE + 1))
    kept[0, 0, 0] = 1.0
    for visitor in range(1, SIZE + 1):
        explores = wander * (1 - (1 - FALL) * (visitor - 1) / (SIZE - 1))
        steps = (
            (1, 0, 0, explores * (1 - other_rate)),
            (1, 0, 1, explores * other_rate),
            (0, 0, 0, (1 - explores) * (1 - own_rate)),
            (0, 1, 0, (1 - explores) * own_rate),
        )
        moved = np.zeros((2, *kept.shape))
        for a, b, e, probability in steps:
            end = SIZE + 1
            for layer, before in enumerate((lost, kept)):
                moved[layer, a:, b:, e:] += probability * before[: end - a, : end - b, : end - e]
        leads = (c + wins) * (k + others) > (d + hits) * (n + visitor - others)
        lost = moved[0] + np.where(leads, 0.0, moved[1])
        kept = np.where(leads, moved[1], 0.0)
    return lost, kept


def _accepted(state: tuple[Any, ...], **parts: Any) -> Any:
    """Which totals are accepted, at the loose limit."""
    loose = {
        "LOG_MISS": LOG_LIMIT,
        "_tilts": as_python(lead._tilts, LOG_MISS=LOG_LIMIT),
        "_growth": as_python(lead._growth),
        "_moments": as_python(lead._moments),
        **parts,
    }
    keeps = as_python(lead.keeps_lead, **loose)
    accepted = np.zeros((SIZE + 1,) * 3, bool)
    n, c, k, d, wander, own_rate, other_rate = state
    for others in range(SIZE + 1):
        for wins in range(SIZE - others + 1):
            for hits in range(others + 1):
                rates = FALL * wander, wander, own_rate, other_rate
                holds = keeps(n, c, k, d, *rates, SIZE, others, wins, hits)
                accepted[others, wins, hits] = holds
    return accepted


@pytest.mark.parametrize("name", STATES)
def test_an_accepted_block_has_lost_the_lead_rarely(name: str) -> None:
    """Two walks of both arms: no more than one bound for each."""
    lost, kept = _lost_and_kept(*STATES[name])
    assert lost.sum() + kept.sum() == pytest.approx(1)
    accepted = _accepted(STATES[name])
    assert lost[accepted].sum() <= 2 * math.exp(LOG_LIMIT)


def test_the_bounds_accept_blocks_in_which_the_lead_can_be_lost() -> None:
    """Otherwise the test above would say nothing."""
    wrong, right = [], []
    for state in STATES.values():
        lost, kept = _lost_and_kept(*state)
        accepted = _accepted(state)
        wrong.append(lost[accepted].sum())
        right.append(kept[accepted].sum())
    assert max(wrong) > 1e-4
    assert max(right) > 0.3


def test_a_bound_without_fluctuations_is_found_out() -> None:
    def straight(tilt: float, rate: float, p: float) -> float:
        return -tilt * (p - rate)

    found = []
    for state in STATES.values():
        lost, _ = _lost_and_kept(*state)
        found.append(lost[_accepted(state, _growth=straight)].sum())
    assert max(found) > 2 * math.exp(LOG_LIMIT)


@pytest.mark.parametrize("tilt", [-2.4, -1.0, -0.01, 0.01, 1.0, 2.4])
@pytest.mark.parametrize("rate", [0.02, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("p", [0.0, 0.03, 0.2, 0.6, 1.0])
def test_growth_is_an_upper_bound(tilt: float, rate: float, p: float) -> None:
    true = p * math.exp(-tilt * (1 - rate)) + (1 - p) * math.exp(tilt * rate) - 1
    bound = lead._growth(tilt, rate, p)
    assert true <= bound + 1e-15
    if abs(tilt) < 0.1:
        assert bound == pytest.approx(true, abs=1e-8)


def test_blocks_are_as_long_as_the_lead_allows() -> None:
    """Twice the lead, four times the visitors; nothing where single clicks matter."""
    n, k = 730_000_000, 270_000_000
    c = 142_715_000
    lengths = [
        lead.lead_length(n, c, k, int(rate * k), 0.27, 0.1953, 0.1953, 1e12)
        for rate in (0.19549, 0.19548, 0.19546)
    ]
    assert lengths[1] / lengths[0] == pytest.approx(4, rel=0.05)
    assert lengths[2] / lengths[1] == pytest.approx(4, rel=0.05)
    assert lead.lead_length(n, c, k, 52_785_000, 0.27, 0.1953, 0.1953, 1e12) == 0
    assert lead.lead_length(10, 3, 0, 0, 0.27, 0.1953, 0.1953, 1e12) == 0
    assert lead.lead_length(n, c, k, 0, 0.27, 0.1953, 0.1953, 1000.0) == 1000
