"""What a tracker can infer: the meaning of a budget, from one shown arm and from the response to it.

A Bayesian tracker multiplies its prior odds by the evidence of the shown arm and that of the response:
``posterior odds = prior odds x R_A(shown arm) x R_Y(response | shown arm)``, where each factor
counts only if the tracker's channel is open. The mechanism bounds R_A by e^budget. R_Y is measured
and reported, but not part of the promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.errors import InvalidArgumentError


def highest_belief(prior: ArrayLike, risk: ArrayLike) -> Floats:
    """Return the highest belief possible after one shown arm: p e^risk / (p e^risk + 1 - p).

    Args:
        prior: p, the belief before, in [0, 1].
        risk: xi, or the budget that limits it.

    >>> round(float(highest_belief(0.2, 1)), 3)
    0.405
    """
    p = check.probability("prior", prior)
    with np.errstate(invalid="ignore"):  # 0/0 if the prior is 0 and the risk infinite
        posterior = p / (p + (1 - p) * np.exp(-check.risk("risk", risk)))
    return check.unwrap(np.where(p == 0, 0.0, posterior))


def lowest_belief(prior: ArrayLike, risk: ArrayLike) -> Floats:
    """Return the lowest belief possible after one shown arm: p e^-risk / (p e^-risk + 1 - p).

    >>> round(float(lowest_belief(0.2, 1)), 3)
    0.084
    """
    p = check.probability("prior", prior)
    shrunk = p * np.exp(-check.risk("risk", risk))
    with np.errstate(invalid="ignore"):  # 0/0 if the prior is 1 and the risk infinite
        posterior = shrunk / (shrunk + (1 - p))
    return check.unwrap(np.where(p == 1, 1.0, posterior))


def belief_curve(risk: float, n_points: int = 201) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return priors over [0, 1] with the lowest and the highest belief after one shown arm.

    >>> prior, low, high = belief_curve(1.0, n_points=3)
    >>> high.round(3).tolist()
    [0.0, 0.731, 1.0]
    """
    priors = np.linspace(0, 1, check.whole("n_points", n_points, 2))
    low = np.asarray(lowest_belief(priors, risk))
    high = np.asarray(highest_belief(priors, risk))
    return priors, low, high


def budget_for_belief(prior: ArrayLike, belief: ArrayLike) -> Floats:
    """Return the largest budget that keeps a tracker with this prior at or below this belief.

    This is the difference of the log odds. It is infinite for a prior of 0, which never moves. The
    belief must not be below the prior, because no budget can promise that.

    >>> round(float(budget_for_belief(0.2, 0.4)), 4)
    0.9808
    """
    p, q = np.broadcast_arrays(
        check.probability("prior", prior), check.probability("belief", belief)
    )
    if (q < p).any():
        first = q[q < p].flat[0]
        raise InvalidArgumentError("belief", float(first), "a number from the prior to 1")
    with np.errstate(divide="ignore", invalid="ignore"):
        budget = (np.log(q) - np.log(p)) + (np.log1p(-p) - np.log1p(-q))
    return check.unwrap(np.where((p == 0) | (q == 1), np.inf, np.where(p == q, 0.0, budget)))


# -- a Bayesian tracker ----------------------------------------------------------------------------

Matrix: TypeAlias = Sequence[Sequence[float]] | FloatArray


