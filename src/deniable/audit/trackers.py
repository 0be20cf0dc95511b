"""Two trackers: what counts alone can prove, and what the strongest tracker comes to believe.

The first counts how often each arm was shown to each segment. If the promise is kept, the number of
times arm j is shown to n visitors lies, in distribution, between binomials with the smallest and the
largest probability of the table, whatever was learned meanwhile. Exact binomial intervals (Clopper and
Pearson) therefore give a lower bound on the experiment's risk, with the stated confidence. This does
not use the recorded tables, so a log that misstates them does not help.

For audits that run every night, the limits hold simultaneously at all looks. With x shows among n
visitors,

    exp(d x - n log(1 + p (e^d - 1))),  d > 0,

is a supermartingale if the arm's probability is never above p; so is its mean over a grid of d. The
lower limit is the smallest p for which that mean is below 1/alpha; the upper one is the same for the
visitors who were shown another arm.

The strongest tracker knows the algorithm's complete state, except the visitors' segments. For each
visitor it knows the table in force at that moment, uses the segments' shares as its prior, and applies
Bayes' rule to the arm. Another one sees the response too; it is given click rates estimated from the
same data, which overstates its power. Only the first of these two is covered by the promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deniable._validation import FloatArray
from deniable.audit.decisions import NEUTRAL, DecisionLog, Ints
from deniable.audit.draws import probabilities
from deniable.errors import NANO
from deniable.inference.e_values import TILTS, log_mean_exp
from deniable.privacy.belief import highest_belief

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
    usable = (log.row >= 0) & promise.bounded
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


# -- with the algorithm's complete state -----------------------------------------------------------

MOST_CELLS = 20_000_000
ROUNDING = 1e-9
"""Tolerance in nats. Beliefs are floats; the exact check decides whether the promise holds."""


@dataclass(frozen=True)
class Belief:
    """The beliefs that a tracker arrived at.

    Attributes:
        moved: the largest change of its log odds for or against any segment, in nats.
        highest: its strongest belief in any visitor's segment.
        bound: the strongest belief that the budget allows, for that segment's prior.
        guessed: share of visitors whose segment it would guess correctly.
        guessed_before: the same without seeing anything: the largest segment's share.
    """

    moved: float
    highest: float
    bound: float
    guessed: float
    guessed_before: float


@dataclass(frozen=True)
class Beliefs:
    """The beliefs of both trackers.

    Attributes:
        visitors: number of visitors considered, the most recent ones.
        arm: the tracker that sees the arm.
        arm_and_response: the tracker that also sees the response; measured, not promised.
    """

    visitors: int
    arm: Belief
    arm_and_response: Belief


def realized_beliefs(promise: Promise, log: DecisionLog) -> Beliefs | None:
    """Apply Bayes' rule to every listed visitor.

    Returns None with fewer than two segments, without visitors, or where rows need no bound.
    """
    listed = log.where((log.row >= 0) & promise.bounded)
    if not listed.size:
        return None
    recent = np.zeros(listed.size, dtype=bool)
    recent[-(MOST_CELLS // len(promise.segments)) :] = True
    seen = listed.where(recent)
    likelihood = _likelihoods(promise, seen)
    # Skip arms that no row of their table shows. Other checks report them, and Bayes' rule does not
    # apply.
    possible = np.asarray(likelihood.any(axis=1), dtype=bool)
    seen, likelihood = seen.where(possible), likelihood[possible]
    if np.unique(seen.segment).size < 2:
        return None
    prior = np.bincount(seen.segment, minlength=len(promise.segments)) / seen.size
    budget = promise.budget_nano / NANO
    rates = _click_rates(promise, seen)[:, seen.shown].T
    response = np.where((seen.reward > 0)[:, None], rates, 1 - rates)
    return Beliefs(
        seen.size,
        _belief(prior, likelihood, seen.segment, budget),
        _belief(prior, likelihood * response, seen.segment, budget),
    )


def _likelihoods(promise: Promise, log: DecisionLog) -> FloatArray:
    """Return the probability of each shown arm given each possible segment; shape (visitors, J)."""
    design = probabilities(promise)
    found = np.empty((log.size, len(promise.segments)))
    for number in np.unique(log.table).tolist():
        mine = log.table == number
        found[mine] = design[number][:NEUTRAL, log.shown[mine]].T
    return found


def _click_rates(promise: Promise, log: DecisionLog) -> FloatArray:
    """Return click rates by segment (row) and arm (column), with half a click added to either side."""
    shape = (len(promise.segments), len(promise.arms))
    cell = log.segment * shape[1] + log.shown
    shows = np.bincount(cell, minlength=shape[0] * shape[1])
    clicks = np.bincount(cell, weights=log.reward > 0, minlength=shape[0] * shape[1])
    return np.asarray(((clicks + 0.5) / (shows + 1)).reshape(shape))


def _belief(prior: FloatArray, likelihood: FloatArray, segment: Ints, budget: float) -> Belief:
    possible = prior > 0
    before, weight = prior[possible], likelihood[:, possible]
    joint = before * weight
    total = joint.sum(axis=1, keepdims=True)
    # log odds after minus before = log(weight_s) - log(mean weight of the other segments)
    others = (total - joint) / (1 - before)
    with np.errstate(divide="ignore"):
        moved = np.abs(np.log(weight) - np.log(others)).max()
    belief = joint / total
    row, place = np.unravel_index(int(belief.argmax()), belief.shape)
    names = np.flatnonzero(possible)
    return Belief(
        moved=float(moved),
        highest=float(belief[row, place]),
        bound=float(highest_belief(float(before[place]), budget)),
        guessed=float((names[belief.argmax(axis=1)] == segment).mean()),
        guessed_before=float(before.max()),
    )
