"""A gate for an existing bandit: turns its scores or probabilities into a table that keeps a budget.

An external model provides what it wants, by segment and arm:

- scores (click rates, rewards, values of any unit): the gate returns the table with the highest expected
  score among all that keep the budget, the linear programme of `joint_lp`;
- probabilities: the gate returns the table that shows the fewest visitors a different arm than the
  model would (the least total variation distance, weighted by the shares), also a linear programme.

Either way, the table consists of integers that keep the budget in exact arithmetic. `gate` computes
a single table; `GateRule` publishes the tables of experiments with the strategy "gate".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, get_args

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._extras import require
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.privacy.composition import nano_down
from deniable.privacy.exact import SPACE
from deniable.privacy.joint_table import Rows, integer_table, mean_row
from deniable.privacy.tables import Band, Row, Table
from deniable.strategies.rules import LARGEST, Counts, Grade, Kind, TableRule

_SAME_VALUE = (
    # Tolerance for an auditor's own table, relative to the span of scores, or as a share of
    # visitors.
    1e-9
)


@dataclass(frozen=True)
class Gated:
    """The result of the gate.

    Attributes:
        rows: the exact table to draw from: one row per segment, in units of 2^-64.
        table: the same as probabilities, (segments, arms).
        wanted: the model's value without the gate: its expected score, or 1.
        kept: its value with the gate: the expected score, or the share of visitors who are shown
            what the model would have shown them.

    >>> found = gate([[0.30, 0.10], [0.10, 0.30]], budget=1)
    >>> found.table.round(3).tolist(), round(found.cost, 3)
    ([[0.731, 0.269], [0.269, 0.731]], 0.054)
    """

    rows: Rows
    wanted: float
    kept: float

    @property
    def table(self) -> FloatArray:
        """The table as probabilities."""
        return np.array([[part / SPACE for part in row] for row in self.rows])

    @property
    def cost(self) -> float:
        """The value that the model loses to the promise."""
        return self.wanted - self.kept


def gate(
    scores: ArrayLike,
    shares: ArrayLike | None = None,
    budget: float = 1.0,
    *,
    kind: Kind = "scores",
) -> Gated:
    """Return the table closest to what a model wants that keeps the budget.

    Args:
        scores: the model's scores or probabilities, (segments, arms).
        shares: shares of the segments among the visitors, summing to 1; equal by default.
        budget: in nats: no arm is more than e^budget times likelier for one segment than for
            another.
        kind: `scores` of any unit and sign, higher is better; or `probabilities`, each row summing
            to 1, which requires the extra `data`.

    Preferences that all segments share pass unchanged, whatever the budget:

    >>> gate([[0.2, 0.5, 0.1], [0.3, 0.4, 0.1]], budget=0.1).cost
    0.0
    >>> wanted = [[0.90, 0.10], [0.20, 0.80]]
    >>> found = gate(wanted, shares=[0.5, 0.5], budget=1, kind="probabilities")
    >>> found.table.round(3).tolist(), round(found.cost, 3)
    ([[0.731, 0.269], [0.269, 0.731]], 0.119)
    """
    if kind not in get_args(Kind):
        raise InvalidArgumentError("kind", kind, " or ".join(get_args(Kind)))
    given = check.finite("scores", scores)
    if given.ndim != 2 or not given.size or given.shape[1] < 2 or max(given.shape) > LARGEST:
        allowed = f"segments by arms: 2 to {LARGEST} arms, 1 to {LARGEST} segments"
        raise InvalidArgumentError("scores", given.shape, allowed)
    share = _shares(shares, given.shape[0])
    nano = nano_down(check.single("budget", check.nonnegative("budget", budget)))
    return _gated(given, share, nano, kind)


class GateRule(TableRule):
    """Makes tables that follow the scores of an external model.

    Until the model has sent scores, all segments have the same probabilities. The segments' shares
    are those of the visitors so far, plus one for each. The zero row is the mean of the segments'
    rows.

    >>> counts = Counts([[0, 0], [0, 0]], [[0, 0], [0, 0]])
    >>> GateRule.table((10**9, 10**9), counts).zero == (2**63, 2**63)
    True
    """

    name: ClassVar[str] = "gate"
    title: ClassVar[str] = "Gate"
    description: ClassVar[str] = "follows the scores of a model that you have"
    grade: ClassVar[Grade] = "given the time"
    largest: ClassVar[int | None] = LARGEST
    arm_budgets: ClassVar[bool] = False
    follows_scores: ClassVar[bool] = True

    @classmethod
    def table(
        cls, budgets: Row, counts: Counts, *, across_time: bool = False, band: Band | None = None
    ) -> Table:
        """See TableRule."""
        cls.check_size(len(budgets), len(counts.shows))
        found = cls.gated(budgets, counts)
        if found is None:
            share, odd = divmod(SPACE, len(budgets))
            even = tuple(share + (arm < odd) for arm in range(len(budgets)))
            return Table((even,) * len(counts.shows), even)
        return Table(found.rows, mean_row(found.rows, _weights(counts)))

    @classmethod
    def gated(cls, budgets: Row, counts: Counts) -> Gated | None:
        """Return the gate's result for the model's scores; None if there are none."""
        if counts.wanted is None:
            return None
        given, share, kind = _normalised(counts)
        return _gated(given, share, min(budgets), kind)

    @classmethod
    def replays(cls, published: Table, made: Table, counts: Counts) -> bool:
        """Whether it is as good for the model as the auditor's own, to 1e-9; see `JointStrategy`."""
        if published == made:
            return True
        if counts.wanted is None or published.zero != mean_row(published.rows, _weights(counts)):
            return False
        given, share, kind = _normalised(counts)
        if kind == "scores":
            given = _unit(given)
        ours, theirs = (_value(given, share, table.rows, kind) for table in (made, published))
        return abs(ours - theirs) <= _SAME_VALUE


