"""The ASOS Digital Experiments Dataset (Liu et al. 2021): 78 experiments of a fashion retailer.

Uses the last snapshot of each variant for the binary metric. The control is repeated in each
variant's rows and counted once. The arms of an experiment are its control and its variants.
"""

from __future__ import annotations

from pathlib import Path

from deniable.datasets.experiment import ExperimentData, data_file

_BINARY_METRIC = 1


def asos(path: Path | str | None = None) -> list[ExperimentData]:
    """Return the experiments, by name.

    Args:
        path: the Parquet file; None for asos/asos_digital_experiments_dataset.parquet in the data
            folder.

    >>> asos("nowhere.parquet")
    Traceback (most recent call last):
    ...
    deniable.errors.InvalidArgumentError: path='nowhere.parquet': expected a downloaded file, or
    DENIABLE_DATA set to the folder that has it
    """
    import polars as pl

    file = data_file(path, "asos", "asos_digital_experiments_dataset.parquet")
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
