"""Checks a file of labels: every label recomputed, and the frequencies against the channel.

Recomputing proves that the labels are those of the key and of the segments or first values. It does not
prove that the key is random, or that the channel was used for all visitors: the frequencies of
labels by group show that, as far as the number of visitors allows. `power` says how far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deniable._extras import require
from deniable.errors import InvalidArgumentError
from deniable.masks.files import LabelFileError, read_batches, read_first_values, visitor_hash
from deniable.masks.mask import Mask

ALARM = 1e-9
"""A p-value below it is an alarm."""

_POWER = 0.99
_MOST_VISITORS = 2_000_000


@dataclass(frozen=True)
class LabelAudit:
    """What an audit of labels says.

    Attributes:
        rows: rows read.
        wrong: rows whose label is not the recomputed one.
        first_wrong: the number of the first of them, from 1.
        two_labels: rows whose visitor had another label before, because its segment changed.
        unchecked: rows whose segment is not known, so that any label is possible.
        p_value: of the frequencies of labels by group, given the channel.
        power: the relative error of the own label's probability that the frequencies would show
            with 99% probability, such as 0.02 for 2%; infinite without visitors.
    """

    rows: int
    wrong: int
    first_wrong: int | None
    two_labels: int
    unchecked: int
    p_value: float
    power: float

    @property
    def kept(self) -> bool:
        """Whether all labels are as recomputed, and as frequent as the channel says."""
        return self.wrong == 0 and self.p_value >= ALARM


def audit_labels(
    mask: Mask,
    path: str | Path,
    *,
    key: bytes,
    visitor: str = "visitor",
    segment: str | None = "segment",
    first_values: str | Path | None = None,
    progress: Callable[[int], None] = lambda rows: None,
) -> LabelAudit:
    """Recompute every label of a file, and test the frequencies.

    Args:
        mask: whose labels.
        path: a file with the columns `visitor` and `<mask>_label`.
        key: the mask's key.
        visitor: the column with the visitor's id.
        segment: the column with the segment; None if the file has none.
        first_values: the file of first values; it overrides the segment.
        progress: called with the number of rows read so far.
    """
    if segment is None and first_values is None:
        raise InvalidArgumentError("first_values", None, "a file, where there is no segment column")
    firsts = None if first_values is None else _first_groups(mask, Path(first_values))
    column = f"{mask.name}_label"
    names = {label: number for number, label in enumerate(mask.labels_in_order)}
    null = len(names)
    sample = _Sample()
    rows = wrong = unchecked = 0
    first_wrong: int | None = None
    for batch in read_batches(Path(path), [visitor, column, *([segment] if segment else [])]):
        segments = batch[segment].to_list() if segment else [None] * batch.height
        for identifier, label, value in zip(
            batch[visitor].to_list(), batch[column].to_list(), segments, strict=True
        ):
            rows += 1
            hashed = visitor_hash(key, mask.name, identifier)
            group = mask.group_number(value) if firsts is None else firsts.get(hashed, null)
            if label not in names or mask.label_of_group(identifier, group) != label:
                wrong += 1
                first_wrong = first_wrong or rows
            else:
                sample.add(hashed, group, names[label])
            unchecked += group == null
        progress(rows)
    if rows == 0:
        raise LabelFileError(f"{path}: no rows")
    p_value, power = frequency_test(sample.counts(null), mask)
    return LabelAudit(rows, wrong, first_wrong, sample.two_labels, unchecked, p_value, power)


class _Sample:
    """Visitors with their group and label; at most `_MOST_VISITORS`, chosen by their hash."""

    def __init__(self) -> None:
        self._drawn: dict[bytes, tuple[int, int]] = {}
        self._limit = 1 << 16
        self.two_labels = 0

    def add(self, hashed: bytes, group: int, label: int) -> None:
        if int.from_bytes(hashed[:2], "big") >= self._limit:
            return
        kept = self._drawn.setdefault(hashed, (group, label))
        self.two_labels += kept[1] != label
        if len(self._drawn) > _MOST_VISITORS:
            self._limit //= 2
            self._drawn = {
                hashed: drawn
                for hashed, drawn in self._drawn.items()
                if int.from_bytes(hashed[:2], "big") < self._limit
            }

    def counts(self, n_labels: int) -> NDArray[np.int64]:
        """Visitors by group (row, the null row last) and label (column)."""
        counts = np.zeros((n_labels + 1, n_labels), dtype=np.int64)
        for group, label in self._drawn.values():
            counts[group, label] += 1
        return counts


def frequency_test(
    counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]], mask: Mask
) -> tuple[float, float]:
    """Return the p-value of label counts by group, and the relative error that they would show.

    Args:
        counts: visitors by group (row, the null row last) and label (column).
        mask: whose channel is expected.
    """
    require("scipy", extra="data")
    from scipy import stats

    channel = np.array(mask.entries, dtype=np.float64) / 2.0**64
    expected = counts.sum(axis=1, keepdims=True) * channel
    used = counts.sum(axis=1) > 0
    if not used.any():
        return 1.0, float("inf")
    statistic = float(((counts - expected)[used] ** 2 / expected[used]).sum())
    freedom = int(used.sum()) * (channel.shape[1] - 1)
    p_value = float(stats.chi2.sf(statistic, freedom))
    # Own labels more frequent by a factor 1 + r, the others fewer in proportion: each visitor of a
    # group adds r^2 own^2 (1/own + 1/(1 - own)) to the noncentrality.
    own = channel[0, 0]
    visitors = int(counts[:-1].sum())
    alarm = float(stats.chi2.isf(ALARM, freedom))
    low, high = 0.0, 1e9
    for _ in range(200):
        middle = (low + high) / 2
        found = stats.ncx2.sf(alarm, freedom, middle) >= _POWER
        low, high = (low, middle) if found else (middle, high)
    per_visitor = own**2 * (1 / own + 1 / (1 - own))
    power = float(np.sqrt(high / (visitors * per_visitor))) if visitors else float("inf")
    return p_value, power


def _first_groups(mask: Mask, path: Path) -> dict[bytes, int]:
    frame = read_first_values(mask, path).collect()
    return dict(zip(frame["visitor"].to_list(), frame["group"].to_list(), strict=True))
