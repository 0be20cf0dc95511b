"""The state of inference: sums for each segment and pair of arms, no rows.

The score. Within a segment, a visitor who was served by a table with probabilities p, shown arm A_t
and rewarded with Y_t in [0, 1] has, for the difference "arm b minus arm a",

    h_t = m_b - m_a + 1[A_t = b] (Y_t - m_b) / p(b) - 1[A_t = a] (Y_t - m_a) / p(a).

m are guesses of the rates made from earlier visitors, so E[h_t | past] = mu_b - mu_a exactly,
whatever the guesses (doubly robust scores with known propensities). Each visitor
has the weight ``w = p(a) p(b) / (p(a) + p(b))``: the more the table randomises between the two arms,
the more its visitors count. The variance of a score is about (1/p(a) + 1/p(b)) = 1/w times that of a
reward, so these are the weights of least variance, and ``w (h_t - (m_b - m_a))`` always lies in
[-1, 1], which the exact boundary needs. The estimate is ``sum w h / sum w``; its target is the mean of
mu_b - mu_a over the visitors so far with the same weights, so it is also defined while rates drift.

Why batches are enough. A batch is a run of consecutive visitors of a segment served by one table,
split anywhere. p, m and w are fixed before its first visitor: they are functions of
earlier batches, so for every visitor of the batch they are functions of the past, and row by row
``w (h_t - E[h_t | past])`` is a martingale difference sequence. A process that is fixed for a batch
is a special case of a predictable one, so this is not an approximation. A batch may end at any time that
does not look at the visitors after it (a publication, an hour, a look at the page). Within the batch
the sums of w h and of w^2 (h - (m_b - m_a))^2 are functions of each arm's number of shows, sum of
rewards and sum of squared rewards, so no row is needed, and looking after each batch is looking at
some of the times at which the boundaries hold.

Callers must ensure the following: a visitor enters once, with the table that served it, in the order of
the decisions, and only after its reward can no longer change (the attribution window of the whole
batch has closed). Including rewarded visitors before the others would bias every rate. Batches
should grow by no more than about a fifth each, because m improves from batch to batch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError

FLOOR = 0.001
"""Propensity below which an arm counts as retired, and its comparisons stop."""

PRIOR_SHOWS = 5.0
"""Weight of the segment's mean rate in the guess of an arm's rate, in shows."""

RUNNING = -1.0

FORMAT = 1


@dataclass(frozen=True, eq=False, init=False)
class VisitorBatch:
    """Counts of consecutive visitors served by one table. All arrays have shape (J, K).

    Attributes:
        probabilities: entries of the table, one row per segment.
        shows: how often each arm was shown in each segment.
        rewards: sum of rewards, each in [0, 1] (divide values by their cap).
        squares: sum of squared rewards; by default rewards are 0 or 1.
    """

    probabilities: FloatArray
    shows: FloatArray
    rewards: FloatArray
    squares: FloatArray

    def __init__(
        self,
        probabilities: ArrayLike,
        shows: ArrayLike,
        rewards: ArrayLike,
        squares: ArrayLike | None = None,
    ) -> None:
        table = check.probability("probabilities", probabilities)
        if table.ndim != 2 or table.shape[1] < 2 or table.shape[0] < 1:
            raise InvalidArgumentError(
                "probabilities", table.shape, "a row for each segment, 2 or more arms"
            )
        raw = rewards if squares is None else squares
        for name, value in zip(
            ("probabilities", "shows", "rewards", "squares"),
            _checked(table, shows, rewards, raw),
            strict=True,
        ):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over scores. All arrays have the same shape: (J, pairs) or (J, K).

    Attributes:
        visitors: visitors of the segment while the comparison was running.
        weight: sum of w.
        total: sum of w h; `total / weight` is the estimate.
        variance: sum of w^2 (h - centre)^2, where the centre is the difference of the guesses.
    """

    visitors: FloatArray
    weight: FloatArray
    total: FloatArray
    variance: FloatArray

    @classmethod
    def zeros(cls, shape: tuple[int, int]) -> Sums:
        """Return empty sums."""
        return cls(*(np.zeros(shape) for _ in fields(cls)))

    @property
    def estimate(self) -> FloatArray:
        """The weighted mean score; NaN without visitors."""
        with np.errstate(invalid="ignore"):
            result: FloatArray = self.total / np.where(self.weight > 0, self.weight, np.nan)
        return result

    def plus(self, other: Sums) -> Sums:
        """Add two sums."""
        return Sums(
            self.visitors + other.visitors,
            self.weight + other.weight,
            self.total + other.total,
            self.variance + other.variance,
        )


