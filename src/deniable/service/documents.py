"""Documents of the firm: issue them, regenerate them from the ledger, and verify files.

An issued document is a `document` entry in the chain: its number, kind, ledger height, issuer, and
the SHA-256 of its content, HTML and Markdown. The document itself is not stored; it is regenerated
from the entries up to that height.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, Connection, func, or_, select

from deniable.errors import BrokenPromiseError, InvalidArgumentError, UnknownNameError
from deniable.storage import commitments, experiments, promises, times
from deniable.storage.commitments import Entry, actor_in_words, current_actor
from deniable.storage.promise_entries import promised_table, table_problem
from deniable.storage.schema import commitments as rows
from deniable.storage.schema import tables as table_rows
from deniable.storage.store import Store

if TYPE_CHECKING:
    from deniable.audit.promise import AuditedTable
    from deniable.documents.content import Document
    from deniable.documents.facts import Ledger

KIND = "document"
LONGEST = 200
COMMAND_LINE = "command line"
_PAGE = 200


@dataclass(frozen=True)
class Issued:
    """An issued document as recorded in the ledger.

    Attributes:
        number: year and count, such as 2026-0007.
        kind: statement, dpia, registry or record.
        experiment: the experiment's key, per the chain; empty for the firm's statement.
        experiment_id: the experiment's id, 32 hexadecimal digits, or empty.
        height: the last entry that it was made from.
        seq: the number of its own entry.
        issued_at: time of issue.
        firm: the firm's name; if empty, the document has a blank to fill in.
        actor: who issued it.
        content: SHA-256 of the content, printed in it as its fingerprint.
        html: SHA-256 of the HTML file.
        markdown: SHA-256 of the Markdown file.
        layout: identifies the release that made it.
        names_segments: whether it names segments.
    """

    number: str
    kind: str
    experiment: str
    experiment_id: str
    height: int
    seq: int
    issued_at: datetime
    firm: str
    actor: str
    content: str
    html: str
    markdown: str
    layout: str
    names_segments: bool


@dataclass(frozen=True)
class FileCheck:
    """The result of checking whether a file is a document of this ledger.

    Attributes:
        sound: whether it is one, unchanged.
        words: the reason, in one sentence.
        issued: the document that it is or claims to be; None if it names none.
    """

    sound: bool
    words: str
    issued: Issued | None


class Documents:
    """The part of `Deniable` that issues documents for signature."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def issue(
        self,
        key: str | None,
        kind: str,
        *,
        firm: str = "",
        actor: str = "",
        names_segments: bool = True,
    ) -> Issued:
        """Assign a number to a document and record it in the ledger.

        Args:
            key: the experiment; None for the firm's statement about its labels.
            kind: statement, dpia, registry or record.
            firm: the firm's name; defaults to that in the firm's settings, or a line to fill in.
            actor: who issues it; defaults to the current actor (`deniable.storage.commitments`).
            names_segments: False leaves out the names of segments.

        Raises:
            UnknownNameError: there is no such experiment.
            WrongStateError: it was never started, or the firm has no labels.
            BrokenPromiseError: its row or its tables disagree with the ledger.
        """
        from deniable.documents.assembly import Issue, checked_kind, document_of, layout
        from deniable.documents.facts import firm_texts

        checked_kind(kind)
        firm, actor = _text("firm", firm), _text("actor", actor)
        actor = actor or actor_in_words(current_actor()) or COMMAND_LINE
        # After a long silence the account's time is that of the last entry, and so would be the date.
        self._store.retried(commitments.beat)
        with self._store.read() as connection:
            commitments.check_complete(connection)
            if key is not None:
                promises.check(connection, experiments.by_key(connection, key))
            ledger = _ledger(connection, _identity(connection, key))
        firm = firm or firm_texts(ledger.entries)["name"]
        # Raises if the document cannot be made, before a number is used up.
        document_of(ledger, Issue(kind, "", firm, actor, ledger.entries[-1].recorded_at))

        def work(connection: Connection) -> int:
            commitments.lock_chain(connection)
            at = commitments.account_time(connection)
            number = _next_number(connection, times.as_datetime(at).year)
            document = document_of(ledger, Issue(kind, number, firm, actor, at, names_segments))
            detail = {
                "number": number,
                "as": kind,
                "height": ledger.height,
                "firm": firm,
                "by": actor,
                "layout": layout(),
                "names_segments": names_segments,
                **_digests(document),
            }
            commitments.append(connection, KIND, ledger.experiment_id or None, 0, detail, at)
            return int(connection.execute(select(func.max(rows.c.seq))).scalar_one())

        seq = self._store.retried(work)
        with self._store.read() as connection:
            return _issued(connection, rows.c.seq == seq)[0]

    def all(self, key: str | None = None) -> list[Issued]:
        """Return issued documents, oldest first, about one experiment or all of them."""
        with self._store.read() as connection:
            if key is None:
                return _issued(connection)
            experiment = experiments.by_key(connection, key)
            return _issued(connection, rows.c.experiment_id == bytes.fromhex(experiment.id))

    def get(self, number: str) -> Issued:
        """Return an issued document by its number, or raise UnknownNameError."""
        found = [one for one in self.all() if one.number == number]
        if not found:
            raise UnknownNameError("document", number)
        return found[0]

    def again(self, number: str) -> Document:
        """Regenerate an issued document from the ledger at its height.

        Raises:
            BrokenPromiseError: the ledger no longer yields what was issued, or this release words
                documents differently.
        """
        issued = self.get(number)
        document = self._made_again(issued)
        if {name: getattr(issued, name) for name in ("content", "html", "markdown")} != _digests(
            document
        ):
            from deniable.documents.assembly import layout

            why = (
                "the ledger no longer gives what was issued"
                if issued.layout == layout()
                else "it was issued by another release, which worded it otherwise; its file can "
                "still be verified"
            )
            raise BrokenPromiseError(f"document {number} cannot be made again: {why}")
        return document

    def draft(
        self,
        key: str | None,
        kind: str,
        *,
        firm: str = "",
        height: int | None = None,
        planned: bool = False,
        names_segments: bool = True,
    ) -> Document:
        """Make an unnumbered document that is not recorded in the ledger.

        Args:
            key: the experiment; None for the firm's statement about its labels.
            kind: statement, dpia, registry or record.
            firm: the firm's name.
            height: make it as of this ledger entry and its time; defaults to the newest.
            planned: also allow an experiment that was never started.
            names_segments: False leaves out the names of segments.
        """
        from deniable.documents.assembly import Issue, checked_kind, document_of
        from deniable.documents.facts import firm_texts

        checked_kind(kind)
        firm = _text("firm", firm)
        with self._store.read() as connection:
            ledger = _ledger(connection, _identity(connection, key), height)
            at = (
                commitments.account_time(connection)
                if height is None
                else _time(connection, height)
            )
        firm = firm or firm_texts(ledger.entries)["name"]
        return document_of(ledger, Issue(kind, "", firm, "", at, names_segments), planned=planned)

    def verify(self, content: bytes) -> FileCheck:
        """Check whether a file is a document of this ledger, byte for byte."""
        known = self.all()
        digest = sha256(content).hexdigest()
        for issued in known:
            if digest in (issued.html, issued.markdown):
                return self._file_check(issued)
        if content.startswith(b"%PDF"):
            return self._pdf_check(content, known)
        named = set(re.findall(rb"\b\d{4}-\d{4,}\b", content))
        claimed = [one for one in known if one.number.encode() in named]
        if not claimed:
            return FileCheck(False, "This file is no document of this ledger.", None)
        issued = claimed[0]
        return FileCheck(
            False,
            f"This file names document {issued.number}, but it was changed: its SHA-256 is not "
            f"the one in entry {issued.seq} of the ledger.",
            issued,
        )

    def _file_check(self, issued: Issued) -> FileCheck:
        """Return the result for a file whose hash is in the ledger."""
        from deniable.documents.assembly import layout

        summary = (
            f"This is document {issued.number} ({issued.kind} about {_subject(issued)}), "
            f"unchanged: its SHA-256 is in entry {issued.seq} of the ledger"
        )
        if issued.layout != layout():
            return FileCheck(
                True, f"{summary}. Another release issued it; it was not made again.", issued
            )
        try:
            self.again(issued.number)
        except BrokenPromiseError as problem:
            return FileCheck(False, f"{summary}. But {problem}.", issued)
        return FileCheck(
            True,
            f"{summary}, and the ledger at entry {issued.height} gives the same bytes.",
            issued,
        )

    def _pdf_check(self, content: bytes, known: Sequence[Issued]) -> FileCheck:
        """Compare a PDF with what Chromium prints now."""
        from deniable.documents import rendering

        number = rendering.pdf_number(content)
        found = [one for one in known if one.number == number]
        if not found:
            return FileCheck(False, "This PDF is no document of this ledger.", None)
        issued = found[0]
        printed = rendering.pdf(self.again(issued.number), issued.issued_at)
        if printed == content:
            words = (
                f"This is document {issued.number} ({issued.kind} about {_subject(issued)}), as this "
                f"Chromium prints it from the ledger at entry {issued.height}."
            )
            return FileCheck(True, words, issued)
        return FileCheck(
            False,
            f"This PDF names document {issued.number}, but is not what this Chromium prints of "
            "it. Another version of Chromium or other fonts print other bytes: verify the HTML or "
            "Markdown.",
            issued,
        )

    def _made_again(self, issued: Issued) -> Document:
        from deniable.documents.assembly import Issue, document_of

        with self._store.read() as connection:
            ledger = _ledger(connection, bytes.fromhex(issued.experiment_id), issued.height)
        at = times.as_stored(issued.issued_at)
        issue = Issue(
            issued.kind, issued.number, issued.firm, issued.actor, at, issued.names_segments
        )
        return document_of(ledger, issue)


