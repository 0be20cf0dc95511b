"""Scores of an external model: chained on arrival, and copied into the table that uses them.

The entry `scores` contains all of them, with rows in the order of the experiment's segments and
arms. A table uses the newest entry before its own, which is what an auditor checks.
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
    """Return the form stored in the chain and in the counts of a table."""
    return {"what": wanted.kind, "rows": [list(row) for row in wanted.rows]}


def newest(connection: Connection, experiment: Experiment) -> Wanted | None:
    """Return the model's newest scores, or None."""
    mine = commitments.c.experiment_id == bytes.fromhex(experiment.id)
    found = linked(connection, mine, commitments.c.kind == "scores", newest=1)
    return _wanted(found[0].detail) if found else None


def of(connection: Connection, experiment: Experiment) -> dict[int, Wanted]:
    """Return table number -> the newest scores at that time, according to the chain."""
    mine = commitments.c.experiment_id == bytes.fromhex(experiment.id)
    return by_table(linked(connection, mine, commitments.c.kind.in_(("scores", "table"))))


def by_table(entries: Iterable[Entry]) -> dict[int, Wanted]:
    """Return the same from the entries of one experiment."""
    found, last = {}, None
    for entry in sorted(entries, key=lambda entry: entry.seq):
        if entry.kind == "scores":
            last = _wanted(entry.detail)
        elif entry.kind == "table" and last is not None:
            found[entry.detail["number"]] = last
    return found


def _wanted(detail: JsonObject) -> Wanted:
    return Wanted(detail["what"], tuple(map(tuple, detail["rows"])))
