"""What is luck in the rows of the surface, by regression on what is 0 on average."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from deniable._validation import FloatArray
from deniable.expectations.surface import BEST_PRIVATE, Question, limit
from research.surface_runs import Rows

CHANCES = 5
"""What is 0 on average, and taken off, at most."""

_LEAST_NOISE, _NEAR = 0.02, 201
"""Noise of a row that is not told from none, and rows whose noise is taken as one."""


def expected_rows(name: str, share: ArrayLike, asked: Question, rows: Rows) -> FloatArray:
    """Shares of the gain with little luck in them; their means are right whatever `share` is.

    What a run gains is told in two ways that agree on average: by its clicks lost, and by the rates that
    are expected given its counts. Their difference, and by how much arms were better than usual, are 0
    on average. They are taken off, in the parts that leave the least noise, by regression; the parts
    are parabolas in how much was learned.
    """
    share = np.broadcast_to(np.asarray(share, np.float64), rows.lost.shape)
    reached = np.sqrt(asked.shared) if name == BEST_PRIVATE else limit(name, asked)
    learned = np.broadcast_to(share / np.maximum(reached, 1e-9), share.shape)
    plain = 1 - rows.lost
    known = rows.known - (1 - reached)
    found, judged = np.empty(share.shape), ~np.isnan(rows.shown)
    for where, gained, chance in (
        (~judged, plain, (known, rows.gain - 1)),
        (
            judged,
            rows.shown,
            (plain - rows.shown, rows.best, rows.usual, known, rows.gain - 1),
        ),
    ):
        if where.any():
            parts = learned[where, None] ** np.arange(3)
            luck = np.concatenate([one[where, None] * parts for one in chance], axis=1)
            found[where] = gained[where] - _luck(gained[where] - share[where], parts, luck)
    return found


def _luck(missed: FloatArray, parts: FloatArray, luck: FloatArray) -> FloatArray:
    """What `luck` explains of `missed`, beside a smooth curve of `parts`; noisy rows count less."""
    both = np.concatenate([parts, luck], axis=1)
    weight = np.ones(missed.size)
    for _ in range(3):
        fitted = np.linalg.lstsq(both * weight[:, None], missed * weight, rcond=1e-9)[0]
        near = noise_near(parts[:, 1], (missed - both @ fitted) ** 2)
        weight = 1 / np.sqrt(_LEAST_NOISE**2 + near)
    return np.asarray(luck @ fitted[parts.shape[1] :])


def noise_near(along: FloatArray, squares: FloatArray) -> FloatArray:
    """The mean of squares over the rows around each, in the order of one coordinate.

    >>> noise_near(np.arange(4.0), np.array([1.0, 3.0, 1.0, 3.0])).tolist()
    [2.0, 1.6666666666666667, 2.0, 2.3333333333333335]
    """
    order = np.argsort(along, kind="stable")
    window = np.ones(min(_NEAR, squares.size))
    sums, rows = (
        np.convolve(one, window, "same") for one in (squares[order], np.ones(squares.size))
    )
    found = np.empty(squares.size)
    found[order] = sums / rows
    return found


def noise_at(points: FloatArray, squares: FloatArray) -> FloatArray:
    """The mean of squares as a smooth function of all coordinates: the log of it is a parabola.

    Args:
        points: scaled coordinates, (rows, coordinates).
        squares: of what is missed.
    """
    products = [points[:, a] * points[:, b] for a in range(points.shape[1]) for b in range(a + 1)]
    terms = np.column_stack([np.ones(len(points)), points, *products])
    logs = np.log(squares + _LEAST_NOISE**4)
    fitted = terms @ np.linalg.lstsq(terms, logs, rcond=1e-9)[0]
    # The mean of a log is below the log of the mean, by as much everywhere if the law is the same.
    return np.asarray(np.exp(fitted) * (squares.sum() / np.exp(fitted).sum()))
