"""Counts again what each table was made from: the decisions and rewards in its cuts, one by one.

A table names a cut of decisions and a cut of rewards (`storage.table_counts`). Here every decision is
assigned to the first table whose cut contains it, by its writer and its place among that writer's
decisions; every reward likewise, by its position in the writer's chain. The sums must be the counts
that the table names. The table itself is then made again from those counts (`Promise.replays`), so
nothing between a stored decision and a published probability has to be believed. Where counts began
again from zero, a table counts only what was drawn since then.

Erased decisions have no segment and no arm any more. They may be missing from the sums, but nothing
else may be, and nothing may be added.

The same places say whether every decision named the newest table of its time, without any clock. In
a writer's chain the tables never go back. And since a table is made when it is due, only so many
decisions can have been stored before it: a segment that is served an older table makes them more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from deniable._formatting import listed
from deniable.audit.checks import Check
from deniable.audit.decisions import MEMBER, Ints
from deniable.audit.promise import Promise
from deniable.privacy.epochs import due_at
from deniable.storage.log_rows import DECISION, REWARD

if TYPE_CHECKING:
    import polars as pl

SECOND = 1_000_000

AT_ONCE = 2_000_000
"""Rows of a log that are joined in memory. A larger log is read several times."""


class Recount:
    """Adds up decisions and rewards by the table that they entered.

    Args:
        promise: the experiment's promise with all its tables.
    """

    def __init__(self, promise: Promise) -> None:
        self._promise = promise
        self._numbers = [table.number for table in promise.tables]
        self._cuts = [table.made_of or {} for table in promise.tables]
        self._reward_cuts = [table.rewards_upto for table in promise.tables]
        self._closed = _closed(promise)
        # By era, from one restart of the counts to the next; by table that it entered; by cell.
        shape = (len(promise.restarts) + 1, len(self._cuts) + 1)
        cells = len(promise.segments) * len(promise.arms)
        self._shows, self._values = (np.zeros((*shape, cells), np.int64) for _ in range(2))
        self._erased = np.zeros(shape, np.int64)
        self._too_early: set[int] = set()
        self._named = np.zeros(len(self._cuts) + 1, np.int64)
        self._newest: dict[int, int] = {}  # writer -> the table that its last decision named
        self._behind = 0

    def follow(self, writer: int, tables: Ints) -> None:
        """Follow the tables that the next decisions of a writer named, in the order of its chain."""
        newest = np.maximum.accumulate(np.append(self._newest.get(writer, 0), tables))
        self._behind += int((tables < newest[:-1]).sum())
        self._newest[writer] = int(newest[-1])
        np.add.at(self._named, np.searchsorted(self._numbers, tables), 1)

    def add(self, rows: pl.DataFrame) -> None:
        """Add decisions, each with its reward of the deciding metric.

        Args:
            rows: with the columns `writer` and `place` (the number of the decision among those of
                its writer), `table`, `role`, `segment` and `shown` (both empty where erased),
                `reward` (empty without one, and where erased), `reward_writer` and `reward_seq` (the
                reward's place in the writer's chain; both empty without a reward).
        """

        def column(name: str) -> Ints:
            return np.asarray(rows[name].cast(int).fill_null(-1).to_numpy(), dtype=np.int64)

        entry = first_with(self._cuts, column("writer"), column("place"))
        drawn = np.searchsorted(self._numbers, column("table"))
        era = np.searchsorted(self._promise.restarts, column("table"))
        self._too_early |= set(entry[entry <= drawn].tolist())
        rewarder = column("reward_writer")
        rewarded = first_with(self._reward_cuts, rewarder, column("reward_seq"))
        rewarded[rewarder < 0] = len(self._cuts)
        member, erased = column("role") == MEMBER, column("shown") < 0
        # An erased decision may be in any table after the one that it was drawn from.
        later = np.minimum(drawn + 1, len(self._cuts))
        gone = member & erased
        np.add.at(self._erased, (era[gone], later[gone]), 1)
        counted = member & ~erased & (column("segment") >= 0)
        cells = (column("segment") * len(self._promise.arms) + column("shown"))[counted]
        shown = np.maximum(entry, np.minimum(self._closed[drawn], rewarded))
        np.add.at(self._shows, (era[counted], shown[counted], cells), 1)
        values = np.maximum(column("reward"), 0)
        entered = np.maximum(entry, rewarded)
        np.add.at(self._values, (era[counted], entered[counted], cells), values[counted])

    def wrong(self) -> list[int]:
        """Return the numbers of the tables whose counts are not those of their cuts."""
        shows, values = np.cumsum(self._shows, axis=1), np.cumsum(self._values, axis=1)
        erased = np.cumsum(self._erased, axis=1)
        eras = np.searchsorted(self._promise.restarts, self._numbers).tolist()
        wrong = []
        for place, (table, era) in enumerate(zip(self._promise.tables, eras, strict=True)):
            missing = int(erased[era, place])
            if (
                place in self._too_early
                or self._differ(table.shows, shows[era, place], missing)
                or self._differ(table.rewards, values[era, place], missing * self._promise.cap)
            ):
                wrong.append(table.number)
        return wrong

    def late(self) -> list[int]:
        """Return the numbers of the tables before which more decisions were stored than can be."""
        before = np.cumsum(self._named).tolist()
        found = []
        tables = self._promise.tables
        for place, (older, table) in enumerate(pairwise(tables)):
            most = table.decisions  # the first table of a version or a restart is made from all
            if table.version == older.version and older.number not in self._promise.restarts:
                most = due_at(most, self._promise.epochs(table)) - 1
            if before[place] > most:
                found.append(table.number)
        return found

    def checks(self) -> Iterator[Check]:
        """Say which tables do not count what their cuts say, and which decisions named an old table."""
        wrong = self.wrong()
        yield Check(
            "counts follow from the decisions",
            "broken" if wrong else "kept",
            f"Tables {listed(wrong, 5)} do not count the decisions and rewards up to the numbers that "
            "they name."
            if wrong
            else f"{len(self._cuts):,} tables counted again from the stored decisions and rewards.",
        )
        late = self.late()
        yield Check(
            "the newest table",
            "broken" if late or self._behind else "kept",
            f"{self._behind:,} decisions name a table that was older than that of a decision before "
            "them."
            if self._behind
            else f"More decisions name an older table than were stored when tables {listed(late, 5)} "
            "were due."
            if late
            else "Every decision names the newest table of its time.",
        )

    def _differ(self, stated: Sequence[Sequence[int]], sums: Ints, most_missing: int) -> bool:
        """Whether stated counts are not these sums, apart from erased decisions."""
        whole = np.zeros((len(self._promise.segments), len(self._promise.arms)), dtype=np.int64)
        for segment, row in enumerate(stated):
            whole[segment, : len(row)] = row
        away = whole.reshape(-1) - sums
        return bool((away < 0).any()) or int(away.sum()) > most_missing


def recounted(promise: Promise, rows: pl.DataFrame) -> Recount:
    """Count all decisions of an experiment again.

    Args:
        promise: the experiment's promise and tables.
        rows: as for `Recount.add`, but with the decisions' `seq`, too, instead of their `place`.
    """
    import polars as pl

    recount = Recount(promise)
    if promise.tables:
        recount.add(rows.with_columns(place=pl.col("seq").rank("ordinal").over("writer")))
        for (writer,), some in rows.sort("seq").group_by("writer", maintain_order=True):
            recount.follow(_writer(writer), some["table"].to_numpy())
    return recount


def recounted_log(
    blocks: Callable[[], Iterable[pl.DataFrame]], size: int, promises: Mapping[bytes, Promise]
) -> dict[bytes, Recount]:
    """Count the decisions of a verified log again.

    Args:
        blocks: returns the blocks of the log from its beginning.
        size: the number of its rows.
        promises: experiment -> its promise and tables.
    """
    import polars as pl

    found = {identity: Recount(promise) for identity, promise in promises.items()}
    parts = size // AT_ONCE + 1
    for part in range(parts):
        pieces: dict[str, list[pl.DataFrame]] = {DECISION: [], REWARD: []}
        for block in _with_places(blocks(), promises):
            if part == 0 and block["kind"][0] == DECISION:
                found[block["experiment"][0]].follow(block["writer"][0], block["table"].to_numpy())
            # The last bytes of an id are random.
            mine = pl.col("id").bin.slice(14).bin.reinterpret(dtype=pl.UInt16) % parts == part
            for kind, some in pieces.items():
                some.append(block.filter(mine, pl.col("kind") == kind))
        if not pieces[DECISION]:
            continue
        rewards = pl.concat(pieces[REWARD]).select(
            "experiment", "id", reward="value", reward_writer="writer", reward_seq="seq"
        )
        rows = pl.concat(pieces[DECISION]).join(rewards, on=["experiment", "id"], how="left")
        for (identity,), some_rows in rows.group_by("experiment"):
            assert isinstance(identity, bytes)
            found[identity].add(some_rows)
    return found


def _with_places(
    blocks: Iterable[pl.DataFrame], promises: Mapping[bytes, Promise]
) -> Iterator[pl.DataFrame]:
    """Yield decisions with their place among the writer's, and rewards of the deciding metric."""
    import polars as pl

    seen: Counter[tuple[object, ...]] = Counter()
    groups = ("kind", "experiment", "writer")
    columns = (*groups, "seq", "id", "table", "role", "segment", "shown", "value")
    for block in blocks:
        is_reward = (pl.col("kind") == REWARD) & (pl.col("metric") == 0)
        rows = block.filter(
            (pl.col("kind") == DECISION) | is_reward, pl.col("experiment").is_in(list(promises))
        ).select(columns)
        for key, some in rows.group_by(groups, maintain_order=True):
            first = seen[key] + 1
            seen[key] += some.height
            yield some.with_columns(place=pl.int_range(first, first + some.height))


def _writer(number: object) -> int:
    assert isinstance(number, int)
    return number


def first_with(cuts: Sequence[Mapping[int, int]], writer: Ints, place: Ints) -> Ints:
    """Return the index of the first cut that contains each decision or reward; none: their number.

    >>> first_with([{7: 1}, {7: 3}], np.array([7, 7, 7]), np.array([1, 3, 4])).tolist()
    [0, 1, 2]
    """
    found = np.full(writer.size, len(cuts), dtype=np.int64)
    for known in np.unique(writer).tolist():
        here = writer == known
        limits = np.maximum.accumulate([cut.get(known, 0) for cut in cuts])
        found[here] = np.searchsorted(limits, place[here])
    return found


def _closed(promise: Promise) -> Ints:
    """Return the index of the first table that counts shows of each table without a reward."""
    published = np.array([table.published_at for table in promise.tables], dtype=np.int64)
    if not promise.attribution_seconds:
        return np.zeros(published.size, dtype=np.int64)
    ends = np.append(published[1:], 2**62) + promise.attribution_seconds * SECOND
    return np.searchsorted(published, ends)
