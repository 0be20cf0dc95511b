"""What labels can gain: the limit with known click rates, and which segments to group.

Rates follow the prior of the planner: a part h (heterogeneity) of the differences between arms differs
by segment, the rest is common to all. Scores are then Gaussian and the expected best of K arms grows
with their standard deviation, so the limit as a share of perfect information needs no other argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError


def label_limit(channel: FloatArray, shares: FloatArray, heterogeneity: float) -> float:
    """Return the expected gain of the best arm by label, as a share of perfect information.

    ``sum_z sqrt((1 - h) W_z^2 + h sum_s w_s^2 Q(z|s)^2)`` with ``W_z = sum_s w_s Q(z|s)``.

    Args:
        channel: Q, the probability of each label (column) for each segment (row).
        shares: w, of visitors by segment.
        heterogeneity: h, in [0, 1].
    """
    h = check.single("heterogeneity", check.probability("heterogeneity", heterogeneity))
    return float(np.sqrt(np.diag(_covariance(channel, shares, h))).sum())


def labels_alike(channel: FloatArray, shares: FloatArray, heterogeneity: float) -> float:
    """Return the mean correlation between arms' rates in two labels; 1 for a single label.

    Labels mix segments, so they are more alike than these: a correlation of 1 - h between segments
    grows to this.

    Args:
        channel: Q, the probability of each label (column) for each segment (row).
        shares: w, of visitors by segment.
        heterogeneity: h, in [0, 1].
    """
    scores = _covariance(channel, shares, heterogeneity)
    deviations = np.sqrt(np.diag(scores))
    pairs = deviations.sum() ** 2 - (deviations**2).sum()
    return min(1.0, float((scores.sum() - np.trace(scores)) / pairs)) if pairs else 1.0


def _covariance(channel: FloatArray, shares: FloatArray, heterogeneity: float) -> FloatArray:
    """Of an arm's scores between labels, each times the share of visitors with the label."""
    weighted = shares[:, None] * channel
    label_shares = weighted.sum(axis=0)
    common = (1 - heterogeneity) * np.outer(label_shares, label_shares)
    return np.asarray(common + heterogeneity * weighted.T @ weighted)


def equal_label_limit(n_segments: int, n_labels: int, budget: float, heterogeneity: float) -> float:
    """Return the same limit for equal segments in equal groups.

    ``sqrt(1 - h + (h / J)(1 + (m - 1) lam^2))`` with ``lam = (e^budget - 1)/(e^budget + m - 1)``.

    >>> round(equal_label_limit(8, 4, 1, heterogeneity=0.8), 6)
    0.571916
    """
    lam = np.expm1(budget) / (np.exp(budget) + n_labels - 1)
    own = heterogeneity / n_segments * (1 + (n_labels - 1) * lam**2)
    return float(np.sqrt(1 - heterogeneity + own))


def design_groups(
    shares: Mapping[str, int], budget: float, heterogeneity: float = 0.8
) -> dict[str, tuple[str, ...]]:
    """Return groups of segments for a mask: label name -> its segments.

    Starts with a label for each segment and merges the pair that raises the expected limit most, until
    no merge does. The best number of equal labels is about e^budget + 1.

    Args:
        shares: segment -> its share of visitors in whole percents, summing to 100. Type them in: groups
            fitted to the people they serve would reveal something about single persons.
        budget: in nats.
        heterogeneity: h, the part of the differences between arms that differs by segment.

    >>> design_groups({"a": 30, "b": 30, "c": 30, "d": 10}, budget=1)
    {'a+d': ('a', 'd'), 'b': ('b',), 'c': ('c',)}
    """
    whole = {name: check.whole(f"shares[{name}]", share, 0, 100) for name, share in shares.items()}
    if len(whole) < 2 or sum(whole.values()) != 100:
        raise InvalidArgumentError("shares", dict(shares), "2 or more whole percents, sum 100")
    nats = check.budget(budget)
    h = check.single("heterogeneity", check.probability("heterogeneity", heterogeneity))
    names = tuple(whole)
    groups = best_groups(np.array(list(whole.values())) / 100, nats, h)
    members = [tuple(names[place] for place in group) for group in groups]
    return {"+".join(group): group for group in members}


def best_groups(shares: FloatArray, budget: float, heterogeneity: float) -> list[list[int]]:
    """Return the numbers of the segments of each label; see `design_groups`."""
    groups = [[place] for place in range(shares.size)]
    mass, square = shares.copy(), shares**2
    total_square = float(square.sum())
    current = _limit_of_groups(mass, square, total_square, budget, heterogeneity).sum()
    while len(groups) > 2:
        # All merges at once: every group's term with one label fewer, then each pair's joint term.
        first, second = np.triu_indices(len(groups), 1)
        fewer = len(groups) - 1
        terms = _limit_of_groups(mass, square, total_square, budget, heterogeneity, fewer)
        merged = _limit_of_groups(
            mass[first] + mass[second],
            square[first] + square[second],
            total_square,
            budget,
            heterogeneity,
            fewer,
        )
        limits = terms.sum() - terms[first] - terms[second] + merged
        best = int(limits.argmax())
        if limits[best] <= current:
            break
        current = limits[best]
        keep, gone = int(first[best]), int(second[best])
        groups[keep] += groups.pop(gone)
        mass[keep] += mass[gone]
        square[keep] += square[gone]
        mass, square = np.delete(mass, gone), np.delete(square, gone)
    return groups


def group_channel(groups: Sequence[Sequence[int]], budget: float) -> FloatArray:
    """Return the probability of each label (column) for each segment (row), not rounded to integers.

    >>> group_channel([[0, 2], [1]], 1).round(3).tolist()
    [[0.731, 0.269], [0.269, 0.731], [0.731, 0.269]]
    """
    other = 1 / (np.exp(budget) + len(groups) - 1)
    channel = np.full((sum(map(len, groups)), len(groups)), other)
    for label, members in enumerate(groups):
        channel[list(members), label] *= np.exp(budget)
    return channel


def _limit_of_groups(
    mass: FloatArray,
    square: FloatArray,
    total_square: float,
    budget: float,
    heterogeneity: float,
    n_labels: int | None = None,
) -> FloatArray:
    """Each label's term of the limit, from the sums of shares and of squared shares in its group."""
    labels = mass.size if n_labels is None else n_labels
    other = 1 / (np.exp(budget) + labels - 1)
    own = np.exp(budget) * other
    common = (other + (own - other) * mass) ** 2
    by_segment = other**2 * total_square + (own**2 - other**2) * square
    return np.asarray(np.sqrt((1 - heterogeneity) * common + heterogeneity * by_segment))
