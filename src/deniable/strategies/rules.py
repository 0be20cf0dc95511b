"""The interface of whatever makes an experiment's tables, for serving, publishing and auditing.

A `TableRule` computes a table from the data that is stored with it. Strategies (`base.py`) also
provide formulas for planning.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.privacy.tables import Band, Row, Table

Grade: TypeAlias = Literal["across time", "given the time"]
GRADE_WORDS: dict[Grade, str] = {
    "across time": "The promise holds whether or not a tracker knows when a visitor first came.",
    "given the time": "The promise holds given the time of the first visit: beyond what that time "
    "tells, the arm moves odds by at most the budget's factor. An arm may be retired, which tells when "
    "somebody came.",
}
"""Description of each grade of the promise."""

LARGEST = 200
"""Maximum number of segments, and of arms, in tables made by a linear programme."""


@dataclass(frozen=True)
class Counts:
    """The input of a table: everything that the publisher stores with it.

    Attributes:
        shows: by segment and arm, integers, 0 or more.
        rewards: sums of rewards by segment and arm, in the unit of `cap`.
        cap: the largest reward of one show.
        horizon: planned number of visitors, if known.
        contexts: number of contexts. Where there are several, a row is a context, or a context and a
            label: row = context x labels + label.
    """

    shows: Sequence[Sequence[int]]
    rewards: Sequence[Sequence[int]]
    cap: int = 1
    horizon: int | None = None
    contexts: int = 1

    @property
    def visitors(self) -> int:
        """Shows of all arms and segments together."""
        return sum(map(sum, self.shows))

    @property
    def weights(self) -> list[int]:
        """The visitors of each row, plus one."""
        return [sum(row) + 1 for row in self.shows]

    def arrays(self) -> tuple[FloatArray, FloatArray]:
        """Return shows, and rewards in units of the cap, by row and arm."""
        shows = np.array(self.shows, dtype=np.float64)
        # Divided as integers, so that a sum at its cap never exceeds the shows by rounding.
        clicks = np.array([[value / self.cap for value in row] for row in self.rewards])
        return shows, np.minimum(clicks, shows)


class TableRule(ABC):
    """Makes tables from the data that is stored with them."""

    name: ClassVar[str]
    """Name in options, files and the HTTP API."""

    title: ClassVar[str]
    """Name for people, as the first word of a sentence."""

    description: ClassVar[str]
    """What it does, as a clause: no capital, no full stop."""

    grade: ClassVar[Grade]
    """Whether the promise also holds for a tracker who does not know when a visitor first came."""

    largest: ClassVar[int | None] = None
    """Maximum number of arms, and of segments, in its tables; None if there is no specific limit."""

    arm_budgets: ClassVar[bool] = True
    """Whether arms may have their own budgets."""

    bounded: ClassVar[bool] = True
    """Whether the rows of a table must keep the budget; if not, rows must not be private."""

    @classmethod
    def check_size(cls, n_arms: int, n_segments: int) -> None:
        """Raise InvalidArgumentError if the strategy cannot make tables of this size."""
        for argument, count in (("arms", n_arms), ("segments", n_segments)):
            if cls.largest is not None and count > cls.largest:
                allowed = f"at most {cls.largest} with the {cls.name} strategy"
                raise InvalidArgumentError(argument, count, allowed)

    @classmethod
    def band(cls, budgets: Row) -> Band | None:
        """Return integer limits on the entries of all tables of an experiment; None if there are none.

        Args:
            budgets: nano-nats per arm.
        """
        return None

    @classmethod
    @abstractmethod
    def table(cls, budgets: Row, counts: Counts) -> Table:
        """Return the table to publish for these counts; a pure function of its arguments.

        Args:
            budgets: nano-nats per arm.
            counts: the counts.
        """

    @classmethod
    def replays(cls, published: Table, made: Table, counts: Counts) -> bool:
        """Whether a published table is what the strategy makes from these counts.

        Args:
            published: the stored table.
            made: the result of `table` for the same arguments on the auditor's machine.
            counts: the counts that the published table names.
        """
        return published == made
