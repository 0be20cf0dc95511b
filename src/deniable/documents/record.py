"""A record of processing activities for one experiment, as kept by controllers."""

from __future__ import annotations

from deniable.documents import words
from deniable.documents.content import Field, Fields, Paragraph, Section
from deniable.documents.facts import Facts


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