def _subject(issued: Issued) -> str:
    return issued.experiment or "the firm"


def _digests(document: Document) -> dict[str, str]:
    from deniable.documents import rendering

    return {
        "content": document.fingerprint(),
        "html": sha256(rendering.html(document).encode()).hexdigest(),
        "markdown": sha256(rendering.markdown(document).encode()).hexdigest(),
    }


def _identity(connection: Connection, key: str | None) -> bytes:
    """Return an experiment's id; empty for the firm."""
    return b"" if key is None else bytes.fromhex(experiments.by_key(connection, key).id)


def _ledger(connection: Connection, experiment_id: bytes, height: int | None = None) -> Ledger:
    """Return the part of the chain up to a height that documents about an experiment need."""
    from deniable.documents.facts import Ledger

    newest = connection.execute(
        select(rows.c.seq, rows.c.hash)
        .where(rows.c.seq <= height if height is not None else rows.c.seq > 0)
        .order_by(rows.c.seq.desc())
        .limit(1)
    ).one_or_none()
    if newest is None or (height is not None and newest.seq != height):
        raise InvalidArgumentError("at", height, "the number of an entry of the ledger")
    entries = commitments.linked(
        connection,
        rows.c.seq <= newest.seq,
        or_(rows.c.kind != "table", rows.c.experiment_id == experiment_id),
    )
    return Ledger(
        entries=tuple(entries),
        head=newest.hash.hex(),
        height=newest.seq,
        experiment_id=experiment_id,
        tables=_tables(connection, experiment_id, entries),
    )


