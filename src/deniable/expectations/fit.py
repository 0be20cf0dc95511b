"""What past experiments say about the next: a prior fitted to tables of shows and clicks.

Arms that do not differ at all would still show different click rates, by luck. So the lift is not the
spread of the rates that were seen, but what of it luck cannot explain: with rate_a ~ Normal(p, (p d)^2 +
p (1 - p) / shows_a) in each experiment, d has the largest restricted likelihood over all experiments
together (the means p are integrated out). With segments, the arms' differences are correlated between
the segments of an experiment, by 1 - h.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, SupportsFloat, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError, InvalidTableError
from deniable.expectations.prior import HETEROGENEITY, Prior

COLUMNS = ("experiment", "arm", "shows", "clicks")
_LIFTS = np.geomspace(1e-4, 1.0, 241)
_SHARES = np.linspace(0.0, 1.0, 21)
_HALF_CHI2 = 1.9207  # half of the 95% quantile of chi-squared with one degree of freedom


@dataclass(frozen=True)
class FittedPrior:
    """A prior, and how sure it is.

    Attributes:
        base_rate: mean over experiments of their click rates.
        lift: how much arms differed, as a standard deviation relative to the base rate.
        heterogeneity: the part of it that differed by segment; the usual one without segments.
        lift_low: where the 95% interval of the lift begins; 0 where no difference is possible too.
        lift_high: where it ends.
        experiments: how many had at least two arms with shows, and clicks.

    >>> FittedPrior(0.05, 0.1, 0.5, 0.05, 0.2, 40).columns()
    {'lift': 0.1, 'heterogeneity': 0.5}
    """

    base_rate: float
    lift: float
    heterogeneity: float
    lift_low: float
    lift_high: float
    experiments: int

    @property
    def prior(self) -> Prior:
        """What a plan or an expectation takes."""
        return Prior(self.base_rate, self.lift, self.heterogeneity)

    def columns(self) -> dict[str, float]:
        """Lift and heterogeneity, for rows of a portfolio; their base rates are their own."""
        return {"lift": self.lift, "heterogeneity": self.heterogeneity}


class Frame(Protocol):
    """A Polars or a pandas frame."""

    @property
    def columns(self) -> object:
        """Names of the columns."""


_Cell: TypeAlias = tuple[Hashable, Hashable]  # arm and segment


def fit_prior(
    past_experiments: Iterable[Mapping[str, object]] | Frame,
) -> FittedPrior:
    """The prior that past experiments suggest, by empirical Bayes.

    Args:
        past_experiments: rows with experiment, arm, shows, clicks, and segment where known; mappings,
            or a Polars or pandas frame.

    Raises:
        InvalidArgumentError: it is no table.
        InvalidTableError: lists every bad row, or says that there is no experiment to learn from.

    >>> rows = [
    ...     {"experiment": "home", "arm": "A", "shows": 100_000, "clicks": 5000},
    ...     {"experiment": "home", "arm": "B", "shows": 100_000, "clicks": 5600},
    ...     {"experiment": "cart", "arm": "A", "shows": 50_000, "clicks": 5100},
    ...     {"experiment": "cart", "arm": "B", "shows": 50_000, "clicks": 4900},
    ... ]
    >>> fitted = fit_prior(rows)
    >>> round(fitted.base_rate, 4), round(fitted.lift, 3), fitted.experiments
    (0.0765, 0.059, 2)
    """
    tests = [test for test in _tests(_rows(past_experiments)) if test.useful]
    if not tests:
        raise InvalidTableError([(0, "no experiment has two arms with shows, and clicks")])
    likelihood = _Likelihood.of(tests)
    share = HETEROGENEITY
    if likelihood.segmented:
        coarse = [[likelihood.at(d, h) for d in _LIFTS[::10]] for h in _SHARES]
        share = float(_SHARES[int(np.argmax(np.max(coarse, axis=1)))])
    along = np.array([likelihood.at(lift, share) for lift in _LIFTS])
    inside = np.flatnonzero(along >= along.max() - _HALF_CHI2)
    return FittedPrior(
        base_rate=float(np.mean([test.rate for test in tests])),
        lift=_top(_LIFTS, along),
        heterogeneity=share,
        lift_low=0.0 if inside[0] == 0 else float(_LIFTS[inside[0] - 1]),
        lift_high=float(_LIFTS[min(inside[-1] + 1, _LIFTS.size - 1)]),
        experiments=len(tests),
    )


@dataclass(frozen=True)
class _Test:
    """One past experiment: rates and shows by cell, with each cell's arm and segment."""

    rates: FloatArray
    shows: FloatArray
    arm: NDArray[np.int64]
    segment: NDArray[np.int64]
    rate: float

    @property
    def segments(self) -> int:
        return int(np.unique(self.segment).size)

    @property
    def useful(self) -> bool:
        """Whether two arms of a segment can be compared."""
        _, cells = np.unique(self.segment, return_counts=True)
        return bool(cells.size and cells.max() >= 2 and 0 < self.rate < 1)


