"""Sums of an experiment's counters: the input of its tables, and of the schedule for the next one.

Counters are kept per table, because results need them so. 200 cells in 100 tables are 20,000 rows,
too many to add up for every publication. Shows of a replaced table never change, but its rewards
may still arrive. So `RunningSums` always reads the newest tables and caches cumulative sums over
the others, at the ends of blocks (`WIDTH` blocks of one size merge into one of the next). Cached
sums are discarded from the oldest table on for which this process's writer has stored a reward, and
entirely if another writer has stored anything. The result therefore always equals the sum over all
counters.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import add
from typing import NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    ScalarSelect,
    Table,
    Text,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    select,
)

from deniable.storage.records import Experiment, Role
from deniable.storage.schema import (
    COMMITMENT_CHAIN,
    Query,
    arms,
    counters,
    experiments,
    segments,
    tables,
    writers,
)

FRESH = 1
"""Tables before the one in force that are always read."""

WIDTH = 4
"""Blocks of one size that merge into one."""

LAST_TABLE = 2**31 - 1
"""Larger than any table number."""


class Sums(NamedTuple):
    """Sums over some tables of an experiment.

    Attributes:
        decisions: stored decisions of every role.
        shows: shows of members, by segment and then arm.
        rewards: the sums of their rewards, in the same order.
    """

    decisions: int
    shows: array[int]
    rewards: array[int]


class Growth(NamedTuple):
    """How much an experiment has grown since its last table."""

    decisions: int  # stored, of every role
    writers: int  # that stored some recently
    table: int  # number of the one in force; 0 before the first
    published: int  # decisions stored when it was published
    trace: bool  # whether it has a trace budget
    arms: int
    segments: int


def sums(
    connection: Connection, experiment: Experiment, first: int = 0, last: int = LAST_TABLE
) -> Sums:
    """The sums over some tables, all by default, and over all writers."""
    empty = bytes(8 * _cells(experiment))
    shows, rewards = array("q", empty), array("q", empty)
    # Grouping takes longer than the rest, and within one table only cells of several writers need it.
    row = connection.execute(
        _CELLS if first == last else _SUMS,
        {
            "identity": bytes.fromhex(experiment.id),
            "first": first,
            "last": last,
            "width": len(experiment.arms),
        },
    ).one()
    places = _numbers(row[0] or "")  # mostly the same cells again
    shown, values = ([*map(int, text.split(","))] if text else [] for text in row[1:])
    for place, count, value in zip(places, shown, values, strict=True):
        if place >= 0:
            shows[place] += count
            rewards[place] += value
    return Sums(sum(shown), shows, rewards)


@lru_cache(maxsize=64)
def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def _cells(experiment: Experiment) -> int:
    return len(experiment.segments) * len(experiment.arms)


@dataclass(slots=True)
class _Block:
    """A range of about WIDTH^size tables, with the cumulative sums up to its end."""

    first: int
    last: int
    size: int
    sums: Sums


class _Remembered:
    """The cached blocks of one experiment, and what other writers had stored at that time.

    `alone` says that they had stored nothing since the look before. `again` is the oldest table that
    has to be read once more: its new reward was told after the transaction had begun that read it, and
    may not have been seen. `replaced` are the tables behind the blocks, without the one in force.
    """

    def __init__(self) -> None:
        self.blocks: list[_Block] = []
        self.others: dict[int, int] = {}
        self.alone = False
        self.again = LAST_TABLE
        self.replaced: _Block | None = None


class RunningSums:
    """Sums of many experiments, cached between publications. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Remembered] = {}
        self._writer: int | None = None
        self._oldest: dict[bytes, int] = {}  # experiment -> the oldest table with a new reward
        self._in_doubt = False
        self._lock = threading.Lock()

    def stored(self, writer: int | None, rewarded: Mapping[bytes, int]) -> None:
        """Report what this process's writer has just stored. Called only by its thread; never blocks.

        Args:
            writer: the writer's number; None if it is unknown what was stored.
            rewarded: experiment -> the oldest table whose decisions got rewards.
        """
        if writer != self._writer:
            self._writer, self._in_doubt = writer, True
        for experiment, table in rewarded.items():
            self._oldest[experiment] = min(table, self._oldest.get(experiment, table))

    def total(self, connection: Connection, experiment: Experiment) -> Sums:
        """Return the sums over all tables of an experiment."""
        table = experiment.table_number
        with self._lock:
            identity = bytes.fromhex(experiment.id)
            if self._in_doubt:
                self._in_doubt = False
                self._known.clear()
                self._oldest[identity] = 0
            known = self._known.setdefault(identity, _Remembered())
            others = {
                writer: seq
                for writer, seq in connection.execute(_WRITERS)
                if writer != self._writer
            }
            blocks = known.blocks
            told = self._oldest.pop(identity, LAST_TABLE)
            changed = min(told, known.again)
            while blocks and blocks[-1].last >= changed:
                blocks.pop()
            known.again = told
            known.alone = others == known.others
            replaced = known.replaced if known.alone else None
            if not known.alone:
                blocks.clear()
                known.others = others
            if blocks:
                grown = len(blocks[-1].sums.shows) != _cells(experiment)
                if grown or blocks[-1].last >= table:  # or the store was restored to an older state
                    blocks.clear()
                    replaced = None
            first, last = _behind(blocks), table - FRESH - 1
            if first <= last:
                if (
                    replaced is not None
                    and (replaced.first, replaced.last) == (first, last)
                    and last < changed
                    and len(replaced.sums.shows) == _cells(experiment)
                ):  # read already, when the table behind them was in force
                    older = replaced.sums
                else:
                    older = sums(connection, experiment, first, last)
                _append(blocks, last, _with(older, blocks))
            first = _behind(blocks)
            fresh = sums(connection, experiment, first, table - 1)
            known.replaced = _Block(first, table - 1, 0, fresh)
            return _with(_sum(sums(connection, experiment, table, table), fresh), blocks)

    def alone(self, identity: bytes) -> bool:
        """Whether no other process stored anything between the last two sums of an experiment."""
        with self._lock:
            known = self._known.get(identity)
            return known is not None and known.alone

    def growth(self, connection: Connection, identity: bytes) -> Growth:
        """Return how much the experiment with this id has grown, in one statement."""
        with self._lock:
            known = self._known.get(identity)
            blocks = [] if known is None else known.blocks
            first, before = _behind(blocks), blocks[-1].sums.decisions if blocks else 0
        found = growth(connection, identity, first)
        if blocks and found.table < first:  # the store was restored to an older state
            return growth(connection, identity)
        return found._replace(decisions=found.decisions + before)