def _tables(
    connection: Connection, experiment_id: bytes, entries: Sequence[Entry]
) -> tuple[AuditedTable, ...]:
    """Return the published tables that the entries name, each with its chained digest."""
    from deniable.audit.promise import AuditedTable

    chained = {
        table.number: table
        for table in (
            promised_table(entry)
            for entry in entries
            if entry.kind == "table" and entry.experiment_id == experiment_id
        )
    }
    if not chained:
        return ()
    promise = promises.promise_from(
        experiment_id.hex(),
        [e for e in entries if e.experiment_id == experiment_id and promises.matters(e)],
    )
    query = (
        select(table_rows)
        .where(table_rows.c.experiment_id == experiment_id, table_rows.c.number <= max(chained))
        .order_by(table_rows.c.number)
    )
    found = []
    for row in connection.execute(query.execution_options(yield_per=_PAGE)):
        promised = chained.pop(row.number, None)
        problem = table_problem(row, promised)
        if problem is not None:
            raise BrokenPromiseError(f"table {row.number} of experiment {promise.key!r} {problem}")
        found.append(
            AuditedTable.stored(
                row.number,
                row.version,
                row.rows,
                row.counts,
                decisions=row.decisions,
                published_at=row.published_at,
                n_segments=len(promise.rows),
                n_arms=len(promise.arms),
            )
        )
    if chained:
        raise BrokenPromiseError(f"table {min(chained)} of experiment {promise.key!r} was removed")
    return tuple(found)


def _issued(connection: Connection, *conditions: ColumnElement[bool]) -> list[Issued]:
    """Return documents from their entries, oldest first."""
    entries = commitments.linked(connection, rows.c.kind == KIND, *conditions)
    wanted = {entry.experiment_id for entry in entries}
    keys = {
        entry.experiment_id: entry.detail["key"]
        for entry in commitments.linked(
            connection,
            rows.c.experiment_id.in_([one for one in wanted if one is not None]),
            rows.c.kind == "create",
        )
    }
    return [
        Issued(
            number=entry.detail["number"],
            kind=entry.detail["as"],
            experiment=keys.get(entry.experiment_id, ""),
            experiment_id=(entry.experiment_id or b"").hex(),
            height=entry.detail["height"],
            seq=entry.seq,
            issued_at=times.as_datetime(entry.recorded_at),
            firm=entry.detail["firm"],
            actor=entry.detail["by"],
            content=entry.detail["content"],
            html=entry.detail["html"],
            markdown=entry.detail["markdown"],
            layout=entry.detail["layout"],
            names_segments=entry.detail["names_segments"],
        )
        for entry in entries
    ]


def _next_number(connection: Connection, year: int) -> str:
    """Return the first free number of the year, in a transaction that holds the chain."""
    found = commitments.linked(connection, rows.c.kind == KIND)
    taken = [
        int(entry.detail["number"].partition("-")[2])
        for entry in found
        if entry.detail["number"].startswith(f"{year:04d}-")
    ]
    return f"{year:04d}-{max(taken, default=0) + 1:04d}"


def _time(connection: Connection, height: int) -> int:
    query = select(rows.c.recorded_at).where(rows.c.seq == height)
    return int(connection.execute(query).scalar_one())


def _text(argument: str, value: str) -> str:
    text = value.strip()
    if len(text) > LONGEST or not (text.isprintable() or not text):
        raise InvalidArgumentError(argument, value, f"printable text of up to {LONGEST} characters")
    return text
