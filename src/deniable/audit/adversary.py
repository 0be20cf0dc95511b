"""The watcher as an adversary who has only counts: what it can prove from them.

It counts how often each arm was shown to each segment. Where the promise is kept, the number of times
arm j is shown to n visitors lies, in distribution, between binomials with the smallest and the largest
probability of the table, whatever was learned meanwhile. So exact binomial intervals (Clopper and
Pearson) give a risk that, with the stated confidence, the experiment has at least. It does not need
the recorded tables: a log that lies about them does not help.

For audits that run every night the limits hold at all looks together. With x shows among n visitors

    exp(d x - n log(1 + p (e^d - 1))),  d > 0,

is a supermartingale where the arm's probability is never above p; so is its mean over a grid of d. The
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
        nats: with this confidence the experiment's risk is at least this; 0 where nothing is proven.
        budget: what is promised for the arm it was found on.
        arm: its position; None where nothing could be compared.
        alpha: how often a sound experiment would be accused.
        visitors: those counted.
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
    """What counts alone prove, over all pairs of segments, arms and versions together.

    Tables that keep the budgets together are counted together: where the promise is given the time,
    each alone.

    Args:
        promise: what to hold against it.
        log: all decisions.
        alpha: the family-wise rate of false accusations.
        every_look: over all looks together, not at this one alone; the limits are a little wider.
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
        # Lowest of the largest over highest of the smallest, arm by arm.
        with np.errstate(divide="ignore"):
            nats = np.log(low.max(axis=0)) - np.log(high.min(axis=0))
        for place, arm in enumerate(arms):
            budget = promise.budgets_nano[arm] / NANO
            found = max(float(nats[place]), 0.0)
            if best.arm is None or found - budget > best.nats - best.budget:
                best = ProvenRisk(found, budget, arm, alpha, best.visitors)
    return best


def _counts(log: DecisionLog, promise: Promise) -> Ints:
    """Shows of each arm (column) in each segment (row)."""
    shape = (len(promise.segments), len(promise.arms))
    cells = np.bincount(log.segment * shape[1] + log.shown, minlength=shape[0] * shape[1])
    return cells.reshape(shape).astype(np.int64)


def _intervals(counts: Ints, alpha: float) -> tuple[FloatArray, FloatArray]:
    """One-sided Clopper-Pearson limits of each cell's share of its row; (0, 1) for empty rows."""
    from scipy.special import betaincinv

    total = counts.sum(axis=1, keepdims=True) * np.ones_like(counts)
    low = np.where(counts > 0, betaincinv(np.maximum(counts, 1), total - counts + 1, alpha), 0.0)
    full = counts == total
    high = betaincinv(counts + 1, np.maximum(total - counts, 1), 1 - alpha)
    return np.asarray(low), np.asarray(np.where(full, 1.0, high))


def _limits_at_any_look(counts: Ints, alpha: float) -> tuple[FloatArray, FloatArray]:
    """The same, valid at all looks together."""
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
