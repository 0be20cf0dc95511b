"""The decision log as arrays: the stored decisions, oldest first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deniable.errors import InvalidTableError

if TYPE_CHECKING:
    import polars as pl

    from deniable.audit.promise import Promise

Ints: TypeAlias = NDArray[np.int64]

UNLISTED = -1
NEUTRAL = -2
NO_REWARD = -1
MEMBER = 0
COLUMNS = ("visitor", "segment", "shown", "table", "role", "version")


@dataclass(frozen=True, eq=False)
class DecisionLog:
    """One entry per decision, in order of time.

    Attributes:
        visitor: a number for each visitor; equal numbers mean equal visitors.
        segment: its index, or UNLISTED.
        shown: index of the shown arm.
        table: number of the table that it was drawn from.
        role: 0 for members, who are drawn from their segment's row; others from the neutral row.
        version: the experiment's version.
        reward: 0 or more, or NO_REWARD.
    """

    visitor: Ints
    segment: Ints
    shown: Ints
    table: Ints
    role: Ints
    version: Ints
    reward: Ints

    @property
    def size(self) -> int:
        """Number of decisions."""
        return int(self.shown.size)

    @property
    def row(self) -> Ints:
        """The row that each was drawn from: a segment's index, UNLISTED or NEUTRAL."""
        return np.where(self.role == MEMBER, self.segment, NEUTRAL)

    def where(self, chosen: NDArray[np.bool_]) -> DecisionLog:
        """Return the chosen decisions, in the same order."""
        return DecisionLog(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @classmethod
    def from_frame(cls, frame: pl.DataFrame, promise: Promise) -> DecisionLog:
        """Convert a Polars frame with COLUMNS and, optionally, `reward`, with one row per decision.

        Arms and segments may be indices or names; a missing or unlisted segment is UNLISTED. Rows
        of erased visitors, which are empty, are left out.
        """
        import polars as pl

        missing = [name for name in COLUMNS if name not in frame.columns]
        if missing:
            raise InvalidTableError([(0, f"the log has no column {name!r}") for name in missing])
        kept = frame.filter(pl.col("shown").is_not_null())
        visitors = kept["visitor"].rank("dense").fill_null(0).cast(pl.Int64).to_numpy()
        reward = kept["reward"] if "reward" in kept.columns else pl.Series([None] * kept.height)
        log = cls(
            visitor=visitors,
            segment=_places(kept["segment"], promise.segments),
            shown=_places(kept["shown"], promise.arms),
            table=_whole(kept["table"]),
            role=_whole(kept["role"]),
            version=_whole(kept["version"]),
            reward=_whole(reward.cast(pl.Int64).fill_null(NO_REWARD)),
        )
        _check(log, promise)
        return log


def _whole(column: pl.Series) -> Ints:
    import polars as pl

    return np.asarray(column.cast(pl.Int64).to_numpy(), dtype=np.int64)


def _places(column: pl.Series, names: Iterable[str]) -> Ints:
    """Convert names to indices. Numbers are taken as indices; unknown names become -1."""
    import polars as pl

    if column.dtype.is_integer():
        return _whole(column.fill_null(UNLISTED))
    places = {name: place for place, name in enumerate(names)}
    mapped = column.cast(pl.String).replace_strict(places, default=UNLISTED, return_dtype=pl.Int64)
    return _whole(mapped.fill_null(UNLISTED))


def _check(log: DecisionLog, promise: Promise) -> None:
    problems: list[tuple[int, str]] = []

    def find(bad: NDArray[np.bool_], message: str) -> None:
        rows = np.flatnonzero(bad)
        if rows.size:
            problems.append((int(rows[0]) + 1, f"row {rows[0] + 1}: {message}"))

    arms = len(promise.arms)
    find((log.shown < 0) | (log.shown >= arms), "the shown arm is not one of the experiment's")
    find(log.segment >= len(promise.segments), "the segment is not one of the experiment's")
    find(~np.isin(log.version, list(promise.versions)), "the version is unknown")
    known = [published.number for published in promise.tables]
    find(~np.isin(log.table, known), "the table was never published")
    if problems:
        raise InvalidTableError(problems)
