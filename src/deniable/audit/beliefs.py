"""The strongest watcher: it knows the algorithm's complete state, except the visitors' segments.

For each visitor it knows the table in force at that moment, uses the segments' shares as its prior,
and applies Bayes' rule to the arm. A second watcher sees the response too; it is given click rates
estimated from the same data, which overstates its power. Only the first is covered by the promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deniable._validation import FloatArray
from deniable.audit.decisions import DecisionLog, Ints
from deniable.audit.draws import probabilities
from deniable.errors import NANO
from deniable.privacy.belief import highest_belief

if TYPE_CHECKING:
    from deniable.audit.promise import Promise

MOST_CELLS = 20_000_000
ROUNDING = 1e-9
"""Tolerance in nats. Beliefs are floats; the exact check decides whether the promise holds."""


@dataclass(frozen=True)
class Belief:
    """The beliefs that a watcher arrived at.

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
    """The beliefs of both watchers.

    Attributes:
        visitors: number of visitors considered, the most recent ones.
        arm: the watcher that sees the arm.
        arm_and_response: the watcher that also sees the response; measured, not promised.
    """

    visitors: int
    arm: Belief
    arm_and_response: Belief


def realized_beliefs(promise: Promise, log: DecisionLog) -> Beliefs | None:
    """Apply Bayes' rule to every listed visitor; None with fewer than two segments or no visitors."""
    listed = log.where(log.row >= 0)
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
        found[mine] = design[number][:-1, log.shown[mine]].T
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
