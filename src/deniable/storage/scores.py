"""Scores of a model outside: chained when they come, copied into the table that follows them.

The entry `scores` holds them whole, rows in the order of the experiment's segments and arms. A table
follows the newest entry before its own; that is what an auditor checks.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection

from deniable._types import JsonObject
from deniable.storage.commitments import Entry, linked
from deniable.storage.records import Experiment
from deniable.storage.schema import commitments
from deniable.strategies.rules import Wanted


def detail(wanted: Wanted) -> JsonObject:
    """As the chain and the counts of a table hold them."""
    return {"what": wanted.kind, "rows": [list(row) for row in wanted.rows]}


def newest(connection: Connection, experiment: Experiment) -> Wanted | None:
    """What the model said last; None where it has said nothing."""
    mine = commitments.c.experiment_id == bytes.fromhex(experiment.id)
    found = linked(connection, mine, commitments.c.kind == "scores", newest=1)
    return _wanted(found[0].detail) if found else None


def of(connection: Connection, experiment: Experiment) -> dict[int, Wanted]:
    """Table number -> the newest scores by then, by the chain."""
    mine = commitments.c.experiment_id == bytes.fromhex(experiment.id)
    return by_table(linked(connection, mine, commitments.c.kind.in_(("scores", "table"))))


def by_table(entries: Iterable[Entry]) -> dict[int, Wanted]:
    """The same from entries of one experiment."""
    found, last = {}, None
    for entry in sorted(entries, key=lambda entry: entry.seq):
        if entry.kind == "scores":
            last = _wanted(entry.detail)
        elif entry.kind == "table" and last is not None:
            found[entry.detail["number"]] = last
    return found


def _wanted(told: JsonObject) -> Wanted:
    return Wanted(told["what"], tuple(map(tuple, told["rows"])))
