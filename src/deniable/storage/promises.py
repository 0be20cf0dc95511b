"""What an experiment promises, read from the chain and compared with its row.

The columns of `experiments`, `arms` and `segments` can be changed by anyone with write access to
the store. The chain cannot, unnoticed. A promise is therefore built from the experiment's entries:
`create` defines it, `replan` and `redraft` change a draft, `discard` removes one, `start` fixes
slots and band, `switch_off` and `add_arm` make a new version, `add_segment` lists one more from the
next table on, `stop` ends it, and `table` names each published table by its digests. Experiments
from before migration 0004 have an entry `migrate` that contains everything at once.

`promise_entries.py` defines the content of these entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, bindparam, func, or_, select

from deniable._types import JsonObject
from deniable.errors import BrokenPromiseError
from deniable.privacy.tables import Band, Table, stored_table
from deniable.storage.commitments import Entry, checked, linked, linked_query
from deniable.storage.promise_entries import PromisedTable, promised_table, table_problem
from deniable.storage.records import Experiment, Metric
from deniable.storage.schema import Query, commitments, tables

_FORGETTING = ("erase", "purge")
DRAFTING = {"create", "redraft", "replan"}
"""Actions on an experiment that has not started."""


NOT_SAID = -1
"""Planned visitors that the chain does not name."""


@dataclass(frozen=True)
class Promise:
    """What the chain says about one experiment; names as in `records.Experiment`.

    Attributes:
        arms: (key, budget_nano, active) in declared order.
        band: floors, ceilings and zero row of all tables; None if the strategy has none (yet) or
            the experiment has not started.
        last_table: the newest published table; None before the first.
        tombstones: number of tombstones of erased visitors that must exist.
        one_band: whether the tables of all versions keep the budgets together.
        arms_since: the version from which each arm is on.
        segments_since: the number of the first table that has a row for each segment. Before it,
            visitors of an added segment get the zero row.
        planned_visitors: NOT_SAID in entries from before it was chained.
    """

    key: str
    arms: tuple[tuple[str, int | None, bool], ...]
    segments: tuple[str, ...]
    strategy: str
    budget_nano: int
    trace_nano: int | None
    layer: str | None
    holdout: int
    default_arm: str
    attribution_seconds: int | None
    metrics: tuple[Metric, ...]
    slots: bytes | None = None
    band: Band | None = None
    version: int = 1
    status: str = "draft"
    winner: str | None = None
    exhausted: bool = False
    last_table: PromisedTable | None = None
    tombstones: int = 0
    one_band: bool = True
    across_time: bool = False
    arms_since: tuple[int, ...] = ()
    segments_since: tuple[int, ...] = ()
    planned_visitors: int | None = NOT_SAID


def discarded(kinds: Iterable[str]) -> bool:
    """Whether entries of these kinds, in order, belong to a draft that was removed.

    >>> discarded(["create", "note", "discard"]), discarded(["create", "start", "discard"])
    (True, False)
    """
    *before, last = [kind for kind in kinds if kind in ACTS or kind == "discard"] or [""]
    return last == "discard" and set(before) <= DRAFTING


def promise_of(connection: Connection, experiment: Experiment) -> Promise:
    """Return what the chain says about an experiment.

    Raises:
        BrokenPromiseError: an entry was changed, or none defines the experiment.
    """
    entries = checked(connection, _ENTRIES, experiment=bytes.fromhex(experiment.id))
    return promise_from(experiment.key, entries)


def promise_from(key: str, entries: Sequence[Entry]) -> Promise:
    """Build the promise from these entries of one experiment, in order."""
    promise: Promise | None = None
    for entry in sorted(entries):
        if entry.kind in _WHOLE:
            promise = _whole(entry.detail) or promise
        elif promise is not None:
            promise = _EFFECTS[entry.kind](promise, entry)
    if promise is None:
        raise BrokenPromiseError(f"the ledger does not say what experiment {key!r} promises")
    return promise


def differences(experiment: Experiment, promise: Promise) -> list[str]:
    """Return the fields in which a row disagrees with the chain."""
    arms = tuple((arm.key, arm.budget_nano, arm.active) for arm in experiment.arms)
    number = promise.last_table.number if promise.last_table else 0
    wrong = [name for name in _SAME if getattr(experiment, name) != getattr(promise, name)]
    if arms != promise.arms:
        wrong.append("arms")
    if experiment.table_number != number:
        wrong.append("table_number")
    if promise.planned_visitors not in (NOT_SAID, experiment.planned_visitors):
        wrong.append("planned_visitors")
    if experiment.has_tombstones != bool(promise.tombstones):
        wrong.append("has_tombstones")
    return sorted(wrong)


def check(connection: Connection, experiment: Experiment) -> Promise:
    """Return the promise of an experiment; raise BrokenPromiseError if its row disagrees with it."""
    promise = promise_of(connection, experiment)
    wrong = differences(experiment, promise)
    if wrong:
        raise BrokenPromiseError(
            f"experiment {experiment.key!r} is not what the ledger says: {', '.join(wrong)}"
        )
    return promise


def check_table(promise: Promise, table: Table) -> None:
    """Raise BrokenPromiseError unless a table keeps the promise's band and each arm's budget."""
    budgets = [promise.budget_nano if own is None else own for _, own, _ in promise.arms]
    table.check(budgets)
    if promise.band is not None and not promise.band.holds((*table.rows, table.zero)):
        raise BrokenPromiseError(f"a table of experiment {promise.key!r} is outside of its band")


def chained_table(
    connection: Connection, experiment: Experiment, promise: Promise, chained: PromisedTable
) -> Table:
    """Return a stored table that matches the chain, in the current shape of the experiment.

    Args:
        connection: inside a transaction.
        experiment: the experiment.
        promise: what the chain says about the experiment.
        chained: what the chain says about the table, such as `Promise.last_table`.

    Raises:
        BrokenPromiseError: it is missing, or differs from what was chained.
    """
    which = {"experiment": bytes.fromhex(experiment.id), "table": chained.number}
    row = connection.execute(_TABLE, which).one_or_none()
    problem = table_problem(row, chained)
    if row is None or problem is not None:
        raise BrokenPromiseError(
            f"table {chained.number} of experiment {experiment.key!r} {problem}"
        )
    return stored_table(row.rows, row.counts, len(promise.segments), len(promise.arms))


def tombstones_of(connection: Connection, experiment: Experiment) -> int:
    """Return how many tombstones an experiment must have, according to its erasure entries."""
    newest = checked(connection, _NEWEST_ERASURE, identity=bytes.fromhex(experiment.id))
    return int(newest[0].detail.get("tombstones", 0)) if newest else 0


def switched_off(connection: Connection, experiment: Experiment) -> dict[str, int]:
    """Return arm key -> the version from which it is off, according to the chain."""
    mine = commitments.c.experiment_id == bytes.fromhex(experiment.id)
    kinds = commitments.c.kind.in_(("migrate", "switch_off"))
    off: dict[str, int] = {}
    for entry in linked(connection, mine, kinds):
        if entry.kind == "switch_off":
            off[entry.detail["arm"]] = entry.detail["version"]
    return off


def matters(entry: Entry) -> bool:
    """Whether an entry affects what an experiment promises."""
    return entry.kind in ACTS or entry.kind in _EFFECTS


def promised_tables(connection: Connection, experiment: Experiment) -> list[PromisedTable]:
    """Return all chained tables of an experiment, oldest first."""
    mine = commitments.c.experiment_id == bytes.fromhex(experiment.id)
    return [promised_table(e) for e in linked(connection, mine, commitments.c.kind == "table")]


_SAME = (
    "key",
    "segments",
    "strategy",
    "across_time",
    "budget_nano",
    "trace_nano",
    "layer",
    "slots",
    "holdout",
    "default_arm",
    "attribution_seconds",
    "metrics",
    "version",
    "status",
    "winner",
    "exhausted",
)
"""Fields that must be equal in a row and its promise."""


def _whole(detail: JsonObject) -> Promise | None:
    """Return the promise of a `create` or `migrate` entry; None for one from before migration 0004."""
    if not isinstance(detail["segments"], list):
        return None
    off, later = detail.get("off", []), detail.get("later", [])
    return Promise(
        key=detail["key"],
        arms=tuple((key, budget, key not in off) for key, budget in detail["arms"]),
        segments=tuple(detail["segments"]),
        strategy=detail["strategy"],
        budget_nano=detail["budget_nano"],
        trace_nano=detail["trace_nano"],
        layer=detail["layer"],
        holdout=detail["holdout"],
        default_arm=detail["default_arm"],
        attribution_seconds=detail["attribution_seconds"],
        metrics=tuple(Metric(*one) for one in detail["metrics"]),
        slots=_slots(detail),
        version=detail.get("version", 1),
        status=detail.get("status", "draft"),
        winner=detail.get("winner"),
        exhausted=detail.get("exhausted", False),
        one_band=not off,
        across_time=detail.get("across_time", False),
        planned_visitors=detail.get("planned_visitors", NOT_SAID),
        arms_since=(1,) * len(detail["arms"]),
        # Table 1 of a scratch copy may have no row yet for segments that were added last.
        segments_since=tuple(1 + (name in later) for name in detail["segments"]),
    )


def _slots(detail: JsonObject) -> bytes | None:
    text = detail.get("slots")
    return None if text is None else bytes.fromhex(text)


def _band(detail: JsonObject) -> Band | None:
    rows = detail.get("band")
    if rows is None:
        return None
    return Band(tuple(rows["floors"]), tuple(rows["ceilings"]), tuple(rows["zero"]))


def _started(promise: Promise, entry: Entry) -> Promise:
    detail = entry.detail
    return replace(promise, status="running", slots=_slots(detail), band=_band(detail))


def _resumed(promise: Promise, entry: Entry) -> Promise:
    return replace(promise, status="running", slots=_slots(entry.detail))


def _paused(promise: Promise, _entry: Entry) -> Promise:
    return replace(promise, status="paused")


def _stopped(promise: Promise, entry: Entry) -> Promise:
    return replace(promise, status="stopped", winner=entry.detail["winner"])


def _replanned(promise: Promise, entry: Entry) -> Promise:
    detail = entry.detail
    return replace(
        promise,
        budget_nano=detail["budget_nano"],
        trace_nano=detail["trace_nano"],
        strategy=detail["strategy"],
        across_time=detail.get("across_time", False),
    )


def _switched_off(promise: Promise, entry: Entry) -> Promise:
    gone = entry.detail["arm"]
    arms = tuple((key, budget, on and key != gone) for key, budget, on in promise.arms)
    return replace(_next_version(promise, entry), arms=arms)


def _added_arm(promise: Promise, entry: Entry) -> Promise:
    arm, own = entry.detail["arm"], entry.detail["budget_nano"]
    same_kind = (own is None) == (promise.arms[0][1] is None)
    if arm in {key for key, _, _ in promise.arms} or not same_kind:
        raise _impossible(entry)
    if own is not None and own > promise.budget_nano:  # more than was committed to the firm
        raise _impossible(entry)
    return replace(
        _next_version(promise, entry),
        arms=(*promise.arms, (arm, own, True)),
        arms_since=(*promise.arms_since, entry.detail["version"]),
    )


def _added_segment(promise: Promise, entry: Entry) -> Promise:
    name, after, last = entry.detail["segment"], entry.detail["after"], promise.last_table
    # If only the newest table's entry is read, it may come later; then nothing is known here.
    if name in promise.segments or (last is not None and last.number != after):
        raise _impossible(entry)
    return replace(
        promise,
        segments=(*promise.segments, name),
        segments_since=(*promise.segments_since, after + 1),
    )


def _next_version(promise: Promise, entry: Entry) -> Promise:
    detail = entry.detail
    if detail["version"] != promise.version + 1:
        raise _impossible(entry)
    one_band = promise.one_band and detail["grade"] == "across time"
    return replace(promise, version=detail["version"], band=_band(detail), one_band=one_band)


def _impossible(entry: Entry) -> BrokenPromiseError:
    return BrokenPromiseError(f"commitment {entry.seq} cannot follow from those before it")


def _published(promise: Promise, entry: Entry) -> Promise:
    band = _band(entry.detail) or promise.band
    return replace(promise, last_table=promised_table(entry), band=band)


def _forgot(promise: Promise, entry: Entry) -> Promise:
    return replace(promise, tombstones=entry.detail.get("tombstones", 0))


_EFFECTS: dict[str, Callable[[Promise, Entry], Promise]] = {
    "start": _started,
    "resume": _resumed,
    "pause": _paused,
    "stop": _stopped,
    "replan": _replanned,
    "switch_off": _switched_off,
    "add_arm": _added_arm,
    "add_segment": _added_segment,
    "table": _published,
    "erase": _forgot,
    "purge": _forgot,
}

_WHOLE = ("create", "redraft", "migrate", "scratch")
"""Kinds of entries that contain a complete promise."""

KINDS = {*_WHOLE, *_EFFECTS}
"""All kinds of entries that affect a promise."""

ACTS = KINDS - {"table", *_FORGETTING}
"""Kinds with few entries per experiment; of the others, only the newest is read."""


def _entries_query() -> Query:
    mine = commitments.c.experiment_id == bindparam("experiment")
    kind, seq = commitments.c.kind, commitments.c.seq
    newest = [
        select(func.max(seq)).where(mine, kind.in_(kinds)).scalar_subquery()
        for kinds in (["table"], list(_FORGETTING))
    ]
    # Not `in_`, whose values would be expanded again on every execution.
    acts = or_(*(kind == name for name in sorted(ACTS)))
    return linked_query(mine, acts | (seq == newest[0]) | (seq == newest[1]))


_ENTRIES = _entries_query()
"""Query for all entries that make up a promise."""

_TABLE = select(tables).where(
    tables.c.experiment_id == bindparam("experiment"), tables.c.number == bindparam("table")
)

_NEWEST_ERASURE = linked_query(
    commitments.c.experiment_id == bindparam("identity"),
    commitments.c.kind.in_(_FORGETTING),
    newest=1,
)
