"""Numbers, times and budgets as people read them: the templates' filters."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from deniable.errors import NANO
from deniable.storage.actors import in_words
from deniable.storage.records import SCOPES, Commitment, Scope


def whole(value: float) -> str:
    """A count.

    >>> whole(1234567)
    '1,234,567'
    """
    return f"{value:,.0f}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share.

    >>> percent(0.1234), percent(None)
    ('12.3%', 'none yet')
    """
    return "none yet" if share is None or math.isnan(share) else f"{share * 100:.{digits}f}%"


def signed_percent(share: float) -> str:
    """A change.

    >>> signed_percent(0.1234), signed_percent(-0.5)
    ('+12.3%', '−50.0%')
    """
    return ("+" if share >= 0 else "−") + percent(abs(share))


def chance(probability: float) -> str:
    """A probability that is never told as certain.

    >>> chance(0.9999), chance(0.42), chance(0.0)
    ('over 99%', '42%', 'under 1%')
    """
    if probability > 0.99:
        return "over 99%"
    return "under 1%" if probability < 0.01 else percent(probability, 0)


def nats(budget: float) -> str:
    """A budget, as short as it can be told.

    >>> nats(1.0), nats(0.25), nats(1 / 3)
    ('1', '0.25', '0.3333')
    """
    return f"{budget:.4g}" if abs(budget) < 1e4 else whole(budget)


def factor(budget: float) -> str:
    """How far a budget lets odds move.

    >>> factor(1.0), factor(0.0), factor(12.0)
    ('2.72', '1', '163,000')
    """
    if budget > 30:
        return "more than a trillion"
    odds = math.exp(budget)
    return f"{odds:.3g}" if odds < 100 else whole(float(f"{odds:.3g}"))


def duration(seconds: float) -> str:
    """A span of time in its largest fitting unit.

    >>> duration(0.2), duration(90), duration(86_400), duration(10 * 86_400)
    ('under a second', '90 seconds', '24 hours', '10 days')
    """
    if seconds < 1:
        return "under a second"
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1)):
        if seconds >= 2 * size or size == 1:
            return f"{seconds / size:,.3g} {unit}"
    raise AssertionError("a second is the smallest unit")


def moment(time: datetime | None) -> str:
    """A time in UTC, to the minute."""
    return "not yet" if time is None else f"{time.astimezone(UTC):%-d %b %Y, %H:%M} UTC"


def day(time: datetime | None) -> str:
    """A date."""
    return "open" if time is None else f"{time.astimezone(UTC):%-d %b %Y}"


def capitalised(sentence: str) -> str:
    """A sentence with a large first letter, without its full stop.

    >>> capitalised("there is none.")
    'There is none'
    """
    return (sentence[:1].upper() + sentence[1:]).rstrip(".")


_EVENTS = {
    "create": "Created as a draft",
    "start": "Started",
    "pause": "Paused",
    "resume": "Resumed",
    "stop": "Stopped",
    "switch_off": "Arm switched off",
    "add_arm": "Arm added",
    "add_segment": "Segment added",
    "exhaust": "Budget exhausted: new visitors get an arm that tells nothing",
    "migrate": "Store migrated; the first table was published",
    "erase": "Visitors erased on request",
    "purge": "Old visitors purged",
    "redraft": "Draft changed",
    "replan": "Budget of the draft changed",
    "note": "Note",
    "label": "Owner or tags changed",
    "audit": "Audited",
    "export": "Decisions exported",
    "document": "Document issued",
}


def event_words(event: Commitment) -> str:
    """What happened to an experiment, and what it took of the firm's budget."""
    words = _EVENTS.get(event.kind, event.kind.replace("_", " ").capitalize())
    detail = json.loads(event.detail)
    if event.kind == "note":
        words = f"“{detail.get('text', '')}”"
    if event.kind == "label":
        named = [f"owner {detail['owner']}"] if detail.get("owner") else []
        words += f": {', '.join([*named, *map(str, detail.get('tags', ()))]) or 'none'}"
    if event.kind == "audit" and "sound" in detail:
        words += ": kept" if detail["sound"] else ": not kept"
    if event.kind == "stop" and detail.get("winner"):
        words += f"; everybody gets {detail['winner']}"
    if event.kind in ("switch_off", "add_arm"):
        words += f": {detail.get('arm')}"
        if detail.get("grade"):
            words += f"; version {detail.get('version')}, {detail['grade']}"
    if event.kind == "export":
        words += f", in the shape {detail.get('shape')}"
    if event.amount_nano:
        words += f", {nats(event.amount_nano / NANO)} nats committed"
    by = (
        event.actor if event.kind == "document" else in_words(event.actor)
    )  # which are words already
    return f"{words}, by {by}" if by else words


def role_name(role: str) -> str:
    """A role for people.

    >>> role_name("privacy-officer")
    'privacy officer'
    """
    return role.replace("-", " ")


SCOPE_WORDS: dict[Scope, str] = {
    "decide": "ask for arms",
    "reward": "report rewards",
    "scores": "give a model’s scores",
    "read": "look at everything but single visitors",
    "draft": "make and change drafts",
    "run": "start, pause, stop and promote",
    "audit": "record audits",
    "privacy": "set the firm’s budget, answer visitors, issue documents, export",
    "admin": "manage people and keys, and do everything else",
}


def scope_words(scopes: Iterable[Scope]) -> str:
    """What scopes allow, in one sentence.

    >>> scope_words(("read", "draft"))
    'look at everything but single visitors; make and change drafts'
    """
    given = set(scopes)
    shown = ["admin"] if "admin" in given else [scope for scope in SCOPES if scope in given]
    return "; ".join(SCOPE_WORDS[scope] for scope in shown)  # type: ignore[index]


FILTERS: dict[str, Callable[..., str]] = {
    "capitalised": capitalised,
    "chance": chance,
    "event_words": event_words,
    "actor": in_words,
    "role_name": role_name,
    "scope_words": scope_words,
    "signed_percent": signed_percent,
    "whole": whole,
    "percent": percent,
    "nats": nats,
    "factor": factor,
    "duration": duration,
    "moment": moment,
    "day": day,
}
