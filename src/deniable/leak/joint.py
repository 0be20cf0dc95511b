"""What all experiments together reveal about one visitor.

A tracker that recognises a visitor multiplies the evidence of each shown variant. Given the
segment, draws of different experiments are assumed to be independent, which holds if each
experiment hashes or draws separately. So log likelihoods add up over the experiments that a visitor
met, and so do their limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable._validation import FloatArray
from deniable.leak.counting import Counts, Tally
from deniable.leak.measuring import ExperimentLeak, Guesses, share_with_limits
from deniable.leak.visitors import VisitorFiles

QUANTILES = (0.5, 0.9, 0.99)
_BLOCK = 1_000_000
_NATS_STEP, _NATS_TOP = 0.01, 100.0
_BELIEF_BINS = 1_000


@dataclass(frozen=True)
class JointBelief:
    """The belief in a visitor's true segment after everything was seen.

    Attributes:
        segment: the segment.
        before: its share.
        mean: mean over its visitors.
        top_tenth: exceeded by one in ten of its visitors.
        visitors: number of visitors it was tested on.
    """

    segment: str
    before: float
    mean: float
    top_tenth: float
    visitors: int


@dataclass(frozen=True)
class CombinedLeak:
    """All experiments together.

    Attributes:
        visitors: number of visitors with one segment in all experiments.
        left_out: number of visitors with several segments, who are not in these figures.
        met_mean, met_most: experiments a visitor met.
        met_several: share of visitors who met two or more.
        moved: quantiles over visitors of the largest change of the odds between two segments, as a
            factor: estimate, and the lower limit that counts prove; keys .5, .9 and .99.
        most: the same for the visitor with the largest change.
        guesses: share of segments guessed correctly, on visitors that were not used for learning.
        beliefs: beliefs by segment.
    """

    visitors: int
    left_out: int
    met_mean: float
    met_most: int
    met_several: float
    moved: dict[float, tuple[float, float]]
    most: tuple[float, float]
    guesses: Guesses
    beliefs: tuple[JointBelief, ...]


def measure_jointly(
    files: VisitorFiles, tally: Tally, leaks: Sequence[ExperimentLeak], alpha: float
) -> CombinedLeak | None:
    """Combine each visitor's experiments; None if no visitor met two, or one half is empty.

    Args:
        files: settled visitors.
        tally: all counts.
        leaks: the measured experiments.
        alpha: error probability of each single limit.
    """
    segments = tally.names["segment"]
    learned_from, tried_on = files.by_segment
    if not learned_from.sum() or not tried_on.sum():
        return None
    tables = _Tables(tally, leaks)
    sums = _Sums(learned_from / learned_from.sum())
    step = max(1, _BLOCK // len(segments))
    for half, starts, cell in files.joined():
        for begin in range(0, starts.size, step):
            part = starts[begin : begin + step]
            end = starts[begin + step] if begin + step < starts.size else cell.size
            sums.add(tables, half[begin : begin + step], part - part[0], cell[part[0] : end])
    return sums.result(segments, alpha)


class _Tables:
    """Log likelihoods of each cell's variant given every segment, shape (rows, J)."""

    def __init__(self, tally: Tally, leaks: Sequence[ExperimentLeak]) -> None:
        segments = {name: i for i, name in enumerate(tally.names["segment"])}
        variants = {name: i for i, name in enumerate(tally.names["variant"])}
        measured = {leak.experiment: leak for leak in leaks}
        pairs, self.row = np.unique(tally.cells[:, [0, 2]], axis=0, return_inverse=True)
        self.segment = tally.cells[:, 1]
        # Experiments that were not measured contribute zeros. Stored side by side, to be summed at
        # once.
        self.all = np.zeros((len(pairs), 4 * len(segments)))
        self.whole, self.learned, self.low, self.high = np.split(self.all, 4, axis=1)
        for number, counts in enumerate(tally.experiments):
            if (leak := measured.get(counts.experiment)) is not None:
                first = np.searchsorted(pairs[:, 0], number)
                mine = pairs[first : np.searchsorted(pairs[:, 0], number, side="right"), 1]
                rows = first + np.searchsorted(mine, [variants[name] for name in counts.variants])
                columns = np.array([segments[name] for name in counts.segments])
                self._fill(counts, leak, rows, columns)

    def _fill(
        self,
        counts: Counts,
        leak: ExperimentLeak,
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
    ) -> None:
        # A segment that never met the experiment gets the mean likelihood, without limits.
        self.low[rows] = -np.inf
        for target, shown in ((self.whole, counts.total), (self.learned, counts.shown[0])):
            smoothed = (
                shown + 0.5
            )  # Jeffreys' prior: a variant not yet seen in a segment rules nothing out
            target[rows] = np.log(smoothed.sum(axis=0) / smoothed.sum())[:, None]
            likelihood = smoothed / smoothed.sum(axis=1, keepdims=True)
            target[np.ix_(rows, columns)] = np.log(likelihood).T
        with np.errstate(divide="ignore"):
            self.low[np.ix_(rows, columns)] = np.log(leak.low).T
            self.high[np.ix_(rows, columns)] = np.log(leak.high).T


