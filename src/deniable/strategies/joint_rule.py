"""The joint strategy: from counts to the next table, as a pure function that an auditor can replay.

Clicks are modelled as ``rate(a, s) = base_s (1 + arm_a + own_as)``: a base rate of the segment, what all
segments share about an arm, and what is the segment's own. The spreads of the two last are not known;
a grid of them is weighted by how well each explains the counts (empirical Bayes), so that segments that
behave alike are pooled and segments that differ are not. From that posterior the rule draws rates with
fixed, counted pseudo-random numbers, finds the best private table for each draw, and serves their mean.

Draws are pulled towards the posterior mean as the horizon comes nearer: deviations are multiplied by
``curiosity sqrt(log(T / t))``, at most 1. So it is Thompson sampling, cooled down. The paper's dynamic
table is served instead as long as the new one's gain over it, by the same posterior, is below z standard
deviations: it explores all arms of all segments, which tells worlds apart. A mean of tables that keep
the budget keeps it too. A floor of ``keep`` times the dynamic strategy's exploration leaves every arm
estimable; it vanishes with time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._compile import compiled_with_arrays
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.strategies.joint_lp import LARGEST, lowest_ratio, solve, workspace

CURIOSITY = 0.3
OWN_CURIOSITY = 0.7
"""What draws of a segment's own part are multiplied with besides: it is worth less to know."""

DOUBT = (0.5, 0.5)
"""The dynamic table is left where the gain exceeds z standard deviations, z^2 = .5 log(T/t) + .5."""

KEEP = 0.05
SAMPLES = 32
GROWTH = 0.25
"""An epoch is this part of all visitors before it."""

OWN_SPREADS = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.4])
ARM_SPREADS = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 1.0])

_UNSEEN = 1e12  # relative variance of a cell without shows
_PERTURBATION = 1e-10


def joint_table(
    shows: ArrayLike,
    clicks: ArrayLike,
    horizon: float | None,
    budget: float,
    *,
    keep: float = KEEP,
    noise: ArrayLike | None = None,
    floors: ArrayLike | None = None,
) -> FloatArray:
    """The next table, P(arm | segment) as (K, J).

    Args:
        shows: visitors by shown arm and segment so far, (K, J).
        clicks: clicks among them, (K, J).
        horizon: T, the visitors expected in all; None, or fewer than there were, for open-ended.
        budget: g.
        keep: the floor's part of the dynamic strategy's exploration; not used with `floors`.
        noise: variance that a trace budget adds to each cell's click rate, (K, J).
        floors: the promise across time: every entry of arm a lies in [l_a, e^g l_a], (K,).

    >>> shows = [[5000, 5000], [5000, 5000]]
    >>> joint_table(shows, [[1620, 1475], [1475, 1620]], 10**6, 1).round(2).tolist()
    [[0.73, 0.27], [0.27, 0.73]]
    >>> joint_table(shows, [[1620, 1620], [1475, 1475]], 10**6, 1).round(2).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    seen, clicked, extra = _counts(shows, clicks, noise)
    table = np.empty_like(seen)
    risk = check.single("budget", check.nonnegative("budget", budget))
    band = np.zeros(0) if floors is None else _floors(floors, len(seen), risk)
    space = workspace(*seen.shape)
    weakest = lowest_ratio(risk, len(seen))
    settings = tuning(keep)
    write_joint(seen, clicked, extra, _horizon(horizon), weakest, band, settings, space, table)
    return table


def pooled_table(
    shows: ArrayLike,
    clicks: ArrayLike,
    horizon: float | None,
    *,
    keep: float = KEEP,
    noise: ArrayLike | None = None,
) -> FloatArray:
    """The next table of one bandit for everybody: the same column for every segment, risk 0.

    >>> shows, clicks = [[500, 500], [500, 500]], [[60, 70], [50, 40]]
    >>> pooled_table(shows, clicks, 10_000).round(2).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    seen, clicked, extra = _counts(shows, clicks, noise)
    table = np.empty_like(seen)
    write_pooled(seen, clicked, extra, _horizon(horizon), tuning(keep), table)
    return table


