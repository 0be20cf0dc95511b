"""Public datasets by path, the figures of the paper's applications, a synthetic portfolio like ASOS's.

The published numbers let the paper's applications run without any file. The synthetic portfolio is
drawn only from the published summary statistics of ASOS's. The following is the same for every seed:
78 experiments with 2 to 5 arms (61, 14, 2, 1 of them), and the total, smallest and largest number of
visitors. Click rates, gaps between arms and durations follow the published quantiles.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deniable import _validation as check
from deniable._extras import require
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError


@dataclass(frozen=True)
class ExperimentData:
    """One experiment of a portfolio.

    Attributes:
        name: name of the experiment.
        rates: click rate of each arm; the control, if any, is first.
        visitors: total of all arms.
        days: duration; 0 if unknown.

    >>> ExperimentData("page", rates=(0.3, 0.2), visitors=1000).n_arms
    2
    """

    name: str
    rates: tuple[float, ...]
    visitors: int
    days: float = 0.0

    @property
    def n_arms(self) -> int:
        """Number of arms, K."""
        return len(self.rates)


def data_folder() -> Path | None:
    """Return the folder of downloaded data from DENIABLE_DATA; None if it is not set."""
    named = os.environ.get("DENIABLE_DATA")
    return Path(named) if named else None


def data_file(path: Path | str | None, *default: str) -> Path:
    """Return the given file, or the default in the data folder; raises if it does not exist."""
    require("polars", extra="data")
    folder = data_folder()
    file = Path(path) if path is not None else folder.joinpath(*default) if folder else None
    if file is None or not file.is_file():
        raise InvalidArgumentError(
            "path",
            None if file is None else str(file),
            "a downloaded file, or DENIABLE_DATA set to the folder that has it",
        )
    return file


# -- published numbers -----------------------------------------------------------------------------

WEBSITE_RATES = (0.324, 0.295)
"""Click rates of the two website designs, from the paper's text."""

WEBSITE_RATES_AS_PLOTTED = (0.0324, 0.0295)
"""The same rates, as read from the paper's axes."""

RECOMMENDATION_COUNTS = (
    (48, 17657),
    (39, 17616),
    (22, 17299),
    (43, 16729),
    (20, 17428),
    (41, 16594),
    (80, 17555),
    (92, 17516),
)
"""Clicks and impressions of items 0 to 7 of the Open Bandit data, campaign "all"."""

RECOMMENDATION_RATES = tuple(clicks / shown for clicks, shown in RECOMMENDATION_COUNTS)
"""Click rates of those items."""


# -- files by path ---------------------------------------------------------------------------------

_BINARY_METRIC = 1


def asos(path: Path | str | None = None) -> list[ExperimentData]:
    """Return ASOS's Digital Experiments Dataset (Liu et al. 2021): 78 experiments of a fashion retailer.

    Uses the last snapshot of each variant for the binary metric. The control is repeated in each
    variant's rows and counted once. The arms of an experiment are its control and its variants.

    Args:
        path: the Parquet file; None for asos/asos_digital_experiments_dataset.parquet in the data
            folder.

    >>> asos("nowhere.parquet")
    Traceback (most recent call last):
    ...
    deniable.errors.InvalidArgumentError: path='nowhere.parquet': expected a downloaded file, or
    DENIABLE_DATA set to the folder that has it
    """
    file = data_file(path, "asos", "asos_digital_experiments_dataset.parquet")
    import polars as pl

    last = (
        pl.read_parquet(file)
        .filter(pl.col("metric_id") == _BINARY_METRIC)
        .sort("time_since_start")
        .group_by("experiment_id", "variant_id")
        .last()
        .sort("experiment_id", "variant_id")
    )
    found = []
    for (name,), rows in last.group_by("experiment_id", maintain_order=True):
        treated = rows["count_t"].to_list()
        found.append(
            ExperimentData(
                name=str(name),
                rates=(rows["mean_c"][0], *rows["mean_t"].to_list()),
                visitors=round(rows["count_c"][0] + sum(treated)),
                days=max(rows["time_since_start"].to_list()),
            )
        )
    return found


CAMPAIGNS = ("all", "men", "women")


def open_bandit(campaign: str = "all", path: Path | str | None = None) -> list[tuple[int, int]]:
    """Return clicks and impressions of the fashion items of Open Bandit data (ZOZOTOWN), by number.

    The policy was uniform and random.

    Args:
        campaign: "all", "men" or "women".
        path: a CSV file with item_id, clicks, impressions, campaign; None for
            open_bandit/item_ctr_random_policy.csv in the data folder.

    >>> open_bandit("all", "nowhere.csv")
    Traceback (most recent call last):
    ...
    deniable.errors.InvalidArgumentError: path='nowhere.csv': expected a downloaded file, or
    DENIABLE_DATA set to the folder that has it
    """
    if campaign not in CAMPAIGNS:
        raise InvalidArgumentError("campaign", campaign, "all, men or women")
    file = data_file(path, "open_bandit", "item_ctr_random_policy.csv")
    import polars as pl

    rows = pl.read_csv(file).filter(pl.col("campaign") == campaign).sort("item_id")
    return list(zip(rows["clicks"].to_list(), rows["impressions"].to_list(), strict=True))


def first_rates(counts: list[tuple[int, int]], n_arms: int) -> tuple[float, ...]:
    """Return click rates of the first items.

    >>> from deniable.datasets import RECOMMENDATION_COUNTS
    >>> [round(rate, 6) for rate in first_rates(list(RECOMMENDATION_COUNTS), 2)]
    [0.002718, 0.002214]
    """
    size = check.whole("n_arms", n_arms, 2, len(counts))
    return tuple(clicks / impressions for clicks, impressions in counts[:size])


# -- a synthetic portfolio -------------------------------------------------------------------------

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
