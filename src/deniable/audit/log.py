"""Audits an exported log: every chain, table and draw, from the file alone.

The rows are read once, in order. Reading stops at the first problem, which is reported with
its row number:

1. commitments, each linked to the one before;
2. published tables, by the digests in the chain;
3. decisions and rewards of each writer's chain: no row is missing, repeated, out of order or changed,
   each decision names a published table of its version, and an arm that its row can show;
4. the recorded end of every chain, and heads that were noted elsewhere;
5. one decision per visitor; erased decisions are as many as the commitments say.

Then, experiment by experiment: all tables in exact arithmetic, and draws against the tables they name.
That all chains of a log were recomputed can only be detected by heads noted somewhere else.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deniable._types import JsonObject
from deniable.audit.log_blocks import UnreadableRowsError, about, blocks
from deniable.audit.log_experiment import AuditedExperiment, LoggedExperiment, Visitors
from deniable.audit.log_links import Flags, Rows, shifted
from deniable.errors import BrokenPromiseError
from deniable.storage.account_rules import SKEW
from deniable.storage.chain import GENESIS, commitment_hash
from deniable.storage.commitments import Entry
from deniable.storage.log_rows import (
    ABOUT,
    CHAIN_END,
    COMMITMENT,
    DECISION,
    LOG_END,
    OLD,
    REWARD,
    TABLE,
)
from deniable.storage.promises import discarded

if TYPE_CHECKING:
    import polars as pl

_SECTIONS = {
    ABOUT: 0,
    COMMITMENT: 1,
    TABLE: 2,
    **dict.fromkeys((DECISION, REWARD, OLD), 3),
    CHAIN_END: 4,
    LOG_END: 5,
}
_CHAINED = 3
_UNREADABLE = -1
_WHAT = {DECISION: "decision", REWARD: "reward of decision", OLD: "decision"}


@dataclass(frozen=True)
class LogAudit:
    """The result of `audit_log`.

    Attributes:
        problem: the first problem with the log, in words that name the row; None if there is none.
        row: the number of that row in the file, from 1, if the problem has one.
        rows: number of rows read.
        commitments: number of entries in the chain of commitments.
        decisions: number of decisions whose links were verified.
        closed: how many of them have only a salted hash.
        heads: chain -> its length and newest hash; scratch copies have negative numbers.
        experiments: the results for each experiment that the log is about.
    """

    problem: str | None
    row: int | None
    rows: int
    commitments: int
    decisions: int
    closed: int
    heads: dict[str, str]
    experiments: tuple[AuditedExperiment, ...]

    @property
    def sound(self) -> bool:
        """Whether the log is intact and every promise in it is kept."""
        return self.problem is None and all(one.sound for one in self.experiments)

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        if self.problem is not None:
            return f"The log does NOT hold: {self.problem}."
        broken = [one.key for one in self.experiments if not one.sound]
        if broken:
            return f"The promise is NOT kept: {', '.join(broken)}."
        return (
            f"The log holds, and the promise of {len(self.experiments):,} experiments is kept over "
            f"{self.decisions - self.closed:,} decisions."
        )

    def to_dict(self) -> JsonObject:
        """Return plain numbers, strings and lists for JSON."""
        return {
            "sound": self.sound,
            "verdict": self.verdict,
            "problem": self.problem,
            "row": self.row,
            "rows": self.rows,
            "commitments": self.commitments,
            "decisions": self.decisions,
            "closed": self.closed,
            "heads": self.heads,
            "experiments": [one.to_dict() for one in self.experiments],
        }


class _Broken(Exception):
    """The first problem found."""

    def __init__(self, problem: str, row: int | None = None) -> None:
        super().__init__(problem if row is None else f"row {row:,}: {problem}")
        self.row = row


def audit_log(
    path: str | Path,
    *,
    noted: Mapping[str, str] | None = None,
    progress: Callable[[int], None] = lambda rows: None,
) -> LogAudit:
    """Audit a log written by `deniable ledger export`.

    Args:
        path: the file.
        noted: chain -> `length:hash`, heads noted earlier in another place.
        progress: callback that receives the number of rows read.

    Raises:
        InvalidArgumentError: the file is not such a log.
    """
    with Visitors() as visitors:
        reader = _Reader(visitors, noted or {})
        broken: _Broken | None = None
        try:
            for block in blocks(Path(path)):
                if reader.rows == 0:
                    reader.begin(about(block, Path(path)))
                reader.read(block)
                progress(reader.rows)
            if reader.rows == 0:
                raise _Broken("the file is empty: all rows were removed")
            reader.finish()
        except _Broken as problem:
            broken = problem
        except UnreadableRowsError as problem:
            broken = _Broken(f"cannot be read: {problem}", reader.rows + 1)
        found = () if broken else tuple(one.audited() for one in reader.opened())
    return LogAudit(
        problem=None if broken is None else str(broken),
        row=None if broken is None else broken.row,
        rows=reader.rows,
        commitments=reader.ends.get(0, (0, b""))[0],
        decisions=reader.decisions,
        closed=reader.closed.total(),
        heads={
            "commitments" if writer == 0 else str(writer): f"{seq}:{head.hex()}"
            for writer, (seq, head) in sorted(reader.ends.items())
        },
        experiments=found,
    )


@dataclass
class _Reader:
    """The state after the rows read so far."""

    visitors: Visitors
    noted: Mapping[str, str]
    rows: int = 0
    decisions: int = 0
    ends: dict[int, tuple[int, bytes]] = field(default_factory=lambda: {0: (0, GENESIS)})
    closed: Counter[bytes] = field(default_factory=Counter)
    experiments: dict[bytes, LoggedExperiment] = field(default_factory=dict)
    _about: list[str] | None = None
    _section: int = 0
    _writer: int | None = None  # the chain being verified
    _migrated: bool = False
    _ended: set[int] = field(default_factory=set)
    _entries: defaultdict[bytes, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    _seen: set[str] = field(default_factory=set)

    def begin(self, told: Mapping[str, Any]) -> None:
        """Process the description in the first row."""
        self._about = told["experiments"]

    def opened(self) -> list[LoggedExperiment]:
        """Return the experiments that the log is about, in the order of their creation."""
        return [one for one in self.experiments.values() if one.tables]

    def is_about(self, experiment: bytes) -> bool:
        """Whether the decisions of an experiment should be open."""
        return self._about is None or experiment.hex() in self._about

    def read(self, block: pl.DataFrame) -> None:
        """Check more rows."""
        import polars as pl

        sections = (
            block["kind"]
            .replace_strict(_SECTIONS, default=_UNREADABLE, return_dtype=pl.Int64)
            .to_numpy()
        )
        ends = [0, *(np.flatnonzero(np.diff(sections)) + 1).tolist(), block.height]
        for start, end in pairwise(ends):
            section, first = int(sections[start]), self.rows + 1
            if section == _UNREADABLE:
                raise _Broken("cannot be read", first)
            if section < self._section or (section, self._section) == (5, 5):
                raise _Broken("was added or moved", first)
            if section > 1 and self._section <= 1:
                self._promises(first)
            self._section = section
            part = block[start:end]
            if section == _CHAINED:
                self._chained(part)
            else:
                for row in part.iter_rows(named=True):
                    self._one(row)

    def finish(self) -> None:
        """Run the checks that are only possible at the end."""
        if self._section != 5:
            raise _Broken("the rows after it were removed", self.rows)
        for name, end in self.noted.items():
            length = int(end.partition(":")[0])
            if name not in self._seen and length:
                have = self.ends.get(_writer(name), (0, GENESIS))[0]
                raise _Broken(f"chain {name} ends at {have:,}, before its head noted at {length:,}")
        for identity, one in self.experiments.items():
            if self.closed[identity] != one.erased and self.is_about(identity):
                raise _Broken(
                    f"{self.closed[identity]:,} decisions of experiment {one.key!r} are erased, and "
                    f"the commitments say {one.erased:,}"
                )
        twice = self.visitors.first_twice()
        if twice is not None:
            raise _Broken(f"its visitor has another decision, in row {twice[1]:,}", twice[0])

    # -- single rows -------------------------------------------------------------------------

    def _one(self, row: JsonObject) -> None:
        number = self.rows + 1
        try:
            {
                ABOUT: lambda *_: None,
                COMMITMENT: self._commitment,
                TABLE: self._table,
                CHAIN_END: self._end,
                LOG_END: self._log_end,
            }[row["kind"]](row, number)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _Broken("cannot be read", number) from error
        self.rows = number

    def _commitment(self, row: JsonObject, number: int) -> None:
        place, previous = self.ends[0]
        kind, _, text = row["detail"].partition(" ")
        seq, identity, amount, at = row["seq"], row["experiment"], row["value"], row["time"]
        if seq != place + 1 or row["writer"] != 0:
            raise _Broken(_gap("commitment", seq, place + 1), number)
        link = commitment_hash(previous, seq, kind, identity, amount, text, at)
        if link != row["hash"]:
            raise _Broken(f"commitment {seq:,} was changed", number)
        self.ends[0] = (seq, link)
        self._compare("commitments", seq, link, number)
        entry = Entry(seq, kind, identity, amount, json.loads(text), at)
        self._migrated |= kind == "migrate"
        if identity is not None:
            self._entries[identity].append(entry)

    def _promises(self, number: int) -> None:
        """Build each experiment's promise. The chain of commitments is now complete."""
        for identity, entries in self._entries.items():
            if entries[-1].kind == "scratch_end" or discarded(entry.kind for entry in entries):
                continue  # only the commitments are left of a scratch copy or such a draft
            try:
                self.experiments[identity] = LoggedExperiment.of(entries)
            except BrokenPromiseError as error:
                raise _Broken(str(error), number) from error
        self._entries.clear()

    def _table(self, row: JsonObject, number: int) -> None:
        detail = json.loads(row["detail"])
        experiment = self.experiments.get(row["experiment"])
        problem = (
            "is of an unknown experiment"
            if experiment is None or not self.is_about(row["experiment"])
            else experiment.add_table(row["table"], row["version"], detail)
        )
        if problem is not None:
            raise _Broken(f"table {row['table']} {problem}", number)

    def _end(self, row: JsonObject, number: int) -> None:
        writer, end = row["writer"], (row["seq"], row["hash"])
        if writer in self._ended:
            raise _Broken(f"the end of chain {writer} is there twice", number)
        self._ended.add(writer)
        have = self.ends.get(writer, (0, GENESIS))
        if have[0] < end[0]:
            raise _Broken(f"entry {have[0] + 1:,} of writer {writer} was removed", number)
        if have != end:
            raise _Broken(f"the end of chain {writer} is not that of its rows", number)
        self.ends.setdefault(writer, have)

    def _log_end(self, row: JsonObject, number: int) -> None:
        left = sorted(set(self.ends) - self._ended)
        if left:
            raise _Broken(f"the end of chain {left[0]} was removed", number)
        if row["seq"] != number - 1:
            raise _Broken(f"{row['seq']:,} rows were written, and {number - 1:,} are here", number)
        missing = [
            one for identity, one in self.experiments.items() if self.is_about(identity)
            and one.missing_table is not None
        ]  # fmt: skip
        for one in missing:
            raise _Broken(f"table {one.missing_table} of {one.key!r} was removed", number)

    def _compare(self, name: str, seq: int, link: bytes, number: int) -> None:
        """Check that a noted head is still the hash at its length."""
        length, _, head = self.noted.get(name, "").partition(":")
        if length == str(seq):
            self._seen.add(name)
            if head != link.hex():
                raise _Broken(f"chain {name} no longer holds the head noted at {seq:,}", number)

    # -- chained rows ------------------------------------------------------------------------

    def _chained(self, frame: pl.DataFrame) -> None:
        rows = Rows(frame)
        writer, seq, links = rows.ints("writer"), rows.ints("seq"), rows.raw("hash")
        begins = np.empty(rows.size, dtype=bool)
        begins[0] = writer[0] != self._writer
        begins[1:] = writer[1:] != writer[:-1]
        place, before = self.ends.get(int(writer[0]), (0, GENESIS))
        wanted = np.empty_like(seq)
        wanted[0] = place + 1
        wanted[1:] = seq[:-1] + 1
        wanted[begins] = 1
        # Every chain must be contiguous, and the chain of commitments does not belong here.
        known = np.isin(writer, [one for one in self.ends if one != self._writer]) & begins
        unreadable = rows.unreadable()
        made, outside = rows.links(shifted(links, begins, before))
        changed = outside | (made != links).any(axis=1)
        bad = unreadable | known | (seq != wanted) | changed
        strays, stray_words = self._impossible_decisions(rows)
        first = int(np.argmax(bad | strays)) if (bad | strays).any() else rows.size
        if first < rows.size:
            number = self.rows + first + 1
            row = frame.row(first, named=True)
            what = f"{_WHAT.get(row['kind'], 'row')} {(row['id'] or b'?').hex()}"
            where = f"entry {row['seq']} of writer {row['writer']}"
            if unreadable[first]:
                raise _Broken("cannot be read", number)
            if known[first] or seq[first] != wanted[first]:
                gap = _gap(where, int(seq[first]), int(wanted[first]))
                raise _Broken(f"{gap} ({what})", number)
            if changed[first]:
                raise _Broken(f"{what}, {where}, was changed", number)
            raise _Broken(f"{what}, {where}, {stray_words(first)}", number)
        for name in self.noted:
            for here in np.flatnonzero((writer == _writer(name)) & (writer != 0)).tolist():
                if f"{seq[here]}" == self.noted[name].partition(":")[0]:
                    number = self.rows + here + 1
                    self._compare(name, int(seq[here]), links[here].tobytes(), number)
        last = np.append(np.flatnonzero(begins[1:]), rows.size - 1)
        for here in last.tolist():
            self.ends[int(writer[here])] = (int(seq[here]), links[here].tobytes())
        self._writer = int(writer[-1])
        self._count(rows)
        self.rows += rows.size

    def _impossible_decisions(self, rows: Rows) -> tuple[Flags, Callable[[int], str]]:
        """Return decisions that their table does not allow, and why."""
        problems = np.zeros(rows.size, dtype=np.int64)
        words = ["", "is of an unknown experiment", "has the form of an older store"]
        problems[~self._known(rows)] = 1
        if not self._migrated:
            problems[rows.kind == 3] = 2
        for identity, here in rows.experiments(rows.decision):
            one = self.experiments.get(identity)
            if one is not None:
                found = one.problems(
                    rows.ints("version")[here],
                    rows.ints("table")[here],
                    rows.ints("role")[here],
                    rows.ints("time")[here] + SKEW,
                    rows.ints("segment")[here],
                    rows.ints("shown")[here],
                    rows.open[here],
                )
                problems[here] = np.where(found > 0, found + len(words) - 1, problems[here])
        every = [*words, *LoggedExperiment.PROBLEMS]
        return problems > 0, lambda place: every[problems[place]]

    def _known(self, rows: Rows) -> Flags:
        known = np.zeros(rows.size, dtype=bool)
        for identity, here in rows.experiments():
            known[here] = identity in self.experiments
        return known

    def _count(self, rows: Rows) -> None:
        """Count rows that passed all checks."""
        decision = rows.decision | (rows.kind == 3)
        self.decisions += int(decision.sum())
        for identity, here in rows.experiments(decision & ~rows.open):
            self.closed[identity] += here.size
        drawn = rows.decision & rows.open
        for identity, here in rows.experiments(drawn):
            self.experiments[identity].count(
                rows.ints("table")[here],
                rows.ints("role")[here],
                rows.ints("segment")[here],
                rows.ints("shown")[here],
            )
        here = np.flatnonzero(drawn)
        self.visitors.add(rows.raw("visitor")[here], self.rows + 1 + here)


def _gap(what: str, seq: int, wanted: int) -> str:
    """Explain why a row does not follow the previous one."""
    if seq > wanted:
        return f"entry {wanted:,} is missing before {what}"
    return f"{what} is there twice, or out of order"


def _writer(name: str) -> int:
    if name == "commitments":
        return 0
    try:
        return int(name)
    except ValueError:
        return 0
