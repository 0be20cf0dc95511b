"""The verdict: winners by segment, open comparisons, the value of each choice, and how long it takes.

An arm beats another when the asymptotic confidence sequence of their difference lies above 0. Alpha
is split over all pairs of arms in all segments and overall, so with probability 1 - alpha no
difference is ever claimed wrongly, at any look. An arm wins a segment when it is the only one still
running there that no other running arm beats: it is then better than all of them, because each
other arm is beaten by one that is, in the end, beaten by the winner. A retired arm no longer
competes, and the verdict names it. `deniable.inference.words` formats the verdict as sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.inference.intervals import (
    Comparisons,
    Intervals,
    compare,
    segment_shares,
)
from deniable.inference.off_policy import (
    Value,
    always,
    arm_values,
    best_of_each,
    value_of_cells,
)
from deniable.inference.power import Forecast, forecast, visitors_until_decided
from deniable.inference.state import FLOOR, RUNNING, State


@dataclass(frozen=True)
class Lift:
    """A difference of mean rewards with both intervals.

    Attributes:
        segment: the segment; None for all.
        arm: the arm ...
        against: ... that is compared with this one.
        difference: estimate of "arm minus against".
        low: lower limit of the asymptotic confidence sequence.
        high: its upper limit.
        exact_low: lower limit of the exact one.
        exact_high: its upper limit.
        ready: whether it can be shown.
        stopped: whether one of the arms has retired, so that nothing more is learned.
    """

    segment: str | None
    arm: str
    against: str
    difference: float
    low: float
    high: float
    exact_low: float
    exact_high: float
    ready: bool
    stopped: bool


@dataclass(frozen=True)
class Winner:
    """The best of the arms still running in a segment.

    Attributes:
        segment: the segment.
        arm: the winner.
        lift: against the default arm; None if the default arm itself won.
    """

    segment: str
    arm: str
    lift: Lift | None


@dataclass(frozen=True)
class Undecided:
    """A comparison that is still open.

    Attributes:
        lift: the current estimate.
        forecast: how long it takes, if the estimate is right and the table stays.
    """

    lift: Lift
    forecast: Forecast


@dataclass(frozen=True)
class Choice:
    """A possible action, and what it earns per visitor.

    Attributes:
        what: "keep", "promote", "within" (the best table that the promise allows) or "winners" (each
            segment its best arm, without a promise).
        arm: the arm to promote, else None.
        value: mean reward per visitor with its interval, valid simultaneously for all choices.
        gain: the difference from "keep".
    """

    what: str
    arm: str | None
    value: Value
    gain: Value


@dataclass(frozen=True, eq=False)
class Verdict:
    """What an experiment has learned so far.

    Attributes:
        winners: one for each segment that has a winner.
        undecided: open pairs, by segment; pairs of two beaten arms are left out.
        whole: each arm against the default arm over all segments.
        choices: keep running, show one arm to everyone, or show each segment its best known arm.
        segments: names of all segments.
        visitors: total number of visitors.
        too_early: segments without enough visitors to show anything.
        hidden: segments that have enough, but may not be shown separately.
        retired: (arm, segment) whose comparisons have stopped.
        comparisons: every pair of arms, as numbers.
        n_comparisons: number of comparisons that share alpha.
        alpha: error probability over all of them and all looks.
    """

    winners: tuple[Winner, ...]
    undecided: tuple[Undecided, ...]
    whole: tuple[Lift, ...]
    choices: tuple[Choice, ...]
    segments: tuple[str, ...]
    visitors: int
    too_early: tuple[str, ...]
    hidden: tuple[str, ...]
    retired: tuple[tuple[str, str], ...]
    comparisons: Comparisons
    n_comparisons: int
    alpha: float


def verdict(
    state: State,
    *,
    arms: Sequence[str],
    segments: Sequence[str],
    default_arm: str,
    shares: ArrayLike | None = None,
    visitors_per_day: float | None = None,
    within: ArrayLike | None = None,
    alpha: float = 0.05,
) -> Verdict:
    """Return what the experiment has learned.

    Args:
        state: sums over all visitors so far, with all pairs of arms.
        arms: their names, in the order of the state.
        segments: their names, in the order of the state.
        default_arm: the arm that lifts are measured against.
        shares: shares of the segments among future visitors; observed shares by default.
        visitors_per_day: traffic of the experiment, to convert visitors to days.
        within: the best table that the promise allows, (J, K). Without it, this choice is omitted.
        alpha: error probability over all comparisons and looks.

    >>> from deniable.inference.state import VisitorBatch, new_state, update
    >>> state = new_state(2, 2, horizon=4000)
    >>> for _ in range(8):
    ...     state = update(
    ...         state, VisitorBatch([[0.5, 0.5]] * 2, [[250, 250]] * 2, [[25, 45], [40, 38]])
    ...     )
    >>> found = verdict(
    ...     state, arms=["old", "large"], segments=["first-visit", "returning"], default_arm="old"
    ... )
    >>> [(winner.segment, winner.arm) for winner in found.winners]
    [('first-visit', 'large')]
    >>> lift = found.winners[0].lift
    >>> round(lift.difference, 3), round(lift.low, 3), round(lift.high, 3)
    (0.08, 0.043, 0.117)
    >>> [(item.lift.segment, item.forecast.visitors) for item in found.undecided]
    [('returning', 222082)]
    """
    names = tuple(str(name) for name in check.distinct("arms", arms, 2))
    places = tuple(segments)
    if not places or len(set(places)) < len(places):  # errors must not contain segment names
        raise InvalidArgumentError("segments", len(places), "1 or more names, each once")
    if state.shows.shape != (len(places), len(names)):
        raise InvalidArgumentError(
            "state", state.shows.shape, f"{len(places)} segments and {len(names)} arms"
        )
    if default_arm not in names:
        raise InvalidArgumentError("default_arm", default_arm, "one of the arms")
    n_pairs = len(names) * (len(names) - 1) // 2
    if len(state.pairs) != n_pairs:
        raise InvalidArgumentError("state", len(state.pairs), f"all {n_pairs} pairs of arms")
    traffic = None
    if visitors_per_day is not None:
        given = check.nonnegative("visitors_per_day", visitors_per_day)
        traffic = check.single("visitors_per_day", given)
    weights = segment_shares(state, shares)
    found = compare(state, shares=weights, alpha=alpha)
    waits = _visitors_until_decided(state, found.alpha_each)
    default = names.index(default_arm)
    best: list[Winner] = []
    undecided: list[Undecided] = []
    beats = _beats(state, found)
    running = state.latest >= FLOOR
    contends = running & ~(beats & running[:, :, None]).any(axis=1)
    rows = {(a, b): row for row, (a, b) in enumerate(state.pairs.tolist())}

    def lift(j: int, arm: int, against: int) -> Lift:
        if (against, arm) not in rows:
            return _reversed(lift(j, against, arm))
        row = rows[against, arm]
        stopped = bool(found.stopped[j, row])
        return _lift(found.segments, (j, row), places[j], names[arm], names[against], stopped)

    for j, place in enumerate(places):
        contenders = np.flatnonzero(contends[j]).tolist()
        if len(contenders) == 1 and beats[j, contenders[0]].any():
            champion = contenders[0]
            gained = None if champion == default else lift(j, champion, default)
            best.append(Winner(place, names[champion], gained))
            continue
        for (a, b), row in rows.items():
            if contends[j, a] and contends[j, b]:  # neither beats the other
                wait = forecast(
                    float(waits[j, row]),
                    share=float(weights[j]),
                    expected=max(float(state.shows.sum()), float(state.horizon.sum())),
                    per_day=traffic,
                )
                undecided.append(Undecided(lift(j, b, a), wait))
    return Verdict(
        winners=tuple(best),
        undecided=tuple(undecided),
        whole=_against_default(state, found, names, default),
        choices=_choices(state, names, weights, alpha, within),
        segments=places,
        visitors=int(state.shows.sum()),
        too_early=tuple(
            p for p, ok in zip(places, found.segments.ready, strict=True) if not ok.any()
        ),
        hidden=(),
        retired=tuple((names[k], places[j]) for j, k in np.argwhere(state.latest < FLOOR)),
        comparisons=found,
        n_comparisons=found.n_shown,
        alpha=alpha,
    )


def _beats(state: State, found: Comparisons) -> NDArray[np.bool_]:
    """Return [segment, arm, other]: whether the interval of "arm minus other" lies above 0."""
    of = found.segments
    a, b = state.pairs.T
    beats = np.zeros((state.n_segments, state.n_arms, state.n_arms), dtype=np.bool_)
    beats[:, b, a] = of.ready & (of.low > 0)
    beats[:, a, b] = of.ready & (of.high < 0)
    return beats


def _lift(
    of: Intervals, at: tuple[int, ...], place: str | None, arm: str, against: str, stopped: bool
) -> Lift:
    return Lift(
        segment=place,
        arm=arm,
        against=against,
        difference=float(of.estimate[at]),
        low=float(of.low[at]),
        high=float(of.high[at]),
        exact_low=float(of.exact_low[at]),
        exact_high=float(of.exact_high[at]),
        ready=bool(of.ready[at]),
        stopped=stopped,
    )


def _reversed(lift: Lift) -> Lift:
    return Lift(
        lift.segment,
        lift.against,
        lift.arm,
        -lift.difference,
        -lift.high,
        -lift.low,
        -lift.exact_high,
        -lift.exact_low,
        lift.ready,
        lift.stopped,
    )


def _against_default(
    state: State, found: Comparisons, names: tuple[str, ...], default: int
) -> tuple[Lift, ...]:
    lifts = []
    for row, (a, b) in enumerate(state.pairs.tolist()):
        if default in (a, b):
            stopped = bool(found.stopped[:, row].any())
            lift = _lift(found.whole, (row,), None, names[b], names[a], stopped)
            lifts.append(lift if a == default else _reversed(lift))
    return tuple(lifts)


def _choices(
    state: State,
    names: tuple[str, ...],
    weights: FloatArray,
    alpha: float,
    within: ArrayLike | None,
) -> tuple[Choice, ...]:
    """Value all choices with one set of simultaneous intervals."""
    cells = arm_values(state, alpha)
    shape = {"n_segments": state.n_segments, "n_arms": state.n_arms}
    keep = state.latest * weights[:, None]

    def choice(what: str, arm: str | None, policy: FloatArray) -> Choice:
        wanted = policy * weights[:, None]
        return Choice(
            what, arm, value_of_cells(cells, wanted), value_of_cells(cells, wanted - keep)
        )

    best = best_of_each(state)
    found = [choice("keep", None, state.latest)]
    found += [choice("promote", arm, always(a, **shape)) for a, arm in enumerate(names)]
    if within is not None:
        rows = check.probability("within", within)
        if rows.shape != best.shape:
            raise InvalidArgumentError("within", rows.shape, f"shape {best.shape}")
        found.append(choice("within", None, rows))
    return (*found, choice("winners", None, best))


def _visitors_until_decided(state: State, alpha: float) -> FloatArray:
    """Return how many more visitors are needed at the current estimates and table."""
    sums = state.between
    a, b = state.pairs.T
    pa, pb = state.latest[:, a], state.latest[:, b]
    waits = np.full(sums.weight.shape, np.inf)
    hopeful = (sums.variance > 0) & (sums.total != 0) & (state.stopped_at == RUNNING)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight_each = np.where(pa + pb > 0, pa * pb / (pa + pb), 0.0)  # both may be retired
    waits[hopeful] = visitors_until_decided(
        sums.estimate[hopeful],
        weight_each=weight_each[hopeful],
        variance=sums.variance[hopeful] / sums.weight[hopeful],
        planned_weight=np.broadcast_to(state.planned_between, waits.shape)[hopeful],
        alpha=alpha,
        visitors=sums.visitors[hopeful],
        weight=sums.weight[hopeful],
    )
    return waits
