"""Regret bounds: expected clicks lost against always showing each segment's best arm.

With A = 1 + 2 sqrt 2, B = 4 sqrt 2 and e = K / (K - 1 + e^budget), the exploration of the budget:

- without privacy:     A K^(1/3) J^(1/3) T^(2/3) (log T)^(1/3)
- constant strategy:   T e + B sqrt(K J T log T / e)
- dynamic, J = 1:      A K^(1/3) t^(2/3) (log t)^(1/3) + (T - t) e
                       + B sqrt(K/e) (sqrt T - sqrt t) sqrt(log T),  t = min(n, T)
- dynamic, J segments: A K^(1/3) J^(1/3) min(T, J n)^(2/3) (log T)^(1/3) + (T - n)+ e
                       + B sqrt(K J (T - n)+ log T / e)

where n is the real exhaustion clock. All bounds hold for any click rates.

This is the form `paper`, as printed, for reproducing its results. Planning uses the form `summed`.
It is the actual sum of the visitors' bounds, and differs in two places:

- the dynamic learning term is 3/2 as large, because the sum of n^(-1/3) is (3/2) t^(2/3); the paper
  gives only the order;
- J segments cost the sum of their one-segment bounds, at their shares of the visitors. The paper's
  J-segment formula counts visitors twice and relaxes sqrt T - sqrt n to sqrt(T - n), so that it rises
  and falls with the budget where real regret only falls.

A segment of fewer than three visitors learns nothing: in the form `summed` it may lose all of them.
A bound above the number of visitors is true but uninformative.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._blocks import common_shape, in_blocks
from deniable._validation import FloatArray, Floats
from deniable.errors import InvalidArgumentError
from deniable.privacy.exploration import _at_budget, _AtBudget, _clock_within

A = 1 + 2 * np.sqrt(2)
B = 4 * np.sqrt(2)

Form: TypeAlias = Literal["paper", "summed"]
"""Which form of a bound: as printed in the paper, or summed exactly over visitors and segments."""

_ONE = np.float64(1)
_SUM_OF_CUBE_ROOTS = 1.5  # sum of n^(-1/3) up to t, over t^(2/3)
_FEW = 3.0  # the schedule is at 1 for the first two visitors of a segment


class RegretTerms(NamedTuple):
    """A bound, split by cause.

    Attributes:
        learning: on the schedule, before the budget binds (0 for the constant strategy).
        exploration: random arms once the budget binds.
        estimation: wrong greedy arms, once the budget binds.

    >>> terms = constant_regret_terms(2, 10_000, 1)
    >>> round(float(terms.exploration), 1), round(float(terms.total), 1)
    (5378.8, 8689.3)
    """

    learning: Floats
    exploration: Floats
    estimation: Floats

    @property
    def total(self) -> Floats:
        """The bound."""
        return self.learning + self.exploration + self.estimation


def nonprivate_regret(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "paper",
    shares: ArrayLike | None = None,
) -> Floats:
    """Return the bound of epsilon-greedy without a cap.

    Args:
        n_arms: K.
        horizon: T, visitors of the experiment.
        n_segments: J.
        form: "paper" or "summed".
        shares: share of the visitors in each segment on the last axis, for "summed"; equal by
            default.

    >>> round(float(nonprivate_regret(2, 10_000)), 3)
    4693.055
    """
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    if form == "summed":
        (bound,) = over_segments(_free_one, arms, visitors, segments, shares)
        return check.unwrap(bound)
    _as_printed(form, shares)
    return check.unwrap(_learning(arms * segments, visitors, np.log(visitors)))


def per_round_regret(
    n_arms: ArrayLike, clock: ArrayLike, exploration: ArrayLike, *, sharp: bool = False
) -> Floats:
    """Return the bound for one visitor: exploration + 2 sqrt(2 K log n / (n exploration)).

    Args:
        n_arms: K.
        clock: n, the visitor's clock.
        exploration: in (0, 1].
        sharp: multiply the second term by 1 - exploration, the probability that it applies.

    >>> round(float(per_round_regret(2, 1000, 0.24)), 6)
    0.918614
    """
    arms = check.count("n_arms", n_arms, 2)
    n = check.count("clock", clock, 1)
    rate = check.probability("exploration", exploration, open_at_zero=True)
    estimation = 2 * np.sqrt(2 * arms * np.log(n) / (n * rate))
    return check.unwrap(np.asarray(rate + (1 - rate if sharp else 1.0) * estimation))


def constant_regret_terms(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    budget: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "paper",
    shares: ArrayLike | None = None,
) -> RegretTerms:
    """Return the constant strategy's bound by term: 0, T e, B sqrt(K J T log T / e).

    Args:
        n_arms: K.
        horizon: T, visitors of the experiment.
        budget: gamma.
        n_segments: J.
        form: "paper" or "summed".
        shares: share of the visitors in each segment on the last axis, for "summed"; equal by
            default.

    >>> [round(float(term), 1) for term in constant_regret_terms(2, 10_000, 1)]
    [0.0, 5378.8, 3310.4]
    """
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    cap = check.nonnegative("budget", budget)
    if form == "summed":
        return _terms(*over_segments(_constant_one, arms, visitors, segments, shares, cap))
    _as_printed(form, shares)
    spent = _at_budget(arms, cap)
    exploration = visitors * spent.rate
    estimation = B * np.sqrt(segments * visitors * np.log(visitors)) * spent.root
    return _terms(np.zeros(()), exploration, estimation)


def constant_regret(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    budget: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "paper",
    shares: ArrayLike | None = None,
) -> Floats:
    """Return the constant strategy's bound.

    >>> round(float(constant_regret(2, 10_000, 1)), 3)
    8689.255
    """
    return constant_regret_terms(
        n_arms, horizon, budget, n_segments, form=form, shares=shares
    ).total


def dynamic_regret_terms(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    budget: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "paper",
    shares: ArrayLike | None = None,
) -> RegretTerms:
    """Return the dynamic strategy's bound by term; the paper's sharper form for one segment.

    Takes the arguments of `constant_regret_terms`.

    >>> [round(float(term), 1) for term in dynamic_regret_terms(2, 10_000, 1)]
    [103.7, 5351.7, 3075.5]
    >>> [round(float(term), 1) for term in dynamic_regret_terms(2, 10_000, 1, form="summed")]
    [155.6, 5351.7, 3075.5]
    """
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    cap = check.nonnegative("budget", budget)
    if form == "summed":
        return _terms(*over_segments(_dynamic_one, arms, visitors, segments, shares, cap))
    _as_printed(form, shares)
    clock = _clock_within(arms, cap, visitors)
    terms = _dynamic_terms(arms, visitors, segments, _at_budget(arms, cap), clock)
    return _terms(*terms, like=segments)


def dynamic_regret(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    budget: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "paper",
    shares: ArrayLike | None = None,
) -> Floats:
    """Return the dynamic strategy's bound.

    >>> round(float(dynamic_regret(2, 10_000, 1)), 3)
    8530.937
    """
    sizes = (n_arms, horizon, budget, n_segments)
    return _in_form(form, _dynamic_bound_one, _dynamic_regret, sizes, shares)


def dynamic_regret_terms_any_segments(
    n_arms: ArrayLike, horizon: ArrayLike, budget: ArrayLike, n_segments: ArrayLike = 1
) -> RegretTerms:
    """Return the bound for J segments of unknown sizes; also valid, but looser, for one.

    >>> [round(float(term), 1) for term in dynamic_regret_terms_any_segments(2, 10_000, 1, 4)]
    [551.6, 5351.7, 6604.2]
    """
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    cap = check.nonnegative("budget", budget)
    clock = _clock_within(arms, cap, visitors)
    return _terms(*_any_segments(arms, visitors, segments, _at_budget(arms, cap), clock))


Terms: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]


def _in_form(
    form: Form,
    one: Callable[..., tuple[FloatArray]],
    printed: Callable[..., FloatArray],
    sizes: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike],
    shares: ArrayLike | None,
) -> Floats:
    """Return a bound, or its gain: summed over the segments by `one`, or as `printed` in the paper.

    `sizes` are K, T, the budget and J, as given.
    """
    n_arms, horizon, budget, n_segments = sizes
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    cap = check.nonnegative("budget", budget)
    if form == "summed":
        (summed,) = over_segments(one, arms, visitors, segments, shares, cap)
        return check.unwrap(summed)
    _as_printed(form, shares)
    found = in_blocks(printed, arms, visitors, cap, segments)
    return _spread(found, common_shape(found.shape, segments.shape))


def over_segments(
    one: Callable[..., tuple[FloatArray, ...]],
    arms: FloatArray,
    visitors: FloatArray,
    segments: FloatArray,
    shares: ArrayLike | None,
    *more: FloatArray,
) -> tuple[FloatArray, ...]:
    """Sum `one(arms, visitors of a segment, *more)` over the segments.

    Args:
        one: a formula for one segment, elementwise.
        arms: K.
        visitors: T, of all segments together.
        segments: J, all of the same size if there are no shares.
        shares: by segment on an additional last axis, checked here; or None.
        more: further arguments of the formula.
    """
    parts = _shares(shares, segments)
    if parts is None:
        return tuple(segments * part for part in one(arms, visitors / segments, *more))
    found = one(
        arms[..., None], visitors[..., None] * parts, *(argument[..., None] for argument in more)
    )
    return tuple(part.sum(axis=-1) for part in found)


def _free_one(arms: FloatArray, size: FloatArray) -> tuple[FloatArray]:
    n = np.maximum(size, _FEW)
    return (np.where(size < _FEW, size, _SUM_OF_CUBE_ROOTS * _learning(arms, n, np.log(n))),)


def _constant_one(arms: FloatArray, size: FloatArray, cap: FloatArray) -> Terms:
    spent, n = _at_budget(arms, cap), np.maximum(size, _FEW)
    estimation = B * np.sqrt(n * np.log(n)) * spent.root
    return _or_all_lost(size, np.zeros(()), n * spent.rate, estimation)


def _dynamic_one(arms: FloatArray, size: FloatArray, cap: FloatArray) -> Terms:
    clock = _clock_within(arms, cap, np.maximum(size, _FEW))
    return _dynamic_one_at(arms, size, _at_budget(arms, cap), clock)


def _dynamic_one_at(
    arms: FloatArray, size: FloatArray, spent: _AtBudget, clock: FloatArray
) -> Terms:
    learning, exploration, estimation = _one_segment(arms, np.maximum(size, _FEW), spent, clock)
    return _or_all_lost(size, _SUM_OF_CUBE_ROOTS * learning, exploration, estimation)


def _dynamic_bound_one(arms: FloatArray, size: FloatArray, cap: FloatArray) -> tuple[FloatArray]:
    def bound(arms: FloatArray, size: FloatArray, cap: FloatArray) -> FloatArray:
        terms = _dynamic_one(arms, size, cap)
        return np.asarray(terms[0] + terms[1] + terms[2])

    return (in_blocks(bound, arms, size, cap),)


def _learners(arms: FloatArray, size: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the visitors of a segment, and sqrt(n log n), if it has enough of them to learn."""
    n = np.maximum(size, _FEW)
    few = size < _FEW
    return np.where(few, 0.0, size), np.where(few, 0.0, np.sqrt(n * np.log(n)))


