"""Makes a document of each kind from the facts: cover, specific sections, and how to check it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TypeAlias

from deniable.documents import words
from deniable.documents.content import Document, Field, Paragraph, Section
from deniable.documents.dpia import dpia
from deniable.documents.facts import Facts, Ledger, facts_of
from deniable.documents.kinds import record, registry, statement
from deniable.errors import InvalidArgumentError, WrongStateError

_Maker: TypeAlias = Callable[[Facts], tuple[str, tuple[Section, ...]]]

KINDS: dict[str, tuple[str, _Maker]] = {
    "statement": ("Statement of privacy", statement),
    "dpia": ("Annex to an impact assessment", dpia),
    "registry": ("Entry for a public register", registry),
    "record": ("Record of processing", record),
}
"""Kind -> its name for people, and the function that makes its title and sections."""

CHECKING = "How to check this document"
"""The heading of every document's last section."""

BEFORE_THE_START = ("dpia",)
"""Kinds that apply to drafts: an assessment precedes the processing."""


@dataclass(frozen=True)
class Issue:
    """What a document's own ledger entry adds to the facts.

    Attributes:
        kind: one of `KINDS`.
        number: empty for a draft.
        firm: the firm's name; if empty, a blank to fill in.
        actor: who issued it.
        at: time of issue, as stored.
    """

    kind: str
    number: str
    firm: str
    actor: str
    at: int


def checked_kind(kind: str) -> str:
    """Validate the kind."""
    if kind not in KINDS:
        raise InvalidArgumentError("as", kind, "one of " + ", ".join(KINDS))
    return kind


def document_of(ledger: Ledger, issue: Issue, *, planned: bool = False) -> Document:
    """Make the document; the result depends only on the ledger and the issue.

    Args:
        ledger: the part of the chain.
        issue: the content of the document's own entry.
        planned: also allow an experiment that was never started.

    Raises:
        WrongStateError: the experiment was never started, but the kind requires it.
    """
    facts = facts_of(ledger, issue.at)
    name, make = KINDS[checked_kind(issue.kind)]
    if facts.started is None and issue.kind not in BEFORE_THE_START and not planned:
        raise WrongStateError(
            f"experiment {facts.key!r} was never started: there is no {name.lower()} of a draft"
        )
    title, sections = make(facts)
    cover = (
        Field("Document", name),
        Field("Firm", issue.firm, "name of the firm"),
        Field("Number", issue.number or "none: a draft, not issued"),
        Field("Issued" if issue.number else "Made", words.moment(facts.at)),
        Field("Experiment", facts.key),
        Field("Period", words.period(facts)),
    )
    closing = _closing(facts, issue)
    return Document(
        kind=issue.kind,
        title=title,
        number=issue.number,
        height=ledger.height,
        head=ledger.head,
        cover=cover,
        sections=(*sections, closing),
    )


def _closing(facts: Facts, issue: Issue) -> Section:
    made = (
        "Every figure in this document follows from the firm's ledger up to its entry "
        f"{facts.height:,}, whose hash is {facts.head}."
    )
    if not issue.number:
        return Section(
            CHECKING,
            (
                Paragraph(
                    f"{made} This is a draft: it has no number, and the ledger does not know it."
                ),
            ),
        )
    return Section(
        CHECKING,
        (
            Paragraph(
                f"{made} Issuing it is an entry of the ledger as well, by "
                f"{words.name(issue.actor)}, with the hashes of its HTML and Markdown."
            ),
            Paragraph(
                f"A copy comes from: deniable document --number {issue.number} --out copy.html. A "
                "file is compared with the ledger by: deniable document --verify copy.html."
            ),
        ),
    )


@cache
def layout() -> str:
    """Identify the wording and appearance of a release, by a hash of this package's files."""
    found = sha256()
    package = files("deniable.documents")
    for folder in (package, package / "templates"):
        for file in sorted(folder.iterdir(), key=lambda one: one.name):
            if file.name.endswith((".py", ".html", ".css")):
                found.update(file.name.encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]
