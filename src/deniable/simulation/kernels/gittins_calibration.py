"""The Bernoulli Gittins index by calibration: the certain payment that is as good as continuing.

With payment x for each visitor, D(s, n) is the value over being paid forever, in units of clicks per
visitor, after s clicks in n shows of an arm with a Beta(1, 1) prior and posterior mean m = (s+1)/(n+2):

    A(s, n) = (1 - discount) (m - x) + discount [m D(s+1, n+1) + (1-m) D(s, n+1)],  D = max(0, A).

The index of (s, n) is the x at which A(s, n) = 0. One backward sweep from the horizon goes through
all states for one x. Only states near m = x need it: further up it is never best to stop (D = m - x),
further down it is never best to continue (D = 0).
"""

from __future__ import annotations

import math

import numpy as np

from deniable._compile import compiled
from deniable.simulation.kernels.state import FloatArray, IntArray

_BAND = 6.5  # standard deviations of the posterior mean around x that are swept


@compiled
def _edges(payment: float, shows: int) -> tuple[int, int]:
    width = _BAND * math.sqrt(payment * (1.0 - payment) * (shows + 2.0)) + _BAND
    middle = payment * (shows + 2.0) - 1.0
    low = max(0, int(middle - width))
    return min(low, shows), min(shows, int(middle + width))


@compiled
def sweep(
    payment: float,
    discount: float,
    horizon: int,
    start: int,
    values: FloatArray,
    edge_at: IntArray,
    edges: FloatArray,
    previous: float,
    before: FloatArray,
    indices: FloatArray,
) -> None:
    """Sweep backwards from D at the horizon to A at `start` shows, in place.

    The index is recorded at some n, in one of two ways: as the real s with A(s, n) = 0 for this
    payment, or, if payments are closely spaced, for each s as the payment at which A(s, n) crosses
    0 between the previous payment and this one.

    Args:
        payment: x.
        discount: in (0, 1).
        horizon: shows at which the sweep starts.
        start: shows at which it ends.
        values: D(s, horizon), becomes A(s, start), (horizon + 2,).
        edge_at: the n at which to record the index, ascending, (N,).
        edges: receives the real s with A(s, n) = 0 at each of them, or nan, (N,).
        previous: the previous payment, below this one.
        before: A(s, n) at the previous payment, replaced by that at this one, (N, any).
        indices: receives the index of each s whose A crosses 0, (N, any); or (N, 0) for none.
    """
    low, high = _edges(payment, horizon)
    due = edge_at.size - 1
    for n in range(horizon - 1, start - 1, -1):
        # The neighbours just outside the swept band of n + 1.
        values[high + 1] = max(0.0, (high + 2.0) / (n + 3.0) - payment)
        if low > 0:
            values[low - 1] = 0.0
        low, high = _edges(payment, n)
        recording = due >= 0 and edge_at[due] == n
        if not recording and n > start:
            _sweep_row(payment, discount, n, low, high, values)
            continue
        noting = recording and indices.shape[1] > 0
        row = due
        if recording:
            edges[due] = np.nan
            due -= 1
        below, chord = 0.0, 0.0
        first, at_first = -1, 0.0  # the smallest s at which continuing is better, and A there
        for s in range(low, high + 1):
            m = (s + 1.0) / (n + 2.0)
            going_on = (1.0 - discount) * (m - payment) + discount * (
                m * values[s + 1] + (1.0 - m) * values[s]
            )
            values[s] = max(0.0, going_on) if n > start else going_on
            if noting:
                old = before[row, s]
                if going_on <= 0.0 and old > 0.0:
                    part = going_on / (going_on - old)
                    indices[row, s] = payment - (payment - previous) * part
                before[row, s] = going_on
            if recording and first >= 0:
                # Between s - 1 and s, A bends from a flat line to a steep one, so the root lies
                # between those of the chord and of the steep line. Take the midpoint.
                steep = min(at_first / (going_on - at_first), 1.0)
                edges[due + 1] = first - 0.5 * (steep + chord) if first > low else first - steep
                recording = False
            elif recording and going_on > 0.0:
                first, at_first = s, going_on
                chord = going_on / (going_on - below)
            below = going_on
    for s in range(low):
        values[s] = (1.0 - discount) * ((s + 1.0) / (start + 2.0) - payment)
    for s in range(high + 1, start + 1):
        values[s] = (s + 1.0) / (start + 2.0) - payment


