"""The audit of the whole firm: layers, windows, commitments and every experiment's promise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from fractions import Fraction

from deniable._formatting import counted
from deniable._types import JsonObject
from deniable.audit.checks import Check, Checked, broken, chain_check
from deniable.audit.exact import ACROSS_TIME
from deniable.audit.firm import Account, counts_until
from deniable.errors import NANO
from deniable.privacy.exact import SPACE, exp_floor
from deniable.privacy.tables import Table
from deniable.storage.promise_entries import PromisedTable
from deniable.storage.promises import Promise
from deniable.storage.times import as_datetime
from deniable.strategies import TABLE_RULES


class TableTally:
    """Checks one experiment's tables exactly, one at a time, in constant memory."""

    def __init__(self, promise: Promise) -> None:
        self.tables = 0
        self.problems: list[str] = []
        self._budgets = [promise.budget_nano if own is None else own for _, own, _ in promise.arms]
        self._bounds = [exp_floor(budget) for budget in self._budgets]
        known = TABLE_RULES.get(promise.strategy)
        self._bounded = promise.bounded
        self._across = known is not None and known.grade == ACROSS_TIME
        self._extremes: dict[int, list[tuple[int, int]]] = {}  # of the tables in one band
        self.worst_over_bound = Fraction(0)

    def add(self, table: Table, chained: PromisedTable) -> None:
        """Check a table that matches the digest in its entry."""
        self.tables += 1
        columns = list(zip(*table.rows, table.unlisted, strict=True))
        extremes = [(min(column), max(column)) for column in columns]
        number = chained.number
        if self._bounded:
            self._check(f"table {number}", extremes)
        ratios = [Fraction(most, least or 1) if most else Fraction(1) for least, most in extremes]
        stated = [Fraction(text) for text in chained.ratios]
        stated += [Fraction(1)] * (
            len(ratios) - len(stated)
        )  # arms added later, which are not shown
        if ratios != stated:
            self.problems.append(f"table {number} has other worst ratios than the ledger says")
        if not self._across:
            return
        before = self._extremes.get(chained.version, [(SPACE, 0)] * len(extremes))
        self._extremes[chained.version] = [
            (min(low, least), max(high, most))
            for (low, high), (least, most) in zip(before, extremes, strict=True)
        ]

    def finish(self) -> None:
        """Check all tables of a version together, if that is promised."""
        for version, extremes in self._extremes.items():
            self._check(f"the tables of version {version} together", extremes)

    def _check(self, what: str, extremes: Iterable[tuple[int, int]]) -> None:
        for place, ((least, most), bound) in enumerate(zip(extremes, self._bounds, strict=True)):
            if not most:
                continue
            if not least or most * bound.denominator > bound.numerator * least:
                self.problems.append(
                    f"{what}: arm {place + 1} exceeds its budget of {self._budgets[place] / NANO:g}"
                )
            else:
                over = Fraction(most * bound.denominator, bound.numerator * least)
                self.worst_over_bound = max(self.worst_over_bound, over)


