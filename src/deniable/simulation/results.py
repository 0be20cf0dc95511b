"""What a run returns: tidy frames, one row per repetition and checkpoint, and their summaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deniable.simulation.environment import Environment
from deniable.simulation.workers import Batch

if TYPE_CHECKING:
    import polars as pl

KEYS = ("environment", "policy", "risk_cap", "visitors")
_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """Frames of a run, sorted, the same for any number of workers.

    Attributes:
        frame: environment, policy, risk_cap, repetition, visitors, clicks, regret. Regret is the
            pseudo-regret: the sum over visitors of the best arm's rate minus the shown arm's.
        arms: the same by segment and arm, with shows; empty unless asked for.

    >>> from deniable.policies.benchmarks import PerfectPolicy
    >>> from deniable.simulation.run import simulate
    >>> page = Environment([1.0, 0.0], horizon=100)
    >>> simulate(page, [PerfectPolicy()], repetitions=3, workers=1).summary()["mean"].to_list()
    [100.0]
    """

    frame: pl.DataFrame
    arms: pl.DataFrame

    def summary(self, value: str = "clicks") -> pl.DataFrame:
        """By policy and checkpoint: mean with its 95% interval, median, quartiles, 95% range.

        Args:
            value: "clicks" or "regret".

        Returns:
            Columns environment, policy, risk_cap, visitors, repetitions, mean, low, high (the
            normal 95% interval of the mean), median, q25, q75, q025, q975.
        """
        import polars as pl

        column = pl.col(value)
        error = _NORMAL_95 * column.std().fill_null(0.0) / pl.len().sqrt()
        return self.frame.group_by(KEYS, maintain_order=True).agg(
            repetitions=pl.len(),
            mean=column.mean(),
            low=column.mean() - error,
            high=column.mean() + error,
            median=column.median(),
            q25=column.quantile(0.25, "linear"),
            q75=column.quantile(0.75, "linear"),
            q025=column.quantile(0.025, "linear"),
            q975=column.quantile(0.975, "linear"),
        )

    @property
    def final(self) -> pl.DataFrame:
        """The rows of `frame` at each environment's last checkpoint."""
        import polars as pl

        return self.frame.filter(pl.col("visitors") == pl.col("visitors").max().over("environment"))


@dataclass(frozen=True, eq=False)
class Described:
    """A job's place in the results.

    Attributes:
        environment: the truth.
        policy: the policy's label.
        risk_cap: the policy's largest risk.
        checkpoints: visitors at each checkpoint.
    """

    environment: Environment
    policy: str
    risk_cap: float
    checkpoints: Sequence[int]


def collect(
    described: Sequence[Described], batches: Sequence[Batch], *, by_arm: bool
) -> SimulationResult:
    """Frames of all batches, in the order of jobs and repetitions."""
    import polars as pl

    ordered = sorted(batches, key=lambda batch: (batch.job, batch.first))
    totals = [_totals(described[batch.job], batch) for batch in ordered]
    arms = [_arms(described[batch.job], batch) for batch in ordered] if by_arm else []
    return SimulationResult(
        frame=pl.concat(totals, rechunk=True) if totals else _empty(),
        arms=pl.concat(arms, rechunk=True) if arms else _empty_arms(),
    )


def _totals(job: Described, batch: Batch) -> pl.DataFrame:
    import polars as pl

    repetitions, points = batch.shows.shape[:2]
    gaps = job.environment.gaps.T
    return pl.DataFrame(
        {
            "repetition": _repetitions(batch, points),
            "visitors": np.tile(np.asarray(job.checkpoints, np.int64), repetitions),
            "clicks": batch.clicks.sum(axis=(2, 3)).ravel(),
            "regret": (batch.shows * gaps).sum(axis=(2, 3)).ravel(),
        }
    ).select(*_labels(job), pl.all())


def _arms(job: Described, batch: Batch) -> pl.DataFrame:
    import polars as pl

    repetitions, points, n_segments, n_arms = batch.shows.shape
    world = job.environment
    cells = n_segments * n_arms
    visitors = np.repeat(np.asarray(job.checkpoints, np.int64), cells)
    return pl.DataFrame(
        {
            "repetition": _repetitions(batch, points * cells),
            "visitors": np.tile(visitors, repetitions),
            "segment": list(np.repeat(world.segments, n_arms)) * (repetitions * points),
            "arm": list(world.arms) * (repetitions * points * n_segments),
            "shows": batch.shows.ravel(),
            "clicks": batch.clicks.ravel(),
            "regret": (batch.shows * world.gaps.T).ravel(),
        },
        schema_overrides={"segment": pl.String, "arm": pl.String},
    ).select(*_labels(job), pl.all())


def _labels(job: Described) -> list[pl.Expr]:
    import polars as pl

    return [
        pl.lit(job.environment.name).alias("environment"),
        pl.lit(job.policy).alias("policy"),
        pl.lit(job.risk_cap, pl.Float64).alias("risk_cap"),
    ]


def _repetitions(batch: Batch, rows: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    first, count = batch.first, batch.shows.shape[0]
    return np.repeat(np.arange(first, first + count, dtype=np.int64), rows)


def _empty() -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame(
        schema={
            "environment": pl.String,
            "policy": pl.String,
            "risk_cap": pl.Float64,
            "repetition": pl.Int64,
            "visitors": pl.Int64,
            "clicks": pl.Int64,
            "regret": pl.Float64,
        }
    )


def _empty_arms() -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame(
        schema={
            "environment": pl.String,
            "policy": pl.String,
            "risk_cap": pl.Float64,
            "repetition": pl.Int64,
            "visitors": pl.Int64,
            "segment": pl.String,
            "arm": pl.String,
            "shows": pl.Int64,
            "clicks": pl.Int64,
            "regret": pl.Float64,
        }
    )