@compiled
def _sweep_row(
    payment: float, discount: float, n: int, low: int, high: int, values: FloatArray
) -> None:
    """Compute D(s, n) for s from `low` to `high`, in place of D(s, n + 1).

    Nearly all rows are of this kind. A loop without recording is vectorised.
    """
    for s in range(low, high + 1):
        m = (s + 1.0) / (n + 2.0)
        going_on = (1.0 - discount) * (m - payment) + discount * (
            m * values[s + 1] + (1.0 - m) * values[s]
        )
        values[s] = going_on if going_on > 0.0 else 0.0


@compiled
def without_learning(payment: float, shows: int, out: FloatArray) -> None:
    """Compute D if nothing more is learnt: max(0, m - x)."""
    for s in range(shows + 1):
        out[s] = max(0.0, (s + 1.0) / (shows + 2.0) - payment)


@compiled
def _neighbour(payment: float, count: int) -> tuple[int, float]:
    """Return the index of the last payment below this one, and the distance to the next."""
    angle = math.asin(math.sqrt(payment)) / (math.pi / 2) * count - 0.5
    k = min(max(math.floor(angle), 0), count - 2)
    return k, min(max(angle - k, 0.0), 1.0)


@compiled
def beside(
    payment: float, payments: FloatArray, table: FloatArray, shows: int, out: FloatArray
) -> None:
    """Like `between`, for payments so close to each other that A is read at s itself."""
    k, part = _neighbour(payment, payments.size)
    for s in range(shows + 1):
        out[s] = max(0.0, (1.0 - part) * table[k, s] + part * table[k + 1, s])


@compiled
def between(
    payment: float, payments: FloatArray, table: FloatArray, shows: int, out: FloatArray
) -> None:
    """Interpolate D(s, n) at a payment from A at the neighbouring payments.

    In units of the posterior's standard deviation, A hardly changes with the payment, so it is read
    at the same distance from the payment in those units. D has a kink where A is 0, but A does not.

    Args:
        payment: x.
        payments: sin^2 of evenly spaced angles, ascending, (P,).
        table: A(s, n) at each of them, (P, n + 1).
        shows: n.
        out: receives D(s, n) at x, (n + 1,).
    """
    k, part = _neighbour(payment, payments.size)
    scale = math.sqrt(payment * (1.0 - payment))
    for s in range(shows + 1):
        m = (s + 1.0) / (shows + 2.0)
        total = 0.0
        for side in range(2):
            x = payments[k + side]
            own = math.sqrt(x * (1.0 - x))
            place = (x + (m - payment) / scale * own) * (shows + 2.0) - 1.0
            i = min(max(int(place), 0), shows - 1)
            read = table[k + side, i] + (place - i) * (table[k + side, i + 1] - table[k + side, i])
            total += (part if side == 1 else 1.0 - part) * read / own
        out[s] = max(0.0, total * scale, m - payment)


@compiled
def first_indices(
    discount: float,
    payments: FloatArray,
    later: FloatArray,
    steps: int,
    before: FloatArray,
    values: FloatArray,
    out: FloatArray,
) -> None:
    """Compute the index of every state with few shows, from A one show later at some payments.

    Each step sweeps the few shows at one payment and records the states whose A has just crossed 0.

    Args:
        discount: in (0, 1).
        payments: ascending, (P,).
        later: A(s, N) at each of them, (P, N + 1).
        steps: number of payments to try.
        before: initially ones: A of each state at the previous payment, (N, N).
        values: scratch space, (N + 1,) or more.
        out: initially ones; receives the indices by shows and clicks, (N, N).
    """
    size = out.shape[0]
    previous = 0.0
    for step in range(steps):
        payment = math.sin((step + 0.5) / steps * (math.pi / 2)) ** 2
        beside(payment, payments, later, size, values)
        for n in range(size - 1, -1, -1):
            for s in range(n + 1):
                m = (s + 1.0) / (n + 2.0)
                going_on = (1.0 - discount) * (m - payment) + discount * (
                    m * values[s + 1] + (1.0 - m) * values[s]
                )
                values[s] = max(0.0, going_on)
                old = before[n, s]
                if going_on <= 0.0 and old > 0.0:
                    out[n, s] = payment - (payment - previous) * going_on / (going_on - old)
                before[n, s] = going_on
        previous = payment
