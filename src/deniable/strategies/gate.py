"""A gate for the bandit that a firm has: its scores or probabilities become a table that keeps a budget.

Somebody else's model says what it wants, by segment and arm:

- scores (click rates, rewards, values of any unit): the gate gives the table with the highest expected
  score among all that keep the budget, the linear programme of `joint_lp`;
- probabilities: the gate gives the table that shows as few visitors as possible another arm than the
  model would (the least total variation distance, weighted by the shares), a linear programme too.

Either way the table is returned in integers that keep the budget in exact arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._extras import require
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.privacy.composition import nano_down
from deniable.privacy.joint_table import Rows, integer_table
from deniable.privacy.serving import SPACE
from deniable.strategies.joint_lp import LARGEST, best_table

Kind: TypeAlias = Literal["scores", "probabilities"]


@dataclass(frozen=True)
class Gated:
    """What the gate lets through.

    Attributes:
        rows: the table to draw from: for each segment one part of 2^64 for each arm. Exact.
        table: the same as probabilities, (segments, arms).
        wanted: what the model would get without the gate: its expected score, or 1.
        kept: what it gets with it: the expected score, or the share of visitors who are shown what the
            model would have shown them.

    >>> found = gate([[0.30, 0.10], [0.10, 0.30]], budget=1)
    >>> found.table.round(3).tolist(), round(found.cost, 3)
    ([[0.731, 0.269], [0.269, 0.731]], 0.054)
    """

    rows: Rows
    wanted: float
    kept: float

    @property
    def table(self) -> FloatArray:
        """The probabilities."""
        return np.array([[part / SPACE for part in row] for row in self.rows])

    @property
    def cost(self) -> float:
        """What the promise takes of what the model wanted."""
        return self.wanted - self.kept


def gate(
    scores: ArrayLike,
    shares: ArrayLike | None = None,
    budget: float = 1.0,
    *,
    kind: Kind = "scores",
) -> Gated:
    """The table nearest to what a model wants that keeps the budget.

    Args:
        scores: what the model says, (segments, arms).
        shares: of the segments among the visitors, summing to 1; equal if not given.
        budget: in nats: no arm is more than e^budget times likelier for one segment than for another.
        kind: `scores` of any unit and sign, the higher the better; or `probabilities`, each row
            summing to 1, which need the extra `data`.

    What all segments share passes freely, whatever the budget:

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
    solved = _best(given, share, nano) if kind == "scores" else _nearest(given, share, nano)
    rows = integer_table(solved.T.tolist(), nano)
    table = np.array([[part / SPACE for part in row] for row in rows])
    if kind == "scores":
        wanted, kept = share @ given.max(axis=1), share @ (given * table).sum(axis=1)
        return Gated(rows, float(wanted), min(float(kept), float(wanted)))
    return Gated(rows, 1.0, float(share @ np.minimum(given, table).sum(axis=1)))


def _shares(shares: ArrayLike | None, n_segments: int) -> FloatArray:
    if shares is None:
        return np.full(n_segments, 1 / n_segments)
    share = check.nonnegative("shares", shares)
    if share.shape != (n_segments,) or abs(share.sum() - 1) > 1e-9:
        raise InvalidArgumentError("shares", shares, f"{n_segments} shares that sum to 1")
    return np.asarray(share / share.sum())


def _best(scores: FloatArray, share: FloatArray, nano: int) -> FloatArray:
    """The table with the highest expected score, whose unit and zero do not matter."""
    lowest = scores.min()
    span = (scores.max() - lowest) or 1.0
    return best_table(((scores - lowest) / span).T, share, nano / 1e9).table.T


def _nearest(wanted: FloatArray, share: FloatArray, nano: int) -> FloatArray:
    """The table with the least share-weighted total variation distance, by HiGHS.

    Unknowns: P(segment, arm), the part m(segment, arm) <= P and <= wanted that is shown as wanted,
    and a level l(arm) with l <= P <= e^budget l. The sum of the shown parts is to be the largest.
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
