"""The statement, the record of processing and the register entry; `dpia.py` has the impact assessment.

The statement, for signature, says what the firm promises about one experiment and why it holds. A
record of processing activities is kept by controllers. The entry for a public register of
differential-privacy deployments names no segments.
"""

from __future__ import annotations

from deniable.documents import words
from deniable.documents.content import (
    Bullets,
    Field,
    Fields,
    Paragraph,
    Section,
    Signatures,
)
from deniable.documents.facts import Facts

SIGNING = "Signatures"
AUDIT = "Annex C. The latest audit"


def statement(facts: Facts) -> tuple[str, tuple[Section, ...]]:
    """Return title and sections."""
    return (
        f"What we promise about {words.name(facts.key)}",
        (
            Section(
                "1. The promise",
                (
                    Paragraph(words.promise_words(facts)),
                    words.beliefs(facts.promise.budget_nano),
                ),
            ),
            Section("2. The watcher", (Paragraph(words.WATCHER),)),
            Section("3. The segments", (Paragraph(words.segment_words(facts)),)),
            Section("4. Time", (Paragraph(words.grade_words(facts)),)),
            Section("5. All experiments together", (Paragraph(words.account_words(facts)),)),
            Section("6. Not covered", (Bullets(words.not_covered(facts)),)),
            Section(SIGNING, (Signatures(("For the firm", "Privacy officer")),)),
            words.exact_section(facts),
            _why(facts),
            words.account_section(facts, "Annex B. The firm's account"),
            _audit(facts),
            *_all_segments(facts),
        ),
    )


def _why(facts: Facts) -> Section:
    """Explain the argument, for reviewers."""
    kept = all(proof.holds for proof in facts.proofs)
    together = "table by table"
    if facts.promise.grade == "across time":
        together = "over all tables" + (" of each part above" if len(facts.proofs) > 1 else "")
    return Section(
        "Why it holds",
        (
            Paragraph(
                "Versions (arms) are drawn from tables of whole numbers that sum to 2^64, with "
                "the operating system's randomness. Each table was published, with its hash in "
                "the ledger, before anybody was drawn from it. Seeing a version can multiply odds "
                "by no more than its largest chance divided by its smallest, over all segments, "
                f"{together}. That fraction was compared with a rational number below e^budget in "
                "exact arithmetic, without rounding: "
                + ("it is at most that, everywhere." if kept else "it is ABOVE it. Do not sign.")
                + " Decimals are cut, not rounded."
            ),
            Paragraph(words.trace_words(facts)),
        ),
    )


def _audit(facts: Facts) -> Section:
    audit = facts.audit
    if audit is None:
        return Section(AUDIT, (Paragraph("None has been recorded."),))
    fields = (
        Field("Latest audit", audit.verdict),
        Field("Made", f"{words.moment(audit.at)}, entry {audit.seq:,} of the ledger"),
        Field("Decisions", f"{audit.decisions:,}"),
    )
    return Section(AUDIT, (Fields(fields),))


def _all_segments(facts: Facts) -> tuple[Section, ...]:
    """Return all segment names, if page 1 has no space for them."""
    listed = facts.told.segments
    if len(listed) <= words.MOST_NAMED:
        return ()
    return (Section("Annex D. The segments", (Paragraph(words.names(listed, len(listed)) + "."),)),)


# -- record of processing activities ---------------------------------------------------------------


def record(facts: Facts) -> tuple[str, tuple[Section, ...]]:
    """Return title and sections."""
    metrics = ", ".join(metric.name for metric in facts.told.metrics)
    account = facts.account
    return (
        f"Record of processing: {words.name(facts.key)}",
        (
            Section(
                "Controller",
                (
                    Fields(
                        (
                            Field("Controller", "", "name and contact details"),
                            Field(
                                "Representative", "", "name and contact details, where there is one"
                            ),
                            Field("Data protection officer", "", "name and contact details"),
                        )
                    ),
                ),
            ),
            Section(
                "Processing",
                (
                    Fields(
                        (
                            Field("Name", facts.key),
                            Field(
                                "What is done",
                                "an online experiment: each visitor is shown one of "
                                f"{len(facts.told.arms)} versions of a page, drawn with chances that "
                                "depend on the visitor's segment within a privacy budget; "
                                "responses are counted",
                            ),
                            Field("Purposes", "", "of this experiment, in the firm's words"),
                            Field("Period", words.period(facts)),
                            Field("Data subjects", "visitors of the site"),
                            Field(
                                "Personal data",
                                "visitor id (as a keyed hash), segment, version shown, time, "
                                f"responses ({metrics})",
                            ),
                            Field(
                                "Special categories",
                                "",
                                "whether a segment reveals any, such as health or religion",
                            ),
                        )
                    ),
                    Paragraph(words.segment_words(facts)),
                ),
            ),
            Section(
                "Recipients and transfers",
                (
                    Fields(
                        (
                            Field(
                                "Recipients",
                                "the version shown goes to everybody who sees the page; this software "
                                "passes on nothing else",
                            ),
                            Field("Processors", "", "who runs the servers and the store"),
                            Field("Transfers", "", "to third countries, with their safeguards"),
                        )
                    ),
                ),
            ),
            Section(
                "Time limits",
                (
                    Fields(
                        (
                            Field("Retention period", "", "after which decisions are purged"),
                            Field(
                                "Erased so far",
                                f"{words.counted(facts.erased, 'decision')}; "
                                f"{words.counted(facts.purges, 'purge')}",
                            ),
                            Field(
                                "Marks of erased visitors",
                                "a keyed hash each, until the experiment no longer counts"
                                + (
                                    ""
                                    if account is None
                                    else f" ({words.counted(account.window_days, 'day')} after "
                                    "its last decision)"
                                ),
                            ),
                        )
                    ),
                ),
            ),
            Section(
                "Security measures",
                (
                    Paragraph(words.promise_words(facts) + " " + words.grade_words(facts)),
                    Paragraph(words.account_words(facts)),
                    Paragraph(
                        "Visitor ids are stored as keyed hashes, with the key in a separate file. "
                        "People sign in by name and have roles; programs use API keys with scopes. "
                        "Segments appear in no log, address, error or metric. Decisions, budgets "
                        "and tables are in hash chains."
                    ),
                    Fields((Field("Other measures", "", "of the servers and the network"),)),
                ),
            ),
        ),
    )