class _Sums:
    """Sums over visitors."""

    def __init__(self, prior: FloatArray) -> None:
        size = prior.size
        self._prior = prior
        with np.errstate(divide="ignore"):
            self._log_prior = np.log(prior)
        self._visitors, self._left_out = 0, 0
        self._met, self._met_several, self._met_most = 0, 0, 0
        self._moved = np.zeros((2, int(_NATS_TOP / _NATS_STEP) + 1))
        self._most = np.zeros(2)
        self._right = 0
        self._tried = np.zeros(size)
        self._belief = np.zeros(size)
        self._beliefs = np.zeros((size, _BELIEF_BINS))

    def add(
        self,
        tables: _Tables,
        half: NDArray[np.int64],
        starts: NDArray[np.int64],
        cell: NDArray[np.int64],
    ) -> None:
        """Add visitors, given the start of each one's cells."""
        from scipy.sparse import csr_array

        own, row = tables.segment[cell], tables.row[cell]
        steady = np.minimum.reduceat(own, starts) == np.maximum.reduceat(own, starts)
        met = np.diff(starts, append=cell.size)[steady]
        self._visitors += met.size
        self._left_out += starts.size - met.size
        self._met += int(met.sum())
        self._met_several += int((met > 1).sum())
        self._met_most = max(self._met_most, int(met.max(initial=0)))
        # A visitors x variants matrix with ones where shown; the product adds a visitor's rows
        # without copying.
        ends = np.append(starts, cell.size)
        shown = csr_array((np.ones(cell.size), row, ends), shape=(starts.size, len(tables.all)))
        summed = shown @ tables.all
        likelihood, learned, low, high = np.split(summed[steady], 4, axis=1)
        self._add_moves(0, likelihood.max(axis=1) - likelihood.min(axis=1))
        self._add_moves(1, np.maximum(low.max(axis=1) - high.min(axis=1), 0))
        tried = half[steady] == 1
        self._add_guesses(self._log_prior + learned[tried], own[starts][steady][tried])

    def _add_moves(self, kind: int, nats: FloatArray) -> None:
        bins = np.minimum(nats / _NATS_STEP, self._moved.shape[1] - 1).astype(np.int64)
        self._moved[kind] += np.bincount(bins, minlength=self._moved.shape[1])
        self._most[kind] = max(self._most[kind], float(nats.max(initial=0)))

    def _add_guesses(self, log_belief: FloatArray, segment: NDArray[np.int64]) -> None:
        if not segment.size:
            return
        self._right += int((log_belief.argmax(axis=1) == segment).sum())
        belief = np.exp(log_belief - log_belief.max(axis=1, keepdims=True))
        true = belief[np.arange(segment.size), segment] / belief.sum(axis=1)
        self._tried += np.bincount(segment, minlength=self._tried.size)
        self._belief += np.bincount(segment, weights=true, minlength=self._tried.size)
        bins = np.minimum(true * _BELIEF_BINS, _BELIEF_BINS - 1).astype(np.int64)
        place = np.bincount(segment * _BELIEF_BINS + bins, minlength=self._beliefs.size)
        self._beliefs += place.reshape(self._beliefs.shape)

    def result(self, segments: Sequence[str], alpha: float) -> CombinedLeak | None:
        """Return the figures; None if no visitor met two experiments, or there is no one to test on."""
        tried = float(self._tried.sum())
        if not self._met_several or not tried:
            return None
        return CombinedLeak(
            visitors=self._visitors,
            left_out=self._left_out,
            met_mean=self._met / self._visitors,
            met_most=self._met_most,
            met_several=self._met_several / self._visitors,
            moved={q: (_factor(self._moved[0], q), _factor(self._moved[1], q)) for q in QUANTILES},
            most=(float(np.exp(self._most[0])), float(np.exp(self._most[1]))),
            guesses=Guesses(
                float(self._prior.max()),
                share_with_limits(self._right, tried, alpha),
                int(tried),
            ),
            beliefs=tuple(
                JointBelief(
                    name,
                    float(self._prior[i]),
                    float(self._belief[i] / self._tried[i]),
                    _quantile(self._beliefs[i], 0.9) / _BELIEF_BINS,
                    int(self._tried[i]),
                )
                for i, name in enumerate(segments)
                if self._tried[i]
            ),
        )


def _quantile(histogram: FloatArray, q: float) -> int:
    """Return the bin of the quantile, as its lower edge in bins."""
    return int(np.searchsorted(np.cumsum(histogram), q * histogram.sum(), side="left"))


def _factor(histogram: FloatArray, q: float) -> float:
    return float(np.exp(_quantile(histogram, q) * _NATS_STEP))