def _or_all_lost(size: FloatArray, *terms: FloatArray) -> Terms:
    """Return the terms of a segment, or all its visitors if it has too few to learn."""
    few = size < _FEW
    learning, exploration, estimation = terms
    return (
        np.where(few, 0.0, learning),
        np.where(few, size, exploration),
        np.where(few, 0.0, estimation),
    )


def _shares(shares: ArrayLike | None, segments: FloatArray) -> FloatArray | None:
    """Validate the shares and normalise them to sum to 1."""
    if shares is None:
        return None
    parts = check.probability("shares", shares)
    if parts.ndim == 0 or not np.allclose(parts.sum(axis=-1), 1, rtol=0, atol=1e-9):
        raise InvalidArgumentError("shares", shares, "a share for each segment, adding up to 1")
    if not np.isin(segments, (1, parts.shape[-1])).all():
        raise InvalidArgumentError("shares", shares, "as many shares as segments")
    return np.asarray(parts / parts.sum(axis=-1, keepdims=True))


def _as_printed(form: str, shares: ArrayLike | None) -> None:
    if form != "paper":
        raise InvalidArgumentError("form", form, "'paper' or 'summed'")
    if shares is not None:
        raise InvalidArgumentError("shares", shares, "none, or the form 'summed'")


def _dynamic_regret(
    arms: FloatArray, visitors: FloatArray, cap: FloatArray, segments: FloatArray
) -> FloatArray:
    clock = _clock_within(arms, cap, visitors)
    terms = _dynamic_terms(arms, visitors, segments, _at_budget(arms, cap), clock)
    return np.asarray(terms[0] + terms[1] + terms[2])