@dataclass(frozen=True, eq=False)
class State:
    """The inference state of an experiment with J segments and K arms.

    Attributes:
        pairs: arm indices (a, b), one row for each comparison "b minus a".
        horizon: visitors of each segment at which intervals should be narrowest, (J,).
        typical: typical probability of an arm that is not the favourite of its table.
        rate: initial guess of the rates.
        shows: visitors included, by segment and arm, (J, K).
        rewards: their rewards.
        squares: their squared rewards.
        between: sums for each segment and pair, (J, pairs).
        alone: sums for each segment and arm: the value of always showing this arm, (J, K).
        stopped_at: visitors of the segment when the comparison stopped because one of its arms
            retired; -1 while it runs, (J, pairs).
        latest: the table of the last batch, (J, K).
    """

    pairs: NDArray[np.int64]
    horizon: FloatArray
    typical: float
    rate: float
    shows: FloatArray
    rewards: FloatArray
    squares: FloatArray
    between: Sums
    alone: Sums
    stopped_at: FloatArray
    latest: FloatArray

    @property
    def n_segments(self) -> int:
        """Number of segments, J."""
        return int(self.shows.shape[0])

    @property
    def n_arms(self) -> int:
        """Number of arms, K."""
        return int(self.shows.shape[1])

    @property
    def visitors(self) -> FloatArray:
        """Visitors of each segment, (J,)."""
        result: FloatArray = self.shows.sum(axis=1)
        return result

    @property
    def planned_between(self) -> FloatArray:
        """Expected weight of a pair at the horizon, (J, 1)."""
        best = 1 - (self.n_arms - 1) * self.typical
        result: FloatArray = self.horizon[:, None] * self.typical * best / (self.typical + best)
        return result

    @property
    def planned_alone(self) -> FloatArray:
        """Expected weight of an arm at the horizon, (J, 1)."""
        result: FloatArray = self.horizon[:, None] * self.typical
        return result

    def to_json(self) -> str:
        """Serialise as text; `state_from_json` restores it to the last bit."""
        return json.dumps({"format": FORMAT, **_fields(self)}, allow_nan=False)