@dataclass(frozen=True, eq=False)
class Tracker:
    """A tracker: a third party that knows the mechanism and observes through the open channels.

    Attributes:
        shown_given_segment: probability in each segment (row) of each shown arm (column), (J, K).
        click_given_shown: click rate in each segment (row) of each arm (column), (J, K).
        sees_output: whether the tracker sees the shown arm.
        sees_response: whether it sees the click, which requires seeing the shown arm.

    >>> shown = [[0.73, 0.27], [0.27, 0.73]]
    >>> tracker = Tracker(shown, click_given_shown=[[0.3, 0.2], [0.1, 0.2]], sees_response=True)
    >>> round(tracker.output_factor(shown_arm=0, segment=0, other=1), 3)
    2.704
    >>> round(tracker.response_factor(shown_arm=0, clicked=True, segment=0, other=1), 3)
    3.0
    >>> tracker.update([0.2, 0.8], shown_arm=0, clicked=True).round(3).tolist()
    [0.67, 0.33]
    """

    shown_given_segment: Matrix
    click_given_shown: Matrix | None = None
    sees_output: bool = True
    sees_response: bool = False

    def __post_init__(self) -> None:
        shown = check.probability("shown_given_segment", self.shown_given_segment)
        if shown.ndim != 2 or shown.shape[1] < 2 or shown.shape[0] < 1 or not _sum_to_one(shown):
            raise InvalidArgumentError(
                "shown_given_segment",
                self.shown_given_segment,
                "shape (J, K), 1 or more segments by 2 or more arms, with rows that sum to 1",
            )
        object.__setattr__(self, "shown_given_segment", _frozen(shown))
        if self.click_given_shown is not None:
            clicks = check.probability("click_given_shown", self.click_given_shown)
            if clicks.shape != shown.shape:
                raise InvalidArgumentError(
                    "click_given_shown",
                    self.click_given_shown,
                    f"click rates of shape {shown.shape}",
                )
            object.__setattr__(self, "click_given_shown", _frozen(clicks))
        elif self.sees_response:
            raise InvalidArgumentError(
                "click_given_shown", None, "click rates, because sees_response is true"
            )
        if self.sees_response and not self.sees_output:
            raise InvalidArgumentError(
                "sees_response", True, "false while sees_output is false: a click names its arm"
            )

    def output_factor(self, *, shown_arm: int, segment: int, other: int) -> float:
        """R_A: how much likelier the shown arm is in `segment` than in `other`; 1 if not observed."""
        return _ratio(self._output_likelihood(shown_arm), segment, other)

    def response_factor(self, *, shown_arm: int, clicked: bool, segment: int, other: int) -> float:
        """R_Y: how much likelier the response is in `segment` than in `other`; 1 if not observed."""
        return _ratio(self._response_likelihood(shown_arm, clicked), segment, other)

    def update(
        self, prior: Sequence[float] | FloatArray, *, shown_arm: int, clicked: bool = False
    ) -> FloatArray:
        """Return the belief over the J segments after one visitor, through the open channels.

        Args:
            prior: prior belief over the segments, shape (J,), summing to 1.
            shown_arm: index of the shown arm.
            clicked: the response; used only if that channel is open.
        """
        before = check.probability("prior", prior)
        if before.shape != (self.n_segments,) or not _sum_to_one(before):
            raise InvalidArgumentError(
                "prior", prior, f"{self.n_segments} probabilities that sum to 1"
            )
        output = self._output_likelihood(shown_arm)
        response = self._response_likelihood(shown_arm, clicked)
        # Multiply mantissas and add exponents, so that a product of three tiny numbers does not
        # underflow.
        mantissas, exponents = np.frexp(np.stack([before, output, response]))
        mantissa, exponent = mantissas.prod(axis=0), exponents.sum(axis=0)
        if not mantissa.any():
            raise InvalidArgumentError(
                "shown_arm", shown_arm, "an event possible in a segment that the prior allows"
            )
        after = np.ldexp(mantissa, exponent - exponent[mantissa > 0].max())
        return np.asarray(after / after.sum())

    @property
    def n_segments(self) -> int:
        """J, the number of segments."""
        return int(np.shape(self.shown_given_segment)[0])

    def _output_likelihood(self, shown_arm: int) -> FloatArray:
        shown = np.asarray(self.shown_given_segment, dtype=np.float64)
        column: FloatArray = shown[:, check.whole("shown_arm", shown_arm, 0, shown.shape[1] - 1)]
        return column if self.sees_output else np.ones_like(column)

    def _response_likelihood(self, shown_arm: int, clicked: bool) -> FloatArray:
        if not self.sees_response:
            return np.ones(self.n_segments)
        rates = np.asarray(self.click_given_shown, dtype=np.float64)[:, shown_arm]
        return np.asarray(rates if clicked else 1 - rates)


def _sum_to_one(rows: FloatArray) -> bool:
    return bool(np.allclose(rows.sum(axis=-1), 1, rtol=0, atol=1e-9))


def _frozen(values: FloatArray) -> FloatArray:
    copy = values.copy()
    copy.flags.writeable = False
    return copy


def _ratio(likelihood: FloatArray, segment: int, other: int) -> float:
    last = likelihood.size - 1
    above = float(likelihood[check.whole("segment", segment, 0, last)])
    below = float(likelihood[check.whole("other", other, 0, last)])
    if above == below:
        return 1.0
    return above / below if below > 0 else float("inf")