# -- entry for a public register -------------------------------------------------------------------


def registry(facts: Facts) -> tuple[str, tuple[Section, ...]]:
    """Return title and sections."""
    return (
        f"Register of differential-privacy deployments: {words.name(facts.key)}",
        (
            _deployment(facts),
            _flavour(facts),
            _parameters(facts),
            _composition(facts),
            _implementation(facts),
            Section("Not protected", (Bullets(words.not_covered(facts)),)),
            Section(
                "Contact",
                (Fields((Field("Contact", "", "who answers questions about this entry"),)),),
            ),
        ),
    )


def _deployment(facts: Facts) -> Section:
    return Section(
        "Deployment",
        (
            Fields(
                (
                    Field("Name", facts.key),
                    Field(
                        "Use",
                        "an online experiment that learns which version of a page does best for which "
                        "segment of visitors, while it shows them",
                    ),
                    Field("Data product", "the version shown to each visitor"),
                    Field(
                        "Released to", "everybody who sees the page, including third-party scripts"
                    ),
                    Field("Period", words.period(facts)),
                    Field("Versions (arms)", f"{len(facts.told.arms)}"),
                    Field("Segments", f"{len(facts.told.segments)}, not named here"),
                    Field("Purpose", "", "in the firm's words"),
                )
            ),
        ),
    )


def _flavour(facts: Facts) -> Section:
    return Section(
        "Flavour and unit",
        (
            Fields(
                (
                    Field("Flavour", "pure differential privacy (delta = 0)"),
                    Field(
                        "Definition",
                        "for any two segments s and s' and any version a: P(a | s) <= e^epsilon "
                        "P(a | s')",
                    ),
                    Field(
                        "Unit of privacy",
                        "the segment of one visitor in one experiment; a visitor is one id, for "
                        "which one version is drawn, once",
                    ),
                    Field(
                        "Model",
                        "local randomization by a trusted firm: the firm knows the segment, "
                        "draws the version and releases only that",
                    ),
                    Field("Grade", words.grade_words(facts)),
                )
            ),
        ),
    )


def _parameters(facts: Facts) -> Section:
    promise = facts.promise
    own = len(set(promise.budgets_nano)) > 1
    rows = [Field("Epsilon", f"{words.nats(promise.budget_nano)} (natural logarithm)")]
    if own:
        rows.append(
            Field(
                "Epsilon of each version",
                ", ".join(
                    f"{key}: {words.nats(nano)}"
                    for key, nano in zip(promise.arms, promise.budgets_nano, strict=True)
                ),
            )
        )
    rows += [
        Field("Delta", "0"),
        Field(
            "As a belief",
            f"from {words.plain_percent(words.PRIORS[1])} to at most "
            f"{words.at_most(words.highest(words.PRIORS[1], promise.budget_nano))}",
        ),
        Field(
            "Epsilon for contributions to what others are shown later",
            "not limited: there is no trace budget"
            if facts.told.trace_nano is None
            else f"{words.nats(facts.told.trace_nano)} (discrete Laplace noise on counts)",
        ),
    ]
    return Section("Parameters", (Fields(tuple(rows)),))


def _composition(facts: Facts) -> Section:
    account = facts.account
    rows = [
        Field(
            "Within the experiment",
            "none: one draw per visitor, which is kept. All tables of a version keep epsilon together"
            if facts.promise.stated_grade == "across time"
            else "one draw per visitor, which is kept. Each table keeps epsilon by itself",
        ),
        Field(
            "Over experiments",
            "basic composition: epsilons of one visitor add up; in a layer (disjoint visitors by "
            "a keyed hash) the largest counts",
        ),
    ]
    if account is not None:
        rows += [
            Field(
                "Limit of the firm",
                f"epsilon {words.nats(account.budget_nano)} in any "
                f"{words.counted(account.window_days, 'day')}",
            ),
            Field("Counts on this date", f"epsilon {words.nats(account.counting_nano)}"),
            Field("Over windows", "basic composition, without limit"),
        ]
    return Section("Composition", (Fields(tuple(rows)),))


def _implementation(facts: Facts) -> Section:
    return Section(
        "Implementation",
        (
            Fields(
                (
                    Field("Software", "Deniable, open source"),
                    Field(
                        "Mechanism",
                        f"{facts.told.strategy} strategy; tables of whole numbers that sum to "
                        "2^64 for each segment, checked against e^epsilon in exact arithmetic "
                        "before use",
                    ),
                    Field("Randomness", "the operating system's; no floating point in the draw"),
                    Field("Published tables", f"{facts.tables:,}"),
                    Field(
                        "Verification",
                        "budgets, tables and decisions are in hash chains; audits recompute "
                        "tables, draws and the firm's account",
                    ),
                    Field(
                        "Latest audit",
                        "none recorded"
                        if facts.audit is None
                        else f"{words.day(facts.audit.at)}: {facts.audit.verdict}",
                    ),
                )
            ),
        ),
    )
