"""What makes an experiment's tables: everything that serving, publishing and auditing ask.

A `TableRule` turns what is stored with a table into the table. Strategies (`base.py`) are the rules that
learn from counts, and bring formulas for planning too; the gate (`gate.py`) follows somebody else's
model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from deniable.errors import InvalidArgumentError
from deniable.privacy.tables import Band, Row, Table

Grade: TypeAlias = Literal["across time", "given the time"]
GRADE_WORDS: dict[Grade, str] = {
    "across time": "The promise holds whether or not a watcher knows when a visitor first came.",
    "given the time": "The promise holds given the time of the first visit: beyond what that time "
    "tells, the arm moves odds by at most the budget's factor. An arm may be retired, which tells when "
    "somebody came.",
}
"""What each grade of the promise says."""

LARGEST = 200
"""The largest number of segments, and of arms, of tables that a linear programme makes."""

Kind: TypeAlias = Literal["scores", "probabilities"]


@dataclass(frozen=True)
class Wanted:
    """What somebody else's model wants, by segment and arm.

    Attributes:
        kind: scores, the higher the better; or probabilities, each row summing to 1.
        rows: one row for each segment.
    """

    kind: Kind
    rows: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Counts:
    """What a table is made from: everything that the publisher stores beside it.

    Attributes:
        shows: by segment and arm, whole numbers, 0 or more.
        rewards: sums of rewards by segment and arm, in the unit of `cap`.
        cap: the largest reward of one show.
        horizon: visitors planned for, where known.
        noise: variance of the noise in each count of shows, and of `rewards / cap`; 0 without a
            trace budget.
        wanted: what a model wants, where the rule follows one and it has said so.
    """

    shows: Sequence[Sequence[int]]
    rewards: Sequence[Sequence[int]]
    cap: int = 1
    horizon: int | None = None
    noise: float = 0.0
    wanted: Wanted | None = None

    @property
    def visitors(self) -> int:
        """Shows of all arms and segments together."""
        return sum(map(sum, self.shows))


class TableRule(ABC):
    """How tables are made from what is stored with them."""

    name: ClassVar[str]
    """What options, files and the HTTP API call it."""

    title: ClassVar[str]
    """What people call it, as the first word of a sentence."""

    description: ClassVar[str]
    """What it does, as a clause: no capital, no full stop."""

    grade: ClassVar[Grade]
    """Whether the promise also holds for a watcher that does not know when a visitor first came."""

    offers_across_time: ClassVar[bool] = False
    """Whether an experiment of the grade "given the time" can ask for "across time" instead."""

    across_time_cost: ClassVar[str] = ""
    """What that option costs, as a sentence; empty where there is none."""

    largest: ClassVar[int | None] = None
    """The most arms, and the most segments, that it makes tables for; None: no limit of its own."""

    arm_budgets: ClassVar[bool] = True
    """Whether arms may have budgets of their own."""

    follows_scores: ClassVar[bool] = False
    """Whether tables follow a model outside; what it says cannot be counted with noise, so that there
    is no trace budget."""

    @classmethod
    def grade_of(cls, across_time: bool) -> Grade:
        """The grade of an experiment that asks for "across time", or does not."""
        return "across time" if across_time and cls.offers_across_time else cls.grade

    @classmethod
    def check_size(cls, n_arms: int, n_segments: int) -> None:
        """Raise InvalidArgumentError where the strategy makes no tables of this size."""
        for argument, count in (("arms", n_arms), ("segments", n_segments)):
            if cls.largest is not None and count > cls.largest:
                allowed = f"at most {cls.largest} with the {cls.name} strategy"
                raise InvalidArgumentError(argument, count, allowed)

    @classmethod
    def band(cls, budgets: Row) -> Band | None:
        """The integers between which all tables of an experiment stay; None where there are none.

        Args:
            budgets: nano-nats, by arm.
        """
        return None

    @classmethod
    def late_band(cls, budgets: Row, counts: Counts) -> Band | None:
        """The band that an experiment across time settles for at these counts; None: not yet.

        Only asked of strategies that offer "across time" besides their own grade.
        """
        return None

    @classmethod
    @abstractmethod
    def table(
        cls, budgets: Row, counts: Counts, *, across_time: bool = False, band: Band | None = None
    ) -> Table:
        """The table to publish for these counts; a function of its arguments alone.

        Args:
            budgets: nano-nats, by arm.
            counts: what it is made from.
            across_time: whether the experiment asks for that grade.
            band: the late band once there is one: the table lies inside.
        """

    @classmethod
    def replays(cls, published: Table, made: Table, counts: Counts) -> bool:
        """Whether a published table is what the strategy makes of these counts.

        Args:
            published: as stored.
            made: what `table` returns for the same arguments on the auditor's machine.
            counts: that the published table names.
        """
        return published == made
