"""Does personalising pay? What an experiment's own visitors say, before any budget is chosen.

Each step of the ladder is a policy: one arm for everybody, the best arm by private label, the best table
within a budget, each segment its best arm. A policy that was chosen from the visitors that judge it
would be credited with their luck. So visitors come in folds; each fold is judged with policies that were
chosen from the folds before it. With pi the policy, p the probability with which a visitor's arm A was
drawn, and guesses m of the rates from earlier folds, a visitor scores (doubly robust)

    sum_a pi(a|s) m(s,a) + pi(A|s)/p(A|s) (Y - m(s,A)).

Given the past, the mean of a score is the policy's value whatever the guesses, so scores minus their
means are martingale differences, and the intervals hold although policies change from fold to fold,
although arms may be equal, and although the experiment itself may have learned (if p is known). Averages
over all ways to split would be narrower, but their intervals do not hold where arms are equal.

Policies are chosen by shrunk rates: what an arm has of its own in a segment counts by the share of its
variance that is not noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Literal, TypeAlias

import numpy as np

from deniable import _validation as check
from deniable._types import JsonObject
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.masks.limit import best_groups, group_channel
from deniable.strategies.joint_lp import best_table
from deniable.strategies.rules import LARGEST

FOLDS = 8
"""Folds of a log without an order of its own. The first is only learned from."""

LABEL_BUDGETS = (1.0, 2.0, 3.0)
JOINT_BUDGET = 1.0

NEGLIGIBLE = 0.02
"""A gain below this part of what one arm for everybody brings is not worth personalising for."""

CONCEIVABLE = 0.05
"""If known rates could gain more than this, a log is too small to say that nothing pays."""

LEAST_SHARE = 0.001
"""An arm counts as shown to a segment if at least this share of its visitors saw it."""

HETEROGENEITY = 0.8
"""Assumed for grouping segments into labels; the groups hardly depend on it."""

SAME = 1e-12
"""Chances that differ by less are the same: those of labels do not sum to 1 exactly."""

DRAWS = 400
"""Draws of the rates for the quantile of the possible gain."""

Answer: TypeAlias = Literal["pays", "does not pay", "unclear"]


@dataclass(frozen=True, eq=False)
class Folds:
    """Sums over the visitors of each fold, in the order in which they are judged; shape (F, J, K).

    Attributes:
        shown: visitors by segment and shown arm.
        reward: sum of Y.
        square: sum of Y^2.
        weight: sum of 1/p, p the probability with which the arm was drawn.
        weighted: sum of Y/p.
        weight2: sum of 1/p^2.
        weighted2: sum of Y/p^2.
        weighted_square: sum of Y^2/p^2.
    """

    shown: FloatArray
    reward: FloatArray
    square: FloatArray
    weight: FloatArray
    weighted: FloatArray
    weight2: FloatArray
    weighted2: FloatArray
    weighted_square: FloatArray

    @classmethod
    def drawn_with(
        cls, chances: FloatArray, shown: FloatArray, reward: FloatArray, square: FloatArray
    ) -> Folds:
        """Return the sums where all visitors of a cell have the same p; without visitors it may be 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = np.where(shown > 0, 1 / chances, 0.0)
        once = [inverse * part for part in (shown, reward)]
        twice = [inverse**2 * part for part in (shown, reward, square)]
        return cls(shown, reward, square, *once, *twice)

    @classmethod
    def estimated(cls, shown: FloatArray, reward: FloatArray, square: FloatArray) -> Folds:
        """Return the sums with p estimated by the shares of the arms in each segment."""
        total = shown.sum(axis=0)
        chances = total / np.maximum(total.sum(axis=1, keepdims=True), 1)
        return cls.drawn_with(np.broadcast_to(chances, shown.shape), shown, reward, square)

    def part(self, arms: Sequence[int]) -> Folds:
        """Return some arms, as if the others had not been shown, and p conditional on these."""
        kept = Folds(*(getattr(self, name)[:, :, arms] for name in self.__dataclass_fields__))
        share = kept.shown.sum(axis=2, keepdims=True) / np.maximum(
            self.shown.sum(axis=2, keepdims=True), 1
        )
        once, twice = ("weight", "weighted"), ("weight2", "weighted2", "weighted_square")
        parts = {name: getattr(kept, name) for name in ("shown", "reward", "square")}
        parts |= {name: getattr(kept, name) * share for name in once}
        parts |= {name: getattr(kept, name) * share**2 for name in twice}
        return Folds(**parts)