@dataclass(frozen=True)
class ExperimentLine:
    """One experiment in the firm's audit.

    Attributes:
        key: its key.
        status: status, according to the chain.
        strategy: strategy that makes its tables.
        budget_nano: its budget.
        layer: its layer, or None.
        slots: number of its slots in the layer.
        decisions: number of chained decisions.
        erased: how many of them are erased.
        tables: number of published tables.
        tombstones: number of tombstones, according to the chain.
        counts_until: when it stops counting; None while it is live, or if it never started.
        audited: (time, sound) of the newest recorded audit.
        problems: what is wrong with it.
    """

    key: str
    status: str
    strategy: str
    budget_nano: int
    layer: str | None
    slots: int
    decisions: int
    erased: int
    tables: int
    tombstones: int
    counts_until: datetime | None
    audited: tuple[datetime, bool] | None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class FirmAudit(Checked):
    """The result of an audit of the firm.

    Attributes:
        made_at: time of the audit.
        account: the firm's account, recomputed from the chain.
        experiments: one line each.
        commitments: number of entries in the chain.
        decisions: number of decisions verified along their chains.
        heads: chain -> its length and newest hash.
        checks: all checks.
    """

    made_at: datetime
    account: Account
    experiments: tuple[ExperimentLine, ...]
    commitments: int
    decisions: int
    heads: dict[str, str]
    checks: tuple[Check, ...] = field(default=())

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        if found := broken(self.checks):
            return f"The firm's promise is NOT kept: {', '.join(found)}."
        return (
            f"The firm's promise is kept, over {counted(len(self.experiments), 'experiment')} and "
            f"{counted(self.decisions, 'decision')}."
        )

    def to_dict(self) -> JsonObject:
        """Return plain numbers, strings and lists for JSON."""
        return {
            "made_at": self.made_at.isoformat(),
            "sound": self.sound,
            "verdict": self.verdict,
            "commitments": self.commitments,
            "decisions": self.decisions,
            "checks": [asdict(check) for check in self.checks],
            "settings": [
                {
                    "since": as_datetime(peak.setting.since).isoformat(),
                    "budget": peak.setting.budget_nano / NANO,
                    "window_days": peak.setting.window_days,
                    "reason": peak.setting.reason,
                    "peak": peak.nano / NANO,
                    "peak_at": as_datetime(peak.at).isoformat(),
                    "kept": peak.kept,
                }
                for peak in self.account.peaks
            ],
            "experiments": [
                {
                    **asdict(line),
                    "counts_until": None
                    if line.counts_until is None
                    else line.counts_until.isoformat(),
                    "audited": None
                    if line.audited is None
                    else {"at": line.audited[0].isoformat(), "sound": line.audited[1]},
                }
                for line in self.experiments
            ],
            "heads": self.heads,
        }


def firm_checks(
    account: Account, experiments: Sequence[ExperimentLine], ledger_problems: Sequence[str]
) -> tuple[Check, ...]:
    """Return the checks of the firm's audit."""
    tables = sum(line.tables for line in experiments)
    bad = [(line.key, problem) for line in experiments for problem in line.problems]
    shown = "; ".join(f"{key}: {problem}" for key, problem in bad[:5])
    more = f"; and {len(bad) - 5} more" if len(bad) > 5 else ""
    return (
        chain_check(ledger_problems),
        _window_check(account),
        Check(
            "every debit",
            "broken" if account.problems else "kept",
            "; ".join(account.problems[:5]) + "."
            if account.problems
            else f"{counted(len(account.lives), 'debit')}, each at least what is promised, in order "
            "of time; no two experiments of a layer had a slot in common; every weaker setting "
            "has a reason.",
        ),
        Check(
            "every experiment's promise",
            "broken" if bad else "kept",
            f"{shown}{more}."
            if bad
            else f"{counted(len(experiments), 'experiment')} and {counted(tables, 'table')} in exact "
            "arithmetic: each "
            "table has the hash that was chained and keeps its budgets, alone and, where that is "
            "promised, together with the others; rows and tombstones are what the "
            "chain says.",
        ),
    )


def _window_check(account: Account) -> Check:
    if not account.peaks:
        problem = bool(account.lives)
        sentence = "No budget of the firm was ever set"
        return Check(
            "every window",
            "broken" if problem else "not tested",
            f"{sentence}, and experiments were started." if problem else f"{sentence}.",
        )
    over = [peak for peak in account.peaks if not peak.kept]
    if over:
        peak = over[0]
        why = "; a restored store may have been spent twice" if peak.restored else ""
        sentence = (
            f"{peak.nano / NANO:g} nats counted at once on {as_datetime(peak.at):%Y-%m-%d %H:%M}"
        )
        return Check(
            "every window",
            "broken",
            f"{sentence}, above the {peak.setting.budget_nano / NANO:g} that were promised for any "
            f"{peak.setting.window_days} days{why}.",
        )
    parts = [
        f"at most {peak.nano / NANO:g} of {peak.setting.budget_nano / NANO:g} nats in any "
        f"{peak.setting.window_days} days since {as_datetime(peak.setting.since):%Y-%m-%d}"
        for peak in account.peaks[-3:]
    ]
    return Check("every window", "kept", "Recomputed from the chain: " + "; ".join(parts) + ".")


def ends(account: Account) -> dict[bytes, datetime | None]:
    """Return experiment -> when it stops counting under the settings in force."""
    found: dict[bytes, datetime | None] = {}
    for life in account.lives:
        if life.experiment_id is not None:
            until = counts_until(life, account.settings)
            found[life.experiment_id] = None if until is None else as_datetime(until)
    return found
