"""An annex for a data protection impact assessment, with facts from the ledger and blanks."""

from __future__ import annotations

from deniable.documents import words
from deniable.documents.content import (
    Bullets,
    Field,
    Fields,
    Grid,
    Paragraph,
    Section,
    Signatures,
)
from deniable.documents.facts import Facts

DATA = (
    (
        "Visitor id",
        "identifies a person",
        "stored only as a keyed hash; the key is a separate file",
    ),
    ("Segment", "the protected secret", "stored with the decision, in the trusted store alone"),
    ("Version shown", "seen by outsiders", "stored with the decision; the only thing that leaves"),
    ("Time of the decision", "may identify", "stored with the decision"),
    ("Reward", "behaviour", "stored with the decision"),
    ("Counts", "totals", "by table, segment and version; published tables are made from them"),
)
FLOWS = (
    ("visitor's browser", "the firm's server", "the request, with the visitor's id"),
    ("the firm's server", "Deniable", "visitor id and segment, over the firm's own network"),
    ("Deniable", "its store", "keyed hash, segment, version, time; then the response"),
    ("Deniable", "the firm's server", "the version, and nothing else"),
    ("the firm's server", "visitor's browser", "the page in that version"),
    ("visitor's browser", "watchers", "the version, where third-party scripts run in the page"),
)


def dpia(facts: Facts) -> tuple[str, tuple[Section, ...]]:
    """Return title and sections."""
    return (
        f"Annex to a data protection impact assessment: {words.name(facts.key)}",
        (
            _description(facts),
            Section(
                "2. Data",
                (
                    Grid(
                        "What is stored about a visitor. Names, addresses and devices are not.",
                        ("data", "what it is", "how it is kept"),
                        DATA,
                        words=3,
                    ),
                    Paragraph(words.segment_words(facts)),
                ),
            ),
            Section(
                "3. Flows",
                (Grid("Who passes what to whom.", ("from", "to", "what"), FLOWS, words=3),),
            ),
            _retention(facts),
            _measures(facts),
            _risks(facts),
            Section("7. Risks that remain", (Bullets(words.not_covered(facts)),)),
            _erasure(facts),
            _blanks(),
        ),
    )


def _description(facts: Facts) -> Section:
    told = facts.told
    arms = [key if on else f"{key} (switched off)" for key, _, on in told.arms]
    rows = [
        Field("Purpose", "", "why this experiment is run, in the firm's words"),
        Field("What is done", _done_words(facts)),
        Field("Versions", words.names(arms)),
        Field("Responses", ", ".join(f"{m.name}, 0 to {m.cap:g}" for m in told.metrics)),
        Field("Period", words.period(facts)),
        Field("Scale", _scale(facts)),
    ]
    if told.layer is not None:
        rows.append(
            Field(
                "Who takes part",
                f"{facts.layer_share * 100:g}% of the visitors of the layer "
                f"{words.name(told.layer)}, by a keyed hash of the visitor",
            )
        )
    if told.holdout:
        rows.append(Field("Held out", f"{told.holdout / 10:g}% of visitors, by a keyed hash"))
    return Section("1. Description of the processing", (Fields(tuple(rows)),))


def _done_words(facts: Facts) -> str:
    return (
        "Visitors of a site are shown one of several versions of a page. Which one is drawn at "
        "random, with chances that depend on the visitor's segment and on what did well for that "
        f"segment before ({facts.told.strategy} strategy). Responses are counted, and new chances "
        "are published from time to time."
    )


def _scale(facts: Facts) -> str:
    if not facts.tables:
        return "no decisions yet"
    return (
        f"{facts.decisions:,} decisions when the newest of "
        f"{words.counted(facts.tables, 'table')} was published"
    )


def _retention(facts: Facts) -> Section:
    window = (
        ""
        if facts.account is None
        else f" of {words.counted(facts.account.window_days, 'day')} after its last decision"
    )
    return Section(
        "4. Retention",
        (
            Fields(
                (
                    Field(
                        "Decisions and responses",
                        "until they are erased or purged (deniable purge --older-than-days)",
                    ),
                    Field(
                        "Purged so far",
                        words.counted(facts.purges, "purge") + " of this experiment",
                    ),
                    Field(
                        "Mark of an erased visitor",
                        "a keyed hash without version, segment or time, until the experiment no "
                        f"longer counts: the window{window}",
                    ),
                    Field(
                        "Ledger",
                        "kept; of an erased decision only a hash remains, which reveals nothing",
                    ),
                    Field("Retention period", "", "how long the firm keeps decisions, and why"),
                )
            ),
        ),
    )


