"""The statement: what the firm promises about one experiment and why it holds, for signature."""

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