def _gated(given: FloatArray, share: FloatArray, nano: int, kind: Kind) -> Gated:
    """Return the table for a model's wishes, (segments, arms), with shares that sum to 1."""
    solved = _best(given, share, nano) if kind == "scores" else _nearest(given, share, nano)
    rows = integer_table(solved.T.tolist(), nano)
    wanted = float(share @ given.max(axis=1)) if kind == "scores" else 1.0
    return Gated(rows, wanted, min(_value(given, share, rows, kind), wanted))


def _value(given: FloatArray, share: FloatArray, rows: Rows, kind: Kind) -> float:
    """Return the value of rows to the model: the expected score, or the share shown what it wanted."""
    table = np.array([[part / SPACE for part in row] for row in rows])
    got = given * table if kind == "scores" else np.minimum(given, table)
    return float(share @ got.sum(axis=1))


def _weights(counts: Counts) -> list[int]:
    """Return the visitors of each segment, plus one."""
    return [sum(row) + 1 for row in counts.shows]


def _normalised(counts: Counts) -> tuple[FloatArray, FloatArray, Kind]:
    """Return what the model wants of the active arms, the segments' shares, and the kind."""
    assert counts.wanted is not None
    given = np.array(counts.wanted.rows, dtype=np.float64)
    weights = np.array(_weights(counts), dtype=np.float64)
    if counts.wanted.kind == "probabilities":  # arms may have been switched off since then
        sums = given.sum(axis=1, keepdims=True)
        given = np.where(sums > 0, given / np.where(sums > 0, sums, 1.0), 1 / given.shape[1])
    return given, weights / weights.sum(), counts.wanted.kind


def _shares(shares: ArrayLike | None, n_segments: int) -> FloatArray:
    if shares is None:
        return np.full(n_segments, 1 / n_segments)
    share = check.nonnegative("shares", shares)
    if share.shape != (n_segments,) or abs(share.sum() - 1) > 1e-9:
        raise InvalidArgumentError("shares", shares, f"{n_segments} shares that sum to 1")
    return np.asarray(share / share.sum())


def _best(scores: FloatArray, share: FloatArray, nano: int) -> FloatArray:
    """Return the table with the highest expected score. The scores' unit and origin do not matter."""
    from deniable.strategies.joint_lp import best_table

    return best_table(_unit(scores).T, share, nano / 1e9).table.T


def _unit(scores: FloatArray) -> FloatArray:
    """Scale the scores to [0, 1]."""
    lowest = scores.min()
    return np.asarray((scores - lowest) / ((scores.max() - lowest) or 1.0))


def _nearest(wanted: FloatArray, share: FloatArray, nano: int) -> FloatArray:
    """Return the table with the least share-weighted total variation distance, using HiGHS.

    Unknowns: P(segment, arm), the part m(segment, arm) <= P and <= wanted that is shown as wanted,
    and a level l(arm) with l <= P <= e^budget l. The sum of the m is maximized.
    """
    require("scipy", extra="data")
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, eye_array, hstack, kron, vstack

    if wanted.min() < 0 or abs(wanted.sum(axis=1) - 1).max() > 1e-9:
        raise InvalidArgumentError("scores", "...", "probabilities, each row summing to 1")
    n_segments, n_arms = wanted.shape
    cells = n_segments * n_arms
    weakest = float(np.exp(-nano / 1e9))
    each = eye_array(cells)
    none = coo_array((cells, cells))
    level = kron(np.ones((n_segments, 1)), eye_array(n_arms))
    above = hstack([each * weakest, none, -level])  # e^-budget P <= l
    below = hstack([-each, none, level])  # l <= P
    shown = hstack([-each, each, coo_array((cells, n_arms))])  # m <= P
    sums = hstack(
        [
            kron(eye_array(n_segments), np.ones((1, n_arms))),
            coo_array((n_segments, cells + n_arms)),
        ]
    )
    worth = np.repeat(share, n_arms)
    solved = linprog(
        np.concatenate([np.zeros(cells), -worth, np.zeros(n_arms)]),
        A_ub=vstack([above, below, shown]).tocsr(),
        b_ub=np.zeros(3 * cells),
        A_eq=sums.tocsr(),
        b_eq=np.ones(n_segments),
        bounds=[(0, 1)] * cells + [(0, cap) for cap in wanted.ravel()] + [(0, 1)] * n_arms,
        method="highs",
    )
    table = np.clip(solved.x[:cells].reshape(wanted.shape), 0, 1)
    return np.asarray(table / table.sum(axis=1, keepdims=True))
