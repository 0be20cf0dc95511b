"""The decision log as arrays: what the trusted store recorded about each visitor, oldest first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deniable.errors import NANO, InvalidTableError

if TYPE_CHECKING:
    import polars as pl

    from deniable.audit.promise import Promise

Ints: TypeAlias = NDArray[np.int64]

UNLISTED = -1
NO_REWARD = -1
COLUMNS = ("visitor", "segment", "greedy", "shown", "clock", "risk_nano", "version")


@dataclass(frozen=True, eq=False)
class DecisionLog:
    """One entry a decision, in order of time.

    Attributes:
        visitor: a number for each visitor: equal numbers, equal visitors.
        segment: its position, or UNLISTED.
        greedy: the position of the segment's greedy arm.
        shown: the position of the shown arm.
        clock: the visitor's place in its segment (or experiment).
        risk_nano: the privacy risk that the visitor was given.
        version: the experiment's version.
        reward: 0 or 1, or NO_REWARD.
    """

    visitor: Ints
    segment: Ints
    greedy: Ints
    shown: Ints
    clock: Ints
    risk_nano: Ints
    version: Ints
    reward: Ints

    @property
    def size(self) -> int:
        """How many decisions."""
        return int(self.shown.size)

    def where(self, chosen: NDArray[np.bool_]) -> DecisionLog:
        """The chosen decisions, in the same order."""
        return DecisionLog(
            *(
                column[chosen]
                for column in (
                    self.visitor,
                    self.segment,
                    self.greedy,
                    self.shown,
                    self.clock,
                    self.risk_nano,
                    self.version,
                    self.reward,
                )
            )
        )

    @classmethod
    def from_frame(cls, frame: pl.DataFrame, promise: Promise) -> DecisionLog:
        """From a Polars frame with COLUMNS and, optionally, `reward`, one row a decision.

        Arms and segments may be positions or names; a segment that is missing or not listed is
        UNLISTED. Risks may be given as `risk` in nats instead of `risk_nano`. Rows of erased
        visitors, which hold nothing, are left out.
        """
        import polars as pl

        if "risk_nano" not in frame.columns and "risk" in frame.columns:
            frame = frame.with_columns((pl.col("risk") * NANO).round().alias("risk_nano"))
        missing = [name for name in COLUMNS if name not in frame.columns]
        if missing:
            raise InvalidTableError([(0, f"the log has no column {name!r}") for name in missing])
        kept = frame.filter(pl.col("shown").is_not_null())
        visitors = kept["visitor"].rank("dense").fill_null(0).cast(pl.Int64).to_numpy()
        reward = kept["reward"] if "reward" in kept.columns else pl.Series([None] * kept.height)
        log = cls(
            visitor=visitors,
            segment=_places(kept["segment"], promise.segments),
            greedy=_places(kept["greedy"], promise.arms),
            shown=_places(kept["shown"], promise.arms),
            clock=_whole(kept["clock"]),
            risk_nano=_whole(kept["risk_nano"]),
            version=_whole(kept["version"]),
            reward=_whole(reward.cast(pl.Int64).fill_null(NO_REWARD)),
        )
        _check(log, promise)
        return log


def _whole(column: pl.Series) -> Ints:
    import polars as pl

    return np.asarray(column.cast(pl.Int64).to_numpy(), dtype=np.int64)


def _places(column: pl.Series, names: Iterable[str]) -> Ints:
    """Positions of names; numbers are positions already; what is unknown is -1."""
    import polars as pl

    if column.dtype.is_integer():
        return _whole(column.fill_null(UNLISTED))
    places = {name: place for place, name in enumerate(names)}
    mapped = column.cast(pl.String).replace_strict(places, default=UNLISTED, return_dtype=pl.Int64)
    return _whole(mapped.fill_null(UNLISTED))


def _check(log: DecisionLog, promise: Promise) -> None:
    problems: list[tuple[int, str]] = []

    def find(bad: Any, message: str) -> None:
        rows = np.flatnonzero(bad)
        if rows.size:
            problems.append((int(rows[0]) + 1, f"row {rows[0] + 1}: {message}"))

    arms = len(promise.arms)
    find((log.shown < 0) | (log.shown >= arms), "the shown arm is not one of the experiment's")
    find((log.greedy < 0) | (log.greedy >= arms), "the greedy arm is not one of the experiment's")
    find(log.segment >= len(promise.segments), "the segment is not one of the experiment's")
    find(log.risk_nano < 0, "the risk is below 0")
    find(log.clock < 1, "the clock is below 1")
    find(~np.isin(log.version, list(promise.versions)), "the version is unknown")
    if problems:
        raise InvalidTableError(problems)
