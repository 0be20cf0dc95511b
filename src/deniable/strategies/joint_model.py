"""What counts say about the click rates of all arms in all segments: a posterior that pools.

Clicks are modelled as ``rate(a, s) = base_s (1 + arm_a + own_as)``: a base rate of the segment, what all
segments share about an arm, and what is the segment's own. The spreads of the two last are not known;
a grid of them is weighted by how well each explains the counts (empirical Bayes), so that segments that
behave alike are pooled and segments that differ are not.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from deniable._compile import compiled
from deniable._validation import FloatArray

OWN_SPREADS = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.4])
ARM_SPREADS = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 1.0])

WARY = 3
"""Index of the least own spread, .1, that is assumed where segments are taken to differ."""

_UNSEEN = 1e12  # relative variance of a cell without shows
_NEGLIGIBLE = 1e-9  # a weight below this is 0
_LEAST = 0.02  # a drawn rate is at least this part of its base rate


class Posterior(NamedTuple):
    """What counts say: arrays of floats, (K, J) where not said otherwise.

    Attributes:
        visitors: so far.
        shares: of the segments, (J,).
        base: rate of each segment, (J,).
        relative: each cell's observed deviation from its base rate, relative to it.
        variance: of these deviations.
        logs: of the likelihood of each pair of spreads.
        running: cumulated weights of the pairs of spreads.
        mean: posterior mean of the relative deviations.
        shared: the deviation of the mean that an arm's cells have in common.
        alone: variance of each cell's own.
    """

    visitors: float
    shares: FloatArray
    base: FloatArray
    relative: FloatArray
    variance: FloatArray
    logs: FloatArray
    running: FloatArray
    mean: FloatArray
    shared: FloatArray
    alone: FloatArray


@compiled
def posterior_of(shows: FloatArray, clicks: FloatArray) -> Posterior:
    """The posterior of counts, (K, J) each."""
    visitors, shares = arrivals(shows)
    relative, variance = np.empty(shows.shape), np.empty(shows.shape)
    base = fit(shows, clicks, relative, variance)
    logs = spread_logs(relative, variance)
    # Numba would compile all of it once more for a literal 0.
    first = int(np.int64(0))
    return _posterior(visitors, shares, base, relative, variance, logs, first)


@compiled
def wary_posterior(known: Posterior) -> Posterior:
    """The posterior where segments are sure to differ: own spreads of WARY and more."""
    return _posterior(
        known.visitors,
        known.shares,
        known.base,
        known.relative,
        known.variance,
        known.logs,
        WARY * ARM_SPREADS.size,
    )


@compiled
def _posterior(
    visitors: float,
    shares: FloatArray,
    base: FloatArray,
    relative: FloatArray,
    variance: FloatArray,
    logs: FloatArray,
    first: int,
) -> Posterior:
    """Over the pairs of spreads from the first one on."""
    weights = weights_of(logs, first)
    mean, shared, alone = moments(relative, variance, weights)
    running = np.cumsum(weights)
    return Posterior(visitors, shares, base, relative, variance, logs, running, mean, shared, alone)


@compiled
def draw_values(
    posterior: Posterior,
    k: int,
    samples: int,
    scale: float,
    own_scale: float,
    normals: FloatArray,
    values: FloatArray,
    before: int,
) -> None:
    """Write share x rate of draw k of `samples`, a function of its arguments.

    Draws come in pairs of opposite sign, which takes the linear part of the noise out, and are
    spread evenly over the pairs of spreads by weight. Deviations from the posterior mean are
    multiplied by `scale`, and those of the segments' own parts by `own_scale` besides. The pair's
    random numbers are in `normals`, (K, J + 1), which the first of the pair writes: draws are made
    in order. `before`, an even number, says how many draws the same counts had before these.
    """
    n_arms, n_segments = values.shape
    variance = posterior.variance
    place = posterior.running[-1] * (k + 0.5) / samples
    which = 0
    while which < posterior.running.size - 1 and place >= posterior.running[which]:
        which += 1
    own = OWN_SPREADS[which // ARM_SPREADS.size] ** 2
    common = ARM_SPREADS[which % ARM_SPREADS.size] ** 2
    step = scale if k % 2 == 0 else -scale
    if k % 2 == 0:
        seed = np.uint64(posterior.visitors)
        index = np.uint64(((before + k) // 2) * normals.size)
        for a in range(n_arms):
            for i in range(n_segments + 1):
                normals[a, i] = normal(seed, index)
                index += np.uint64(1)
    for a in range(n_arms):
        precision = 1.0 / common
        for s in range(n_segments):
            precision += 1.0 / (variance[a, s] + own)
        shared = step * normals[a, 0] / math.sqrt(precision)
        for s in range(n_segments):
            kept = own / (own + variance[a, s])
            alone = own_scale * step * normals[a, s + 1] * math.sqrt(kept * variance[a, s])
            drawn = 1.0 + posterior.mean[a, s] + (1.0 - kept) * shared + alone
            values[a, s] = posterior.shares[s] * posterior.base[s] * max(drawn, _LEAST)


@compiled
def arrivals(shows: FloatArray) -> tuple[float, FloatArray]:
    """Visitors so far, and the estimated share of each segment."""
    n_arms, n_segments = shows.shape
    shares = np.zeros(n_segments)
    visitors = 0.0
    for a in range(n_arms):
        for s in range(n_segments):
            shares[s] += shows[a, s]
            visitors += shows[a, s]
    for s in range(n_segments):
        shares[s] = (shares[s] + 1.0) / (visitors + n_segments)
    return visitors, shares


@compiled
def fit(
    shows: FloatArray, clicks: FloatArray, relative: FloatArray, variance: FloatArray
) -> FloatArray:
    """Base rates by segment; writes each cell's deviation relative to its base, and its variance.

    A fit of arm x segment factors gives the variances, so that a cell without clicks has one too.
    """
    n_arms, n_segments = shows.shape
    visitors, clicked = 0.0, 0.0
    for a in range(n_arms):
        for s in range(n_segments):
            visitors += shows[a, s]
            clicked += clicks[a, s]
    overall = (clicked + 1.0) / (visitors + 2.0)
    arms = np.full(n_arms, overall)
    factors = np.ones(n_segments)
    for _ in range(3):
        for a in range(n_arms):
            hits, exposure = 1.0, 1.0 / overall
            for s in range(n_segments):
                hits += clicks[a, s]
                exposure += shows[a, s] * factors[s]
            arms[a] = hits / exposure
        for s in range(n_segments):
            hits, expected = 4.0, 4.0
            for a in range(n_arms):
                hits += clicks[a, s]
                expected += shows[a, s] * arms[a]
            factors[s] = hits / expected
    base = np.empty(n_segments)
    for s in range(n_segments):
        base[s] = min(overall * factors[s], 0.95)
    for a in range(n_arms):
        for s in range(n_segments):
            seen = shows[a, s]
            # An arm without luck so far is not known better than one of average rate.
            rate = max(min(arms[a] * factors[s], 0.95), base[s])
            if seen > 0.0:
                relative[a, s] = clicks[a, s] / (seen * base[s]) - 1.0
                variance[a, s] = rate * (1.0 - rate) / seen / base[s] ** 2
            else:
                relative[a, s] = 0.0
                variance[a, s] = _UNSEEN
    return base


@compiled
def spread_logs(relative: FloatArray, variance: FloatArray) -> FloatArray:
    """Log likelihood of each pair of spreads (own, arm), flattened, up to a constant."""
    n_arms, n_segments = relative.shape
    n_spreads = ARM_SPREADS.size
    logs = np.zeros(OWN_SPREADS.size * n_spreads)
    products = np.ones(logs.size)  # logarithms are slow: one for many factors
    # Base rates were fitted to the same counts, which takes one of K degrees of freedom.
    half = 0.5 * (n_arms - 1.0) / n_arms
    for first in range(0, logs.size, n_spreads):
        own = OWN_SPREADS[first // n_spreads] ** 2
        scale, product = 0.0, 1.0
        for a in range(n_arms):
            parts, total, squares = 0.0, 0.0, 0.0
            for s in range(n_segments):
                if variance[a, s] < _UNSEEN:
                    part = 1.0 / (variance[a, s] + own)
                    parts += part
                    total += part * relative[a, s]
                    squares += part * relative[a, s] ** 2
                    product *= part
                    if not 1e-200 < product < 1e200:
                        scale -= math.log(product)
                        product = 1.0
            for i in range(first, first + n_spreads):
                common = ARM_SPREADS[i - first] ** 2
                more = 1.0 + common * parts
                logs[i] -= 0.5 * (squares - total * total * common / more)
                products[i] *= more
                if products[i] > 1e200:
                    logs[i] -= half * math.log(products[i])
                    products[i] = 1.0
        scale -= math.log(product)
        for i in range(first, first + n_spreads):
            logs[i] -= half * (scale + math.log(products[i]))
    return logs


@compiled
def weights_of(logs: FloatArray, first: int) -> FloatArray:
    """Posterior weights of the pairs of spreads, which sum to 1; those before the first have 0."""
    highest = -math.inf
    for i in range(first, logs.size):
        highest = max(highest, logs[i])
    weights = np.zeros(logs.size)
    total = 0.0
    for i in range(first, logs.size):
        weights[i] = math.exp(logs[i] - highest)
        total += weights[i]
    return weights / total


@compiled
def moments(
    relative: FloatArray, variance: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Posterior of the cells' deviations over all pairs of spreads, each (K, J).

    Returns the mean, the deviation that an arm's cells share, and the variance of each cell's own:
    Var(sum x_as deviation_as) = sum_a (sum_s shared_as x_as)^2 + sum_as own_as x_as^2.
    """
    n_arms, n_segments = relative.shape
    n_spreads = ARM_SPREADS.size
    mean = np.zeros((n_arms, n_segments))
    squares = np.zeros((n_arms, n_segments))
    shared = np.zeros((n_arms, n_segments))
    alone = np.zeros((n_arms, n_segments))
    for first in range(0, weights.size, n_spreads):
        weight = 0.0
        for i in range(first, first + n_spreads):
            weight += weights[i] if weights[i] >= _NEGLIGIBLE else 0.0
        if weight == 0.0:
            continue
        own = OWN_SPREADS[first // n_spreads] ** 2
        for a in range(n_arms):
            parts, total = 0.0, 0.0
            for s in range(n_segments):
                part = 1.0 / (variance[a, s] + own)
                parts += part
                total += part * relative[a, s]
            # Sums over the spreads of arms, of what all cells of this arm share.
            middle, middle_squares, deviation = 0.0, 0.0, 0.0
            for i in range(first, first + n_spreads):
                if weights[i] >= _NEGLIGIBLE:
                    precision = 1.0 / ARM_SPREADS[i - first] ** 2 + parts
                    here = total / precision
                    middle += weights[i] * here
                    middle_squares += weights[i] * here * here
                    deviation += weights[i] / math.sqrt(precision)
            for s in range(n_segments):
                kept = own / (own + variance[a, s])
                pull, rest = kept * relative[a, s], 1.0 - kept
                mean[a, s] += rest * middle + weight * pull
                squares[a, s] += rest * (rest * middle_squares + 2.0 * pull * middle)
                squares[a, s] += weight * pull * pull
                shared[a, s] += rest * deviation
                alone[a, s] += weight * kept * variance[a, s]
    for a in range(n_arms):
        for s in range(n_segments):
            # What the pairs of spreads disagree about is uncertain too.
            alone[a, s] += max(squares[a, s] - mean[a, s] ** 2, 0.0)
    return mean, shared, alone


@compiled
def gain_in_deviations(
    change: FloatArray, mean: FloatArray, shared: FloatArray, alone: FloatArray
) -> float:
    """Posterior mean over standard deviation of sum change x deviation; infinite where nothing moves."""
    n_arms, n_segments = change.shape
    gain, variance = 0.0, 0.0
    for a in range(n_arms):
        common = 0.0
        for s in range(n_segments):
            gain += change[a, s] * mean[a, s]
            common += change[a, s] * shared[a, s]
            variance += alone[a, s] * change[a, s] ** 2
        variance += common * common
    return gain / math.sqrt(variance) if variance > 0.0 else math.inf


@compiled
def normal(seed: np.uint64, index: np.uint64) -> float:
    """A standard normal number that is a function of its arguments (Box and Muller)."""
    first = _word(seed, np.uint64(2) * index)
    second = _word(seed, np.uint64(2) * index + np.uint64(1))
    radius = math.sqrt(-2.0 * math.log((np.float64(first >> np.uint64(11)) + 1.0) * 2.0**-53))
    return radius * math.cos(2.0 * math.pi * np.float64(second >> np.uint64(11)) * 2.0**-53)


@compiled
def _word(seed: np.uint64, index: np.uint64) -> np.uint64:
    """64 bits from two counters: SplitMix64 (Steele, Lea and Flood 2014), twice."""
    word = seed
    for _ in range(2):
        word = word + np.uint64(0x9E3779B97F4A7C15) * (index + np.uint64(1))
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        word = word ^ (word >> np.uint64(31))
    return word
