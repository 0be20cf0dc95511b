"""The experiments of a log that was verified: their tables, and the draws from them.

And visitors with two decisions, found exactly, in memory that does not grow with the log. Visitors are
keyed HMACs that differ between experiments. They are written to files by their first byte, with their
row numbers; then each file is sorted separately.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np

from deniable._types import JsonObject
from deniable.audit.checks import Check, Checked, exact_checks
from deniable.audit.evidence import Cells, Evidence
from deniable.audit.evidence import evidence as evidence_of
from deniable.audit.exact import VersionProof, exact_proof
from deniable.audit.log_blocks import blocks
from deniable.audit.promise import AuditedTable, Lottery, Promise
from deniable.audit.recount import Recount, recounted_log
from deniable.errors import NANO
from deniable.storage import promises
from deniable.storage.log_rows import LogRow
from deniable.storage.records import SLOTS
from deniable.storage.verifier import Verifier


@dataclass(frozen=True)
class AuditedExperiment(Checked):
    """The results for one experiment in a log.

    Attributes:
        key: its name.
        promise: its promise according to the chain, and its published tables.
        decisions: open decisions that were compared with their tables.
        proofs: the exact check, by version.
        checks: all checks.
        evidence: evidence against its draws and its lottery; None without decisions.
    """

    key: str
    promise: Promise
    decisions: int
    proofs: tuple[VersionProof, ...]
    checks: tuple[Check, ...]
    evidence: Evidence | None

    def to_dict(self) -> JsonObject:
        """Return plain values for JSON."""
        return {
            "experiment": self.key,
            "sound": self.sound,
            "grade": self.promise.grade,
            "budget": self.promise.budget_nano / NANO,
            "tables": len(self.promise.tables),
            "decisions": self.decisions,
            "log_e_value": None if self.evidence is None else self.evidence.draws,
            "checks": [asdict(check) for check in self.checks],
        }


def audited_experiments(
    path: Path, verifier: Verifier, tables: Mapping[bytes, Sequence[LogRow]]
) -> Iterator[AuditedExperiment]:
    """Run all checks of tables, and of the draws from them, in a log that was verified.

    Args:
        path: the log.
        verifier: after the last row.
        tables: experiment -> its rows of published tables.
    """
    cells: defaultdict[bytes, dict[tuple[int, int, int, int], int]] = defaultdict(dict)
    for (identity, number), drawn in verifier.drawn.items():
        for (role, segment, arm), shows in drawn.cells.items():
            cells[identity][number, role, segment, arm] = shows
    promised = {
        identity: _promise(verifier, identity, chained, tables[identity])
        for identity, chained in verifier.committed.promises.items()
        if identity in tables
    }
    recounts = recounted_log(lambda: blocks(path), verifier.rows, promised)
    for identity, promise in promised.items():
        chained = verifier.committed.promises[identity]
        yield _audited(chained, promise, cells[identity], recounts[identity])


def _promise(
    verifier: Verifier, identity: bytes, chained: promises.Promise, rows: Sequence[LogRow]
) -> Promise:
    off = {
        entry.detail["arm"]: entry.detail["version"]
        for entry in verifier.committed.entries[identity]
        if entry.kind == "switch_off"
    }
    return Promise.chained(chained, off, [_audited_table(chained, row) for row in rows])


def _audited(
    chained: promises.Promise, promise: Promise, cells: Cells, recount: Recount
) -> AuditedExperiment:
    proofs = exact_proof(promise)
    checks = [*exact_checks(promise, proofs), *recount.checks()]
    evidence = None
    if cells:
        slots = chained.slots
        shared = SLOTS if slots is None else int.from_bytes(slots, "little").bit_count()
        evidence = evidence_of(promise, cells, Lottery(slots=shared, holdout=chained.holdout))
        checks += _draw_checks(evidence)
    return AuditedExperiment(
        key=chained.key,
        promise=promise,
        decisions=sum(cells.values()),
        proofs=proofs,
        checks=tuple(checks),
        evidence=evidence,
    )


def _audited_table(chained: promises.Promise, row: LogRow) -> AuditedTable:
    detail = json.loads(row.detail or "")
    return AuditedTable.stored(
        row.table or 0,
        row.version or 0,
        bytes.fromhex(detail["rows"]),
        detail["counts"].encode(),
        decisions=detail["decisions"],
        published_at=row.time or 0,
        n_segments=len(chained.rows),
        n_arms=len(chained.arms),
    )


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
            "Members and holdouts cannot have been assigned at random"
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

    def add(self, visitor: bytes, row: int) -> None:
        """Add the visitor of a decision, 16 bytes, and its row number."""
        self._files[visitor[0] % _FILES].write(visitor + row.to_bytes(8, "little"))

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