def _dynamic_terms(
    arms: FloatArray,
    visitors: FloatArray,
    segments: FloatArray,
    spent: _AtBudget,
    clock: FloatArray,
) -> Terms:
    """Use the sharper form for J = 1, the general one otherwise."""
    if (segments == 1).all():
        return _one_segment(arms, visitors, spent, clock)
    many = _any_segments(arms, visitors, segments, spent, clock)
    one = _one_segment(arms, visitors, spent, clock) if (segments == 1).any() else many
    first, second, third = (np.where(segments == 1, a, b) for a, b in zip(one, many, strict=True))
    return first, second, third


def _one_segment(
    arms: FloatArray, visitors: FloatArray, spent: _AtBudget, clock: FloatArray
) -> Terms:
    after = visitors - clock
    learning = A * _scheduled(arms, visitors, spent, clock)
    roots = after / (np.sqrt(visitors) + np.sqrt(clock))  # sqrt T - sqrt t without cancellation
    scale = B * roots * np.sqrt(np.log(visitors))
    return learning, after * spent.rate, _product(scale, spent.root)


def _scheduled(
    arms: FloatArray, visitors: FloatArray, spent: _AtBudget, clock: FloatArray
) -> FloatArray:
    """Return K^(1/3) t^(2/3) (log t)^(1/3) for the clock t at which the budget binds, or the horizon.

    At the exhaustion clock K log t = e^3 t, so it is t e there; the clock stays at Euler's number
    if that equation has no root.
    """
    whole = np.cbrt(arms * visitors * visitors * np.log(visitors))
    resting = np.cbrt(arms * math.e**2)
    bound = np.where(clock > math.e, clock * spent.rate, resting)
    return np.where(clock < visitors, bound, whole)


