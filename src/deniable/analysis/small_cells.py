"""The small-cell rule: which segments may be shown separately.

Figures about a few visitors say something about each of them, so a segment is shown only if every
arm was shown to enough of its visitors. All that tells segments apart follows this rule: results,
health, leaderboard, risks, on pages, on the command line and over HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deniable._validation import FloatArray

SMALLEST_CELL = 30
"""Minimum visitors of one segment shown one arm; smaller figures are not published."""


def visible_segments(shows: FloatArray, active: Sequence[bool]) -> list[int]:
    """Return the indices of the segments whose figures may be shown.

    Those are the ones with enough visitors of every active arm. If only one segment would be hidden, the
    next smallest is hidden too, so that its figures cannot be computed as the difference from a total.
    Visitors of unlisted segments hide nothing: nobody's segment is known from being one of them.

    Args:
        shows: by segment and arm; the last row is for unlisted segments, (J + 1, K).
        active: whether each arm is on.

    >>> visible_segments(np.array([[90.0, 90], [80, 80], [50, 9], [0, 0]]), [True, True])
    [0]
    """
    smallest = shows[:-1, np.asarray(active)].min(axis=1)
    visible = [i for i in range(len(smallest)) if smallest[i] >= SMALLEST_CELL]
    if visible and len(smallest) - len(visible) == 1:
        visible.remove(min(visible, key=lambda i: float(shows[i].sum())))
    return visible
