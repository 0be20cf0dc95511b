"""The results of a run: tidy frames with one row per repetition and checkpoint, and summaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from deniable._extras import is_installed
from deniable._validation import FloatArray
from deniable.errors import DeniableError, InvalidArgumentError, MissingExtraError
from deniable.simulation.environment import Environment
from deniable.simulation.workers import FinishedSpan
from deniable.strategies.kernel_rules import Simulated

if TYPE_CHECKING:
    import polars as pl
    from altair.typing import ChartType

VALUES = ("clicks", "reward", "regret", "share")
KEYS = ("environment", "policy", "risk_cap", "visitors")
_NORMAL_95 = 1.959963984540054
_ROWS, _CHARTS = 100, 6  # shown in a notebook


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """The sorted frames of a run, independent of the number of workers.

    Attributes:
        frame: environment, policy, risk_cap, repetition, visitors, clicks, reward, regret. The
            reward equals the clicks unless these have values. Regret is the pseudo-regret: the sum
            over visitors of the best arm's expected reward minus the shown arm's.
        arms: the same by segment and arm, with shows; empty unless requested.
        environments: the simulated environments.
        policies: the compared policies.

    >>> from deniable.strategies.benchmarks import Perfect
    >>> from deniable.simulation.run import simulate
    >>> page = Environment([1.0, 0.0], horizon=100)
    >>> simulate(page, [Perfect()], repetitions=3, workers=1).summary()["mean"].to_list()
    [100.0]
    """

    frame: pl.DataFrame
    arms: pl.DataFrame
    environments: tuple[Environment, ...] = ()
    policies: tuple[Simulated, ...] = ()

    def __repr__(self) -> str:
        policies = ", ".join(policy.label for policy in self.policies)
        worlds = ", ".join(repr(world) for world in self.environments)
        return f"SimulationResult({policies}; {worlds})"

    def summary(self, value: str = "clicks") -> pl.DataFrame:
        """Summarise by policy and checkpoint: mean with 95% interval, median, quartiles, 95% range.

        Args:
            value: "clicks", "reward", "regret", or "share": of what perfect information gains over
                random arms.

        Returns:
            Columns environment, policy, risk_cap, visitors, repetitions, mean, low, high (the
            normal 95% interval of the mean), median, q25, q75, q025, q05, q975.
        """
        import polars as pl

        column = self._value(value)
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
            q05=column.quantile(0.05, "linear"),
            q975=column.quantile(0.975, "linear"),
        )

    def compare(self, policy: str, other: str, value: str = "clicks") -> pl.DataFrame:
        """Return a policy's mean minus another's at the horizon, paired by repetition.

        Args:
            policy: label of the policy, such as "joint(1)".
            other: label of the one to compare it with.
            value: as in `summary`.

        Returns:
            A row for each environment: environment, repetitions, difference, low, high (95%).
        """
        import polars as pl

        labels = [each.label for each in self.policies]
        for argument, label in (("policy", policy), ("other", other)):
            if label not in labels:
                raise InvalidArgumentError(argument, label, "one of " + ", ".join(labels))
        keys = ["environment", "repetition"]
        rows = self.final.with_columns(self._value(value).alias("value"))
        one, two = (rows.filter(pl.col("policy") == label) for label in (policy, other))
        paired = one.join(two, on=keys, how="inner", suffix="_other")
        difference = pl.col("value") - pl.col("value_other")
        error = _NORMAL_95 * difference.std().fill_null(0.0) / pl.len().sqrt()
        return paired.group_by("environment", maintain_order=True).agg(
            repetitions=pl.len(),
            difference=difference.mean(),
            low=difference.mean() - error,
            high=difference.mean() + error,
        )

    def _value(self, name: str) -> pl.Expr:
        import polars as pl

        if name not in VALUES:
            raise InvalidArgumentError("value", name, "one of " + ", ".join(VALUES))
        if name != "share":
            return pl.col(name)
        keys = [
            (world.name, visitors)
            for world in self.environments
            for visitors in self.frame.filter(pl.col("environment") == world.name)["visitors"]
            .unique()
            .to_list()
        ]
        worlds = {world.name: world for world in self.environments}
        possible = pl.coalesce(
            pl.when((pl.col("environment") == name) & (pl.col("visitors") == visitors)).then(
                random_regret(worlds[name], visitors)
            )
            for name, visitors in keys
        )
        return 1 - pl.col("regret") / possible

    @property
    def final(self) -> pl.DataFrame:
        """The rows of `frame` at each environment's last checkpoint."""
        import polars as pl

        return self.frame.filter(pl.col("visitors") == pl.col("visitors").max().over("environment"))

    def to_pandas(
        self, table: Literal["frame", "arms"] = "frame"
    ) -> Any:  # pandas is not a dependency
        """Convert the frame, or the one by segment and arm, to pandas, with plain columns and index.

        Integers stay integers, names are strings, and no memory is shared with this result.
        """
        if table not in ("frame", "arms"):
            raise InvalidArgumentError("table", table, "frame or arms")
        if not is_installed("pandas"):
            raise DeniableError("to_pandas() needs pandas: pip install pandas")
        pandas = import_module("pandas")
        chosen = self.frame if table == "frame" else self.arms
        return pandas.DataFrame(
            {name: chosen[name].to_numpy(writable=True) for name in chosen.columns}
        )

    def chart(self, environment: str | None = None) -> ChartType:
        """Chart clicks at the horizon, best on top, and regret over time, with Altair.

        Args:
            environment: name of the environment, if there are several.
        """
        from deniable.charts.simulation import result_chart

        return result_chart(self, self._one(environment))

    def _one(self, name: str | None) -> Environment:
        named = {world.name: world for world in self.environments}
        if name is None and len(named) == 1:
            return self.environments[0]
        if name is None or name not in named:
            raise InvalidArgumentError("environment", name, "one of " + ", ".join(named))
        return named[name]

    def _repr_html_(self) -> str:
        table = self.summary().drop("risk_cap").to_dicts()
        try:
            charts = [self.chart(world.name) for world in self.environments[:_CHARTS]]
        except MissingExtraError:
            charts = []
        return summary_html(table, charts)


