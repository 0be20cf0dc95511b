"""Checks that an experiment is sound: sample ratios by table, and rates that change over time.

Both use counts by table, segment and arm. Neither raises an alarm without evidence: the p-values
are exact for small counts, and the evidence of drift is valid at any time.

Drift. In each segment and arm, "the rate never changed" is compared with "it changed once". The
alternative has a change after batch k with probability 1 / (k (k + 1)), and Jeffreys' prior for
the rate before and after it; the null hypothesis has the best constant rate in hindsight. The ratio
of the two is an e-process: for any constant rate r it is at most a likelihood ratio against r, of mean
1 (universal inference; Wasserman, Ramdas and Balakrishnan). For rewards in [0, 1] it stays one,
because a^y b^(1-y) is convex in y. That arms are shown more or less often as rewards arrive does
not matter: only the order of an arm's own rewards does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.inference._special import binomial_two_sided, chi_square_tail, log_gamma
from deniable.inference.boundaries import alpha_level
from deniable.inference.e_values import log_mean_exp, multinomial_log_e_value
from deniable.inference.state import VisitorBatch

LEAST_EXPECTED = 5.0


@dataclass(frozen=True)
class TableCheck:
    """The shows of one table compared with its design.

    Attributes:
        visitors: number of visitors served by it.
        p_value: p-value of a single look: chi-square over all segments, or exact.
        exact: whether counts were too small for chi-square. If so, each cell has an exact binomial
            test, and the smallest p-value is multiplied by the number of cells.
        log_e_value: evidence for the same question, valid at any look.
    """

    visitors: int
    p_value: float
    exact: bool
    log_e_value: float


@dataclass(frozen=True, eq=False)
class Drift:
    """Evidence that rates changed.

    Attributes:
        log_e_value: of all cells together.
        cells: of each segment and arm, (J, K).
        segment: segment with the strongest evidence.
        arm: arm with the strongest evidence.
        after: the batch after which it most likely changed, counted from 1.
        rate_before: its mean reward up to that batch.
        rate_since: its mean reward since then.
    """

    log_e_value: float
    cells: FloatArray
    segment: int
    arm: int
    after: int
    rate_before: float
    rate_since: float

    def alarm(self, alpha: float = 0.01) -> bool:
        """Whether to raise an alarm. At most a share alpha of sound experiments ever raises one."""
        return self.log_e_value >= -math.log(alpha_level(alpha))


def sample_ratios(batches: Sequence[VisitorBatch]) -> tuple[TableCheck, ...]:
    """Check each batch. Add up the counts of a table first.

    >>> checks = sample_ratios([VisitorBatch([[0.5, 0.5]], [[520, 480]], [[0, 0]]),
    ...                         VisitorBatch([[0.5, 0.5]], [[600, 400]], [[0, 0]])])
    >>> [float(f"{check.p_value:.3g}") for check in checks]
    [0.206, 2.54e-10]
    """
    return tuple(map(_check_table, batches))


def drift(batches: Sequence[VisitorBatch]) -> Drift:
    """Test whether any rate changed between batches.

    >>> steady = [VisitorBatch([[0.5, 0.5]], [[500, 500]], [[50, 60]])] * 6
    >>> fallen = [VisitorBatch([[0.5, 0.5]], [[500, 500]], [[50, 20]])] * 6
    >>> drift(steady).alarm(), drift(steady + fallen).alarm()
    (False, True)
    >>> found = drift(steady + fallen)
    >>> found.arm, found.after, found.rate_before, found.rate_since
    (1, 6, 0.12, 0.04)
    """
    if len(batches) < 2:
        raise InvalidArgumentError("batches", len(batches), "2 or more batches")
    shows = np.cumsum([batch.shows for batch in batches], axis=0)
    rewards = np.cumsum([batch.rewards for batch in batches], axis=0)
    n, s = shows[-1], rewards[-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        constant = np.nan_to_num(s * np.log(s / n)) + np.nan_to_num((n - s) * np.log1p(-s / n))
    k = np.arange(1, len(batches), dtype=np.float64)
    split = _jeffreys(shows[:-1], rewards[:-1]) + _jeffreys(n - shows[:-1], s - rewards[:-1])
    changes = split - np.log(k * (k + 1))[:, None, None]
    unchanged = _jeffreys(n, s) - math.log(len(batches))  # the rest of the prior
    parts = np.concatenate([changes, unchanged[None]])
    top = parts.max(axis=0)
    cells: FloatArray = np.log(np.exp(parts - top).sum(axis=0)) + top - constant
    segment, arm = (int(place) for place in np.unravel_index(cells.argmax(), cells.shape))
    after = int(changes[:, segment, arm].argmax())
    here = (slice(None), segment, arm)
    seen, earned = shows[here], rewards[here]
    with np.errstate(invalid="ignore"):
        before = earned[after] / seen[after]
        since = (earned[-1] - earned[after]) / (seen[-1] - seen[after])
    total = float(log_mean_exp(cells.ravel()))
    return Drift(total, cells, segment, arm, after + 1, float(before), float(since))


def _jeffreys(shows: FloatArray, rewards: FloatArray) -> FloatArray:
    """Return the log mean likelihood under Jeffreys' prior: B(s + 1/2, n - s + 1/2) / B(1/2, 1/2)."""
    failures = np.maximum(shows - rewards, 0.0)
    together = log_gamma(rewards + 0.5) + log_gamma(failures + 0.5) - log_gamma(shows + 1)
    return together - math.log(math.pi)


def _check_table(batch: VisitorBatch) -> TableCheck:
    p, shows = batch.probabilities, batch.shows
    visitors = shows.sum(axis=1)
    expected = p * visitors[:, None]
    came = visitors > 0
    possible = (p > 0) & came[:, None]
    log_e = float(multinomial_log_e_value(p, shows).sum())
    if (shows[(p == 0)] > 0).any():
        return TableCheck(int(visitors.sum()), 0.0, True, math.inf)
    if not came.any():
        return TableCheck(0, 1.0, True, 0.0)
    exact = bool(expected[possible].min() < LEAST_EXPECTED)
    if exact:
        places = np.argwhere(possible & (p < 1))
        tails = [
            binomial_two_sided(int(shows[j, a]), int(visitors[j]), float(p[j, a]))
            for j, a in places
        ]
        p_value = min(1.0, min(tails, default=1.0) * len(tails)) if tails else 1.0
    else:
        statistic = float(((shows - expected)[possible] ** 2 / expected[possible]).sum())
        degrees = int((possible.sum(axis=1) - 1)[came].sum())
        p_value = chi_square_tail(statistic, degrees)
    return TableCheck(int(visitors.sum()), p_value, exact, log_e)
