"""One experiment of a log: what its commitments promise, its tables, and counts of its draws.

And visitors with two decisions, found exactly, in memory that does not grow with the log. Visitors are
keyed HMACs that differ between experiments. They are written to files by their first bits, with their
row numbers; then each file is sorted separately.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from deniable._types import JsonObject
from deniable.audit.checks import Check, Checked, exact_checks
from deniable.audit.evidence import Cells, Evidence
from deniable.audit.evidence import evidence as evidence_of
from deniable.audit.exact import VersionProof, exact_proof
from deniable.audit.log_links import Bytes, Flags, Ints
from deniable.audit.promise import AuditedTable, Lottery, Promise
from deniable.errors import NANO
from deniable.storage import promises
from deniable.storage.commitments import Entry
from deniable.storage.promise_entries import PromisedTable, promised_table, scores_by_table
from deniable.storage.records import SLOTS, Role
from deniable.strategies.rules import Wanted


@dataclass(frozen=True)
class AuditedExperiment(Checked):
    """The results for one experiment in a log.

    Attributes:
        key: its name.
        scratch: whether it is a scratch copy, which costs the firm nothing.
        promise: its promise according to the chain, and its published tables.
        decisions: open decisions that were compared with their tables.
        proofs: the exact check, by version.
        checks: all checks.
        evidence: evidence against its draws and its lottery; None without decisions.
    """

    key: str
    scratch: bool
    promise: Promise
    decisions: int
    proofs: tuple[VersionProof, ...]
    checks: tuple[Check, ...]
    evidence: Evidence | None

    def to_dict(self) -> JsonObject:
        """Return plain values for JSON."""
        return {
            "experiment": self.key,
            "scratch": self.scratch,
            "sound": self.sound,
            "grade": self.promise.stated_grade,
            "budget": self.promise.budget_nano / NANO,
            "tables": len(self.promise.tables),
            "decisions": self.decisions,
            "log_e_value": None if self.evidence is None else self.evidence.draws,
            "checks": [asdict(check) for check in self.checks],
        }


class LoggedExperiment:
    """The state of one experiment while its log is read.

    Args:
        promise: the promise according to its commitments.
        chained: its tables as named by the commitments, by number.
        off: arm key -> the version from which it is off.
        erased: number of erased decisions.
        migrated: whether it is from before tables were published.
        given: table number -> the model's newest scores at that time.
    """

    PROBLEMS: ClassVar = (
        "names a table that was never published",
        "names a table of another version",
        "is older than its table",
        "shows an arm that its row of the table does not",
    )
    """Why a decision is impossible; the index is the result of `problems` minus one."""

    def __init__(
        self,
        promise: promises.Promise,
        chained: Mapping[int, PromisedTable],
        off: Mapping[str, int],
        erased: int,
        migrated: bool,
        given: Mapping[int, Wanted],
    ) -> None:
        self._migrated = migrated
        self._given = given
        self.key = promise.key
        self.erased = erased
        self._promise = promise
        self._off = dict(off)
        self._chained = chained
        last = max(chained, default=0)
        self._version = np.zeros(last + 1, dtype=np.int64)
        self._since = np.zeros(last + 1, dtype=np.int64)
        for number, table in chained.items():
            self._version[number], self._since[number] = table.version, table.recorded_at
        self._shape = (len(promise.segments) + 1, len(promise.arms))
        self._possible = np.zeros((last + 1, *self._shape), dtype=bool)
        self._counts: NDArray[np.int64] | None = None
        self.tables: list[AuditedTable] = []

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> LoggedExperiment:
        """Create it from the entries of one experiment.

        Raises:
            BrokenPromiseError: the entries do not define a promise.
        """
        known = [entry for entry in entries if entry.kind in promises.KINDS]
        promise = promises.promise_from("", known)
        off = {
            entry.detail["arm"]: entry.detail["version"]
            for entry in entries
            if entry.kind == "switch_off"
        }
        chained = [promised_table(entry) for entry in entries if entry.kind == "table"]
        erased = sum(
            entry.detail["decisions"] for entry in entries if entry.kind in ("erase", "purge")
        )
        migrated = any(entry.kind == "migrate" for entry in entries)
        tables = {table.number: table for table in chained}
        return cls(promise, tables, off, erased, migrated, scores_by_table(entries))

    @property
    def missing_table(self) -> int | None:
        """The first table that the commitments name but the log lacks."""
        return min(set(self._chained) - {table.number for table in self.tables}, default=None)

    def add_table(self, number: int, version: int, detail: Mapping[str, Any]) -> str | None:
        """Add a table from the log; return what is wrong with it, or None."""
        chained = self._chained.get(number)
        if chained is None:
            return "is not in the commitments"
        if any(table.number == number for table in self.tables[-1:]):
            return "is there twice"
        encoded, counts = bytes.fromhex(detail["rows"]), detail["counts"].encode()
        have = (version, detail["decisions"], *(sha256(x).hexdigest() for x in (encoded, counts)))
        if have != (chained.version, chained.decisions, chained.rows, chained.counts):
            return "was changed"
        n_segments, n_arms = self._shape[0] - 1, self._shape[1]
        table = AuditedTable.stored(
            number, version, encoded, counts, n_segments=n_segments, n_arms=n_arms
        )
        rows = [*table.table.rows, table.table.zero]
        self._possible[number] = np.array(rows, dtype=object) > 0
        # A segment can have decisions from the table that was in force when it was added.
        early = [since - 1 > number for since in self._promise.segments_since]
        self._possible[number, :-1][early] = False
        self.tables.append(table)
        return None

    def problems(
        self,
        version: Ints,
        table: Ints,
        role: Ints,
        latest: Ints,
        segment: Ints,
        shown: Ints,
        opened: Flags,
    ) -> Ints:
        """Return 0 for each sound decision, else one plus the index of its problem in PROBLEMS."""
        found = np.zeros(table.size, dtype=np.int64)
        published = (table > 0) & (table < self._version.size)
        number = np.where(published, table, 0)
        published &= self._version[number] > 0
        rows, arms = self._shape
        inside = (segment >= -1) & (segment < rows - 1) & (shown >= 0) & (shown < arms)
        inside &= (role >= 0) & (role < len(Role))
        row, arm = self._rows(role, segment), np.clip(shown, 0, arms - 1)
        possible = inside & self._possible[number, np.clip(row, 0, rows - 1), arm]
        found[opened & ~possible] = 4
        found[latest < self._since[number]] = 3
        found[version != self._version[number]] = 2
        found[~published] = 1
        return found

    def count(self, table: Ints, role: Ints, segment: Ints, shown: Ints) -> None:
        """Count open decisions without a problem."""
        rows, arms = self._shape
        if self._counts is None:
            self._counts = np.zeros((self._version.size, len(Role), rows, arms), dtype=np.int64)
        place = np.where(segment >= 0, segment, rows - 1)
        cells = ((table * len(Role) + role) * rows + place) * arms + shown
        np.add.at(self._counts.reshape(-1), cells, 1)

    def audited(self) -> AuditedExperiment:
        """Run all checks of the tables and of the draws from them."""
        promise = Promise.chained(self._promise, self._off, self.tables, self._given)
        proofs = exact_proof(promise)
        checks = list(exact_checks(promise, proofs))
        evidence = None
        if self._counts is not None:
            evidence = evidence_of(promise, self._cells(self._counts), self._lottery())
            checks += _draw_checks(evidence)
        return AuditedExperiment(
            key=self.key,
            scratch=self._promise.status == "scratch",
            promise=promise,
            decisions=0 if self._counts is None else int(self._counts.sum()),
            proofs=proofs,
            checks=tuple(checks),
            evidence=evidence,
        )

    def _rows(self, role: Ints, segment: Ints) -> Ints:
        """Return the row of the table that was drawn from; the last one is the zero row."""
        return np.where((role == Role.MEMBER) & (segment >= 0), segment, self._shape[0] - 1)

    def _cells(self, counts: NDArray[np.int64]) -> Cells:
        """Return shows by (table, role, segment, arm); the last segment is for unlisted ones."""
        unlisted = self._shape[0] - 1
        return {
            (table, role, -1 if segment == unlisted else segment, arm): int(
                counts[table, role, segment, arm]
            )
            for table, role, segment, arm in np.argwhere(counts).tolist()
        }

    def _lottery(self) -> Lottery | None:
        """Return how members are chosen; None for groups, from before migration 0004."""
        promise = self._promise
        if self._migrated and promise.layer is not None:
            return None
        slots = (
            SLOTS if promise.slots is None else int.from_bytes(promise.slots, "little").bit_count()
        )
        return Lottery(slots=slots, holdout=promise.holdout)


def _draw_checks(found: Evidence) -> Iterator[Check]:
    """Compare draws and lotteries with their design, valid at every look."""
    sentence = (
        "The arms shown cannot come from the tables that the decisions name"
        if found.draws_accuse
        else "The arms shown agree with the tables that the decisions name"
    )
    yield Check(
        "draws",
        "broken" if found.draws_accuse else "kept",
        f"{sentence} (e-value {_e_value(found.draws)}). {found.power.words}",
    )
    if found.lottery is not None:
        sentence = (
            "Members and holdouts cannot have been chosen by lot"
            if found.lottery_accuses
            else "Members and holdouts are as many as the lottery says, in every segment"
        )
        yield Check(
            "lottery",
            "broken" if found.lottery_accuses else "kept",
            f"{sentence} (e-value {_e_value(found.lottery)}).",
        )


def _e_value(logarithm: float) -> str:
    return f"{np.exp(min(logarithm, 700.0)):.3g}"


# -- visitors with two decisions -------------------------------------------------------------------

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
