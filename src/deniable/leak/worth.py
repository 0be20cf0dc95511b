"""Whether personalising pays, from an exposure log with rewards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from deniable.analysis.worth import Folds, Worth, worth_of_folds
from deniable.errors import InvalidArgumentError
from deniable.leak.columns import Columns
from deniable.leak.counting import Counts, Tally, counted_log
from deniable.leak.folds import MOMENTS, N_WEIGHTED

DRIFT = 1e-6
"""A p-value below it says that the shares of the variants changed over time."""


def worth(
    log: str | Path,
    *,
    columns: Mapping[str, str | None] | None = None,
    experiment: str | None = None,
    confidence: float = 0.95,
) -> Worth:
    r"""Return whether personalising pays, by an exposure log with rewards: read this first of all.

    It compares one arm for everybody (no risk) with the best arm by private label, the best table within
    a budget, and each segment its best arm (no privacy). Policies are chosen on some visitors and judged
    on others.

    Args:
        log: a CSV, Parquet or JSON-lines file.
        columns: role -> column, to override guessing by name; the roles are those of `measure_leak`.
            A column with the role propensity has the probability with which the shown variant was
            drawn; without it, the shares of the variants are taken to be constant over time.
        experiment: which one, if the log has several.
        confidence: of each interval.

    Raises:
        InvalidArgumentError: the log has no rewards, or nothing can be compared.

    >>> import deniable, tempfile, pathlib
    >>> rows = ["segment,variant,count,clicks", "new,red,9000,900", "new,blue,9000,450"]
    >>> rows += ["loyal,red,9000,450", "loyal,blue,9000,900"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "exposures.csv")
    ...     _ = file.write_text("\n".join(rows))
    ...     found = deniable.worth(file)
    >>> found.answer, round(found.one_arm.value, 3), round(found.no_privacy.value, 3)
    ('pays', 0.073, 0.1)
    """
    with counted_log(log, columns) as (_, roles, tally, _):
        pass
    counts = {one.experiment: one for one in tally.experiments}
    names = ", ".join(list(counts)[:5])
    if experiment is None and len(counts) > 1:
        raise InvalidArgumentError("experiment", None, f"one of the log's experiments: {names}")
    name = next(iter(counts)) if experiment is None else experiment
    if name not in counts:
        raise InvalidArgumentError("experiment", experiment, f"one of {names}")
    return worth_of_counts(counts[name], roles, tally, confidence)


def worth_of_counts(counts: Counts, columns: Columns, tally: Tally, confidence: float) -> Worth:
    """Return whether personalising pays in one experiment of a log.

    Raises:
        InvalidArgumentError: rewards are missing, or nothing can be compared; says what.
    """
    if counts.reward is None or counts.moments is None:
        raise InvalidArgumentError(
            "reward", None, "--reward with a column of rewards, such as clicks: without them nobody "
            "knows what a variant brings"
        )  # fmt: skip
    if counts.reward_squared is None:
        raise InvalidArgumentError(
            "reward", columns.reward, "a row for each visitor, or rewards that are 0 or 1: sums do not "
            "say how much rewards vary"
        )  # fmt: skip
    known = columns.propensity is not None
    moments = counts.moments
    folds = Folds(*moments[:N_WEIGHTED]) if known else Folds.estimated(*moments[:3])
    return worth_of_folds(
        folds,
        segments=counts.segments,
        arms=counts.variants,
        experiment=counts.experiment,
        attribute=columns.segment,
        known=known,
        confidence=confidence,
        warnings=() if known else _warnings(counts, timed=tally.first is not None),
    )


def _warnings(counts: Counts, *, timed: bool) -> list[str]:
    """Return what estimated propensities may hide."""
    ask = "Name a column with the probability of the shown variant as its propensity."
    if not timed:
        return [
            "The log has no times and no propensities: the shares of the variants are taken to have "
            f"been the same all the time. If the experiment learned, the figures are biased. {ask}"
        ]
    if drift(counts) < DRIFT:
        return [
            "The shares of the variants changed over time, and the log has no propensities. If the "
            f"experiment learned, or changed its shares, the figures are biased. {ask}"
        ]
    return []


def drift(counts: Counts) -> float:
    """Return the p-value of the mean times of the variants, which agree where shares never changed."""
    from scipy.stats import chi2

    assert counts.moments is not None
    sums = dict(zip(MOMENTS, counts.moments.sum(axis=1), strict=True))
    timed, days, squared = sums["timed"], sums["days"], sums["squared_days"]
    visitors = timed.sum(axis=1, keepdims=True)
    mean = days.sum(axis=1, keepdims=True) / np.maximum(visitors, 1)
    variance = np.maximum(squared.sum(axis=1, keepdims=True) / np.maximum(visitors, 1) - mean**2, 0)
    used = (timed > 0) & (variance > 0)
    apart = np.where(used, days - timed * mean, 0.0) ** 2
    statistic = (apart / np.where(used, timed * variance, 1.0)).sum()
    freedom = int((used.sum(axis=1) - 1).clip(0).sum())
    return float(chi2.sf(statistic, freedom)) if freedom else 1.0