def random_regret(environment: Environment, visitors: int) -> float:
    """Return the regret of random arms: what perfect information gains over them.

    >>> round(random_regret(Environment([0.3, 0.1], horizon=1000), 1000), 6)
    100.0
    """
    starts = np.minimum(environment.starts, visitors)
    lengths = np.diff(starts, append=visitors)
    by_phase = environment.phase_gaps.mean(axis=2) @ environment.shares
    return float(lengths @ by_phase)


@dataclass(frozen=True, eq=False)
class Described:
    """A job's labels in the results.

    Attributes:
        environment: the ground truth.
        policy: the policy's label.
        risk_cap: the policy's largest risk.
        checkpoints: visitors at each checkpoint of the run.
        asked: those to report, in ascending order.
    """

    environment: Environment
    policy: str
    risk_cap: float
    checkpoints: Sequence[int]
    asked: Sequence[int]

    @property
    def kept(self) -> NDArray[np.intp]:
        """Which checkpoints to report; at the others only the click rates changed."""
        return np.flatnonzero(np.isin(self.checkpoints, self.asked))


def summary_html(rows: Sequence[Mapping[str, object]], charts: Sequence[ChartType]) -> str:
    """Render a table and charts as HTML for notebooks, static and self-contained."""
    heads = ("environment", "policy", "visitors", "repetitions", "mean", "low", "high", "median")
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(row[name]))}</td>" for name in heads) + "</tr>"
        for row in rows[:_ROWS]
    )
    more = f"<p>... and {len(rows) - _ROWS} more rows</p>" if len(rows) > _ROWS else ""
    drawn = "".join(_svg(chart) for chart in charts)
    return (
        f"<table><caption>clicks</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>{more}{drawn}"
    )


