"""What an experiment promises, read from the chain and compared with its row.

The columns of `experiments`, `arms` and `segments` can be changed by anyone with write access to
the store. The chain cannot, unnoticed. A promise is therefore built from the experiment's entries:
`create` defines it, `replan` and `redraft` change a draft, `discard` removes one, `start` fixes
slots, band and neutral row, `switch_off` and `add_arm` make a new version with its own,
`add_segment` and `add_context` list one more from the next table on, `restart` lets counts begin
again from zero, `stop` ends it, and `table` names each published table by its digests.

`promise_entries.py` defines the content of these entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from sqlalchemy import Connection, bindparam, func, or_, select

from deniable._types import JsonObject
from deniable.errors import BrokenPromiseError
from deniable.privacy.tables import (
    Band,
    Row,
    Table,
    neutral_row,
    stored_table,
    with_arm,
    without_arm,
)
from deniable.storage.commitments import Entry, checked, linked, linked_query
from deniable.storage.promise_entries import PromisedTable, promised_table, table_problem
from deniable.storage.records import Experiment, Metric, row_names
from deniable.storage.schema import Query, commitments, tables

_FORGETTING = ("erase", "purge")
DRAFTING = {"create", "redraft", "replan"}
"""Actions on an experiment that has not started."""


@dataclass(frozen=True)
class Promise:
    """What the chain says about one experiment; names as in `records.Experiment`.

    Attributes:
        arms: (key, budget_nano, active) in declared order.
        weights: of the arms, in the neutral row at the start.
        band: limits on the entries of all tables, and their neutral row; None if the strategy has
            none or the experiment has not started.
        neutral: the neutral row of each version, oldest first; empty before the start. It depends on
            no data: pauses, holdouts, other slots, failures and erased visitors are served from it.
        last_table: the newest published table; None before the first.
        tombstones: number of tombstones of erased visitors that must exist.
        arms_since: the version from which each arm is on.
        restarts: numbers of the tables in force when its counts began again from zero, because some
            visitors may be drawn a second time; without a fixed band, a table must not contain the
            record of somebody who is drawn from it again.
        segments_since: the number of the first table that has a row for each segment. Before it,
            visitors of an added segment are served as those of unlisted ones.
        contexts_since: the same for each context.
    """

    key: str
    arms: tuple[tuple[str, int | None, bool], ...]
    segments: tuple[str, ...]
    strategy: str
    budget_nano: int
    layer: str | None
    holdout: int
    default_arm: str
    attribution_seconds: int | None
    metrics: tuple[Metric, ...]
    planned_visitors: int | None
    weights: tuple[int, ...]
    contexts: tuple[str, ...] = ()
    observed: bool = True
    mask: str | None = None
    sticky: bool = True
    slots: bytes | None = None
    band: Band | None = None
    neutral: tuple[Row, ...] = ()
    version: int = 1
    status: str = "draft"
    winner: str | None = None
    last_table: PromisedTable | None = None
    tombstones: int = 0
    arms_since: tuple[int, ...] = ()
    segments_since: tuple[int, ...] = ()
    contexts_since: tuple[int, ...] = ()
    restarts: tuple[int, ...] = ()

    @property
    def bounded(self) -> bool:
        """Whether rows must keep the budget: not contexts, labels, and what nobody observes."""
        return self.observed and self.mask is None and bool(self.segments)

    @property
    def rows(self) -> tuple[str, ...]:
        """The names of its tables' rows; see `records.row_names`."""
        return row_names(self.contexts, self.segments)

    @property
    def rows_since(self) -> tuple[int, ...]:
        """The number of the first table that has each row."""
        since = product(self.contexts_since or (1,), self.segments_since or (1,))
        return tuple(max(pair) for pair in since)

    def neutral_of(self, version: int) -> Row:
        """Return the neutral row of a version; arms that were added later have no chance in it."""
        row = self.neutral[version - 1]
        return row + (0,) * (len(self.arms) - len(row))


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
            promise = _whole(entry.detail)
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
    if (arms, tuple(arm.weight for arm in experiment.arms)) != (promise.arms, promise.weights):
        wrong.append("arms")
    if experiment.table_number != number:
        wrong.append("table_number")
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
    if promise.bounded:
        budgets = [promise.budget_nano if own is None else own for _, own, _ in promise.arms]
        table.check(budgets)
    if promise.band is not None and not promise.band.holds((*table.rows, table.unlisted)):
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
    return stored_table(row.rows, row.counts, len(promise.rows), len(promise.arms))


def tombstones_of(connection: Connection, experiment: Experiment) -> int:
    """Return how many tombstones an experiment must have, according to its erasure entries."""
    newest = checked(connection, _NEWEST_ERASURE, identity=bytes.fromhex(experiment.id))
    return int(newest[0].detail["tombstones"]) if newest else 0


def switched_off(connection: Connection, experiment: Experiment) -> dict[str, int]:
    """Return arm key -> the version from which it is off, according to the chain."""
    mine = commitments.c.experiment_id == bytes.fromhex(experiment.id)
    entries = linked(connection, mine, commitments.c.kind == "switch_off")
    return {entry.detail["arm"]: entry.detail["version"] for entry in entries}


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
    "budget_nano",
    "mask",
    "sticky",
    "layer",
    "slots",
    "holdout",
    "default_arm",
    "attribution_seconds",
    "metrics",
    "version",
    "status",
    "winner",
    "planned_visitors",
    "contexts",
    "observed",
)
"""Fields that must be equal in a row and its promise."""


