"""Finds visitors with two decisions, exactly, in memory that does not grow with the log.

Visitors are keyed HMACs that differ between experiments. They are written to files by their first
bits, with their row numbers; then each file is sorted separately.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Self

import numpy as np

from deniable.audit.log_links import Bytes, Ints

_FILES = 64
_RECORD = np.dtype([("first", ">u8"), ("second", ">u8"), ("row", "<i8")])


class Visitors:
    """Use in a `with` statement, which deletes the files at the end."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="deniable-audit-")
        self._files = [(Path(self._folder.name) / str(i)).open("w+b") for i in range(_FILES)]

    def add(self, visitors: Bytes, rows: Ints) -> None:
        """Add the visitors of some decisions, (n, 16), and their row numbers."""
        records = np.empty(rows.size, dtype=_RECORD)
        halves = np.ascontiguousarray(visitors).view(">u8")
        records["first"], records["second"], records["row"] = halves[:, 0], halves[:, 1], rows
        place = visitors[:, 0] // (256 // _FILES)
        order = np.argsort(place, kind="stable")
        ends = np.searchsorted(place[order], np.arange(_FILES + 1))
        for file, start, end in zip(self._files, ends[:-1], ends[1:], strict=True):
            file.write(records[order[start:end]].tobytes())

    def first_twice(self) -> tuple[int, int] | None:
        """Return the rows of the first repeated decision and of its predecessor, or None."""
        best: tuple[int, int] | None = None
        for file in self._files:
            file.seek(0)
            records = np.frombuffer(file.read(), dtype=_RECORD)
            keys = records["first"].astype(np.uint64)
            order = np.argsort(keys, kind="stable")
            same = keys[order][1:] == keys[order][:-1]
            some = records[np.unique(np.concatenate([order[1:][same], order[:-1][same]]))]
            some = some[np.lexsort((some["row"], some["second"], some["first"]))]
            again = (some["first"][1:] == some["first"][:-1]) & (
                some["second"][1:] == some["second"][:-1]
            )
            for place in np.flatnonzero(again).tolist():
                found = (int(some["row"][place + 1]), int(some["row"][place]))
                best = found if best is None else min(best, found)
        return best

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for file in self._files:
            file.close()
        self._folder.cleanup()
