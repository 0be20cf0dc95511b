"""Which segments may be shown separately: those with enough visitors of every active arm.

If only one segment would be hidden, the next smallest is hidden too, so that its figures cannot be
computed as the difference from a total.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deniable._validation import FloatArray

SMALLEST_CELL = 30
"""Minimum visitors of one segment shown one arm; smaller figures are not published."""


def told_positions(shows: FloatArray, active: Sequence[bool]) -> list[int]:
    """Return the indices of the segments whose figures may be shown.

    Args:
        shows: by segment and arm; the last row is for unlisted segments, (J + 1, K).
        active: whether each arm is on.

    >>> told_positions(np.array([[90.0, 90], [80, 80], [50, 9], [0, 0]]), [True, True])
    [0]
    """
    smallest = shows[:-1, np.asarray(active)].min(axis=1)
    visible = [i for i in range(len(smallest)) if smallest[i] >= SMALLEST_CELL]
    unlisted = 0 < shows[-1].sum() < SMALLEST_CELL
    if visible and len(smallest) - len(visible) + unlisted == 1:
        visible.remove(min(visible, key=lambda i: float(shows[i].sum())))
    return visible
