"""The ground truth of an experiment: click rates by segment and arm, arrivals, and rewards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.datasets import ExperimentData
from deniable.errors import InvalidArgumentError
from deniable.masks.mask import Mask

LONGEST_HORIZON = 10**12
LONGEST_DELAY = 10**6


@dataclass(frozen=True, eq=False, init=False)
class Environment:
    """How visitors behave: who comes, what they click, the value of a click, and when it is known.

    Attributes:
        rates: click rate in each segment (row) of each arm (column) for the first visitor, (J, K).
        shares: probability that a visitor belongs to each segment, (J,).
        horizon: T, the number of visitors of the experiment.
        name: name in results.
        arms: names of the arms.
        segments: names of the segments.
        contexts: the context of each segment, (J,); empty if there are none. See `by_context`.
        changes: (visitor, rates from this visitor on), ascending, for changing click rates.
        delay: probabilities that a reward is known 0, 1, 2, ... visitors late; (1,) means
            immediately.
        values: mean value of a click, (J, K).
        value_spread: standard deviation of the logarithm of a click's value; 0 means always the
            mean.
        best: reward of a visitor who is shown the best arm of their own segment, by phase,
            (phases, J).

    >>> page = Environment([0.324, 0.295], horizon=10_000)
    >>> page.n_arms, page.n_segments, page.best_reward
    (2, 1, 0.324)

    The better arm changes at visitor 5,000; purchases are worth 40 and known 20 visitors later:

    >>> shop = Environment(
    ...     [0.03, 0.02], 10_000, changes=[(5_000, [0.02, 0.03])], values=40, delay=20
    ... )
    >>> shop.phases.shape, shop.best_reward, shop.delay[-1]
    ((2, 1, 2), 1.2, 1.0)
    """

    rates: FloatArray
    shares: FloatArray
    horizon: int
    name: str = "experiment"
    arms: tuple[str, ...] = field(default=())
    segments: tuple[str, ...] = field(default=())
    contexts: tuple[str, ...] = field(default=())
    changes: tuple[tuple[int, FloatArray], ...] = field(default=())
    delay: tuple[float, ...] = (1.0,)
    values: FloatArray = field(default_factory=lambda: np.ones((1, 1)))
    value_spread: float = 0.0
    best: FloatArray = field(default_factory=lambda: np.ones((1, 1)))

    def __init__(
        self,
        rates: ArrayLike,
        horizon: int | None = None,
        shares: ArrayLike | None = None,
        *,
        visitors: int | None = None,
        name: str = "experiment",
        arms: Sequence[str] | None = None,
        segments: Sequence[str] | None = None,
        contexts: Sequence[str] | None = None,
        changes: Sequence[tuple[int, ArrayLike]] = (),
        delay: int | Sequence[float] = 0,
        values: ArrayLike = 1.0,
        value_spread: float = 0.0,
    ) -> None:
        """Rates of shape (K,) mean one segment; shares are equal by default.

        `visitors` is a synonym of `horizon`. An integer `delay` applies to all rewards. `values`
        may be one number, one per arm, or (J, K). `contexts` names the context of each segment: a row
        is then a segment within a context.
        """
        table = _rates("rates", rates)
        n_segments, n_arms = table.shape
        parts = np.full(n_segments, 1 / n_segments) if shares is None else _shares(shares)
        if parts.shape != (n_segments,):
            raise InvalidArgumentError(
                "shares", shares, f"one share for each of {n_segments} segments"
            )
        if (horizon is None) == (visitors is None):
            raise InvalidArgumentError("horizon", horizon, "the number of visitors, once")
        argument, end = ("visitors", visitors) if horizon is None else ("horizon", horizon)
        given: dict[str, object] = {
            "rates": _frozen(table),
            "shares": _frozen(parts),
            "horizon": check.whole(argument, end, 1, LONGEST_HORIZON),
            "name": _name(name),
            "arms": _names("arms", arms, n_arms),
            "segments": _names("segments", segments, n_segments),
            "contexts": _contexts(contexts, n_segments),
            "changes": _changes(changes, table.shape),
            "delay": _delay(delay),
            "values": _values(values, table.shape),
            "value_spread": check.single(
                "value_spread", check.nonnegative("value_spread", value_spread)
            ),
        }
        for key, value in given.items():
            object.__setattr__(self, key, value)
        object.__setattr__(self, "best", _frozen((self.phases * self.values).max(axis=2)))

    def __repr__(self) -> str:
        sizes = f"{self.n_arms} arms, {self.n_segments} segments, {self.horizon:,} visitors"
        return f"Environment({self.name!r}: {sizes})"

    @classmethod
    def of(cls, data: ExperimentData) -> Environment:
        """Return the environment in which an experiment's observed rates are the truth."""
        if not isinstance(data, ExperimentData):
            raise InvalidArgumentError("data", data, "an experiment, such as asos() has")
        return cls(data.rates, data.visitors, name=data.name)

    def masked(self, mask: Mask) -> Environment:
        """Return the same experiment for strategies that see labels instead of segments; exact.

        A label's click rates are the mean of its people's. Regret is still measured against the best
        arm of each visitor's own segment, so it can be compared with that of strategies on segments.

        Args:
            mask: of the same segments, in any order; its key does not matter.

        >>> mask = Mask(segments=["a", "b"], budget=1, key=bytes(32), name="m")
        >>> page = Environment([[0.3, 0.1], [0.1, 0.3]], 10_000, segments=["a", "b"])
        >>> on_labels = page.masked(mask)
        >>> on_labels.segments, on_labels.rates.round(3).tolist(), round(on_labels.best_reward, 3)
        (('~a', '~b'), [[0.246, 0.154], [0.154, 0.246]], 0.3)
        """
        if set(mask.segments) != set(self.segments):
            allowed = f"a mask of the segments {', '.join(self.segments)}"
            raise InvalidArgumentError("mask", mask, allowed)
        rows = [mask.segments.index(segment) for segment in self.segments]
        return self._mixed(mask.by_segment[rows], mask.labels_in_order, mask.name)

    def by_context(self) -> Environment:
        """Return the same experiment for strategies that see contexts instead of segments; exact.

        Whoever is not told apart has the mean click rates of the context. Regret is still measured
        against the best arm of each segment within each context.

        >>> rates = [[0.3, 0.1], [0.2, 0.1], [0.1, 0.2], [0.1, 0.3]]
        >>> shop = Environment(rates, 10_000, contexts=["phone", "phone", "desktop", "desktop"])
        >>> seen = shop.by_context()
        >>> seen.segments, seen.rates.round(3).tolist(), seen.best_reward
        (('phone', 'desktop'), [[0.25, 0.1], [0.1, 0.25]], 0.25)
        """
        if not self.contexts:
            raise InvalidArgumentError("contexts", None, "a context for each segment")
        names = tuple(dict.fromkeys(self.contexts))
        member = np.array([[own == name for name in names] for own in self.contexts], np.float64)
        return self._mixed(member, names, "context")

    def _mixed(self, channel: FloatArray, names: tuple[str, ...], by: str) -> Environment:
        """Return the experiment for strategies that see what a channel gives of each segment (row)."""
        if (self.values != self.values[:1]).any():
            allowed = "the same value in all segments: what is seen must not change it"
            raise InvalidArgumentError("values", self.values.tolist(), allowed)
        joint = self.shares[:, None] * channel
        shares = joint.sum(axis=0)
        mixed = joint / shares  # the share of each segment (row) among those who look alike
        first, *later = mixed.T @ self.phases
        seen = Environment(
            first,
            self.horizon,
            shares,
            name=f"{self.name} by {by}",
            arms=self.arms,
            segments=names,
            changes=[
                (visitor, rates) for (visitor, _), rates in zip(self.changes, later, strict=True)
            ],
            delay=self.delay,
            values=self.values[0],
            value_spread=self.value_spread,
        )
        object.__setattr__(seen, "best", _frozen(self.best @ mixed))
        return seen

    @property
    def n_arms(self) -> int:
        """Number of arms, K."""
        return int(self.rates.shape[1])

    @property
    def n_segments(self) -> int:
        """Number of segments, J."""
        return int(self.rates.shape[0])

    @property
    def best_reward(self) -> float:
        """Reward of a visitor with perfect information, at the first visitor's click rates."""
        return float(self.best[0] @ self.shares)

    @property
    def starts(self) -> tuple[int, ...]:
        """Number of visitors before each phase of constant click rates; the first is 0."""
        return (0, *(visitor - 1 for visitor, _ in self.changes))

    @property
    def phases(self) -> FloatArray:
        """The click rates of each phase, (phases, J, K)."""
        return np.stack([self.rates, *(rates for _, rates in self.changes)])

    def phase_at(self, checkpoints: ArrayLike) -> NDArray[np.intp]:
        """Return the phase of the last visitor before each checkpoint."""
        return np.searchsorted(self.starts, np.asarray(checkpoints), side="left") - 1

    @property
    def gaps(self) -> FloatArray:
        """Reward lost by showing each arm to the first visitor instead of the segment's best, (J, K)."""
        return np.asarray(self.phase_gaps[0])

    @property
    def phase_gaps(self) -> FloatArray:
        """The same by phase, (phases, J, K)."""
        return np.asarray(self.best[:, :, None] - self.phases * self.values)

    @property
    def is_plain(self) -> bool:
        """Whether every reward is a click that is known immediately, as the fast kernels require."""
        return len(self.delay) == 1 and self.value_spread == 0 and bool((self.values == 1).all())


