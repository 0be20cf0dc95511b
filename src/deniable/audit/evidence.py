"""Statistical evidence against an experiment: e-values of its draws and lotteries, and their power.

An audit that runs every night tests the same experiment hundreds of times. A chi-square test at
level 0.001 would eventually accuse a sound experiment. An e-value does not. Along the visitors,

    M_t = mean over tilts d of exp(d x_t - Lambda_t(d)),  M_0 = 1,

is a martingale if every arm is drawn from the row that the decision names, because that row was
published before the draw, and given it E[exp(d 1[shown]) ] = 1 + p (e^d - 1) (`inference.e_values`).
Which visitor comes next, of which segment, and which table is next may depend on everything before.
By Ville's inequality P(M_t >= 1/alpha for some t) <= alpha. Tonight's audit computes M at tonight's t
from the counts of the whole log, so all nights together read values of one martingale, and the chance
that any of them ever accuses is at most alpha. Nothing is carried from night to night.

This requires two things. Every draw counts: those of erased visitors are taken from the counters, since
a visitor may ask for erasure because of the arm. And the set of e-values that are averaged is fixed by
the experiment's arms and segments, not by what was observed.

The lottery of slots and holdouts is a keyed hash of the visitor. Under it the roles of new visitors
are independent draws with known shares, in every segment, as long as who comes for the first time does
not depend on the slot.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from deniable._validation import FloatArray
from deniable.audit.decisions import MEMBER, NEUTRAL, UNLISTED, DecisionLog
from deniable.audit.draws import probabilities
from deniable.audit.promise import Lottery, Promise
from deniable.inference.e_values import (
    Excess,
    draw_evidence,
    favourites_of,
    log_mean_exp,
    smallest_excess,
    tilt_log_e_value,
)
from deniable.inference.state import VisitorBatch

ALPHA = 1e-3
"""Maximum probability that a sound experiment is ever accused, over its whole life and all audits."""

DRAWS_ALPHA, LOTTERY_ALPHA, COUNTS_ALPHA = 0.8 * ALPHA, 0.1 * ALPHA, 0.1 * ALPHA
"""How the statistical checks divide it."""

POWER = 0.99

OTHER_SLOT, HOLDOUT = 1, 2

Cells: TypeAlias = Mapping[tuple[int, int, int, int], int]
"""Shows by (table, role, segment, arm)."""


@dataclass(frozen=True)
class Power:
    """What the audit would have detected.

    Attributes:
        draws: number of draws.
        overall: the smallest detectable bias of all rows' likeliest arms (of any single arm if all
            are equally likely); None if no bias would have been detected.
        weakest: the same in the segment with the least power, among those that had visitors; None
            if no bias would have been detected in one of them.
    """

    draws: int
    overall: Excess | None
    weakest: Excess | None

    @property
    def words(self) -> str:
        """Summarise the power in one sentence."""
        if self.overall is None:
            return (
                f"With {self.draws:,} draws this audit had no power: it would not have noticed any "
                f"excess with {POWER:.0%}."
            )
        text = (
            f"From {self.draws:,} draws it would have noticed an excess of "
            f"{self.overall.tilt:.2g} nats with {POWER:.0%}: {100 * self.overall.share:.2g} of 100 "
            "visitors more shown a row's likeliest arm"
        )
        if self.weakest is None:
            return text + "; in the smallest segment alone, none."
        return text + f"; in any one segment {self.weakest.tilt:.2g} nats."


@dataclass(frozen=True)
class Evidence:
    """Evidence against an experiment, as natural logarithms of e-values.

    Attributes:
        draws: evidence that arms were not drawn as published.
        lottery: evidence that members or holdouts were not chosen by lot; None without a lottery.
        power: what would have been detected.
    """

    draws: float
    lottery: float | None
    power: Power

    @property
    def draws_accuse(self) -> bool:
        """Whether the draws contradict the tables."""
        return self.draws >= -math.log(DRAWS_ALPHA)

    @property
    def lottery_accuses(self) -> bool:
        """Whether the roles contradict the shares."""
        return self.lottery is not None and self.lottery >= -math.log(LOTTERY_ALPHA)


def cells_of(log: DecisionLog) -> Cells:
    """Return the cells of a log."""
    columns = (log.table, log.role, log.segment, log.shown)
    return Counter(zip(*(column.tolist() for column in columns), strict=True))


def arrays(promise: Promise, cells: Cells) -> tuple[FloatArray, FloatArray]:
    """Return probabilities and shows, both of shape (tables, J + 2, K), as in `probabilities`."""
    place = {published.number: i for i, published in enumerate(promise.tables)}
    design = probabilities(promise)
    p = np.stack([design[published.number] for published in promise.tables])
    shows = np.zeros_like(p)
    for (table, role, segment, arm), count in cells.items():
        row = max(segment, UNLISTED) if role == MEMBER else NEUTRAL
        shows[place[table], row, arm] += count
    return p, shows


def evidence(promise: Promise, cells: Cells, lottery: Lottery | None = None) -> Evidence:
    """Return e-values of draws and lottery, and the power of the first."""
    p, shows = arrays(promise, cells)
    nothing = np.zeros_like(p[0])
    batches = [VisitorBatch(table, shown, nothing) for table, shown in zip(p, shows, strict=True)]
    found = draw_evidence(batches)
    averaged = found.arms.size + found.favourites.size
    return Evidence(
        draws=found.log_e_value,
        lottery=None if lottery is None else lottery_evidence(cells, lottery),
        power=_power(p, shows, DRAWS_ALPHA / averaged),
    )


def lottery_evidence(cells: Cells, lottery: Lottery) -> float:
    """Return the log e-value of "slots and holdouts were not drawn by lot", over all segments.

    >>> cells = {(1, 0, 0, 0): 500, (1, 1, 0, 0): 500}
    >>> round(lottery_evidence(cells, Lottery(slots=500, holdout=0)), 2)
    -0.31
    >>> lottery_evidence(cells, Lottery(slots=900, holdout=0)) > 300
    True
    """
    counts: Counter[tuple[int, int]] = Counter()
    for (_, role, segment, _), shows in cells.items():
        counts[max(segment, -1), role] += shows
    places = sorted({segment for segment, _ in counts})

    def column(*roles: int) -> FloatArray:
        sums = [sum(counts[place, role] for role in roles) for place in places]
        return np.array(sums, dtype=np.float64)

    came, out = column(MEMBER, OTHER_SLOT, HOLDOUT), column(OTHER_SLOT)
    tests = [(lottery.other_share, came, out), (lottery.holdout_share, came - out, column(HOLDOUT))]
    logs = []
    for share, trials, hits in tests:
        chance = np.full_like(trials, share)
        each = tilt_log_e_value(chance[None], trials[None], hits[None])
        logs += [float(log_mean_exp(each)), float(tilt_log_e_value(chance, trials, hits))]
    return float(log_mean_exp(np.array(logs)))


def _power(p: FloatArray, shows: FloatArray, alpha: float) -> Power:
    trials = shows.sum(axis=2)
    came = np.flatnonzero(trials[:, :NEUTRAL].sum(axis=0)).tolist()
    apart = [_smallest(p[:, place], trials[:, place], alpha) for place in came]
    noticed = [one for one in apart if one is not None]
    weakest = max(noticed, key=lambda one: one.tilt) if noticed else None
    return Power(
        int(trials.sum()),
        _smallest(p.reshape(-1, p.shape[2]), trials.ravel(), alpha),
        weakest if len(noticed) == len(apart) else None,
    )


def _smallest(p: FloatArray, trials: FloatArray, alpha: float) -> Excess | None:
    """Return the smallest excess of the likeliest arms, or of any arm if all are equally likely."""
    often = favourites_of(p)[1]
    if (often[trials > 0] < 1).any():
        return smallest_excess(often, trials, alpha=alpha, power=POWER)
    chances = [p[:, arm] for arm in range(p.shape[1])]
    some = [chance for chance in chances if (chance * trials).any()]
    found = [smallest_excess(chance, trials, alpha=alpha, power=POWER) for chance in some]
    noticed = [one for one in found if one is not None]
    if not noticed or len(noticed) < len(found):
        return None
    return max(noticed, key=lambda one: one.tilt)
