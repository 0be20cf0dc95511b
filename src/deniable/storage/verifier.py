"""Verifies the rows of a log, whether they come from the store or from an exported file.

The rows are read once, in the order of `log_rows`. Reading stops at the first problem:

1. commitments, each linked to the one before, up to heads that were noted elsewhere;
2. published tables, by the digests in the commitments;
3. decisions and rewards, interleaved in each writer's chain: no row is missing, repeated, out of order
   or changed; each decision names a table of its version that had been published by then, and an arm
   that its row of the table can show;
4. the recorded end of every chain; rows without their values are as many as the commitments say were
   erased.

Memory grows with the tables, not with the decisions. That all chains were recomputed can only be
detected by heads noted somewhere else.
"""

from __future__ import annotations

import json
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeAlias

from deniable.errors import BrokenPromiseError
from deniable.privacy.tables import stored_table
from deniable.storage import chain, promises
from deniable.storage.account_rules import SKEW
from deniable.storage.chain import GENESIS, pack_decision, pack_erasable
from deniable.storage.commitments import Entry
from deniable.storage.log_rows import (
    ABOUT,
    CHAIN_END,
    COMMITMENT,
    DECISION,
    LOG_END,
    REWARD,
    TABLE,
    LogRow,
)
from deniable.storage.promise_entries import (
    PromisedTable,
    TableContent,
    promised_table,
    table_problem,
)
from deniable.storage.promises import Promise
from deniable.storage.records import MICRO, Role
from deniable.storage.schema import COMMITMENT_CHAIN

Cell: TypeAlias = tuple[int, int, int]
"""Role, segment and arm."""

_Row: TypeAlias = Any
"""A LogRow of which nothing is known yet: any value may be missing, or of another type."""

_ONCE = ("table", "erase", "purge")
"""Kinds with many entries per experiment; a promise needs only the newest of each."""

_SECTIONS = {
    ABOUT: 0,
    COMMITMENT: 1,
    CHAIN_END: 2,
    TABLE: 3,
    DECISION: 4,
    REWARD: 4,
    LOG_END: 5,
}
_KEPT = {"kind", "writer", "seq", "experiment", "id", "time", "hash"}
_SHAPES = {
    (DECISION, True): {*_KEPT, "version", "table", "role", "visitor", "salt", "segment", "shown"},
    (DECISION, False): {*_KEPT, "version", "table", "role", "commitment"},
    (REWARD, True): {*_KEPT, "metric", "salt", "value"},
    (REWARD, False): {*_KEPT, "metric", "commitment"},
}
"""(Kind, whether it is open) -> the columns that must be filled; all others must be empty."""

_OF_DECISION = ("table", "role", "segment", "shown")
UNREADABLE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    struct.error,
)
"""Errors of rows that the service cannot have written: SQLite accepts any value in any column."""


class Broken(Exception):
    """The first problem.

    Attributes:
        chain: the chain of the problem: `commitments`, a writer's number, or `totals`.
        seq: the position in that chain, if the problem has one.
        decision: the id of the faulty decision, if there is one.
        row: the number of the row, from 1, if the problem has one.
    """

    def __init__(
        self,
        problem: str,
        where: str = "totals",
        seq: int | None = None,
        decision: bytes | None = None,
    ) -> None:
        super().__init__(problem)
        self.chain = where
        self.seq = seq
        self.decision = None if decision is None else decision.hex()
        self.row: int | None = None