def _rates(argument: str, rates: ArrayLike) -> FloatArray:
    table = check.probability(argument, rates)
    if table.ndim == 1:
        table = table[None, :]
    if table.ndim != 2 or table.shape[1] < 2 or table.shape[0] < 1:
        allowed = "one row for each segment, with the click rates of 2 or more arms"
        raise InvalidArgumentError(argument, rates, allowed)
    return table


def _changes(
    changes: Sequence[tuple[int, ArrayLike]], shape: tuple[int, ...]
) -> tuple[tuple[int, FloatArray], ...]:
    allowed = "pairs of a visitor and the click rates from there on"
    made: list[tuple[int, FloatArray]] = []
    for given in check.listed("changes", changes, allowed):
        pair = check.listed("changes", given, allowed)
        if len(pair) != 2:
            raise InvalidArgumentError("changes", pair, allowed)
        visitor = check.whole("changes", pair[0], made[-1][0] + 1 if made else 2, LONGEST_HORIZON)
        rates = _rates("changes", pair[1])
        if rates.shape != shape:
            raise InvalidArgumentError("changes", pair[1], f"click rates of shape {shape}")
        made.append((visitor, _frozen(rates)))
    return tuple(made)


def _delay(delay: int | Sequence[float]) -> tuple[float, ...]:
    if not isinstance(delay, Iterable):
        late = check.whole("delay", delay, 0, LONGEST_DELAY)
        return (*(0.0 for _ in range(late)), 1.0)
    chances = check.probability("delay", delay)
    if (
        chances.ndim != 1
        or not 0 < chances.size <= LONGEST_DELAY + 1
        or abs(chances.sum() - 1) > 1e-9
    ):
        allowed = "visitors, or the probabilities of 0, 1, 2, ... visitors, summing to 1"
        raise InvalidArgumentError("delay", delay, allowed)
    return tuple((chances / chances.sum()).tolist())