def band_floors(table: ArrayLike) -> FloatArray:
    """Floors l_a for the promise across time: each arm's least entry over the segments of a table.

    A table that keeps budget g lies in [l_a, e^g l_a]. Make it with `keep=0`: an arm with floor 0 is
    never shown again.

    >>> band_floors([[0.7, 0.3], [0.3, 0.7], [0, 0]]).tolist()
    [0.3, 0.3, 0.0]
    """
    entries = check.probability("table", table)
    if entries.ndim != 2 or (abs(entries.sum(axis=0) - 1) > 1e-9).any():
        raise InvalidArgumentError("table", entries.shape, "columns that sum to 1")
    least = entries.min(axis=1)
    return np.asarray(np.where(entries.max(axis=1) < 2.0**-32, 0.0, least))


def tuning(keep: float = KEEP) -> FloatArray:
    """The rule's settings as the kernels take them."""
    floor = check.single("keep", check.probability("keep", keep))
    return np.array([SAMPLES, CURIOSITY, OWN_CURIOSITY, floor, *DOUBT])


def first_epoch(n_arms: int, n_segments: int) -> int:
    """Visitors of the first epoch, in which all arms are equally likely.

    >>> first_epoch(8, 5)
    80
    """
    return max(2 * n_arms * n_segments, 16)