def new_state(
    n_segments: int,
    n_arms: int,
    *,
    horizon: ArrayLike,
    pairs: Sequence[tuple[int, int]] | None = None,
    typical: float | None = None,
    rate: float = 0.1,
) -> State:
    """Return the state before the first visitor.

    `horizon`, `typical` and `rate` are plans. They determine where the intervals are narrowest, not
    whether they are valid, and must not be changed after visitors have come.

    Args:
        n_segments: J.
        n_arms: K.
        horizon: visitors of a segment at which intervals should be narrowest; one number or J.
        pairs: comparisons (a, b), "b minus a"; by default all pairs of arms.
        typical: typical probability of an arm that is not the favourite, at most 1/K: with a
            budget, 1 / (K - 1 + e^budget); 1/K by default.
        rate: initial guess of the rates, in units of the cap.

    >>> state = new_state(2, 3, horizon=10_000)
    >>> state.pairs.tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    j = check.whole("n_segments", n_segments, 1)
    k = check.whole("n_arms", n_arms, 2)
    ahead = check.nonnegative("horizon", horizon)
    if not (ahead > 0).all() or ahead.shape not in ((), (j,)):
        raise InvalidArgumentError("horizon", horizon, f"a number above 0, or {j} of them")
    chosen = [(a, b) for a in range(k) for b in range(a + 1, k)] if pairs is None else list(pairs)
    if not chosen or len({frozenset(pair) for pair in chosen}) < len(chosen):
        raise InvalidArgumentError("pairs", pairs, "1 or more pairs, each once")
    for a, b in chosen:
        if check.whole("pairs", a, 0, k - 1) == check.whole("pairs", b, 0, k - 1):
            raise InvalidArgumentError("pairs", (a, b), "two different arms")
    usual = (
        1 / k if typical is None else check.single("typical", check.probability("typical", typical))
    )
    if not 0 < usual <= 1 / k:
        raise InvalidArgumentError("typical", typical, f"a probability above 0, up to 1/{k}")
    shape = (j, len(chosen))
    return State(
        pairs=np.array(chosen, dtype=np.int64),
        horizon=np.broadcast_to(ahead, (j,)).copy(),
        typical=usual,
        rate=check.single("rate", check.probability("rate", rate)),
        shows=np.zeros((j, k)),
        rewards=np.zeros((j, k)),
        squares=np.zeros((j, k)),
        between=Sums.zeros(shape),
        alone=Sums.zeros((j, k)),
        stopped_at=np.full(shape, RUNNING),
        latest=np.full((j, k), 1 / k),
    )


def guesses(state: State) -> FloatArray:
    """Return guesses of the rates from the visitors so far, (J, K): m of the next batch."""
    return _guessed(state.rate, state.shows, state.rewards)


def _guessed(rate: float, shown: FloatArray, rewarded: FloatArray) -> FloatArray:
    mean = (rate + rewarded.sum(axis=-1)) / (1 + shown.sum(axis=-1))
    result: FloatArray = (PRIOR_SHOWS * mean[..., None] + rewarded) / (PRIOR_SHOWS + shown)
    return result


def update(state: State, batch: VisitorBatch) -> State:
    """Return the state after one more batch.

    >>> state = new_state(1, 2, horizon=1000)
    >>> batch = VisitorBatch([[0.5, 0.5]], shows=[[250, 250]], rewards=[[25, 40]])
    >>> state = update(state, batch)
    >>> round(float(state.between.estimate[0, 0]), 6)
    0.06
    """
    if batch.shows.shape != state.shows.shape:
        raise InvalidArgumentError(
            "batch", batch.shows.shape, f"arrays of shape {state.shows.shape}"
        )
    parts = (batch.probabilities, batch.shows, batch.rewards, batch.squares)
    return _after(state, *(part[None] for part in parts))


def update_all(
    state: State,
    probabilities: ArrayLike,
    shows: ArrayLike,
    rewards: ArrayLike,
    squares: ArrayLike,
) -> State:
    """Return the state after many batches, bit-identical to repeated calls of `update`.

    Args:
        state: the state before them.
        probabilities: rows of the tables, oldest first, (T, J, K).
        shows: by table, segment and arm, (T, J, K).
        rewards: sums of rewards, (T, J, K).
        squares: sums of squared rewards, (T, J, K).

    >>> state = new_state(1, 2, horizon=1000)
    >>> state = update_all(state, [[[0.5, 0.5]]] * 2, [[[250, 250]]] * 2, [[[25, 40]]] * 2,
    ...                    [[[25, 40]]] * 2)
    >>> round(float(state.between.estimate[0, 0]), 6)
    0.06
    """
    tables = check.probability("probabilities", probabilities)
    if tables.ndim != 3 or tables.shape[1:] != state.shows.shape:
        raise InvalidArgumentError(
            "probabilities", tables.shape, f"tables of shape {state.shows.shape}"
        )
    if not len(tables):
        return state
    return _after(state, *_checked(tables, shows, rewards, squares))


def _after(
    state: State, p: FloatArray, shows: FloatArray, rewards: FloatArray, squares: FloatArray
) -> State:
    """Return the state after T batches, all arrays (T, J, K). Sums are in the order of the batches."""
    shown = np.cumsum(np.concatenate([state.shows[None], shows]), axis=0)
    rewarded = np.cumsum(np.concatenate([state.rewards[None], rewards]), axis=0)
    m = _guessed(state.rate, shown[:-1], rewarded[:-1])
    visitors = shows.sum(axis=-1)[..., None]
    residual = rewards - shows * m
    squared = np.maximum(squares - 2 * m * rewards + shows * m * m, 0.0)

    usable = p >= FLOOR
    arm = _sums(usable, visitors, p, p * visitors * m + residual, squared)

    a, b = state.pairs.T
    pa, pb = p[..., a], p[..., b]
    both = usable[..., a] & usable[..., b]
    with np.errstate(divide="ignore", invalid="ignore"):
        w = pa * pb / (pa + pb)
        part_a, part_b = w / pa, w / pb
    guessed = m[..., b] - m[..., a]
    total = w * visitors * guessed + part_b * residual[..., b] - part_a * residual[..., a]
    variance = part_b**2 * squared[..., b] + part_a**2 * squared[..., a]
    pair = _sums(both, visitors, w, total, variance)

    stopped_at = state.stopped_at
    for running, so_far in zip(both, shown[:-1].sum(axis=-1), strict=True):
        newly = np.where(stopped_at == RUNNING, so_far[:, None], stopped_at)
        stopped_at = np.where(running, RUNNING, newly)
    return replace(
        state,
        shows=shown[-1],
        rewards=rewarded[-1],
        squares=_running(state.squares, squares),
        between=_added(state.between, pair),
        alone=_added(state.alone, arm),
        stopped_at=stopped_at,
        latest=p[-1],
    )


def merge(state: State, other: State) -> State:
    """Merge two states that saw different visitors of the same experiment, each in order.

    Each state's guesses come from its own earlier visitors, which are part of the common past, so
    the sums of both are again sums of martingale differences. The status of the comparisons and the
    latest table are those of `other`.
    """
    if not np.array_equal(state.pairs, other.pairs) or state.shows.shape != other.shows.shape:
        raise InvalidArgumentError("other", other.shows.shape, "a state of the same experiment")
    return replace(
        other,
        shows=state.shows + other.shows,
        rewards=state.rewards + other.rewards,
        squares=state.squares + other.squares,
        between=state.between.plus(other.between),
        alone=state.alone.plus(other.alone),
    )


def state_from_json(text: str) -> State:
    """Restore a state written by `State.to_json`."""
    try:
        found = json.loads(text)
        if found.pop("format") != FORMAT:
            raise InvalidArgumentError("text", text, f"a state of format {FORMAT}")
        for name in ("between", "alone"):
            found[name] = Sums(**{key: np.array(v, dtype=float) for key, v in found[name].items()})
        pairs = np.array(found.pop("pairs"), dtype=np.int64)
        numbers = {name: float(found.pop(name)) for name in ("rate", "typical")}
        arrays = {k: np.array(v, dtype=float) for k, v in found.items() if isinstance(v, list)}
        return State(**{**found, **arrays, **numbers, "pairs": pairs})
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError):
        raise InvalidArgumentError("text", text, "the output of State.to_json") from None


def _fields(value: State | Sums) -> dict[str, object]:
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: object) -> object:
    if isinstance(value, State | Sums):
        return _fields(value)
    return value.tolist() if isinstance(value, np.ndarray) else value


def _sums(
    used: NDArray[np.bool_],
    visitors: FloatArray,
    weight: FloatArray,
    total: FloatArray,
    variance: FloatArray,
) -> Sums:
    """Return the sums that a batch adds, where it is usable."""
    return Sums(
        *(np.where(used, part, 0.0) for part in (visitors, weight * visitors, total, variance))
    )


def _added(before: Sums, parts: Sums) -> Sums:
    """Add the sums of T batches, (T, ...), in order."""
    return Sums(*(_running(getattr(before, f.name), getattr(parts, f.name)) for f in fields(Sums)))


def _running(before: FloatArray, parts: FloatArray) -> FloatArray:
    """Add one by one, as `update` would: `sum` would add pairwise."""
    result: FloatArray = np.cumsum(np.concatenate([before[None], parts]), axis=0)[-1]
    return result


def _checked(
    table: FloatArray, shows: ArrayLike, rewards: ArrayLike, squares: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Validate the counts for these tables; arms are on the last axis."""
    if (np.abs(table.sum(axis=-1) - 1) > 1e-9).any():
        raise InvalidArgumentError("probabilities", table.shape, "rows that sum to 1")
    shown = _counts("shows", check.count("shows", shows, 0), table.shape)
    sums = _counts("rewards", check.nonnegative("rewards", rewards), table.shape)
    squared = _counts("squares", check.nonnegative("squares", squares), table.shape)
    slack = 1e-9 * (1 + shown)
    if (sums > shown + slack).any():
        raise InvalidArgumentError("rewards", sums.shape, "rewards of at most 1 for each show")
    if (squared > sums + slack).any() or (squared * shown < sums * sums - slack * shown).any():
        raise InvalidArgumentError(
            "squares", squared.shape, "sums of squares that rewards between 0 and 1 can have"
        )
    return table, shown, np.minimum(sums, shown), squared


def _counts(argument: str, values: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    if values.shape != shape:
        raise InvalidArgumentError(argument, values.shape, f"an array of shape {shape}")
    return values
