"""Makes a document of each kind from the facts and its template."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

from deniable.documents.content import Document
from deniable.documents.facts import Facts, FirmFacts, Ledger, facts_of, firm_facts_of
from deniable.documents.source import parsed, rendered
from deniable.errors import InvalidArgumentError, WrongStateError

KINDS = {
    "statement": "Statement of privacy",
    "dpia": "Annex to an impact assessment",
    "registry": "Entry for a public register",
    "record": "Record of processing",
}
"""Kind, which is also the name of its template -> its name for people."""

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
        names_segments: whether segments are named.
    """

    kind: str
    number: str
    firm: str
    actor: str
    at: int
    names_segments: bool = True

    def staff(self, head: str) -> str:
        """Return a pseudonym of who issued it; the ledger's entry has the name.

        >>> Issue("statement", "2026-0001", "", "ada", 0).staff("00" * 32)
        'person 12d806'
        """
        return f"person {sha256(f'{head} {self.actor}'.encode()).hexdigest()[:6]}"


def checked_kind(kind: str) -> str:
    """Validate the kind."""
    if kind not in KINDS:
        raise InvalidArgumentError("as", kind, "one of " + ", ".join(KINDS))
    return kind


def document_of(ledger: Ledger, issue: Issue, *, planned: bool = False) -> Document:
    """Make the document; the result depends only on the ledger and the issue.

    A statement without an experiment, or about one on labels, is the firm's about all its labels.

    Args:
        ledger: the part of the chain.
        issue: the content of the document's own entry.
        planned: also allow an experiment that was never started.

    Raises:
        WrongStateError: the experiment was never started, but the kind requires it.
    """
    name = KINDS[checked_kind(issue.kind)]
    if not ledger.experiment_id:
        if issue.kind != "statement":
            raise InvalidArgumentError("as", issue.kind, "statement, if no experiment is named")
        return _document("labels", ledger, issue, firm_facts_of(ledger, issue.at))
    facts = facts_of(ledger, issue.at)
    if facts.started is None and issue.kind not in BEFORE_THE_START and not planned:
        raise WrongStateError(
            f"experiment {facts.key!r} was never started: there is no {name.lower()} of a draft"
        )
    if issue.kind == "statement" and facts.mask is not None:
        return _document("labels", ledger, issue, firm_facts_of(ledger, issue.at))
    return _document(issue.kind, ledger, issue, facts)


def _document(template: str, ledger: Ledger, issue: Issue, facts: Facts | FirmFacts) -> Document:
    text = rendered(template, {"facts": facts, "issue": issue, "kind": KINDS[issue.kind]})
    title, cover, sections = parsed(text)
    return Document(
        kind=issue.kind,
        title=title,
        number=issue.number,
        height=ledger.height,
        head=ledger.head,
        cover=cover,
        sections=sections,
    )


@cache
def layout() -> str:
    """Identify the wording and appearance of a release, by a hash of the files that make it."""
    found = sha256()
    packages = files("deniable.documents"), files("deniable.report")
    for folder in (folder for package in packages for folder in (package, package / "templates")):
        for file in sorted(folder.iterdir(), key=lambda one: one.name):
            if file.name.endswith((".py", ".html", ".css", ".md")):
                found.update(file.name.encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]