def _measures(facts: Facts) -> Section:
    audit = facts.audit
    audited = (
        "No audit has been recorded yet."
        if audit is None
        else f"The latest audit ({words.day(audit.at)}, entry {audit.seq:,}) says: {audit.verdict}"
    )
    return Section(
        "5. Measures",
        (
            Bullets(
                (
                    "Every version is drawn with the operating system's randomness from published "
                    "tables of whole numbers. Each was checked against the privacy budget in "
                    "exact arithmetic before anybody was drawn from it.",
                    f"Privacy budget: {words.unit(facts.promise.budget_nano)}. "
                    f"{words.grade_words(facts)}",
                    words.trace_words(facts),
                    "One version per visitor, drawn once and kept; coming back reveals nothing new.",
                    "Visitor ids are stored as keyed hashes. Segments appear in no log, address, "
                    "error or metric. Answers have the same shape for every segment.",
                    "Budgets, tables, starts, stops, erasures and documents are in a hash chain, "
                    "which shows later changes.",
                    audited,
                )
            ),
        ),
    )


def _risks(facts: Facts) -> Section:
    """Compare beliefs without and with the measures."""
    columns = [("in this experiment", facts.promise.budget_nano)]
    if facts.account is not None:
        columns += [
            ("in all that count today", facts.account.counting_nano),
            ("at the firm's limit", facts.account.budget_nano),
        ]
    rows = tuple(
        (
            words.plain_percent(prior),
            "100%",
            *(words.at_most(words.highest(prior, nano)) for _, nano in columns),
        )
        for prior in words.PRIORS
    )
    return Section(
        "6. Inherent and residual risk",
        (
            Paragraph(
                "The risk that is assessed: a watcher infers a visitor's segment from the version "
                "that the visitor is shown. Without measures, each segment would be shown the "
                "version that does best for it, and where that differs the version gives the "
                "segment away. With them, the watcher's belief is limited as follows."
            ),
            Grid(
                "What a watcher can believe at most about a visitor's segment after seeing the "
                "version.",
                (
                    "believed before",
                    "inherent: no measures",
                    *(f"residual: {title}" for title, _ in columns),
                ),
                rows,
                words=0,
            ),
            Paragraph(words.account_words(facts)),
            Fields(
                (
                    Field("Severity", "", "how severe it would be for visitors"),
                    Field("Likelihood", "", "how likely it is, with the limits above"),
                )
            ),
        ),
    )


def _erasure(facts: Facts) -> Section:
    return Section(
        "8. Access and erasure",
        (
            Paragraph(
                "What is stored about a visitor can be shown and erased by the visitor's id. Erasing "
                "removes the keyed hash, the segment, the version and the responses for good; "
                "totals and the hash chain stay valid. A visitor who comes back is shown a "
                "version that does not depend on the segment, so erasing costs no privacy."
            ),
            Fields(
                (
                    Field(
                        "Erased so far",
                        words.counted(facts.erased, "decision") + " of this experiment",
                    ),
                )
            ),
        ),
    )


def _blanks() -> Section:
    return Section(
        "9. For the controller to complete",
        (
            Paragraph(
                "This annex states what the software does and what its ledger records. It is not an "
                "assessment, and it makes no claim that any law is complied with. The following "
                "are the controller's to state."
            ),
            Fields(
                (
                    Field(
                        "Legal basis", "", "and, for special categories, the exception relied on"
                    ),
                    Field("Necessity", "", "why the experiment needs segments at all"),
                    Field("Proportionality", "", "why this budget, and not a smaller one"),
                    Field("Advice", "", "of the data protection officer, with date"),
                    Field("Views of visitors", "", "or why they were not sought"),
                    Field("Decision", "", "and measures still to be taken"),
                )
            ),
            Signatures(("Controller", "Data protection officer")),
        ),
    )
