"""Open Bandit data (ZOZOTOWN, uniform random policy): clicks and impressions of fashion items."""

from __future__ import annotations

from pathlib import Path

from deniable import _validation as check
from deniable.datasets.experiment import data_file
from deniable.errors import InvalidArgumentError

CAMPAIGNS = ("all", "men", "women")


def open_bandit(campaign: str = "all", path: Path | str | None = None) -> list[tuple[int, int]]:
    """Return clicks and impressions of each item, in the order of the item numbers.

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
    import polars as pl

    if campaign not in CAMPAIGNS:
        raise InvalidArgumentError("campaign", campaign, "all, men or women")
    file = data_file(path, "open_bandit", "item_ctr_random_policy.csv")
    rows = pl.read_csv(file).filter(pl.col("campaign") == campaign).sort("item_id")
    return list(zip(rows["clicks"].to_list(), rows["impressions"].to_list(), strict=True))


def first_rates(counts: list[tuple[int, int]], n_arms: int) -> tuple[float, ...]:
    """Return click rates of the first items.

    >>> from deniable.datasets.facts import RECOMMENDATION_COUNTS
    >>> [round(rate, 6) for rate in first_rates(list(RECOMMENDATION_COUNTS), 2)]
    [0.002718, 0.002214]
    """
    size = check.whole("n_arms", n_arms, 2, len(counts))
    return tuple(clicks / impressions for clicks, impressions in counts[:size])