@dataclass(frozen=True)
class _Likelihood:
    """Experiments without segments as flat arrays of all their arms; the others one by one."""

    rates: FloatArray
    noise: FloatArray
    mean: FloatArray
    test: NDArray[np.int64]
    segmented: list[_Alike]

    @classmethod
    def of(cls, tests: list[_Test]) -> _Likelihood:
        plain = [test for test in tests if test.segments == 1]
        sizes = [test.rates.size for test in plain]
        mean = np.repeat([test.rate for test in plain], sizes)
        shows = np.concatenate([test.shows for test in plain] or [np.empty(0)])
        return cls(
            np.concatenate([test.rates for test in plain] or [np.empty(0)]),
            mean * (1 - mean) / shows,
            mean,
            np.repeat(np.arange(len(plain)), sizes),
            _Alike.of([test for test in tests if test.segments > 1]),
        )

    def at(self, lift: float, share: float) -> float:
        """The log restricted likelihood of a lift and a heterogeneity."""
        total = math.fsum(alike.at(lift, share) for alike in self.segmented)
        if not self.rates.size:
            return total
        weight = 1 / ((self.mean * lift) ** 2 + self.noise)
        sums = np.bincount(self.test, weights=weight)
        fitted = np.bincount(self.test, weights=weight * self.rates) / sums
        rest = self.rates - fitted[self.test]
        logs = float(np.log(sums).sum() - np.log(weight).sum())
        return total - 0.5 * (logs + float((weight * rest**2).sum()))


@dataclass(frozen=True)
class _Alike:
    """Experiments with the same cells: rates and noise of shape (experiments, cells)."""

    rates: FloatArray
    noise: FloatArray
    mean: FloatArray
    arm: NDArray[np.int64]
    segment: NDArray[np.int64]

    @classmethod
    def of(cls, tests: list[_Test]) -> list[_Alike]:
        kinds: dict[tuple[bytes, bytes], list[_Test]] = {}
        for test in tests:
            kinds.setdefault((test.arm.tobytes(), test.segment.tobytes()), []).append(test)
        found = []
        for same in kinds.values():
            mean = np.array([test.rate for test in same])
            shows = np.stack([test.shows for test in same])
            noise = (mean * (1 - mean))[:, None] / shows
            rates = np.stack([test.rates for test in same])
            found.append(cls(rates, noise, mean, same[0].arm, same[0].segment))
        return found

    def at(self, lift: float, share: float) -> float:
        """Every segment has a mean of its own; arms' differences go along between segments."""
        means = (self.segment[:, None] == np.unique(self.segment)).astype(np.float64)
        alike = (self.arm[:, None] == self.arm) * (
            (1 - share) + share * (self.segment[:, None] == self.segment)
        )
        covariance = ((self.mean * lift) ** 2)[:, None, None] * alike
        diagonal = np.arange(self.arm.size)
        covariance[:, diagonal, diagonal] += self.noise
        inverse = np.linalg.inv(covariance)
        weighted = means.T @ inverse
        within = weighted @ means
        fitted = np.linalg.solve(within, weighted @ self.rates[:, :, None])
        rest = self.rates[:, :, None] - means @ fitted
        square = rest.transpose(0, 2, 1) @ inverse @ rest
        logs = np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(within)[1]
        return float(-0.5 * (logs.sum() + square.sum()))


def _top(x: FloatArray, y: FloatArray) -> float:
    """Where a sampled curve is highest, by a parabola through the highest sample in log x."""
    i = int(y.argmax())
    if i in (0, x.size - 1):
        return float(x[i])
    left, top, right = y[i - 1 : i + 2]
    bend = left - 2 * top + right
    shift = 0.5 * (left - right) / bend if bend else 0.0
    return float(x[i] * (x[i + 1] / x[i]) ** shift)


def _rows(given: Iterable[Mapping[str, object]] | Frame) -> list[object]:
    if hasattr(given, "to_dicts"):  # Polars
        return list(given.to_dicts())
    if hasattr(given, "to_dict") and hasattr(given, "columns"):  # pandas
        return list(given.to_dict("records"))
    if not isinstance(given, Iterable):
        raise InvalidArgumentError("past_experiments", given, "rows, or a frame")
    return list(cast(Iterable[object], given))


def _tests(rows: list[object]) -> list[_Test]:
    cells: dict[Hashable, dict[_Cell, list[float]]] = {}
    wrong: list[tuple[int, str]] = []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            wrong.append((number, f"row {number}: expected columns {', '.join(COLUMNS)}"))
            continue
        missing = [name for name in COLUMNS if row.get(name) is None or row.get(name) == ""]
        if missing:
            wrong.append((number, f"row {number}: {', '.join(missing)} missing"))
            continue
        shows, clicks = (_count(row[name]) for name in ("shows", "clicks"))
        if shows is None or clicks is None or clicks > shows:
            told = f"shows={row['shows']!r}, clicks={row['clicks']!r}"
            wrong.append(
                (number, f"row {number}: {told}: expected counts, at most one click a show")
            )
            continue
        cell = cells.setdefault(row["experiment"], {})
        sums = cell.setdefault((row["arm"], row.get("segment")), [0.0, 0.0])
        sums[0] += shows
        sums[1] += clicks
    if wrong:
        raise InvalidTableError(wrong)
    return [_test(cell) for cell in cells.values()]


def _test(cells: dict[_Cell, list[float]]) -> _Test:
    kept = {where: sums for where, sums in cells.items() if sums[0] > 0}
    counts = np.array(list(kept.values())).reshape(-1, 2)
    arms = {arm: number for number, arm in enumerate(dict.fromkeys(arm for arm, _ in kept))}
    segments = {name: i for i, name in enumerate(dict.fromkeys(name for _, name in kept))}
    shows, clicks = counts[:, 0], counts[:, 1]
    rate = float(clicks.sum() / shows.sum()) if shows.size else 0.0
    return _Test(
        clicks / shows,
        shows,
        np.array([arms[arm] for arm, _ in kept], dtype=np.int64),
        np.array([segments[name] for _, name in kept], dtype=np.int64),
        rate,
    )


def _count(value: SupportsFloat | str) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number >= 0 else None