def _values(values: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    worth = check.nonnegative("values", values)
    try:
        return _frozen(np.broadcast_to(worth, shape))
    except ValueError:
        rows, columns = shape
        allowed = f"one number, one for each of {columns} arms, or {rows} rows of {columns}"
        raise InvalidArgumentError("values", values, allowed) from None


def _shares(shares: ArrayLike) -> FloatArray:
    parts = check.probability("shares", shares)
    if parts.ndim != 1 or abs(parts.sum() - 1) > 1e-9:
        raise InvalidArgumentError("shares", shares, "probabilities that sum to 1")
    return np.asarray(parts / parts.sum())


def _frozen(array: FloatArray) -> FloatArray:
    copy = np.array(array, dtype=np.float64)
    copy.flags.writeable = False
    return copy


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError("name", name, "a name")
    return name


def _contexts(given: Sequence[str] | None, size: int) -> tuple[str, ...]:
    if given is None:
        return ()
    names = tuple(str(name) for name in check.listed("contexts", given, f"{size} names"))
    if len(names) != size:
        raise InvalidArgumentError("contexts", given, f"{size} names, one for each segment")
    return names


def _names(argument: str, given: Sequence[str] | None, size: int) -> tuple[str, ...]:
    if given is None:
        return tuple(str(i) for i in range(size))
    listed = check.listed(argument, given, f"{size} names")
    names = tuple(str(name) for name in check.distinct(argument, listed, size))
    if len(names) != size:
        raise InvalidArgumentError(argument, given, f"{size} names")
    return names