def growth(connection: Connection, identity: bytes, first: int = 0) -> Growth:
    """Return how much an experiment has grown, counting decisions from this table on."""
    row = connection.execute(_GROWTH, {"identity": identity, "first": first}).one()
    decisions, n_writers, table, published, trace, n_arms, n_segments = row
    return Growth(int(decisions), n_writers, table, int(published), bool(trace), n_arms, n_segments)


def _with(new: Sums, blocks: list[_Block]) -> Sums:
    """The sums over some tables and all that are in blocks."""
    return _sum(new, blocks[-1].sums) if blocks else new


def _sum(one: Sums, other: Sums) -> Sums:
    return Sums(
        one.decisions + other.decisions,
        array("q", map(add, one.shows, other.shows)),
        array("q", map(add, one.rewards, other.rewards)),
    )


def _append(blocks: list[_Block], last: int, upto: Sums) -> None:
    """Add a block for the tables after the last block, up to `last`."""
    first = _behind(blocks)
    size = _size(last - first + 1)
    while [block.size for block in blocks[1 - WIDTH :]] == [size] * (WIDTH - 1):
        first = blocks[1 - WIDTH].first
        del blocks[1 - WIDTH :]
        size += 1
    blocks.append(_Block(first, last, size, upto))


def _behind(blocks: list[_Block]) -> int:
    """Return the first table that is in no block."""
    return blocks[-1].last + 1 if blocks else 0


def _size(count: int) -> int:
    """Return the size class of a block with this many tables.

    >>> [_size(count) for count in (1, 3, 4, 17)]
    [0, 0, 1, 2]
    """
    size = 0
    while count >= WIDTH ** (size + 1):
        size += 1
    return size


_WRITERS = select(writers.c.id, writers.c.seq).where(writers.c.id != COMMITMENT_CHAIN)

# Built once, because building a statement takes longer than running it.
_MINE = counters.c.experiment_id == bindparam("identity")
_PLACE = case(
    (
        (counters.c.role == int(Role.MEMBER)) & (counters.c.segment >= 0),
        counters.c.segment * bindparam("width", type_=Integer) + counters.c.arm,
    ),
    else_=-1,
).label("place")
_WANTED = (
    _MINE,
    counters.c.metric == 0,
    counters.c.table_number.between(bindparam("first"), bindparam("last")),
)
_BY_PLACE = (
    select(
        _PLACE,
        func.sum(counters.c.shows).label("shows"),
        func.sum(counters.c.value).label("value"),
    )
    .where(*_WANTED)
    .group_by(literal_column("place"))
    .subquery()
)


def _lists(*columns: ColumnElement[int]) -> Query:
    """One row: between any two, `sqlite3` hands the interpreter's lock to a thread that waits for it."""
    return select(*(func.aggregate_strings(cast(one, Text), ",") for one in columns))


_SUMS = _lists(*_BY_PLACE.c)
_CELLS = _lists(_PLACE.element, counters.c.shows, counters.c.value).where(*_WANTED)


def _recent(what: ColumnElement[int]) -> ScalarSelect[int]:
    """Aggregate an experiment's counters from some table on."""
    return (
        select(what).where(_MINE, counters.c.table_number >= bindparam("first")).scalar_subquery()
    )


def _owned(table: Table) -> ScalarSelect[int]:
    """Count an experiment's rows in a table."""
    mine = table.c.experiment_id == bindparam("identity")
    return select(func.count()).select_from(table).where(mine).scalar_subquery()


_GROWTH = (
    select(
        _recent(func.coalesce(func.sum(counters.c.shows), 0)),
        _recent(func.count(counters.c.writer_id.distinct())),
        experiments.c.table_number,
        func.coalesce(tables.c.decisions, 0),
        experiments.c.trace_nano.is_not(None),
        _owned(arms),
        _owned(segments),
    )
    .select_from(experiments)
    .outerjoin(
        tables,
        (tables.c.experiment_id == experiments.c.id)
        & (tables.c.number == experiments.c.table_number),
    )
    .where(experiments.c.id == bindparam("identity"))
)
