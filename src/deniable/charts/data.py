"""Columns as chart data, without a data-frame library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import altair as alt
import numpy as np


def rows(**columns: Any) -> list[dict[str, Any]]:
    """Records from columns that broadcast against each other; numbers become plain floats.

    >>> rows(budget=[1, 2], strategy="dynamic")
    [{'budget': 1.0, 'strategy': 'dynamic'}, {'budget': 2.0, 'strategy': 'dynamic'}]
    """
    arrays = np.broadcast_arrays(*(np.asarray(column) for column in columns.values()))
    plain = [_plain(array.ravel()) for array in arrays]
    return [dict(zip(columns, values, strict=True)) for values in zip(*plain, strict=True)]


def values(*groups: Iterable[Mapping[str, Any]]) -> alt.Data:
    """Chart data from records, or from several lists of them."""
    return alt.Data(values=[dict(record) for group in groups for record in group])


def powers_of_ten(largest: float) -> list[float]:
    """Ticks of a logarithmic axis from 1 on; a grid line at each power is enough.

    >>> powers_of_ten(20_000)
    [1.0, 10.0, 100.0, 1000.0, 10000.0]
    """
    return [10.0**power for power in range(int(np.log10(max(largest, 1)) + 1e-9) + 1)]


def _plain(array: Any) -> list[Any]:
    if array.dtype.kind in "iuf":
        return [float(x) if np.isfinite(x) else None for x in array]
    return [str(x) for x in array]
