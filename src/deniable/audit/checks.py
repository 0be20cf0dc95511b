"""The checks of an audit as text: a question, its outcome, and a statement for the record.

Only exact checks, and those that hold simultaneously at all looks, can be "broken". Results that a
single look may produce by chance (chi-squares and binomial tests, with their p-values) are
"measured".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from deniable._formatting import listed
from deniable.audit.decisions import MEMBER, DecisionLog
from deniable.audit.draws import DrawTest, RowTests
from deniable.audit.evidence import (
    DRAWS_ALPHA,
    HOLDOUT,
    LOTTERY_ALPHA,
    OTHER_SLOT,
    Cells,
    Evidence,
)
from deniable.audit.exact import ACROSS_TIME, VersionProof, decimal
from deniable.audit.promise import Lottery, Promise
from deniable.audit.trackers import ROUNDING, Beliefs, ProvenRisk
from deniable.errors import NANO
from deniable.inference._special import binomial_two_sided

Outcome: TypeAlias = Literal["kept", "broken", "not tested", "measured"]


@dataclass(frozen=True)
class Check:
    """One question, its outcome, and the explanation."""

    name: str
    outcome: Outcome
    statement: str
    p_value: float | None = None


def broken(checks: Sequence[Check]) -> list[str]:
    """The names of those that found the promise broken."""
    return [check.name for check in checks if check.outcome == "broken"]


class Checked:
    """The result of an audit, which consists of checks."""

    checks: tuple[Check, ...]

    @property
    def sound(self) -> bool:
        """Whether no check found the promise broken."""
        return not broken(self.checks)


def exact_checks(promise: Promise, proofs: tuple[VersionProof, ...]) -> Iterator[Check]:
    """Yield the exact proof of each version."""
    for proof in proofs:
        of_version = "" if len(proofs) == 1 else f", version {proof.version}"
        worst = proof.worst
        ratio = worst.promised_ratio
        kept = all(arm.holds for arm in proof.arms)
        who = (
            "a tracker, whether or not it knows when the visitor first came,"
            if promise.version_grade == ACROSS_TIME
            else "a tracker that knows when the visitor first came"
        )
        if not promise.bounded:
            who = "a tracker that knows the row anyway, which is no secret"
        tables = f"{proof.n_tables:,} published table{'s' if proof.n_tables != 1 else ''}"
        moved = (
            "is shown to some segments and never to others"
            if ratio is None
            else f"moves the odds of {who} by at most {decimal(ratio)}"
        )
        yield Check(
            f"exact tables{of_version}",
            "kept" if kept else "broken",
            f"{tables} in exact arithmetic. Seeing {promise.arms[worst.arm]!r}, the worst arm, "
            f"{moved}: {'at most' if kept else 'ABOVE'} {decimal(worst.bound)}, which is below "
            f"e^{worst.budget_nano / NANO:g}.",
        )
        if proof.band_holds is not None:
            sound = proof.band_holds and not proof.outside_band
            yield Check(
                f"the band of all tables{of_version}",
                "kept" if sound else "broken",
                "No table that was or will be published can exceed the budgets: all entries lie "
                "between bounds that were fixed at the start."
                if sound
                else f"Tables {listed(proof.outside_band, 5)} lie outside of the band."
                if proof.band_holds
                else "The band itself exceeds a budget.",
            )
        if proof.n_tables:
            yield Check(
                f"tables follow from their counts{of_version}",
                "broken" if proof.not_replayed else "kept",
                f"Tables {listed(proof.not_replayed, 5)} are not what the strategy makes of the "
                "counts that they name."
                if proof.not_replayed
                else f"{tables} made again from the counts that they name: all equal.",
            )
            yield Check(
                f"tables when they were due{of_version}",
                "broken" if proof.not_due else "kept",
                f"Tables {listed(proof.not_due, 5)} were made at another number of decisions than the "
                "schedule says."
                if proof.not_due
                else f"{tables} made at the numbers of decisions that the schedule says. "
                f"{proof.skipped:,} of its numbers were skipped, as by a publisher that comes late.",
            )


def rule_checks(promise: Promise, log: DecisionLog) -> Iterator[Check]:
    """Yield the rules that every single decision must follow."""
    pairs = np.unique(np.stack([log.visitor, log.shown], axis=1), axis=0)
    visitors, arms = np.unique(pairs[:, 0], return_counts=True)
    yield _counted(
        "one arm per visitor",
        int((arms > 1).sum()),
        f"{visitors.size:,} visitors, each with one arm for good.",
        "visitors were shown more than one arm: every further one is a second spend.",
    )
    off = sum(
        int((~np.isin(log.shown[log.version == version], shown)).sum())
        for version, shown in promise.versions.items()
    )
    yield _counted(
        "only arms on offer",
        off,
        "No arm was shown after it was switched off, or before it was added.",
        "decisions showed an arm that was switched off, or not added yet.",
    )
    version_of = {published.number: published.version for published in promise.tables}
    named = np.array([version_of[number] for number in log.table.tolist()])
    yield _counted(
        "tables in order",
        int((named != log.version).sum()),
        "Every decision was drawn from a table of its version.",
        "decisions name a table of another version.",
    )
    if max(promise.segments_since) > 1:
        # The last entry is for unlisted segments, whose index is -1.
        since = np.array([*promise.segments_since, 1])
        yield _counted(
            "segments in order",
            int((log.table < since[log.segment] - 1).sum()),
            "No decision names a segment that was added later.",
            "decisions name a segment that was not listed yet.",
        )


def _counted(name: str, count: int, good: str, bad: str) -> Check:
    return Check(name, "broken" if count else "kept", f"{count:,} {bad}" if count else good)


def evidence_checks(found: Evidence) -> Iterator[Check]:
    """Compare draws with tables and roles with shares, valid simultaneously at all looks."""
    yield Check(
        "draws follow their tables",
        "broken" if found.draws_accuse else "kept",
        (
            "The arms shown cannot come from the published probabilities: "
            if found.draws_accuse
            else "The arms shown agree with the tables that the decisions name: "
        )
        + f"{_e_value(found.draws)} An alarm needs {1 / DRAWS_ALPHA:,.0f}, across all audits."
        + f" {found.power.words}",
        math.exp(-max(found.draws, 0.0)),
    )
    if found.lottery is not None:
        yield Check(
            "random assignment",
            "broken" if found.lottery_accuses else "kept",
            (
                "Members and holdouts were not assigned at random: "
                if found.lottery_accuses
                else "Members and holdouts agree with their shares, in every segment: "
            )
            + f"{_e_value(found.lottery)} An alarm needs {1 / LOTTERY_ALPHA:,.0f}.",
            math.exp(-max(found.lottery, 0.0)),
        )


def _e_value(log: float) -> str:
    shown = "above 10^12" if log > math.log(1e12) else f"{math.exp(log):.3g}"
    return f"e-value {shown}."


def lottery_checks(cells: Cells, lottery: Lottery) -> Iterator[Check]:
    """Compare observed roles with their shares by exact binomial tests, for information."""
    roles: Counter[int] = Counter()
    for (_, role, _, _), shows in cells.items():
        roles[role] += shows
    came = roles[MEMBER] + roles[OTHER_SLOT] + roles[HOLDOUT]
    tests = (
        ("visitors of other slots", roles[OTHER_SLOT], came, lottery.other_share),
        ("holdouts", roles[HOLDOUT], came - roles[OTHER_SLOT], lottery.holdout_share),
    )
    for name, hits, trials, share in tests:
        if trials and (share or hits):
            yield Check(
                f"share of {name}",
                "measured",
                f"{hits:,} of {trials:,} new visitors ({hits / trials:.2%}); {share:.1%} expected.",
                binomial_two_sided(hits, trials, share),
            )


def draw_checks(draws: Sequence[DrawTest], rows: RowTests) -> Iterator[Check]:
    """Compare observed arms with the tables by chi-square tests, for information."""
    words = {
        "arms, all visitors": "The arms shown over all visitors, against the tables",
        "likeliest arm shown": "The shows of each row's likeliest arm, against the tables",
    }
    for test in draws[:2]:
        yield Check(test.what, "measured", f"{words[test.what]}{_how(test)}.", test.p_value)
    segments = draws[2:]
    if segments:
        least = min(segments, key=lambda test: test.p_value)
        yield Check(
            "arms within each segment",
            "measured",
            f"The smallest p-value of {len(segments)} segments, times their number{_how(least)}.",
            min(1.0, least.p_value * len(segments)),
        )
    few = f"; {rows.too_few:,} rows have too few visitors" if rows.too_few else ""
    if rows.table is not None:
        yield Check(
            "arms by table and segment",
            "measured",
            f"The smallest p-value of {rows.tested:,} rows of tables (table {rows.table}), times "
            f"their number{few}.",
            rows.adjusted,
        )


def _how(test: DrawTest) -> str:
    return " (by simulation: few visitors)" if test.simulated else ""


def counted_check(log_cells: Cells, counted: Cells, erased: int) -> Check:
    """Check that counters and stored decisions agree, except for erased ones."""
    missing = {
        cell: counted.get(cell, 0) - log_cells.get(cell, 0)
        for cell in {*counted, *log_cells}
        if counted.get(cell, 0) != log_cells.get(cell, 0)
    }
    short = sum(1 for away in missing.values() if away < 0)
    good = not short and sum(missing.values()) == erased
    return Check(
        "counters and decisions",
        "kept" if good else "broken",
        f"Counters and stored decisions agree, {erased:,} erased ones apart."
        if good
        else "The stored decisions are not those that were counted: "
        f"{short:,} cells of table, segment and arm have more decisions than were counted, and "
        f"{sum(away for away in missing.values() if away > 0):,} decisions are missing of which "
        f"{erased:,} were erased.",
    )


def chain_check(problems: Sequence[str]) -> Check:
    """Check that ledger, rows and tables agree."""
    return Check(
        "the ledger",
        "broken" if problems else "kept",
        " ".join(f"{problem[:1].upper()}{problem[1:]}." for problem in problems)
        if problems
        else "Every chain holds from its first entry to its end. Promise, tables and rows are what it "
        "says.",
    )


def proven_check(promise: Promise, proven: ProvenRisk) -> Check:
    """Report what counts alone prove."""
    if proven.arm is None:
        return Check("counts alone", "not tested", "There is nothing to compare yet.")
    sentence = (
        f"From {proven.visitors:,} visitors' arms and segments alone, a risk of at least "
        f"{proven.nats:.4g} nats is proven (confidence {1 - proven.alpha:.2%}, over all audits); "
        f"the promise for {promise.arms[proven.arm]!r} is {proven.budget:g}."
    )
    return Check("counts alone", "broken" if proven.exceeds else "kept", sentence)


def belief_checks(promise: Promise, beliefs: Beliefs | None) -> Iterator[Check]:
    """Report what the strongest tracker came to believe."""
    if beliefs is None:
        yield Check("the best tracker", "not tested", "There are not yet visitors of two segments.")
        return
    arm, both, budget = beliefs.arm, beliefs.arm_and_response, promise.budget_nano / NANO
    moved = arm.moved if arm.moved > ROUNDING else 0.0
    yield Check(
        "the best tracker",
        "kept" if arm.moved <= budget + ROUNDING else "broken",
        f"A tracker that knows the whole algorithm moved its log odds by at most {moved:.6g} "
        f"({budget:g} promised); its highest belief is {arm.highest:.1%} (at most "
        f"{arm.bound:.1%}). It guesses {100 * arm.guessed:.1f} of 100 segments right; "
        f"{100 * arm.guessed_before:.1f} without seeing anything.",
    )
    yield Check(
        "a tracker that sees responses too",
        "measured",
        f"Not promised: its highest belief is {both.highest:.1%}, it guesses "
        f"{100 * both.guessed:.1f} of 100 right. The part beyond the arm comes from what people "
        "click, which no randomization of arms hides.",
    )
