"""Times, budgets, roles and events as people read them: the templates' filters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from fractions import Fraction

from deniable._formatting import (
    chance,
    duration,
    in_nats,
    nats,
    percent,
    signed_percent,
    whole,
)
from deniable.documents import limits
from deniable.errors import NANO
from deniable.privacy.composition import nano_up
from deniable.storage.commitments import actor_in_words
from deniable.storage.records import SCOPES, Commitment, Scope


def factor(budget: float) -> str:
    """How far a budget lets odds move, rounded up as in the documents.

    >>> factor(1.0), factor(0.0), factor(0.4), factor(12.0)
    ('2.72', '1', '1.5', '163,000')
    """
    return "more than a trillion" if budget > 30 else limits.factor(nano_up(budget))


def belief_words(budget: float) -> str:
    """What a budget lets a tracker believe.

    >>> belief_words(1.0)
    'a tracker that was 20% sure becomes at most 40.5% sure'
    """
    belief = "practically 100%" if budget > 30 else limits.at_most(_after(budget))
    return f"a tracker that was 20% sure becomes at most {belief} sure"


def severity(budget: float) -> str:
    """How grave that is: good up to a coin flip, bad from four in five on.

    >>> severity(1.0), severity(2.0), severity(4.0)
    ('good', 'note', 'bad')
    """
    if budget > 30 or _after(budget) > Fraction(4, 5):
        return "bad"
    return "good" if _after(budget) <= Fraction(1, 2) else "note"


def _after(budget: float) -> Fraction:
    return limits.highest(Fraction(1, 5), nano_up(budget))


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
    "switch_off": "Variant switched off",
    "add_arm": "Variant added",
    "add_segment": "Segment added",
    "restart": "Counts began again",
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
    told = _EVENTS.get(event.kind, event.kind.replace("_", " ").capitalize())
    detail = json.loads(event.detail)
    if event.kind == "note":
        told = f"“{detail.get('text', '')}”"
    if event.kind == "label":
        named = [f"owner {detail['owner']}"] if detail.get("owner") else []
        told += f": {', '.join([*named, *map(str, detail.get('tags', ()))]) or 'none'}"
    if event.kind == "audit" and "sound" in detail:
        told += ": kept" if detail["sound"] else ": not kept"
    if event.kind == "stop" and detail.get("winner"):
        told += f"; everybody gets {detail['winner']}"
    if event.kind in ("switch_off", "add_arm"):
        told += f": {detail.get('arm')}"
        told += f"; version {detail.get('version')}, given the time"
    if event.kind == "export":
        told += f", in the shape {detail.get('shape')}"
    if event.amount_nano:
        told += f", {in_nats(event.amount_nano / NANO)} committed"
    by = (
        event.actor if event.kind == "document" else actor_in_words(event.actor)
    )  # which are words already
    return f"{told}, by {by}" if by else told


def role_name(role: str) -> str:
    """A role for people.

    >>> role_name("privacy-officer")
    'privacy officer'
    """
    return role.replace("-", " ")


SCOPE_WORDS: dict[Scope, str] = {
    "decide": "request variants",
    "unobserved": "request variants for visits that nobody observes",
    "reward": "report rewards",
    "label": "request labels",
    "read": "see all results, but no individual visitor",
    "draft": "create and change drafts",
    "run": "start, pause, stop and promote",
    "audit": "record audits",
    "privacy": "set the firm’s budget, answer visitors’ requests, issue documents, export",
    "admin": "do everything, including managing people and keys",
}


def scope_words(scopes: Iterable[Scope]) -> str:
    """What scopes allow, in one sentence.

    >>> scope_words(("read", "draft"))
    'see all results, but no individual visitor; create and change drafts'
    """
    given = set(scopes)
    shown = ["admin"] if "admin" in given else [scope for scope in SCOPES if scope in given]
    return "; ".join(SCOPE_WORDS[scope] for scope in shown)  # type: ignore[index]


FILTERS: dict[str, Callable[..., str]] = {
    "capitalised": capitalised,
    "chance": chance,
    "event_words": event_words,
    "actor": actor_in_words,
    "role_name": role_name,
    "scope_words": scope_words,
    "signed_percent": signed_percent,
    "whole": whole,
    "percent": percent,
    "nats": nats,
    "in_nats": in_nats,
    "factor": factor,
    "belief_words": belief_words,
    "severity": severity,
    "duration": duration,
    "moment": moment,
    "day": day,
}
