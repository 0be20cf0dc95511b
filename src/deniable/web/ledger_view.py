"""The ledger in words: what every entry says, filtered, as a table, a file and a line over time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from deniable._formatting import nats, whole
from deniable._types import JsonObject
from deniable.analysis.history import committed_at, spending_history
from deniable.documents.assembly import KINDS as DOCUMENTS
from deniable.errors import NANO
from deniable.storage.account import Balance, firm_settings_of
from deniable.storage.commitments import actor_in_words
from deniable.storage.records import Commitment

PAGE, POINTS = 25, 200
"""Entries on one page, and points of the line over time."""

KINDS = {
    "firm": "Firm’s budget set",
    "key": "Visitor key noted",
    "mask": "Labels created",
    "end_mask": "Labels ended",
    "erase_labels": "Labels erased",
    "create": "Draft created",
    "redraft": "Draft changed",
    "replan": "Draft’s budget changed",
    "discard": "Draft removed",
    "start": "Started",
    "table": "Table published",
    "pause": "Paused",
    "resume": "Resumed",
    "stop": "Stopped",
    "switch_off": "Variant switched off",
    "add_arm": "Variant added",
    "add_segment": "Segment added",
    "restart": "Counts began again",
    "erase": "Visitors erased",
    "purge": "Old visitors erased",
    "audit": "Audited",
    "note": "Note",
    "label": "Owner or tags changed",
    "access": "People and keys",
    "settings": "Firm’s settings",
    "export": "Data exported",
    "approval": "Second person",
    "document": "Document issued",
    "restore": "Restored from a backup",
    "clock": "Time went on",
}
"""Every kind of entry, as people say it."""


@dataclass(frozen=True)
class Entry:
    """One entry for people.

    Attributes:
        seq: its place in the chain.
        time: when it was recorded.
        kind: as stored.
        title: what happened.
        experiment: the key, or None for the firm.
        taken: nats that count from then on, where it starts or resumes an experiment.
        committed: nats that counted then, this entry included.
        told: further facts, as a sentence.
        by: who did it; empty: the service itself.
    """

    seq: int
    time: datetime
    kind: str
    title: str
    experiment: str | None
    taken: float
    committed: float
    told: str
    by: str = ""


def entries(ledger: Sequence[Commitment], balances: Sequence[Balance]) -> list[Entry]:
    """Entries in the order given, with what counted at their time."""
    found = []
    counted = committed_at(balances, [line.recorded_at for line in ledger])
    for line, committed in zip(ledger, counted, strict=True):
        detail = _detail(line)
        found.append(
            Entry(
                seq=line.seq,
                time=line.recorded_at,
                kind=line.kind,
                title=KINDS.get(line.kind, line.kind),
                experiment=line.experiment or detail.get("key"),
                taken=line.amount_nano / NANO,
                committed=committed,
                told=_told(line.kind, detail),
                by=_by(line.kind, detail),
            )
        )
    return found


COLUMNS = ("seq", "time", "kind", "experiment", "taken_nats", "committed_nats", "detail", "by")


def cells(found: Iterable[Entry]) -> Iterator[tuple[object, ...]]:
    """Entries as rows of a file with these COLUMNS."""
    for entry in found:
        amounts = (f"{entry.taken:.9f}", f"{entry.committed:.9f}")
        name = entry.experiment or ""
        yield (entry.seq, entry.time.isoformat(), entry.kind, name, *amounts, entry.told, entry.by)


def latest_audits(ledger: Sequence[Commitment]) -> dict[str | None, JsonObject]:
    """Experiment (None: the firm) -> its newest recorded audit: time, verdict, power and figures."""
    newest = {line.experiment: line for line in ledger if line.kind == "audit"}
    return {
        key: {
            "time": line.recorded_at,
            "seq": line.seq,
            "notices": (_detail(line).get("figures") or {}).get("smallest_excess_nats"),
            **_detail(line),
        }
        for key, line in newest.items()
    }


def spending(balances: Sequence[Balance], most: int) -> list[JsonObject]:
    """Committed and available nats over time, for the chart."""
    return [
        {"time": _stamp(one.time), "committed": one.committed, "budget": one.budget}
        for one in spending_history(balances, most)
    ]


def _stamp(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _detail(line: Commitment) -> JsonObject:
    found = json.loads(line.detail or "{}")
    return found if isinstance(found, dict) else {}


_LESS = "From now on the guarantee is given the time of the first visit."


def _told(kind: str, detail: JsonObject) -> str:
    budget = nats(detail.get("budget_nano", 0) / NANO)
    strategy = detail.get("strategy", "")
    if kind == "firm":
        reason = detail.get("reason")
        words = f"At most {budget} nats in any {detail.get('window_days')} days."
        return f"{words} Reason: {reason}." if reason else words
    if kind == "table":
        return f"Number {detail.get('number', '')}, made from published counts."
    if kind == "start" and detail.get("layer"):
        return f"In the layer {detail['layer']}."
    if kind == "mask":
        many = len(detail.get("groups", ()))
        words = f"{detail.get('mask')}: {many} labels, {detail.get('budget')} nats, once"
        return f"{words}, for the period {detail.get('period')}."
    if kind == "end_mask":
        return f"No more labels of {detail.get('mask')} are given."
    if kind == "erase_labels":
        return f"{whole(detail['labels'])} labels of {detail.get('mask')}."
    if kind == "note":
        return str(detail.get("text", ""))
    if kind == "label":
        found = [f"Owner: {detail.get('owner') or 'nobody'}", *map(str, detail.get("tags", ()))]
        return ", ".join(found) + "."
    if kind in ("create", "redraft"):
        return f"{len(detail.get('arms', ()))} variants, budget {budget}, {strategy} strategy."
    if kind == "replan":
        return f"Budget {budget}, {strategy} strategy."
    if kind == "stop":
        winner = detail.get("winner")
        return f"Everybody gets {winner} from now on." if winner else "Without a winner."
    if kind == "switch_off":
        return f"New visitors no longer get {detail.get('arm', '')}. {_LESS}"
    if kind == "access":
        return _access(detail)
    if kind == "settings":
        said = firm_settings_of(dict(detail))
        named = f"It is called {said.name}." if said.name else "It has no name."
        return f"{named} Needs a second person: {said.rules_in_words()}."
    if kind == "approval":
        act = {"ask": "Asked for", "grant": "Granted", "refuse": "Refused"}.get(detail["act"], "")
        return f"{act}: {detail.get('words', '')}."
    if kind == "export":
        rows = f"{whole(detail['rows'])} rows in" if "rows" in detail else "In"
        return f"{rows} the shape {detail.get('shape', '')}."
    if kind == "add_arm":
        return f"New visitors can get {detail.get('arm', '')}. {_LESS}"
    if kind == "restart":
        return f"The tables after number {detail.get('after')} learn from zero."
    if kind == "add_segment":
        return f"The tables after number {detail.get('after')} have a row for it."
    if kind == "audit":
        return str(detail.get("verdict", ""))
    if kind == "document":
        title = DOCUMENTS.get(str(detail.get("as")), "Document")
        return f"{title} {detail.get('number')}."
    if kind in ("erase", "purge") and "decisions" in detail:
        count = detail["decisions"]
        have = "decision no longer has" if count == 1 else "decisions no longer have"
        return f"{whole(count)} {have} a visitor."
    return ""


def _by(kind: str, detail: JsonObject) -> str:
    """Who did it; documents say it in words already."""
    return str(detail.get("by", "")) if kind == "document" else actor_in_words(detail.get("by"))


_ACCESS = {
    "invite": "{user} was invited as {role}.",
    "join": "{user} chose a password and joined as {role}.",
    "password": "{user} chose a new password.",
    "role": "{user} became {role}.",
    "disable": "{user} was disabled.",
    "enable": "{user} was enabled.",
    "create key": "API key {key} was created for {scopes}.",
    "revoke key": "API key {key} was revoked.",
}


def _access(detail: JsonObject) -> str:
    """What changed about people and keys."""
    words = {
        "user": detail.get("user", ""),
        "role": str(detail.get("role", "")).replace("-", " "),
        "key": detail.get("key", ""),
        "scopes": ", ".join(detail.get("scopes", ())),
    }
    return _ACCESS.get(detail.get("act", ""), "").format(**words)
