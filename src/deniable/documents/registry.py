"""An entry for a public register of differential-privacy deployments. It names no segments."""

from __future__ import annotations

from deniable.documents import words
from deniable.documents.content import Bullets, Field, Fields, Section
from deniable.documents.facts import Facts


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
