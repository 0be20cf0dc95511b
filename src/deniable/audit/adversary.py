"""What a watcher can prove from counts alone.

It counts how often each arm was shown to each segment. If the promise is kept, the number of times
arm j is shown to n visitors lies, in distribution, between binomials with the smallest and the
largest probability of the table, whatever was learned meanwhile. Exact binomial intervals (Clopper
and Pearson) therefore give a lower bound on the experiment's risk, with the stated confidence. This
does not use the recorded tables, so a log that misstates them does not help.

For audits that run every night, the limits hold simultaneously at all looks. With x shows among
n visitors,

    exp(d x - n log(1 + p (e^d - 1))),  d > 0,

is a supermartingale if the arm's probability is never above p; so is its mean over a grid of d. The
lower limit is the smallest p for which that mean is below 1/alpha; the upper one is the same for the
visitors who were shown another arm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deniable._validation import FloatArray
from deniable.audit.decisions import DecisionLog, Ints
from deniable.errors import NANO
from deniable.inference.e_values import TILTS, log_mean_exp

if TYPE_CHECKING:
    from deniable.audit.promise import Promise


@dataclass(frozen=True)
class ProvenRisk:
    """The largest risk, relative to its arm's budget, that the counts prove.

    Attributes:
        nats: the experiment's risk is at least this, with the stated confidence; 0 if nothing is
            proven.
        budget: the budget of the arm it was found on.
        arm: the arm's index; None if nothing could be compared.
        alpha: probability of accusing a sound experiment.
        visitors: number of visitors counted.
    """

    nats: float
    budget: float
    arm: int | None
    alpha: float
    visitors: int

    @property
    def exceeds(self) -> bool:
        """Whether the counts contradict the promise."""
        return self.nats > self.budget


def proven_risk(
    promise: Promise, log: DecisionLog, alpha: float = 1e-3, *, every_look: bool = False
) -> ProvenRisk:
    """Return what counts alone prove, over all pairs of segments, arms and versions.

    Tables that keep the budgets together are counted together; if the promise is given the time,
    each is counted separately.

    Args:
        promise: the promise to check.
        log: all decisions.
        alpha: family-wise rate of false accusations.
        every_look: make the limits valid at all looks, not only at this one; they are a little
            wider.
    """
    limits = _limits_at_any_look if every_look else _intervals
    usable = log.row >= 0
    together = promise.groups()
    apart = np.array([together[number] for number in log.table.tolist()], dtype=np.int64)
    version_of = {published.number: published.version for published in promise.tables}
    tables = []
    for value in np.unique(apart[usable]).tolist():
        arms = promise.versions[version_of[value]]
        counts = _counts(log.where(usable & (apart == value)), promise)
        tables.append((arms, counts[:, list(arms)]))
    n_intervals = 2 * sum(counts.size for _, counts in tables)
    best = ProvenRisk(0.0, promise.budget_nano / NANO, None, alpha, int(usable.sum()))
    for arms, counts in tables:
        low, high = limits(counts, alpha / max(n_intervals, 1))
        # For each arm, the lower limit of the largest share over the upper limit of the smallest.
        with np.errstate(divide="ignore"):
            nats = np.log(low.max(axis=0)) - np.log(high.min(axis=0))
        for place, arm in enumerate(arms):
            budget = promise.budgets_nano[arm] / NANO
            found = max(float(nats[place]), 0.0)
            if best.arm is None or found - budget > best.nats - best.budget:
                best = ProvenRisk(found, budget, arm, alpha, best.visitors)
    return best


def _counts(log: DecisionLog, promise: Promise) -> Ints:
    """Return the shows of each arm (column) in each segment (row)."""
    shape = (len(promise.segments), len(promise.arms))
    cells = np.bincount(log.segment * shape[1] + log.shown, minlength=shape[0] * shape[1])
    return cells.reshape(shape).astype(np.int64)


def _intervals(counts: Ints, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Return one-sided Clopper-Pearson limits of each cell's share of its row; (0, 1) for empty rows."""
    from scipy.special import betaincinv

    total = counts.sum(axis=1, keepdims=True) * np.ones_like(counts)
    low = np.where(counts > 0, betaincinv(np.maximum(counts, 1), total - counts + 1, alpha), 0.0)
    full = counts == total
    high = betaincinv(counts + 1, np.maximum(total - counts, 1), 1 - alpha)
    return np.asarray(low), np.asarray(np.where(full, 1.0, high))


def _limits_at_any_look(counts: Ints, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Like `_intervals`, but valid simultaneously at all looks."""
    total = (counts.sum(axis=1, keepdims=True) * np.ones_like(counts)).astype(np.float64)
    shown = counts.astype(np.float64)
    return _lower(shown, total, alpha), 1 - _lower(total - shown, total, alpha)


def _lower(shown: FloatArray, total: FloatArray, alpha: float) -> FloatArray:
    tilts = TILTS[TILTS > 0][:, None, None]
    low, high = np.zeros_like(shown), np.ones_like(shown)
    for _ in range(60):
        middle = (low + high) / 2
        logs = tilts * shown - total * np.log1p(middle * np.expm1(tilts))
        excluded = log_mean_exp(logs) >= -np.log(alpha)
        low, high = np.where(excluded, middle, low), np.where(excluded, high, middle)
    return low