@dataclass
class Committed:
    """What the commitments say, collected while their chain is verified."""

    fingerprint: str | None = None
    entries: defaultdict[bytes, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    newest: dict[tuple[bytes, str], Entry] = field(default_factory=dict)
    tables: dict[tuple[bytes, int], PromisedTable] = field(default_factory=dict)
    erased: Counter[bytes] = field(default_factory=Counter)
    erased_rewards: Counter[bytes] = field(default_factory=Counter)
    stones: dict[tuple[bytes, int], str] = field(default_factory=dict)
    """(Experiment, entry) -> the digest of the tombstones that it left."""
    clocks: list[Entry] = field(default_factory=list)
    promises: dict[bytes, Promise] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Add one entry, oldest first."""
        identity = entry.experiment_id
        if entry.kind == "key":
            self.fingerprint = entry.detail["fingerprint"]
        elif entry.kind == "clock":
            self.clocks.append(entry)
        if identity is None:
            return
        if entry.kind == "discard":
            self._forget_draft(identity)
        elif entry.kind == "table":
            table = promised_table(entry)
            self.tables[identity, table.number] = table
        elif entry.kind in ("erase", "purge"):
            self.erased[identity] += entry.detail["decisions"]
            self.erased_rewards[identity] += entry.detail["rewards"]
            if entry.detail["digest"] is not None:
                self.stones[identity, entry.seq] = entry.detail["digest"]
            self.stones.pop((identity, entry.detail.get("cleared", 0)), None)
        if entry.kind in _ONCE:
            self.newest[identity, "table" if entry.kind == "table" else "erase"] = entry
        elif entry.kind in promises.ACTS:
            self.entries[identity].append(entry)

    def complete(self) -> None:
        """Build every experiment's promise, once all entries were added."""
        for identity, entries in self.entries.items():
            newest = [self.newest.get((identity, kind)) for kind in ("table", "erase")]
            try:
                promise = promises.promise_from(identity.hex(), [*entries, *filter(None, newest)])
            except BrokenPromiseError as problem:
                raise Broken(str(problem)) from None
            self.promises[identity] = promise

    def _forget_draft(self, identity: bytes) -> None:
        """Forget a discarded draft, whose rows are gone. One that was started must still exist."""
        kinds = [entry.kind for entry in self.entries[identity]]
        if promises.discarded([*kinds, "discard"]):
            del self.entries[identity]


class Drawn:
    """What was drawn from one published table.

    Attributes:
        since: decisions are not older than this.
        version: version of the promise.
        rows: for each segment, then for the neutral row and for unlisted segments, the arms that it
            can show as a bitmap; None if the log does not contain the table.
        cells: number of open decisions by role, segment and arm.
        rewards: number of open rewards, sum of values, and sum of squares, by cell and metric.
        last: the time of the newest decision of a member.
    """

    __slots__ = ("cells", "last", "rewards", "rows", "since", "version")

    def __init__(self, table: PromisedTable) -> None:
        self.since = table.recorded_at - SKEW
        self.version = table.version
        self.rows: list[int] | None = None
        self.cells: dict[Cell, int] = {}
        self.rewards: dict[tuple[Cell, int], tuple[int, int, int]] = {}
        self.last = 0

    def shows(self, role: int, segment: int, shown: int) -> bool:
        """Whether the row of this role and segment can show an arm."""
        if self.rows is None:
            return True
        listed = len(self.rows) - 2
        if not (-1 <= segment < listed and shown >= 0 and 0 <= role < len(Role)):
            return False
        place = segment if role == Role.MEMBER else -2
        return bool(self.rows[place] >> shown & 1)


class Verifier:
    """Follows a log from its first row to its last.

    Args:
        noted: chain -> `length:hash`, heads noted earlier in another place.
        with_cells: whether open rewards name table, role, segment and arm of their decision, to be
            added up. In a file they do not, because nothing there proves them.

    Attributes:
        rows: number of rows that were checked.
        committed: what the commitments say.
        heads: chain -> number and hash of its last checked row.
        decisions: number of decisions.
        closed: experiment -> how many of them have only a salted hash.
        drawn: (experiment, table) -> what was drawn from it.
    """

    def __init__(
        self,
        noted: Mapping[str, str] | None = None,
        *,
        with_cells: bool = False,
    ) -> None:
        self.rows = 0
        self.committed = Committed()
        self.heads: dict[int, tuple[int, bytes]] = {COMMITMENT_CHAIN: (0, GENESIS)}
        self.decisions = 0
        self.closed: Counter[bytes] = Counter()
        self.drawn: dict[tuple[bytes, int], Drawn] = {}
        self._cells: dict[Cell, Cell] = {}
        self._closed_rewards: Counter[bytes] = Counter()
        self._noted = {} if noted is None else dict(noted)
        self._unseen = {_number(name): name for name in self._noted}
        self._about: frozenset[bytes] | None = None
        self._with_cells = with_cells
        self._section = -1
        self._ends: dict[int, tuple[int, bytes]] = {}
        self._missing: dict[tuple[bytes, int], PromisedTable] = {}

    @property
    def last_decided(self) -> dict[bytes, int]:
        """Experiment -> the time of its newest decision at a risk."""
        newest: dict[bytes, int] = {}
        for (experiment, _), drawn in self.drawn.items():
            if drawn.last:
                newest[experiment] = max(drawn.last, newest.get(experiment, 0))
        return newest

    def is_about(self, experiment: bytes) -> bool:
        """Whether the decisions of an experiment should be open."""
        return self._about is None or experiment in self._about

    def follow(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Check all rows of a log.

        Most are open decisions that follow the previous row. They are checked inline, without
        function calls; `_check` handles everything else.

        Raises:
            Broken: at the first problem.
        """
        number = 0
        current, place, previous, stop = COMMITMENT_CHAIN, 0, GENESIS, -1
        drawn_from, decided = self.drawn, 0
        try:
            for row in rows:
                number += 1
                (kind, writer, seq, experiment, identity, version, table, role, at) = row[:9]
                (visitor, salt, segment, shown, metric, value, commitment, link, detail) = row[9:]
                if (
                    kind == DECISION
                    and salt is not None
                    and writer == current
                    and place + 1 == seq != stop
                    and metric is value is commitment is detail is None
                ):
                    drawn = drawn_from.get((experiment, table))
                    cell = (role, segment, shown)
                    if drawn is not None and cell in drawn.cells:
                        try:
                            salted = sha256(pack_erasable(visitor, salt, segment, shown)).digest()
                            packed = pack_decision(
                                previous,
                                b"D",
                                experiment,
                                identity,
                                version,
                                table,
                                role,
                                at,
                                writer,
                                seq,
                                salted,
                            )
                            # Packing would cut off what is too long.
                            sound = len(visitor) == len(salt) == len(identity) == 16
                        except struct.error:  # a missing or invalid value
                            sound = False
                        if (
                            sound
                            and sha256(packed).digest() == link
                            and version == drawn.version
                            and at >= drawn.since
                        ):
                            place, previous = seq, link
                            drawn.cells[cell] += 1
                            if role == 0 and at > drawn.last:
                                drawn.last = at
                            decided += 1
                            continue
                self.heads[current] = (place, previous)
                try:
                    self._check(LogRow._make(row), number)
                except UNREADABLE as error:
                    name = chain_name(writer) if isinstance(writer, int) else "totals"
                    raise Broken(
                        f"a row holds what the service never writes ({type(error).__name__}: {error})",
                        name,
                        seq if isinstance(seq, int) else None,
                    ) from error
                if writer in self.heads:
                    current = writer
                    place, previous = self.heads[current]
                    stop = self._noted_at(current)
        except Broken as problem:
            problem.row = number
            raise
        finally:
            self.rows = number
            self.decisions += decided
        self.heads[current] = (place, previous)
        if self._section != _SECTIONS[LOG_END]:
            cut_off = Broken("the rows after it were removed")
            cut_off.row = number
            raise cut_off

    def _check(self, row: _Row, number: int) -> None:
        """Check any row against the state before it."""
        section = _SECTIONS.get(row.kind)
        if section is None:
            raise Broken("cannot be read")
        if section < self._section or section == self._section in (0, 5):
            raise Broken("was added or moved")
        before, self._section = self._section, section
        if before < _SECTIONS[TABLE] <= section:
            self._end_commitments()
        if before <= _SECTIONS[TABLE] < section:
            self._end_tables()
        if row.kind in (DECISION, REWARD):
            self._chained(row)
        elif row.kind == ABOUT:
            experiments = json.loads(row.detail)["experiments"]
            if experiments is not None:
                self._about = frozenset(map(bytes.fromhex, experiments))
        elif row.kind == COMMITMENT:
            self._commitment(row)
        elif row.kind == TABLE:
            self._table(row)
        elif row.kind == CHAIN_END:
            self._chain_end(row)
        elif row.kind == LOG_END:
            self._log_end(row, number)

    # -- commitments and tables ----------------------------------------------------------------

    def _commitment(self, row: _Row) -> None:
        place, previous = self.heads[COMMITMENT_CHAIN]
        place += 1
        kind, _, text = row.detail.partition(" ")
        if row.seq != place:
            removed = row.seq is None or row.seq > place
            words = "was removed" if removed else "is there twice, or out of order"
            raise Broken(f"commitment {place} {words}", "commitments", place)
        link = chain.commitment_hash(
            previous, place, kind, row.experiment, row.value, text, row.time
        )
        if link != row.hash or row.writer != COMMITMENT_CHAIN:
            raise Broken(f"commitment {place} was changed or reordered", "commitments", place)
        self.heads[COMMITMENT_CHAIN] = (place, link)
        self._compare_noted(COMMITMENT_CHAIN, place, link)
        entry = Entry(place, kind, row.experiment, row.value, json.loads(text), row.time)
        self.committed.add(entry)

    def _end_commitments(self) -> None:
        """Check the end of their chain, and build the promises."""
        self._check_end(COMMITMENT_CHAIN)
        self.committed.complete()
        self.drawn.update((place, Drawn(table)) for place, table in self.committed.tables.items())
        self._missing = {
            place: table
            for place, table in self.committed.tables.items()
            if self.is_about(place[0])
        }

    def _table(self, row: _Row) -> None:
        detail = json.loads(row.detail)
        content = TableContent(
            version=row.version,
            decisions=detail["decisions"],
            rows=bytes.fromhex(detail["rows"]),
            counts=detail["counts"].encode(),
            strategy=detail["strategy"],
            published_at=row.time,
        )
        place = (row.experiment, row.table)
        promise = self.committed.promises.get(row.experiment)
        problem = table_problem(content, self._missing.pop(place, None))
        if problem is not None or promise is None:
            where = f"experiment {promise.key if promise else row.experiment.hex()!r}"
            raise Broken(f"table {row.table} of {where} {problem}")
        shape = len(promise.rows), len(promise.arms)
        try:
            table = stored_table(content.rows, content.counts, *shape)
        except BrokenPromiseError as error:
            raise Broken(str(error)) from None
        neutral = promise.neutral_of(row.version)
        rows = [_bitmap(entries) for entries in (*table.rows, neutral, table.unlisted)]
        # A segment can have decisions from the table that was in force when it was added.
        for position, since in enumerate(promise.rows_since):
            if since - 1 > row.table:
                rows[position] = 0
        self.drawn[place].rows = rows

    def _end_tables(self) -> None:
        for identity, number in self._missing:
            key = self.committed.promises[identity].key
            raise Broken(f"table {number} of experiment {key!r} was removed")

    # -- chains of writers ---------------------------------------------------------------------

    def _chain_end(self, row: _Row) -> None:
        if row.writer in self._ends:
            raise Broken(f"the end of chain {chain_name(row.writer)} is there twice")
        self._ends[row.writer] = (row.seq, row.hash)
        self.heads.setdefault(row.writer, (0, GENESIS))

    def _chained(self, row: _Row) -> None:
        """Check one decision or reward against the current end of its chain, and advance that end."""
        if row.id is None or row.writer is None or row.seq is None:
            raise Broken("cannot be read")
        where = chain_name(row.writer)
        name = f"{'decision' if row.kind == DECISION else 'reward of decision'} {row.id.hex()}"
        if row.writer not in self._ends or row.writer == COMMITMENT_CHAIN:
            raise Broken(f"{name} was added under an unknown writer", where, row.seq, row.id)
        place, previous = self.heads[row.writer]
        place += 1
        if row.seq > place:
            raise Broken(f"entry {place} of writer {where} was removed", where, place)
        try:
            link = self._link(previous, row)
        except (struct.error, TypeError):  # SQLite accepts any value in any column
            link = None
        if row.seq < place or link is None or link != row.hash:
            words = f"entry {place} of writer {where}, was changed or reordered"
            raise Broken(f"{name}, {words}", where, place, row.id)
        self.heads[row.writer] = (place, link)
        self._compare_noted(row.writer, place, link)
        problem = self._count_decision(row) if row.kind == DECISION else self._count_reward(row)
        if problem is not None:
            words = f"entry {place} of writer {where}, {problem}"
            raise Broken(f"{name}, {words}", where, place, row.id)

    def _link(self, previous: bytes, row: _Row) -> bytes | None:
        """Return the hash that a row must have; None if it lacks a value, or has one too many."""
        is_open = row.salt is not None
        if self._with_cells and row.kind == REWARD and is_open:
            row = row._replace(**dict.fromkeys(_OF_DECISION))
        filled = {name for name, value in zip(row._fields, row, strict=True) if value is not None}
        if filled != _SHAPES[row.kind, is_open]:
            return None
        widths = {len(raw) for raw in (row.experiment, row.id, row.visitor, row.salt) if raw}
        if widths != {16}:
            return None
        salted, end = row.commitment, (row.time, row.writer, row.seq)
        if row.kind == DECISION:
            if is_open:
                salted = chain.salted_hash(row.visitor, row.salt, row.segment, row.shown)
            kept = (row.experiment, row.id, row.version, row.table, row.role)
            return chain.decision_hash(previous, *kept, *end, salted)
        if is_open:
            salted = chain.reward_salted_hash(row.salt, row.metric, row.value)
        return chain.reward_hash(previous, row.experiment, row.id, row.metric, *end, salted)

    def _count_decision(self, row: _Row) -> str | None:
        """Count a decision with its table; return what is wrong with it."""
        experiment, table = row.experiment, row.table
        if experiment not in self.committed.promises:
            return "is of an unknown experiment"
        drawn = self.drawn.get((experiment, table))
        if drawn is None:
            return f"names table {table}, which was never published"
        if row.version != drawn.version:
            return f"names table {table}, which is of another version"
        if row.time < drawn.since:
            return f"is older than its table {table}"
        self.decisions += 1
        if row.role == Role.MEMBER:
            drawn.last = max(drawn.last, row.time)
        if row.salt is None:
            self.closed[experiment] += 1
            return None
        cell = self._cell(row)
        if cell not in drawn.cells and not drawn.shows(*cell):
            return "shows an arm that its row of the table does not"
        drawn.cells[cell] = drawn.cells.get(cell, 0) + 1
        return None

    def _count_reward(self, row: _Row) -> str | None:
        experiment = row.experiment
        if experiment not in self.committed.promises:
            return "is of an unknown experiment"
        if row.salt is None:
            self._closed_rewards[experiment] += 1
        elif self._with_cells:
            drawn = self.drawn.get((experiment, row.table))
            if drawn is None:
                return "is of a decision whose table was never published"
            metric, value = row.metric, row.value
            metrics = self.committed.promises[experiment].metrics
            share = value / metrics[metric].cap_micro if metric < len(metrics) else 0.0
            cell = self._cell(row)
            count, total, square = drawn.rewards.get((cell, metric), (0, 0, 0))
            square += round(share * share * MICRO)
            drawn.rewards[cell, metric] = (count + 1, total + value, square)
        return None

    def _cell(self, row: _Row) -> Cell:
        """Return the cell of a row. A firm may have a million: all tables share their names."""
        cell = (row.role, row.segment, row.shown)
        return self._cells.setdefault(cell, cell)

    def _check_end(self, writer: int) -> None:
        """Check that a chain ends where its recorded end is."""
        (place, head), end, name = self.heads[writer], self._ends.get(writer), chain_name(writer)
        if end is None:
            raise Broken(f"the end of chain {name} was removed", name)
        if place < end[0]:
            what = "commitment {}" if writer == COMMITMENT_CHAIN else f"entry {{}} of writer {name}"
            raise Broken(f"{what.format(place + 1)} was removed", name, place + 1)
        if end != (place, head):
            raise Broken(f"the end of chain {name} is not that of its rows", name)

    def _log_end(self, row: _Row, number: int) -> None:
        for writer in self.heads:
            self._check_end(writer)
        for unseen, name in self._unseen.items():
            length = int(self._noted[name].partition(":")[0])
            if length:
                have = self.heads.get(unseen, (0, GENESIS))[0]
                words = f"ends at {have:,}, before its head noted at {length:,}"
                raise Broken(f"chain {name} {words}", name, length)
        if row.seq != number - 1:
            raise Broken(f"{row.seq:,} rows were written, and {number - 1:,} are here")
        for identity, promise in self.committed.promises.items():
            closed = (self.closed[identity], self._closed_rewards[identity])
            recorded = (self.committed.erased[identity], self.committed.erased_rewards[identity])
            if closed != recorded and self.is_about(identity):
                raise Broken(
                    f"erasures of experiment {promise.key!r} were not recorded: {closed[0]:,} "
                    f"decisions and {closed[1]:,} rewards are erased, and the commitments say "
                    f"{recorded[0]:,} and {recorded[1]:,}"
                )

    # -- heads noted elsewhere -----------------------------------------------------------------

    def _noted_at(self, writer: int) -> int:
        """Return the position of a chain's noted head if it is still to come, else -1."""
        name = self._unseen.get(writer)
        return -1 if name is None else int(self._noted[name].partition(":")[0])

    def _compare_noted(self, writer: int, seq: int, link: bytes) -> None:
        """Check that a noted head is still the hash at its length."""
        if self._noted_at(writer) == seq:
            name = self._unseen.pop(writer)
            if self._noted[name].partition(":")[2] != link.hex():
                raise Broken(f"chain {name} no longer holds the head noted at {seq}", name, seq)


def chain_name(writer: int) -> str:
    """Return a chain's name: `commitments`, or the writer's number."""
    return "commitments" if writer == COMMITMENT_CHAIN else str(writer)


def _number(name: str) -> int:
    """Return the writer of a chain's name; one that no writer has if it is no name."""
    if name == "commitments":
        return COMMITMENT_CHAIN
    return int(name) if name.removeprefix("-").isdecimal() else 1 << 64


def _bitmap(row: Iterable[int]) -> int:
    """Return the arms that a row of a table can show: bit i is arm i."""
    return sum(1 << arm for arm, entry in enumerate(row) if entry)