@dataclass(frozen=True)
class WorthStep:
    """One step of the ladder.

    Attributes:
        step: "one arm", "label", "joint" or "no privacy".
        budget: what it costs, in nats; None for "no privacy".
        value: mean reward per visitor.
        value_low, value_high: its limits.
        gain: value minus that of one arm for everybody.
        low, high: its limits. `low` is also one of the gain over the arm that is best by all visitors.
    """

    step: str
    budget: float | None
    value: float
    value_low: float
    value_high: float
    gain: float
    low: float
    high: float


@dataclass(frozen=True)
class Worth:
    """Whether personalising pays.

    Attributes:
        experiment: its name.
        attribute: what the segments are of, such as the name of their column.
        segments, arms: names.
        left_out: arms that were not shown to all segments.
        visitors: of all folds; those of the first are only learned from.
        arm: the arm to show if everybody gets the same one, by all visitors.
        steps: the ladder, from one arm for everybody to no privacy.
        confidence: of each interval.
        possible: upper limit of the gain if every segment's best arm were known. What the log teaches
            gains less, because it does not tell arms apart that are nearly equal.
        answer: "pays" if the gain without privacy is above 0 beyond doubt; "does not pay" if it is
            below `NEGLIGIBLE` of what one arm brings and `possible` below `CONCEIVABLE`; else "unclear".
        propensities: whether the probabilities of the arms were "known" or "estimated".
        warnings: what may be wrong with the figures, as sentences.
    """

    experiment: str
    attribute: str
    segments: tuple[str, ...]
    arms: tuple[str, ...]
    left_out: tuple[str, ...]
    visitors: int
    arm: str
    steps: tuple[WorthStep, ...]
    confidence: float
    possible: float
    answer: Answer
    propensities: Literal["known", "estimated"]
    warnings: tuple[str, ...] = ()

    @property
    def one_arm(self) -> WorthStep:
        """One arm for everybody."""
        return self.steps[0]

    @property
    def no_privacy(self) -> WorthStep:
        """Each segment its best arm."""
        return self.steps[-1]

    def to_dict(self) -> JsonObject:
        """Return plain numbers, strings and lists for JSON."""
        return asdict(self)


