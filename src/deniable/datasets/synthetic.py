"""A portfolio like ASOS's, drawn only from its published summary statistics.

The following is the same for every seed: 78 experiments with 2 to 5 arms (61, 14, 2, 1 of them),
and the total, smallest and largest number of visitors. Click rates, gaps between arms and durations
follow the published quantiles.
"""

from __future__ import annotations

import numpy as np

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.datasets.experiment import ExperimentData

ARMS = {2: 61, 3: 14, 4: 2, 5: 1}
TOTAL_VISITORS = 1_645_259_220
LEAST_VISITORS, MOST_VISITORS = 69_123, 149_197_471

_QUANTILES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
_LOG_VISITORS = np.log(np.array([69_123, 3_307_600, 7_467_700, 17_997_200, 149_197_471]))
_LOG_RATES = np.log(np.array([0.02647, 0.05687, 0.128, 0.24829, 0.77239]))
_LOG_GAPS = np.log(np.array([1.3e-6, 7.7e-5, 2.7e-4, 8.0e-4, 9.5e-3]))  # best arm to second
_DAYS = np.array([2.0, 28.0, 43.5, 62.0, 131.0])


def synthetic_portfolio(seed: int = 0) -> list[ExperimentData]:
    """Return the experiments of one synthetic firm.

    >>> firm = synthetic_portfolio(seed=1)
    >>> len(firm), sum(experiment.visitors for experiment in firm)
    (78, 1645259220)
    """
    rng = np.random.default_rng(check.whole("seed", seed, 0))
    arms = rng.permutation(np.repeat(list(ARMS), list(ARMS.values())))
    visitors = rng.permutation(_visitors(rng, arms.size))
    tops = np.exp(_drawn(rng, _LOG_RATES, arms.size))
    days = _drawn(rng, _DAYS, arms.size)
    return [
        ExperimentData(
            name=f"synthetic-{i:02d}",
            rates=_rates(rng, int(arms[i]), float(tops[i])),
            visitors=int(visitors[i]),
            days=round(float(days[i]) * 2) / 2,
        )
        for i in range(arms.size)
    ]


def _drawn(rng: np.random.Generator, quantiles: FloatArray, size: int) -> FloatArray:
    """Draw once from each of `size` equal quantile ranges of the distribution, in random order."""
    places = (np.arange(size) + rng.random(size)) / size
    return rng.permutation(np.interp(places, _QUANTILES, quantiles))


def _visitors(rng: np.random.Generator, size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Draw visitor numbers with the published total, scaling the largest experiments to reach it."""
    inner = np.sort(np.exp(_drawn(rng, _LOG_VISITORS, size - 2)))
    wanted = TOTAL_VISITORS - LEAST_VISITORS - MOST_VISITORS
    low, high = 0.2, 5.0
    for _ in range(200):
        tilt = (low + high) / 2
        middle = np.median(inner)
        bent = np.clip(middle * (inner / middle) ** tilt, LEAST_VISITORS, MOST_VISITORS)
        low, high = (tilt, high) if bent.sum() < wanted else (low, tilt)
    whole = np.round(bent).astype(np.int64)
    whole[size // 2] += wanted - whole.sum()
    return np.concatenate([[LEAST_VISITORS], whole, [MOST_VISITORS]])


def _rates(rng: np.random.Generator, n_arms: int, top: float) -> tuple[float, ...]:
    gaps = np.exp(np.interp(rng.random(n_arms - 1), _QUANTILES, _LOG_GAPS))
    rates = top - np.concatenate([[0.0], gaps])
    return tuple(rng.permutation(np.maximum(rates, 1e-4)).tolist())