def _cell(value: object) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def _svg(chart: ChartType) -> str:
    import vl_convert

    return str(vl_convert.vegalite_to_svg(chart.to_dict()))


def collect(
    described: Sequence[Described], batches: Sequence[FinishedSpan], *, by_arm: bool
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return frames of all batches, by repetition and by arm, in the order of jobs and repetitions."""
    import polars as pl

    ordered = sorted(batches, key=lambda batch: (batch.job, batch.first))
    totals = [_totals(described[batch.job], batch) for batch in ordered]
    arms = [_arms(described[batch.job], batch) for batch in ordered] if by_arm else []
    return (
        pl.concat(totals, rechunk=True) if totals else _empty(),
        pl.concat(arms, rechunk=True) if arms else _empty(("segment", "arm", "shows")),
    )


def _totals(job: Described, batch: FinishedSpan) -> pl.DataFrame:
    import polars as pl

    kept = job.kept
    repetitions = batch.shows.shape[0]
    clicks = batch.clicks[:, kept].sum(axis=(2, 3)).ravel()
    rewards = clicks if batch.rewards is None else batch.rewards[:, kept].sum(axis=(2, 3)).ravel()
    return pl.DataFrame(
        {
            "repetition": _repetitions(batch, kept.size),
            "visitors": np.tile(np.asarray(job.checkpoints, np.int64)[kept], repetitions),
            "clicks": clicks,
            "reward": rewards.astype(np.float64),
            "regret": _regret(job, batch).sum(axis=(2, 3)).ravel(),
        }
    ).select(*_labels(job), pl.all())


def _regret(job: Described, batch: FinishedSpan) -> FloatArray:
    """Return pseudo-regret by segment and arm at the requested checkpoints."""
    world = job.environment
    gaps = world.phase_gaps
    if len(gaps) == 1:
        return np.asarray(batch.shows[:, job.kept] * gaps[0])
    new = np.diff(batch.shows, axis=1, prepend=0)
    lost = np.cumsum(new * gaps[world.phase_at(job.checkpoints)], axis=1)
    return np.asarray(lost[:, job.kept])


def _arms(job: Described, batch: FinishedSpan) -> pl.DataFrame:
    import polars as pl

    world, kept = job.environment, job.kept
    shows, clicks = batch.shows[:, kept], batch.clicks[:, kept]
    repetitions, points, n_segments, n_arms = shows.shape
    cells = n_segments * n_arms
    visitors = np.repeat(np.asarray(job.checkpoints, np.int64)[kept], cells)
    rewards = clicks if batch.rewards is None else batch.rewards[:, kept]
    return pl.DataFrame(
        {
            "repetition": _repetitions(batch, points * cells),
            "visitors": np.tile(visitors, repetitions),
            "segment": list(np.repeat(world.segments, n_arms)) * (repetitions * points),
            "arm": list(world.arms) * (repetitions * points * n_segments),
            "shows": shows.ravel(),
            "clicks": clicks.ravel(),
            "reward": rewards.astype(np.float64).ravel(),
            "regret": _regret(job, batch).ravel(),
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


def _repetitions(batch: FinishedSpan, rows: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    first, count = batch.first, batch.shows.shape[0]
    return np.repeat(np.arange(first, first + count, dtype=np.int64), rows)


def _empty(by_arm: tuple[str, ...] = ()) -> pl.DataFrame:
    """Return a frame without rows; `by_arm` are the additional columns by segment and arm."""
    import polars as pl

    kinds = {
        "environment": pl.String,
        "policy": pl.String,
        "risk_cap": pl.Float64,
        "repetition": pl.Int64,
        "visitors": pl.Int64,
        "segment": pl.String,
        "arm": pl.String,
        "shows": pl.Int64,
        "clicks": pl.Int64,
        "reward": pl.Float64,
        "regret": pl.Float64,
    }
    left_out = {"segment", "arm", "shows"} - set(by_arm)
    return pl.DataFrame(schema={key: kind for key, kind in kinds.items() if key not in left_out})