def _any_segments(
    arms: FloatArray,
    visitors: FloatArray,
    segments: FloatArray,
    spent: _AtBudget,
    clock: FloatArray,
) -> Terms:
    after = visitors - clock
    learnt = np.minimum(visitors, segments * clock)
    learning = _learning(arms * segments, learnt, np.log(visitors))
    scale = B * np.sqrt(segments * after * np.log(visitors))
    return learning, after * spent.rate, _product(scale, spent.root)


def _sizes(
    n_arms: ArrayLike, horizon: ArrayLike, n_segments: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    return (
        check.count("n_arms", n_arms, 2),
        check.count("horizon", horizon, 1),
        check.count("n_segments", n_segments, 1),
    )


def _learning(arms: FloatArray, visitors: FloatArray, log: FloatArray) -> FloatArray:
    return np.asarray(A * np.cbrt(arms * visitors * visitors * log))


def _product(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return left * right, and 0 where left is 0, because no visitor is left after the budget binds."""
    return np.where(left == 0, 0.0, left * right)


def _terms(*parts: Floats, like: Floats = _ONE) -> RegretTerms:
    """Return the three terms, broadcast to a common shape (and with `like`)."""
    shape = common_shape(*map(np.shape, parts), np.shape(like))
    learning, exploration, estimation = (_spread(part, shape) for part in parts)
    return RegretTerms(learning, exploration, estimation)


def _spread(part: Floats, shape: tuple[int, ...]) -> Floats:
    values = np.asarray(part)
    return check.unwrap(values if values.shape == shape else np.broadcast_to(values, shape).copy())