def _whole(detail: JsonObject) -> Promise:
    """Return the promise of a `create` or `redraft` entry."""
    return Promise(
        key=detail["key"],
        arms=tuple((key, budget, True) for key, budget in detail["arms"]),
        segments=tuple(detail["segments"]),
        strategy=detail["strategy"],
        budget_nano=detail["budget_nano"],
        mask=detail["mask"],
        sticky=detail["sticky"],
        layer=detail["layer"],
        holdout=detail["holdout"],
        default_arm=detail["default_arm"],
        attribution_seconds=detail["attribution_seconds"],
        metrics=tuple(Metric(*one) for one in detail["metrics"]),
        planned_visitors=detail["planned_visitors"],
        contexts=tuple(detail["contexts"]),
        observed=detail["observed"],
        weights=tuple(detail["weights"]),
        neutral=tuple(map(tuple, detail.get("neutral", ()))),
        arms_since=(1,) * len(detail["arms"]),
        segments_since=(1,) * len(detail["segments"]),
        contexts_since=(1,) * len(detail["contexts"]),
    )


def _slots(detail: JsonObject) -> bytes | None:
    text = detail.get("slots")
    return None if text is None else bytes.fromhex(text)


def _band(detail: JsonObject) -> Band | None:
    rows = detail.get("band")
    if rows is None:
        return None
    return Band(tuple(rows["floors"]), tuple(rows["ceilings"]), tuple(rows["neutral"]))


def _started(promise: Promise, entry: Entry) -> Promise:
    detail = entry.detail
    started = replace(promise, status="running", slots=_slots(detail), band=_band(detail))
    return _with_neutral(started, entry, neutral_row(promise.weights))


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
        strategy=detail["strategy"],
    )


def _switched_off(promise: Promise, entry: Entry) -> Promise:
    gone = entry.detail["arm"]
    arms = tuple((key, budget, on and key != gone) for key, budget, on in promise.arms)
    new = replace(_next_version(promise, entry), arms=arms)
    place = [key for key, _, _ in arms].index(gone)
    return _with_neutral(new, entry, without_arm(promise.neutral[-1], place))


def _added_arm(promise: Promise, entry: Entry) -> Promise:
    arm, own = entry.detail["arm"], entry.detail["budget_nano"]
    same_kind = (own is None) == (promise.arms[0][1] is None)
    if arm in {key for key, _, _ in promise.arms} or not same_kind:
        raise _impossible(entry)
    if own is not None and own > promise.budget_nano:  # more than was committed to the firm
        raise _impossible(entry)
    new = replace(
        _next_version(promise, entry),
        arms=(*promise.arms, (arm, own, True)),
        weights=(*promise.weights, 1),
        arms_since=(*promise.arms_since, entry.detail["version"]),
    )
    return _with_neutral(new, entry, with_arm(promise.neutral[-1]))


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


def _added_context(promise: Promise, entry: Entry) -> Promise:
    name, after, last = entry.detail["context"], entry.detail["after"], promise.last_table
    if not promise.contexts or name in promise.contexts or (last and last.number != after):
        raise _impossible(entry)
    return replace(
        promise,
        contexts=(*promise.contexts, name),
        contexts_since=(*promise.contexts_since, after + 1),
    )


def _restarted(promise: Promise, entry: Entry) -> Promise:
    after, last = entry.detail["after"], promise.last_table
    if (last is not None and last.number != after) or after < max(promise.restarts, default=1):
        raise _impossible(entry)
    return replace(promise, restarts=(*promise.restarts, after))


def _next_version(promise: Promise, entry: Entry) -> Promise:
    detail = entry.detail
    if detail["version"] != promise.version + 1:
        raise _impossible(entry)
    return replace(promise, version=detail["version"], band=_band(detail))


def _with_neutral(promise: Promise, entry: Entry, weighted: Row) -> Promise:
    """Add the neutral row that an entry names, which must be the band's or else `weighted`."""
    named = tuple(entry.detail["neutral"])
    if named != fixed_neutral(promise.band, weighted):
        raise _impossible(entry)
    return replace(promise, neutral=(*promise.neutral, named))


def fixed_neutral(band: Band | None, weighted: Row) -> Row:
    """Return the neutral row of a version: the band's row of risk 0, or the given one without a band."""
    return weighted if band is None else band.neutral


def _impossible(entry: Entry) -> BrokenPromiseError:
    return BrokenPromiseError(f"commitment {entry.seq} cannot follow from those before it")


def _published(promise: Promise, entry: Entry) -> Promise:
    return replace(promise, last_table=promised_table(entry))


def _forgot(promise: Promise, entry: Entry) -> Promise:
    return replace(promise, tombstones=entry.detail["tombstones"])


_EFFECTS: dict[str, Callable[[Promise, Entry], Promise]] = {
    "start": _started,
    "resume": _resumed,
    "pause": _paused,
    "stop": _stopped,
    "replan": _replanned,
    "switch_off": _switched_off,
    "add_arm": _added_arm,
    "add_segment": _added_segment,
    "add_context": _added_context,
    "restart": _restarted,
    "table": _published,
    "erase": _forgot,
    "purge": _forgot,
}

_WHOLE = ("create", "redraft")
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
