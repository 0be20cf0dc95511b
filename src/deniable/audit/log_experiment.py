"""One experiment of a log: what its commitments promise, its tables, and counts of what was drawn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deniable._validation import FloatArray
from deniable.audit.checks import Check, exact_checks
from deniable.audit.exact import VersionProof, exact_proof
from deniable.audit.log_links import Flags, Ints
from deniable.audit.promise import AuditedTable, Promise
from deniable.errors import NANO
from deniable.inference.e_values import DrawEvidence, draw_evidence, smallest_excess
from deniable.inference.state import Batch
from deniable.privacy.serving import SPACE
from deniable.privacy.tables import decoded_table
from deniable.storage import promises
from deniable.storage.commitments import Entry
from deniable.storage.promises import PromisedTable
from deniable.storage.records import Role

ALPHA = 1e-3
"""How often a sound experiment is accused by its draws, however often it is audited."""

POWER = 0.99


@dataclass(frozen=True)
class AuditedExperiment:
    """What the log tells about one experiment.

    Attributes:
        key: its name.
        scratch: whether it is a scratch copy, which costs the firm nothing.
        promise: what it promised, by the chain, and the tables that it published.
        decisions: open decisions that were compared with their tables.
        proofs: the exact check, by version.
        checks: one by one.
        evidence: against "draws follow their tables"; None without decisions.
    """

    key: str
    scratch: bool
    promise: Promise
    decisions: int
    proofs: tuple[VersionProof, ...]
    checks: tuple[Check, ...]
    evidence: DrawEvidence | None

    @property
    def sound(self) -> bool:
        """Whether no check found the promise broken."""
        return all(check.outcome != "broken" for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "experiment": self.key,
            "scratch": self.scratch,
            "sound": self.sound,
            "grade": self.promise.stated_grade,
            "budget": self.promise.budget_nano / NANO,
            "tables": len(self.promise.tables),
            "decisions": self.decisions,
            "log_e_value": None if self.evidence is None else self.evidence.log_e_value,
            "checks": [asdict(check) for check in self.checks],
        }


class LoggedExperiment:
    """What is known of one experiment while its log is read.

    Args:
        promise: by its commitments.
        chained: its tables as the commitments name them, by number.
        off: arm position -> the version from which it is off.
        erased: decisions that were erased.
    """

    PROBLEMS: ClassVar = (
        "names a table that was never published",
        "names a table of another version",
        "is older than its table",
        "shows an arm that its row of the table does not",
    )
    """Why a decision cannot be, by what `problems` returns less one."""

    def __init__(
        self,
        promise: promises.Promise,
        chained: Mapping[int, PromisedTable],
        off: Mapping[int, int],
        erased: int,
    ) -> None:
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
        self._horizon: int | None = None
        self.tables: list[AuditedTable] = []

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> LoggedExperiment:
        """From the entries of one experiment.

        Raises:
            BrokenPromiseError: the entries do not say what it promises.
        """
        known = [entry for entry in entries if entry.kind in promises.KINDS]
        promise = promises.promise_from("", known)
        positions = {key: place for place, (key, _, _) in enumerate(promise.arms)}
        off: dict[int, int] = {}
        for entry in entries:
            if entry.kind == "switch_off":
                off[positions[entry.detail["arm"]]] = entry.detail["version"]
        for key, _, active in promise.arms:
            if not active:  # switched off before migration 0004
                off.setdefault(positions[key], 1)
        chained = [promises.promised_table(entry) for entry in entries if entry.kind == "table"]
        erased = sum(
            entry.detail["decisions"] for entry in entries if entry.kind in ("erase", "purge")
        )
        return cls(promise, {table.number: table for table in chained}, off, erased)

    @property
    def missing_table(self) -> int | None:
        """The first table that the commitments name and the log does not have."""
        return min(set(self._chained) - {table.number for table in self.tables}, default=None)

    def add_table(self, number: int, version: int, detail: Mapping[str, Any]) -> str | None:
        """Take in a table as the log has it; returns what is wrong with it, or None."""
        chained = self._chained.get(number)
        if chained is None:
            return "is not in the commitments"
        if any(table.number == number for table in self.tables[-1:]):
            return "is there twice"
        encoded, counts = bytes.fromhex(detail["rows"]), detail["counts"].encode()
        have = (version, detail["decisions"], *(sha256(x).hexdigest() for x in (encoded, counts)))
        if have != (chained.version, chained.decisions, chained.rows, chained.counts):
            return "was changed"
        self._horizon = detail["planned_visitors"]
        made_from = json.loads(counts)
        table = decoded_table(encoded, self._shape[1])
        self._possible[number] = np.array([*table.rows, table.zero], dtype=object) > 0
        self.tables.append(
            AuditedTable(
                number,
                version,
                table,
                tuple(map(tuple, made_from["shows"])),
                tuple(map(tuple, made_from["rewards"])),
            )
        )
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
        """For each decision 0, or one more than the place in PROBLEMS of what is wrong with it."""
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
        """Take in open decisions without a problem."""
        if self._counts is None:
            self._counts = np.zeros((self._version.size, *self._shape), dtype=np.int64)
        rows, arms = self._shape
        cells = (table * rows + self._rows(role, segment)) * arms + shown
        np.add.at(self._counts.reshape(-1), cells, 1)

    def audited(self) -> AuditedExperiment:
        """All checks of the tables and of what was drawn from them."""
        promise = self._audited_promise()
        proofs = exact_proof(promise)
        checks = list(exact_checks(promise, proofs))
        evidence = None
        if self._counts is not None:
            evidence, check = self._draw_check(self._counts)
            checks.append(check)
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
        """The row of the table that was drawn from; the last one is the zero row."""
        return np.where((role == Role.MEMBER) & (segment >= 0), segment, self._shape[0] - 1)

    def _audited_promise(self) -> Promise:
        told = self._promise
        everyone = range(len(told.arms))
        return Promise(
            name=told.key,
            arms=tuple(key for key, _, _ in told.arms),
            segments=told.segments,
            budgets_nano=tuple(
                told.budget_nano if budget is None else budget for _, budget, _ in told.arms
            ),
            strategy=told.strategy,
            cap=told.metrics[0].cap_micro,
            horizon=self._horizon,
            versions={
                version: tuple(arm for arm in everyone if self._off.get(arm, version + 1) > version)
                for version in range(1, told.version + 1)
            },
            tables=tuple(self.tables),
            one_band=told.one_band,
        )

    def _draw_check(self, counts: NDArray[np.int64]) -> tuple[DrawEvidence, Check]:
        """Draws against the tables they name: evidence that may be looked at every night."""
        used = [table for table in self.tables if counts[table.number].any()]
        chances = [_chances(table) for table in used]
        shows = [counts[table.number] for table in used]
        evidence = draw_evidence(
            [Batch(p, n, np.zeros(self._shape)) for p, n in zip(chances, shows, strict=True)]
        )
        broken = evidence.log_e_value >= np.log(1 / ALPHA)
        noticed = _noticed(np.stack(chances), np.stack(shows))
        words = (
            "The arms shown cannot come from the tables that the decisions name"
            if broken
            else "The arms shown agree with the tables that the decisions name"
        )
        told = f"{words} (e-value {np.exp(min(evidence.log_e_value, 700.0)):.3g})."
        power = (
            " Too few decisions to notice any bias of a single arm."
            if noticed is None
            else f" A bias of {noticed:.2g} nats of a segment's arm would have been noticed with 99%."
        )
        outcome = "broken" if broken else "kept"
        return evidence, Check("draws", outcome, told + power, evidence.p_value)  # type: ignore[arg-type]


def _chances(table: AuditedTable) -> FloatArray:
    rows = (*table.table.rows, table.table.zero)
    return np.array([[entry / SPACE for entry in row] for row in rows])


def _noticed(chances: FloatArray, shows: NDArray[np.int64]) -> float | None:
    """The bias that would have been noticed in every arm of every segment with enough decisions.

    Of the segment with most decisions: its arm that is hardest to judge.
    """
    trials = shows.sum(axis=2)
    segment = int(trials.sum(axis=0).argmax())
    # As many e-values are averaged as there are cells and rows, with the whole apart.
    alpha = ALPHA / ((shows.shape[1] + 1) * (shows.shape[2] + 1))
    worst = 0.0
    for arm in range(shows.shape[2]):
        p = chances[:, segment, arm]
        if not p.any():
            continue
        found = smallest_excess(p, trials[:, segment], alpha=alpha, power=POWER)
        if found is None:
            return None
        worst = max(worst, found.tilt)
    return worst
