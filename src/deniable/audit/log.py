"""Audits an exported log: every chain, table and draw, from the file alone.

The rows are read once, in order, and verified as a store's are (`storage.verifier`). The first problem
is reported with its row number. Then: one decision per visitor; and, experiment by experiment, all
tables in exact arithmetic, their counts against the decisions and rewards, and draws against the
tables they name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from deniable._types import JsonObject
from deniable.audit.log_blocks import UnreadableRowsError, blocks, check_format
from deniable.audit.log_experiment import AuditedExperiment, Visitors, audited_experiments
from deniable.errors import BrokenPromiseError
from deniable.storage.log_rows import DECISION, TABLE, LogRow
from deniable.storage.schema import COMMITMENT_CHAIN
from deniable.storage.verifier import Broken, Verifier, chain_name

_EXPERIMENT, _VISITOR = LogRow._fields.index("experiment"), LogRow._fields.index("visitor")


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
        heads: chain -> its length and newest hash.
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
    with _Reader(Path(path), progress) as reader:
        verifier = Verifier(noted)
        problem: str | None = None
        row: int | None = None
        try:
            verifier.follow(reader.rows())
            twice = reader.visitors.first_twice()
            if twice is not None:
                row, problem = twice[0], f"its visitor has another decision, in row {twice[1]:,}"
        except Broken as broken:
            row, problem = broken.row or None, str(broken)
        except UnreadableRowsError as unreadable:
            row, problem = verifier.rows + 1, f"cannot be read: {unreadable}"
    experiments: tuple[AuditedExperiment, ...] = ()
    if problem is None and verifier.rows:
        try:
            experiments = tuple(audited_experiments(Path(path), verifier, reader.tables))
        except BrokenPromiseError as broken_table:
            problem = str(broken_table)
    if row is None and not verifier.rows:
        problem = "the file is empty: all rows were removed"
    return LogAudit(
        problem=problem if row is None or problem is None else f"row {row:,}: {problem}",
        row=row,
        rows=verifier.rows,
        commitments=verifier.heads[COMMITMENT_CHAIN][0],
        decisions=verifier.decisions,
        closed=verifier.closed.total(),
        heads={
            chain_name(writer): f"{seq}:{head.hex()}"
            for writer, (seq, head) in sorted(verifier.heads.items())
        },
        experiments=experiments,
    )


class _Reader:
    """Reads the rows of a log, and collects what the audit needs besides their verification.

    Attributes:
        tables: experiment -> its rows of published tables, in order.
        visitors: the visitors of open decisions.
    """

    def __init__(self, path: Path, progress: Callable[[int], None]) -> None:
        self._path = path
        self._progress = progress
        self.tables: dict[bytes, list[LogRow]] = {}
        self.visitors = Visitors()

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield all rows. What a row adds is only used if the verifier accepts all of them."""
        number = 0
        for block in blocks(self._path):
            if not number:
                check_format(block, self._path)
            for row in block.iter_rows():
                number += 1
                if row[0] == DECISION and row[_VISITOR] is not None:
                    self.visitors.add(row[_VISITOR], number)
                elif row[0] == TABLE and row[_EXPERIMENT] is not None:
                    self.tables.setdefault(row[_EXPERIMENT], []).append(LogRow._make(row))
                yield row
            self._progress(number)

    def __enter__(self) -> Self:
        self.visitors.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self.visitors.__exit__(*raised)
