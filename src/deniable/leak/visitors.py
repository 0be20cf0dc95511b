"""Joins the exposures of each visitor over a whole log, in memory that does not grow with it.

Exposures are written to temporary files by the visitor's hash, so that all of a visitor's exposures
are in one file; the files are then read one at a time. The first pass keeps and counts each
visitor's first exposure to each experiment; the second yields visitors with all their cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from deniable._validation import FloatArray
from deniable.leak.folds import FOLDS, MOMENTS, added

N_FILES = 64
_HALF_BIT = np.uint64(1)
_FOLD_BITS = np.uint64(FOLDS - 1)  # the lowest bits; the lowest one is the half
_FILE_SHIFT = np.uint64(58)  # 64 files, by the top six bits; the halves use the lowest bit
_Ints = NDArray[np.int64]


class VisitorFiles:
    """Temporary files of exposures by visitor, deleted when the context exits.

    Attributes:
        visitors: number of distinct visitors, available after `settle`.
        changed_variant: visitor-experiment pairs in which more than one variant was shown.
        changed_segment: visitor-experiment pairs with more than one segment.
        by_segment: visitors of each half by the segment they were first seen with, shape (2, J).
        binary: whether every sum of a visitor's rewards in an experiment is 0 or 1.
    """

    def __init__(self) -> None:
        self.visitors = 0
        self.changed_variant = 0
        self.changed_segment = 0
        self.binary = True
        self.by_segment: FloatArray = np.zeros((2, 0))
        self._last_time: int | None = None
        self._in_order = True
        self._kind: np.dtype[np.void] | None = None
        self._folder = TemporaryDirectory(prefix="deniable-leak-")
        self._files = [(Path(self._folder.name) / f"{i:02}").open("wb") for i in range(N_FILES)]

    def __enter__(self) -> VisitorFiles:
        return self

    def __exit__(self, *raised: object) -> None:
        for file in self._files:
            file.close()
        self._folder.cleanup()

    def add(
        self,
        visitor: NDArray[np.uint64],
        cell: _Ints,
        time: NDArray[np.int64] | None,
        reward: FloatArray | None,
        propensity: FloatArray | None = None,
    ) -> None:
        """Write exposures in the order of the log."""
        fields: dict[str, tuple[NDArray[np.uint64] | _Ints | FloatArray, str]] = {
            "visitor": (visitor, "<u8"),
            "cell": (cell, "<i4"),
        }
        if time is not None:
            fields["time"] = (time, "<i8")
            self._in_order &= bool((time[1:] >= time[:-1]).all())
            self._in_order &= self._last_time is None or bool(time[0] >= self._last_time)
            self._last_time = int(time[-1])
        if reward is not None:
            fields["reward"] = (reward, "<f8")
        if propensity is not None:
            fields["propensity"] = (propensity, "<f8")
        self._kind = np.dtype([(name, kind) for name, (_, kind) in fields.items()])
        file = (visitor >> _FILE_SHIFT).astype(np.uint8)
        order = np.argsort(file, kind="stable")
        records = np.empty(visitor.size, dtype=self._kind)
        for name, (values, _) in fields.items():
            records[name] = values[order]
        bounds = np.searchsorted(file[order], np.arange(N_FILES + 1))
        for place, target in enumerate(self._files):
            target.write(records[bounds[place] : bounds[place + 1]].tobytes())

    def settle(self, cells: _Ints) -> FloatArray:
        """Keep first exposures and count them.

        Args:
            cells: experiment, segment and variant of each cell, shape (C, 3).

        Returns:
            sums over visitors by fold and cell, shape (moments, folds, C).
        """
        sums = np.zeros((len(MOMENTS), FOLDS, len(cells)))
        self.by_segment = np.zeros((2, int(cells[:, 1].max()) + 1))
        for file in self._files:
            file.close()
            path = Path(file.name)
            records = np.fromfile(path, dtype=self._kind)
            kept = self._first_exposures(records, cells, sums)
            path.write_bytes(kept.tobytes())
        return sums

    def _first_exposures(
        self, records: NDArray[np.void], cells: _Ints, sums: FloatArray
    ) -> NDArray[np.void]:
        kind = np.dtype([("visitor", "<u8"), ("cell", "<i4")])
        if not records.size:
            return np.empty(0, dtype=kind)
        experiment = cells[records["cell"], 0]
        # Stable, so that the log's own order decides if times are equal, missing or sorted.
        timed = "time" in (records.dtype.names or ()) and not self._in_order
        by_time = (records["time"],) if timed else ()
        order = np.lexsort((*by_time, experiment, records["visitor"]))
        visitor, cell, experiment = (
            records["visitor"][order],
            records["cell"][order],
            experiment[order],
        )
        new = np.ones(order.size, dtype=bool)
        new[1:] = visitor[1:] != visitor[:-1]
        self.visitors += int(new.sum())
        people = np.flatnonzero(new)
        sides = (visitor[people] & _HALF_BIT).astype(np.int64)
        np.add.at(self.by_segment, (sides, cells[cell[people], 1]), 1)
        new[1:] |= experiment[1:] != experiment[:-1]
        starts = np.flatnonzero(new)
        first, group = cell[starts], np.cumsum(new) - 1
        for column, name in ((2, "changed_variant"), (1, "changed_segment")):
            differs = cells[cell, column] != cells[first, column][group]
            changed = int(np.logical_or.reduceat(differs, starts).sum())
            setattr(self, name, getattr(self, name) + changed)
        names = records.dtype.names or ()
        reward = np.zeros(starts.size)
        if "reward" in names:
            reward = np.add.reduceat(records["reward"][order], starts)
            self.binary &= bool(((reward == 0) | (reward == 1)).all())
        place = (visitor[starts] & _FOLD_BITS).astype(np.int64) * len(cells) + first
        shown = order[starts]
        sums += added(
            place,
            sums[0].shape,
            np.ones(starts.size),
            reward,
            reward**2,
            propensity=records["propensity"][shown] if "propensity" in names else None,
            time=records["time"][shown] if "time" in names else None,
        )
        kept = np.empty(starts.size, dtype=kind)
        kept["visitor"], kept["cell"] = visitor[starts], first
        return kept

    def joined(self) -> Iterator[tuple[_Ints, _Ints, _Ints]]:
        """Yield visitors in pieces after `settle`: their half, the starts of their cells, the cells."""
        for file in self._files:
            kept = np.fromfile(file.name, dtype=[("visitor", "<u8"), ("cell", "<i4")])
            if not kept.size:
                continue
            visitor = kept["visitor"]
            starts = np.flatnonzero(np.r_[True, visitor[1:] != visitor[:-1]])
            half = (visitor[starts] & _HALF_BIT).astype(np.int64)
            yield half, starts, kept["cell"].astype(np.int64)
