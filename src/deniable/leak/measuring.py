"""What one experiment reveals to a tracker: odds ratios, beliefs and guesses, with exact limits.

With n(s, a) visitors of segment s who were shown variant a, the probability of a given s is a
binomial share of n(s, .), and the belief in s after a is a binomial share of n(., a). The limits
are by Clopper and Pearson. Every limit gets the same small part of alpha, so that all limits of a
report hold simultaneously (Bonferroni).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from deniable._validation import FloatArray
from deniable.leak.counting import Counts


@dataclass(frozen=True)
class Estimate:
    """A figure and its limits."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class VariantLeak:
    """What one shown variant reveals.

    Attributes:
        variant: its name.
        share: share of the experiment's visitors who were shown it.
        ratio: the factor by which it multiplies the odds of `segment` against `other`, for the pair
            with the strongest proof. The limits are for the worst pair, whichever it is.
        segment, other: the pair.
    """

    variant: str
    share: float
    ratio: Estimate
    segment: str
    other: str


@dataclass(frozen=True)
class SegmentBelief:
    """A tracker's belief in a segment, before and after the most revealing variant."""

    segment: str
    before: float
    after: Estimate
    variant: str


@dataclass(frozen=True)
class Guesses:
    """Share of visitors whose segment is guessed correctly.

    Attributes:
        before: by always guessing the largest segment, which is its share.
        after: by Bayes' rule, with tables learned from other visitors.
        visitors: number of visitors it was tested on.
    """

    before: float
    after: Estimate
    visitors: int


@dataclass(frozen=True, eq=False)
class ExperimentLeak:
    """The measurements of one experiment.

    Attributes:
        experiment: name of the experiment.
        segments: J names.
        visitors: number of visitors (or exposures) counted.
        shares: shares of the segments, shape (J,).
        table: estimated probability of each variant in each segment, shape (J, K).
        low, high: its limits.
        ratio: the worst odds ratio over all variants and pairs of segments.
        variants: variants, the strongest proof first.
        beliefs: beliefs by segment, in the order of the names.
        guesses: how well a tracker guesses; None if half of the log is empty.
    """

    experiment: str
    segments: tuple[str, ...]
    visitors: int
    shares: FloatArray
    table: FloatArray
    low: FloatArray
    high: FloatArray
    ratio: Estimate
    variants: tuple[VariantLeak, ...]
    beliefs: tuple[SegmentBelief, ...]
    guesses: Guesses | None

    @property
    def worst(self) -> VariantLeak:
        """The variant with the strongest proof."""
        return self.variants[0]

    @property
    def worst_belief(self) -> SegmentBelief:
        """The segment whose odds provably rise most."""
        return max(self.beliefs, key=lambda b: _log_odds(b.after.low) - _log_odds(b.before))


def clopper_pearson(
    successes: ArrayLike, trials: ArrayLike, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return exact limits of a binomial probability, each missed with probability at most `alpha`.

    Args:
        successes: k, at most the trials; arrays broadcast.
        trials: n; if 0, the limits are 0 and 1.
        alpha: error probability of each side.

    >>> low, high = clopper_pearson(8, 10, 0.025)
    >>> round(float(low), 4), round(float(high), 4)
    (0.4439, 0.9748)
    """
    from scipy.special import betainccinv, betaincinv

    k, n = np.broadcast_arrays(
        np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    )
    # The edge cases are set explicitly; 1 keeps the inverse away from them. Using the complement
    # stays accurate for tiny alphas.
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, alpha), 0.0)
    high = np.where(k < n, betainccinv(k + 1, np.maximum(n - k, 1), alpha), 1.0)
    return np.asarray(low), np.asarray(high)


def measure(counts: Counts, alpha: float) -> ExperimentLeak:
    """Measure one experiment that has two or more segments and variants.

    Args:
        counts: counts of the experiment.
        alpha: error probability of each single limit.
    """
    shown = counts.total
    by_segment, by_variant = shown.sum(axis=1, keepdims=True), shown.sum(axis=0, keepdims=True)
    low, high = clopper_pearson(shown, by_segment, alpha)
    table, shares = shown / by_segment, by_segment[:, 0] / shown.sum()
    variants = _variants(counts, table, low, high, by_variant[0] / shown.sum())
    worst = max(variants, key=lambda v: v.ratio.low)
    ratio = Estimate(worst.ratio.value, worst.ratio.low, max(v.ratio.high for v in variants))
    return ExperimentLeak(
        counts.experiment,
        counts.segments,
        int(shown.sum()),
        shares,
        table,
        low,
        high,
        ratio,
        variants,
        _beliefs(counts, shares, alpha),
        _guesses(counts, alpha),
    )


def _variants(
    counts: Counts, table: FloatArray, low: FloatArray, high: FloatArray, share: FloatArray
) -> tuple[VariantLeak, ...]:
    found = []
    for place, name in enumerate(counts.variants):
        proven, (s, t) = _best_pair(low[:, place], high[:, place])
        ceiling, _ = _best_pair(high[:, place], low[:, place])
        above, below = table[s, place], table[t, place]
        value = float(above / below) if below > 0 else float("inf")
        ratio = Estimate(max(value, 1.0), max(proven, 1.0), ceiling)
        leak = VariantLeak(name, float(share[place]), ratio, counts.segments[s], counts.segments[t])
        found.append((proven, leak))
    found.sort(key=lambda pair: -pair[0])
    return tuple(leak for _, leak in found)


def _best_pair(above: FloatArray, below: FloatArray) -> tuple[float, tuple[int, int]]:
    """Return the largest above[s] / below[t] over pairs s != t, and the pair.

    It combines the best of either side, or the second best if both are the same segment.
    """
    tops, bottoms = np.argsort(-above)[:2], np.argsort(below)[:2]
    pairs = [(int(s), int(t)) for s in tops for t in bottoms if s != t]

    def ratio(pair: tuple[int, int]) -> float:
        over, under = float(above[pair[0]]), float(below[pair[1]])
        return over / under if under > 0 else float("inf")

    best = max(pairs, key=ratio)
    return ratio(best), best


def _beliefs(counts: Counts, shares: FloatArray, alpha: float) -> tuple[SegmentBelief, ...]:
    shown = counts.total
    low, high = clopper_pearson(shown, shown.sum(axis=0, keepdims=True), alpha)
    after = shown / shown.sum(axis=0, keepdims=True)
    best = low.argmax(axis=1)
    return tuple(
        SegmentBelief(
            name,
            float(shares[s]),
            Estimate(float(after[s, a]), float(low[s, a]), float(high[s, a])),
            counts.variants[a],
        )
        for s, (name, a) in enumerate(zip(counts.segments, best.tolist(), strict=True))
    )


def _guesses(counts: Counts, alpha: float) -> Guesses | None:
    learned, tried = counts.shown
    total = float(tried.sum())
    if not total or not learned.sum():
        return None
    members = counts.total.sum(axis=1)
    right = float(tried[learned.argmax(axis=0), np.arange(tried.shape[1])].sum())
    before = float(members.max() / members.sum())
    return Guesses(before, share_with_limits(right, total, alpha), int(total))


def share_with_limits(part: float, whole: float, alpha: float) -> Estimate:
    """Return a share and its exact limits, each missed with probability `alpha`."""
    low, high = clopper_pearson(part, whole, alpha)
    return Estimate(part / whole, float(low), float(high))


def _log_odds(p: float) -> float:
    with np.errstate(divide="ignore"):
        return float(np.log(p) - np.log1p(-p))
