"""The report of an audit as one printable HTML file; `save` saves it.

The file is self-contained: it has no script and loads nothing. It names no segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import TYPE_CHECKING

from deniable._formatting import counted, short
from deniable.audit.checks import Check
from deniable.audit.exact import ACROSS_TIME, decimal
from deniable.audit.firm_report import FirmAudit
from deniable.audit.report import Audit
from deniable.charts.save import chart_svg
from deniable.errors import NANO
from deniable.privacy.belief import highest_belief
from deniable.privacy.exact import SPACE
from deniable.report.content import Bullets, Figures, Paragraph, Section, section
from deniable.report.html import Page, page_html
from deniable.storage.times import as_datetime

if TYPE_CHECKING:
    from markupsafe import Markup

PRIOR = 0.1
WIDTH = 820

PRIVATE = (
    "For the firm and its auditors only: exact figures can tell one visitor's segment to somebody who "
    "knows all others. Give a statement to everybody else."
)

OUTSIDE = (
    "Decisions that were never stored, and arms that reached a visitor by another way than the service.",
    "What visitors click: where click rates differ by segment, a click is evidence, and no "
    "randomization of arms hides it.",
    "A segment that can be read from the page itself, or from which pages have experiments.",
    "A store whose chains were all recomputed by somebody who may write to it. Compare the heads below "
    "with those that were noted elsewhere.",
)


def experiment_page(found: Audit) -> str:
    """Return the audit report of one experiment."""
    promise = found.promise
    budget = promise.budget_nano / NANO
    proof = found.proofs[-1]
    worst = proof.worst
    ratio = worst.promised_ratio
    evidence = found.evidence
    excess = None if evidence is None else evidence.power.overall
    figures = [
        (
            "some only" if ratio is None else f"× {decimal(ratio, 8)}",
            "most that an arm moves odds",
            f"promised: at most {decimal(worst.bound, 8)}",
        ),
        (f"{found.decisions:,}", "decisions checked", counted(_tables(found), "published table")),
        (
            "-" if evidence is None else _e_value(evidence.draws),
            "evidence against the draws",
            "an alarm needs 1,250",
        ),
        (
            "-" if excess is None else f"{excess.tilt:.2g} nats",
            "excess it would have noticed",
            "with 99% chance",
        ),
    ]
    return _rendered(
        title=f"Audit of {promise.name}",
        found=found,
        facts=f"{promise.strategy.capitalize()} strategy, promise {promise.grade}, "
        f"{len(promise.arms)} arms, {len(promise.segments)} segments.",
        promise=_promise_words(budget, promise.grade == ACROSS_TIME),
        picture=_people(budget),
        figures=figures,
        sections=[
            _checks(found.checks),
            section(
                "Each arm in exact arithmetic",
                "The largest and the smallest chance of being shown an arm, out of 2^64, over all "
                "segments and published tables of the last version; the worst factor is a fraction of "
                "integers, compared with a rational number below e^budget. Decimals are cut, not "
                "rounded.",
                ("arm", "budget", "at most", "at least", "worst factor", "bound", "kept"),
                tuple(
                    (
                        promise.arms[arm.arm],
                        f"{arm.budget_nano / NANO:g}",
                        f"{arm.most / SPACE:.4%}",
                        f"{arm.least / SPACE:.4%}",
                        "-" if arm.promised_ratio is None else decimal(arm.promised_ratio),
                        decimal(arm.bound),
                        "yes" if arm.holds else "NO",
                    )
                    for arm in proof.arms
                ),
                small=True,
            ),
            section(
                "What was shown, and what was designed",
                "Left: how often each arm was shown, beside what the tables ask for. Right: the "
                "worst that each arm can tell, and its budget (mark)."
                if found.draws
                else "The worst that each arm can tell, and its budget (mark).",
            ).illustrated(
                chart_svg(found.chart(), "arms-", "Arms shown, and the worst case of each")
            ),
            section("What this audit would have noticed", found.power),
        ],
    )


def firm_page(found: FirmAudit) -> str:
    """Return the audit report of the whole firm."""
    peaks = found.account.peaks
    last = peaks[-1] if peaks else None
    figures = [
        (
            "-" if last is None else f"{last.nano / NANO:g} nats",
            "most in any window",
            "no budget was set"
            if last is None
            else f"promised: {last.setting.budget_nano / NANO:g} in any {last.setting.window_days} days",
        ),
        (f"{len(found.experiments):,}", "experiments", counted(len(_layers(found)), "layer")),
        (f"{found.decisions:,}", "decisions followed", "along their hash chains"),
        (f"{found.commitments:,}", "commitments followed", "budgets, starts, stops, tables"),
    ]
    budget = 0.0 if last is None else last.setting.budget_nano / NANO
    days = 0 if last is None else last.setting.window_days
    account: tuple[Markup, ...] = ()
    if found.account.points:
        from deniable.charts.audit import account_chart

        points = [
            (as_datetime(at).isoformat(), nano / NANO, peaks[place].setting.budget_nano / NANO)
            for at, nano, place in found.account.points
        ]
        points.append((found.made_at.isoformat(), *points[-1][1:]))
        drawn = account_chart(points, width=WIDTH)
        account = (chart_svg(drawn, "account-", "What counted over time, under the firm's budget"),)
    return _rendered(
        title="Audit of the firm",
        found=found,
        facts="Recomputed from the hash chain alone, by other code than the service spends by.",
        promise=(
            f"Whatever a visitor is shown in all experiments of any {days} days together, whoever "
            "watches can change the odds they give to that visitor belonging to any segment by at "
            f"most the factor e^{budget:g} = {short(exp(min(budget, 700.0)), 4)}. Experiments "
            "without a layer add up; of a layer only the visitor's own slot counts. Windows add up, "
            "too. Several ids of one person, and people who are known to have the same segment, add "
            "up at least.",
        ),
        picture=None,
        figures=figures,
        sections=[
            _checks(found.checks),
            section(
                "The account over time",
                "What counted at once (area), under what was promised (dashed line).",
                ("since", "reason", "window", "budget", "most", "reached", "kept"),
                tuple(
                    (
                        f"{as_datetime(peak.setting.since):%Y-%m-%d}",
                        peak.setting.reason or "-",
                        f"{peak.setting.window_days} days",
                        f"{peak.setting.budget_nano / NANO:g}",
                        f"{peak.nano / NANO:g}",
                        f"{as_datetime(peak.at):%Y-%m-%d}",
                        "yes" if peak.kept else "NO",
                    )
                    for peak in peaks
                ),
                words=2,
            ).illustrated(*account),
            section(
                "Experiments",
                "",
                (
                    *("experiment", "status", "layer", "budget", "decisions", "tables"),
                    *("erased", "uses budget until", "latest audit", "kept"),
                ),
                tuple(
                    (
                        line.key,
                        line.status,
                        "-" if line.layer is None else f"{line.layer}, {line.slots / 10:g}%",
                        f"{line.budget_nano / NANO:g}",
                        f"{line.decisions:,}",
                        f"{line.tables:,}",
                        f"{line.erased:,}",
                        "-" if line.counts_until is None else f"{line.counts_until:%Y-%m-%d}",
                        "none"
                        if line.audited is None
                        else f"{line.audited[0]:%Y-%m-%d}, {'kept' if line.audited[1] else 'NOT kept'}",
                        "NO" if line.problems else "yes",
                    )
                    for line in found.experiments
                ),
                words=3,
                small=True,
            ),
        ],
    )


def _rendered(
    *,
    title: str,
    found: Audit | FirmAudit,
    facts: str,
    promise: Sequence[str],
    picture: Markup | None,
    figures: Sequence[tuple[str, str, str]],
    sections: Sequence[Section],
) -> str:
    beside = () if picture is None else (Figures((picture,), beside=True),)
    page = Page(
        title=title,
        byline=f"{found.made_at:%d %B %Y, %H:%M} UTC. {facts}",
        headline=found.verdict,
        tone="good" if found.sound else "bad",
        warning=PRIVATE,
        figures=tuple(figures),
        sections=(
            Section("The promise", (*beside, *map(Paragraph, promise))),
            *sections,
            Section("What is outside of this audit", (Bullets(OUTSIDE),)),
            *_heads(found),
        ),
    )
    return page_html(page)


def _heads(found: Audit | FirmAudit) -> list[Section]:
    if not found.heads:
        return []
    return [
        section(
            "Heads of the chains",
            "Length and newest hash of each chain when this audit read them. Keep this page apart from "
            "the store: a chain that no longer holds these hashes was rewritten (deniable ledger verify "
            "--head CHAIN=LENGTH:HASH).",
            ("chain", "length", "newest hash"),
            tuple((name, *end.split(":")) for name, end in sorted(found.heads.items())),
            words=3,
            small=True,
        )
    ]


def _promise_words(budget: float, across_time: bool) -> tuple[str, ...]:
    after = float(highest_belief(PRIOR, budget))
    return (
        f"A tracker that was {PRIOR:.0%} sure of a visitor's segment can become at most {after:.1%} "
        f"sure after seeing the visitor's variant: its odds move by at most the factor e^{budget:g} = "
        f"{short(exp(budget), 4)}. One variant is drawn for each id, once; the visitor keeps it. This "
        "holds given everything about earlier visitors, if their segments are independent of this "
        "one's.",
        "This holds whether or not the tracker knows when the visitor first came."
        if across_time
        else "This holds for a tracker that knows when the visitor first came. For a tracker that does "
        "not know, there is no limit, because the tables changed.",
    )


def _people(budget: float) -> Markup:
    from deniable.charts.leak import people_picture

    after = float(highest_belief(PRIOR, budget))
    words = f"{PRIOR:.0%} before; at most {after:.1%} after seeing an arm"
    drawn = people_picture(
        round(100 * PRIOR), round(100 * after), "Belief in a segment", words=words
    )
    return chart_svg(drawn, "people-", f"Of 100 people like this visitor: {words}")


def _checks(checks: Sequence[Check]) -> Section:
    header = ("check", "outcome", "what was found", "p-value")
    rows = [
        (
            check.name.capitalize(),
            check.outcome,
            check.statement,
            "" if check.p_value is None else f"{check.p_value:.3g}",
        )
        for check in checks
    ]
    width = 4 if any(row[3] for row in rows) else 3
    return section("Every check", "", header[:width], tuple(row[:width] for row in rows), words=3)


def _tables(found: Audit) -> int:
    return sum(proof.n_tables for proof in found.proofs)


def _layers(found: FirmAudit) -> set[str]:
    return {line.layer for line in found.experiments if line.layer is not None}


def _e_value(log: float) -> str:
    return "above 10^12" if log > 27.6 else f"{exp(log):.3g}"
