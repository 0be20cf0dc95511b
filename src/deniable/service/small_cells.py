"""Which segments may be told apart: only those with enough visitors of every arm that is on.

Where a single segment would stay hidden, the next smallest is hidden with it, so that no difference
from a total tells its figures.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deniable._validation import FloatArray

SMALLEST_CELL = 30
"""Visitors of one segment who were shown one arm; figures on fewer are not told."""


def told_positions(shows: FloatArray, active: Sequence[bool]) -> list[int]:
    """Positions of the segments whose figures may be shown.

    Args:
        shows: by segment and arm; the last row is that of unlisted segments, (J + 1, K).
        active: whether each arm is on.

    >>> told_positions(np.array([[90.0, 90], [80, 80], [50, 9], [0, 0]]), [True, True])
    [0]
    """
    smallest = shows[:-1, np.asarray(active)].min(axis=1)
    told = [i for i in range(len(smallest)) if smallest[i] >= SMALLEST_CELL]
    unlisted = 0 < shows[-1].sum() < SMALLEST_CELL
    if told and len(smallest) - len(told) + unlisted == 1:
        told.remove(min(told, key=lambda i: float(shows[i].sum())))
    return told