def worth_of_folds(
    folds: Folds,
    *,
    segments: Sequence[str],
    arms: Sequence[str],
    experiment: str = "",
    attribute: str = "segment",
    known: bool = False,
    confidence: float = 0.95,
    warnings: Sequence[str] = (),
) -> Worth:
    """Return what each step of the ladder is worth.

    Args:
        folds: sums of the visitors.
        segments: J names.
        arms: K names.
        experiment: its name.
        attribute: what the segments are of.
        known: whether the probabilities in the sums are those of the draws, not estimates.
        confidence: of each interval.
        warnings: sentences to pass on.

    >>> rng = np.random.default_rng(1)
    >>> shown = np.full((FOLDS, 2, 2), 2500.0)
    >>> clicks = rng.binomial(2500, [[0.10, 0.05], [0.05, 0.10]], (FOLDS, 2, 2)).astype(float)
    >>> found = worth_of_folds(
    ...     Folds.estimated(shown, clicks, clicks), segments=["new", "loyal"], arms=["red", "blue"]
    ... )
    >>> found.answer, round(found.no_privacy.gain, 3), round(found.steps[2].gain, 3)
    ('pays', 0.027, 0.021)
    """
    level = check.single("confidence", check.probability("confidence", confidence))
    if len(segments) < 2:
        raise InvalidArgumentError("segments", len(segments), "2 or more segments to compare")
    shown = folds.shown.sum(axis=0)
    shares = shown / np.maximum(shown.sum(axis=1, keepdims=True), 1)
    everywhere: list[int] = np.flatnonzero((shares >= LEAST_SHARE).all(axis=0)).tolist()
    if len(everywhere) < 2:
        allowed = "2 or more variants that every segment was shown: others cannot be compared"
        raise InvalidArgumentError("variant", len(everywhere), allowed)
    used = folds.part(everywhere)
    names = ["one arm", *(["label"] * len(LABEL_BUDGETS)), "joint", "no privacy"]
    budgets = [0.0, *LABEL_BUDGETS, JOINT_BUDGET, None]
    mean, error = _judged(used)
    width = NormalDist().inv_cdf((1 + level) / 2) * error
    ends = np.stack([mean, mean - width, mean + width])  # by value and gains, and step
    ends[1, 1, 1:] = ends[1, 1:, 1:].min(axis=0)
    steps = tuple(
        WorthStep(name, budget, *ends[:, 0, place].tolist(), *ends[:, 1, place].tolist())
        for place, (name, budget) in enumerate(zip(names, budgets, strict=True))
    )
    learned = shrunk_rates(used, slice(None))
    possible = _possible_gain(*learned, (1 + level) / 2)
    last, unit = steps[-1], abs(steps[0].value)
    small = last.high < NEGLIGIBLE * unit and possible < CONCEIVABLE * unit
    answer: Answer = "pays" if last.low > 0 else "does not pay" if small else "unclear"
    return Worth(
        experiment=experiment,
        attribute=attribute,
        segments=tuple(segments),
        arms=tuple(arms[place] for place in everywhere),
        left_out=tuple(arm for place, arm in enumerate(arms) if place not in everywhere),
        visitors=int(shown.sum()),
        arm=arms[everywhere[int(_best_for_all(*learned)[0].argmax())]],
        steps=steps,
        confidence=level,
        possible=possible,
        answer=answer,
        propensities="known" if known else "estimated",
        warnings=tuple(warnings),
    )


def _judged(folds: Folds) -> tuple[FloatArray, FloatArray]:
    """Return each policy's value and its gains over one arm, (3, policies), and their standard errors.

    The first gain is over the arm that was best in the folds before. While these are few, it may be the
    wrong one, and a policy would gain by avoiding it. The second gain is over the arm that is best
    in all folds; it credits that arm with its luck.
    """
    totals = np.zeros((2, 3, 3 + len(LABEL_BUDGETS)))  # sum and squares; of value and both gains
    visitors = 0.0
    everybody = _best_for_all(*shrunk_rates(folds, slice(None)))
    for place in range(1, len(folds.shown)):
        rates, _, shares = shrunk_rates(folds, slice(place))
        made = np.stack(policies(rates, shares))
        visitors += folds.shown[place].sum()
        for row, base in enumerate((0.0, made[0], everybody)):
            wanted = made - base
            wanted[np.abs(wanted) < SAME] = 0.0
            totals[:, row] += _scores(folds, place, wanted, rates)
    total, squares = totals
    visitors = max(visitors, 1.0)
    mean = total / visitors
    return mean, np.sqrt(np.maximum(squares / visitors - mean**2, 0) / visitors)


def _best_for_all(rates: FloatArray, _: FloatArray, shares: FloatArray) -> FloatArray:
    """Return the policy that shows everybody the best arm, (J, K)."""
    row = np.eye(rates.shape[1])[(shares @ rates).argmax()]
    return np.broadcast_to(row, rates.shape)


def _scores(folds: Folds, place: int, wanted: FloatArray, m: FloatArray) -> FloatArray:
    """Return the sum and the sum of squares of a fold's scores, for each policy or difference."""
    centre = (wanted * m).sum(axis=2)  # (policies, J)
    residual = wanted * (folds.weighted[place] - m * folds.weight[place])
    squared = (
        folds.weighted_square[place] - 2 * m * folds.weighted2[place] + m * m * folds.weight2[place]
    )
    visitors = folds.shown[place].sum(axis=1)
    total = visitors * centre + residual.sum(axis=2)
    square = (
        visitors * centre**2
        + 2 * centre * residual.sum(axis=2)
        + (wanted**2 * np.maximum(squared, 0)).sum(axis=2)
    )
    return np.stack([total.sum(axis=1), square.sum(axis=1)])