def _counts(
    shows: ArrayLike, clicks: ArrayLike, noise: ArrayLike | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    seen = check.nonnegative("shows", shows)
    clicked = check.nonnegative("clicks", clicks)
    if seen.ndim != 2 or not 1 <= seen.shape[1] <= LARGEST or not 2 <= seen.shape[0] <= LARGEST:
        allowed = f"2 to {LARGEST} arms by 1 to {LARGEST} segments"
        raise InvalidArgumentError("shows", seen.shape, allowed)
    if clicked.shape != seen.shape or (clicked > seen).any():
        raise InvalidArgumentError("clicks", clicked.shape, "at most as many clicks as shows")
    extra = check.nonnegative("noise", np.zeros(seen.shape) if noise is None else noise)
    if extra.shape != seen.shape:
        raise InvalidArgumentError("noise", extra.shape, f"an array of shape {seen.shape}")
    return np.ascontiguousarray(seen), np.ascontiguousarray(clicked), np.ascontiguousarray(extra)


def _floors(floors: ArrayLike, n_arms: int, budget: float) -> FloatArray:
    band = check.probability("floors", floors)
    total = float(band.sum())
    fits = total <= 1 + 1e-9 and total * math.exp(min(budget, 700)) >= 1 - 1e-9
    if band.shape != (n_arms,) or not fits:
        allowed = f"{n_arms} floors with sum l <= 1 <= e^budget sum l"
        raise InvalidArgumentError("floors", floors, allowed)
    return band


def _horizon(horizon: float | None) -> float:
    return 0.0 if horizon is None else float(check.whole("horizon", horizon, 1))


@compiled_with_arrays
def write_joint(
    shows: Any,
    clicks: Any,
    noise: Any,
    horizon: Any,
    weakest: Any,
    floors: Any,
    settings: Any,
    space: Any,
    table: Any,
) -> None:
    """Write the next table; arguments as in `joint_table`, `weakest` as in `joint_lp`.

    Args:
        shows: (K, J), floats.
        clicks: (K, J), floats.
        noise: (K, J).
        horizon: T, or 0.
        weakest: e^-budget, (K,).
        floors: (K,), or of size 0 for none.
        settings: what `tuning` returns.
        space: a `workspace`.
        table: (K, J), overwritten.
    """
    n_arms, n_segments = shows.shape
    visitors, shares = arrivals(shows)
    relative = np.empty((n_arms, n_segments))
    variance = np.empty((n_arms, n_segments))
    base = fit(shows, clicks, noise, relative, variance)
    weights = spread_weights(relative, variance)
    running = np.cumsum(weights)
    mean, shared_deviation, own_variance = moments(relative, variance, weights)
    scale = _scale(visitors, horizon, settings[1])
    values = np.empty((n_arms, n_segments))
    best = np.empty((n_arms, n_segments))
    # Of a large problem fewer draws are solved: its tables are means over many segments already.
    samples = 2 * max(1, int(min(settings[0], 4e6 / (n_segments * n_segments * n_arms)) / 2))
    seed = np.uint64(visitors)
    table[:] = 0.0
    for k in range(samples):
        place = running[-1] * (k + 0.5) / samples
        which = 0
        while which < running.size - 1 and place >= running[which]:
            which += 1
        own = OWN_SPREADS[which // ARM_SPREADS.size] ** 2
        common = ARM_SPREADS[which % ARM_SPREADS.size] ** 2
        # Draws come in pairs of opposite sign, which takes the linear part of the noise out.
        step = scale if k % 2 == 0 else -scale
        index = np.uint64((k // 2) * n_arms * (n_segments + 1))
        for a in range(n_arms):
            precision = 1.0 / common
            for s in range(n_segments):
                precision += 1.0 / (variance[a, s] + own)
            shared = step * normal(seed, index) / math.sqrt(precision)
            index += np.uint64(1)
            for s in range(n_segments):
                kept = own / (own + variance[a, s])
                alone = settings[2] * step * normal(seed, index) * math.sqrt(kept * variance[a, s])
                index += np.uint64(1)
                drawn = 1.0 + mean[a, s] + (1.0 - kept) * shared + alone
                values[a, s] = shares[s] * base[s] * max(drawn, 0.02)
        if floors.size:
            fill_band(values, floors, weakest, best)
        else:
            solve(values, weakest, _PERTURBATION, k > 0, space, best)
        for a in range(n_arms):
            for s in range(n_segments):
                table[a, s] += best[a, s] / samples
    if not floors.size:
        if n_segments > 1 and weakest[0] < 1.0:
            dynamic = dynamic_table(shows, clicks, visitors, weakest[0])
            z = math.sqrt(settings[4] * math.log(_ahead(visitors, horizon)) + settings[5])
            for a in range(n_arms):
                for s in range(n_segments):
                    values[a, s] = shares[s] * base[s] * (table[a, s] - dynamic[a, s])
            if gain_in_deviations(values, mean, shared_deviation, own_variance) < z:
                table[:] = dynamic
        mix_floor(visitors, n_segments, settings[3], table)


@compiled_with_arrays
def fill_band(values: Any, floors: Any, weakest: Any, table: Any) -> None:
    """The best table with entries in [l_a, e^g l_a]: floors first, then the best arms filled up."""
    n_arms, n_segments = values.shape
    for s in range(n_segments):
        order = np.argsort(-values[:, s])
        left = 1.0
        for a in range(n_arms):
            table[a, s] = floors[a]
            left -= floors[a]
        for a in order:
            room = floors[a] / weakest[a] - floors[a] if weakest[a] > 0.0 else left
            more = max(min(room, left), 0.0) if floors[a] > 0.0 else 0.0
            table[a, s] += more
            left -= more


@compiled_with_arrays
def write_pooled(
    shows: Any, clicks: Any, noise: Any, horizon: Any, settings: Any, table: Any
) -> None:
    """The joint rule for all segments merged into one."""
    n_arms, n_segments = shows.shape
    seen = np.zeros((n_arms, 1))
    clicked = np.zeros((n_arms, 1))
    extra = np.zeros((n_arms, 1))
    for a in range(n_arms):
        for s in range(n_segments):
            seen[a, 0] += shows[a, s]
            clicked[a, 0] += clicks[a, s]
            extra[a, 0] += noise[a, s] * shows[a, s] ** 2
        extra[a, 0] /= max(seen[a, 0], 1.0) ** 2
    space = (
        np.zeros(1, np.int64),
        np.zeros((1, 1), np.bool_),
        np.zeros((1, 1)),
        np.zeros(1),
        np.zeros(1),
        np.zeros((2, 1)),
    )
    row = np.empty((n_arms, 1))
    none = np.zeros(0)
    write_joint(seen, clicked, extra, horizon, np.ones(n_arms), none, settings, space, row)
    for a in range(n_arms):
        for s in range(n_segments):
            table[a, s] = row[a, 0]


@compiled_with_arrays
def arrivals(shows: Any) -> Any:
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


@compiled_with_arrays
def fit(shows: Any, clicks: Any, noise: Any, relative: Any, variance: Any) -> Any:
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
            rate = min(arms[a] * factors[s], 0.95)
            if seen > 0.0:
                relative[a, s] = clicks[a, s] / (seen * base[s]) - 1.0
                variance[a, s] = (rate * (1.0 - rate) / seen + noise[a, s]) / base[s] ** 2
            else:
                relative[a, s] = 0.0
                variance[a, s] = _UNSEEN
    return base


@compiled_with_arrays
def spread_weights(relative: Any, variance: Any) -> Any:
    """Posterior weight of each pair of spreads (own, arm), flattened; they sum to 1."""
    n_arms, n_segments = relative.shape
    weights = np.empty(OWN_SPREADS.size * ARM_SPREADS.size)
    # Base rates were fitted to the same counts, which takes one of K degrees of freedom.
    freedom = (n_arms - 1.0) / n_arms
    highest = -math.inf
    for i in range(weights.size):
        own = OWN_SPREADS[i // ARM_SPREADS.size] ** 2
        common = ARM_SPREADS[i % ARM_SPREADS.size] ** 2
        fitness = 0.0
        for a in range(n_arms):
            precision, total, squares, logs = 1.0 / common, 0.0, 0.0, 0.0
            for s in range(n_segments):
                if variance[a, s] < _UNSEEN:
                    part = 1.0 / (variance[a, s] + own)
                    precision += part
                    total += part * relative[a, s]
                    squares += part * relative[a, s] ** 2
                    logs -= math.log(part)
            fitness -= 0.5 * (squares - total * total / precision)
            fitness -= 0.5 * freedom * (logs + math.log(precision * common))
        weights[i] = fitness
        highest = max(highest, fitness)
    total = 0.0
    for i in range(weights.size):
        weights[i] = math.exp(weights[i] - highest)
        total += weights[i]
    return weights / total


@compiled_with_arrays
def moments(relative: Any, variance: Any, weights: Any) -> Any:
    """Posterior of the cells' deviations over all pairs of spreads, each (K, J).

    Returns the mean, the deviation that an arm's cells share, and the variance of each cell's own:
    Var(sum x_as deviation_as) = sum_a (sum_s shared_as x_as)^2 + sum_as own_as x_as^2.
    """
    n_arms, n_segments = relative.shape
    mean = np.zeros((n_arms, n_segments))
    squares = np.zeros((n_arms, n_segments))
    shared = np.zeros((n_arms, n_segments))
    alone = np.zeros((n_arms, n_segments))
    for i in range(weights.size):
        if weights[i] < 1e-9:
            continue
        own = OWN_SPREADS[i // ARM_SPREADS.size] ** 2
        common = ARM_SPREADS[i % ARM_SPREADS.size] ** 2
        for a in range(n_arms):
            precision, total = 1.0 / common, 0.0
            for s in range(n_segments):
                part = 1.0 / (variance[a, s] + own)
                precision += part
                total += part * relative[a, s]
            middle = total / precision
            for s in range(n_segments):
                kept = own / (own + variance[a, s])
                here = middle + kept * (relative[a, s] - middle)
                mean[a, s] += weights[i] * here
                squares[a, s] += weights[i] * here * here
                shared[a, s] += weights[i] * (1.0 - kept) / math.sqrt(precision)
                alone[a, s] += weights[i] * kept * variance[a, s]
    for a in range(n_arms):
        for s in range(n_segments):
            # What the pairs of spreads disagree about is uncertain too.
            alone[a, s] += max(squares[a, s] - mean[a, s] ** 2, 0.0)
    return mean, shared, alone


@compiled_with_arrays
def gain_in_deviations(change: Any, mean: Any, shared: Any, alone: Any) -> Any:
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


@compiled_with_arrays
def dynamic_table(shows: Any, clicks: Any, visitors: Any, weakest: Any) -> Any:
    """The paper's dynamic table at the mean clock: randomized response of each segment's best arm."""
    n_arms, n_segments = shows.shape
    clock = max(visitors / n_segments, 3.0)
    exploration = min(1.0, (n_arms * math.log(clock) / clock) ** (1 / 3))
    exploration = max(exploration, n_arms * weakest / ((n_arms - 1) * weakest + 1.0))
    table = np.full((n_arms, n_segments), exploration / n_arms)
    clicked, seen = 1.0, 2.0
    for a in range(n_arms):
        for s in range(n_segments):
            clicked += clicks[a, s]
            seen += shows[a, s]
    prior = seen / clicked
    for s in range(n_segments):
        best, ties = -1.0, 0
        for a in range(n_arms):
            rate = (clicks[a, s] + 1.0) / (shows[a, s] + prior)
            ties = 1 if rate > best else ties + (rate == best)
            best = max(best, rate)
        for a in range(n_arms):
            if (clicks[a, s] + 1.0) / (shows[a, s] + prior) == best:
                table[a, s] += (1.0 - exploration) / ties
    return table


@compiled_with_arrays
def _scale(visitors: Any, horizon: Any, curiosity: Any) -> Any:
    """How far draws deviate from the posterior mean, in standard deviations."""
    return min(1.0, curiosity * math.sqrt(math.log(_ahead(visitors, horizon))))


@compiled_with_arrays
def _ahead(visitors: Any, horizon: Any) -> Any:
    """T / t; open-ended, as if nine times as many were still to come."""
    ahead = horizon / max(visitors, 1.0)
    return ahead if ahead > 1.0 else 10.0


@compiled_with_arrays
def mix_floor(visitors: Any, n_segments: Any, keep: Any, table: Any) -> None:
    """Mix with uniform: `keep` times the dynamic strategy's exploration at the mean clock."""
    n_arms = table.shape[0]
    clock = max(visitors / n_segments, 3.0)
    floor = keep * min(1.0, (n_arms * math.log(clock) / clock) ** (1 / 3))
    for a in range(n_arms):
        for s in range(table.shape[1]):
            table[a, s] = (1.0 - floor) * table[a, s] + floor / n_arms


@compiled_with_arrays
def normal(seed: Any, index: Any) -> Any:
    """A standard normal number that is a function of its arguments (Box and Muller)."""
    first = _word(seed, np.uint64(2) * index)
    second = _word(seed, np.uint64(2) * index + np.uint64(1))
    radius = math.sqrt(-2.0 * math.log((np.float64(first >> np.uint64(11)) + 1.0) * 2.0**-53))
    return radius * math.cos(2.0 * math.pi * np.float64(second >> np.uint64(11)) * 2.0**-53)


@compiled_with_arrays
def _word(seed: Any, index: Any) -> Any:
    """64 bits from two counters: SplitMix64 (Steele, Lea and Flood 2014), twice."""
    word = seed
    for _ in range(2):
        word = word + np.uint64(0x9E3779B97F4A7C15) * (index + np.uint64(1))
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        word = word ^ (word >> np.uint64(31))
    return word