def policies(rates: FloatArray, shares: FloatArray) -> list[FloatArray]:
    """Return the ladder's policies for known rates, (J, K) each, from one arm to no privacy.

    >>> ladder = policies(np.array([[0.3, 0.1], [0.1, 0.3]]), np.array([0.6, 0.4]))
    >>> [round(float(policy[1, 1]), 2) for policy in ladder]
    [0.0, 0.73, 0.88, 0.95, 0.73, 1.0]
    """
    arms = np.eye(rates.shape[1])
    best = arms[rates.argmax(axis=1)]
    one = _best_for_all(rates, rates, shares)
    labelled = []
    for budget in LABEL_BUDGETS:
        channel = group_channel(best_groups(shares, budget, HETEROGENEITY), budget)
        by_label = (channel * shares[:, None]).T @ rates
        labelled.append(channel @ arms[by_label.argmax(axis=1)])
    joint = one if max(rates.shape) > LARGEST else best_table(rates, JOINT_BUDGET, shares)
    return [one, *labelled, joint, best]


def shrunk_rates(folds: Folds, learned: slice) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return guesses of the rates, their deviations, (J, K), and the segments' shares, by some folds.

    A rate is that of its segment, plus its arm's part, plus what it has of its own, which is shrunk:
    by the share of the variance of such parts that is not noise (DerSimonian and Laird's moments). That
    variance is taken to be at least its standard error: a log that is too small to show differences
    does not show that there are none.
    """
    shown, reward, square = (
        part[learned].sum(axis=0) for part in (folds.shown, folds.reward, folds.square)
    )
    visitors = shown.sum()
    shares = (shown.sum(axis=1) + 1) / (visitors + len(shown))
    overall = reward.sum() / max(visitors, 1)
    mean = np.where(shown > 0, reward / np.maximum(shown, 1), overall)
    spread = square.sum(axis=1) - (reward.sum(axis=1) ** 2) / np.maximum(shown.sum(axis=1), 1)
    pooled = (square.sum() - visitors * overall**2) / max(visitors, 1)
    pooled = pooled if pooled > 0 else 1.0  # all rewards are the same: nothing to shrink
    variance = (np.maximum(spread, 0) + 10 * pooled) / (shown.sum(axis=1) + 10)
    precision = shown / variance[:, None]
    segment, arm = np.full((len(shown), 1), overall), np.zeros((1, shown.shape[1]))
    for _ in range(10):
        segment = _weighted(mean - arm, precision, 1)
        arm = _weighted(mean - segment, precision, 0)
    own = mean - segment - arm
    freedom = (shown.shape[0] - 1) * (shown.shape[1] - 1)
    total = max(precision.sum(), 1e-300)
    excess = float((precision * own**2).sum()) - freedom
    doubt = (2 * freedom) ** 0.5
    scale = total - float((precision**2).sum()) / total
    between = max(excess, doubt) / max(scale, 1e-300) if freedom else 0.0
    kept = between * precision / (1 + between * precision)
    common = (
        sum(shown.shape) - 1
    ) / shown.size  # of a cell's variance, what segments' and arms' parts keep
    deviation = np.sqrt(np.maximum(kept, common) / np.maximum(precision, 1 / pooled))
    return segment + arm + kept * own, deviation, shares


def _possible_gain(
    rates: FloatArray, deviations: FloatArray, shares: FloatArray, quantile: float
) -> float:
    """Return a quantile of what each segment's best arm gains over the best arm for everybody."""
    rng = np.random.default_rng(DRAWS)
    gains: list[float] = []
    at_once = max(1, min(DRAWS, 1_000_000 // rates.size))
    while len(gains) < DRAWS:
        drawn = rates + deviations * rng.standard_normal((at_once, *rates.shape))
        gains += (drawn.max(axis=2) @ shares - (shares @ drawn).max(axis=1)).tolist()
    return float(np.quantile(gains, quantile))


def _weighted(values: FloatArray, weights: FloatArray, axis: int) -> FloatArray:
    total = weights.sum(axis=axis, keepdims=True)
    return np.asarray((values * weights).sum(axis=axis, keepdims=True) / np.maximum(total, 1e-300))
