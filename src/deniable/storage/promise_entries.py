"""The details of each kind of entry about an experiment, as written to the chain and read from it.

Tables are chained by digests, which `table_problem` compares with what is stored. Scores of an external
model are chained on arrival and copied into the table that uses them. The entry `scores` contains all of
them, with rows in the order of the experiment's segments and arms. A table uses the newest entry before
its own, which is what an auditor checks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import Connection

from deniable._types import JsonObject
from deniable.privacy.tables import Band, Table
from deniable.storage.commitments import Entry, linked
from deniable.storage.records import Arm, Experiment
from deniable.storage.schema import StoredRow, commitments
from deniable.strategies.rules import Wanted


def create_detail(experiment: Experiment) -> JsonObject:
    """Entries `create` and `redraft`: everything that is promised before the start."""
    return {
        "key": experiment.key,
        "arms": [[arm.key, arm.budget_nano] for arm in experiment.arms],
        "segments": list(experiment.segments),
        "strategy": experiment.strategy,
        "budget_nano": experiment.budget_nano,
        "trace_nano": experiment.trace_nano,
        "layer": experiment.layer,
        "holdout": experiment.holdout,
        "default_arm": experiment.default_arm,
        "attribution_seconds": experiment.attribution_seconds,
        "metrics": [metric.plain for metric in experiment.metrics],
        "across_time": experiment.across_time,
        "planned_visitors": experiment.planned_visitors,
    }


def replan_detail(experiment: Experiment) -> JsonObject:
    """Entry `replan`: what changed in a draft."""
    return {
        "budget_nano": experiment.budget_nano,
        "trace_nano": experiment.trace_nano,
        "strategy": experiment.strategy,
        "across_time": experiment.across_time,
    }


def commit_detail(experiment: Experiment, slots: bytes | None) -> JsonObject:
    """Details that the account adds to the entries `start` and `resume`."""
    return {
        "layer": experiment.layer,
        "slots": None if slots is None else slots.hex(),
        "budget_nano": experiment.budget_nano,
        "trace_nano": experiment.trace_nano,
    }


def band_detail(band: Band | None) -> JsonObject:
    """The band, for `start`, `switch_off` and `add_arm`; None for a strategy without one."""
    if band is None:
        return {"band": None}
    rows = {"floors": band.floors, "ceilings": band.ceilings, "zero": band.zero}
    return {"band": {name: list(row) for name, row in rows.items()}}


def switch_off_detail(arm: str, version: int, band: Band | None, grade: str) -> JsonObject:
    """Entry `switch_off`: the arm, the new version with its band, and the promise's grade."""
    return {"arm": arm, "version": version, "grade": grade, **band_detail(band)}


def add_arm_detail(arm: Arm, version: int, band: Band | None, grade: str) -> JsonObject:
    """Entry `add_arm`: the arm with its own budget, and the rest as in `switch_off`."""
    own = {"budget_nano": arm.budget_nano}
    return {**switch_off_detail(arm.key, version, band, grade), **own}


def add_segment_detail(segment: str, after: int) -> JsonObject:
    """Entry `add_segment`: its name, and the table in force, which has no row for it."""
    return {"segment": segment, "after": after}


def stop_detail(winner: str | None, last_answer: int | None) -> JsonObject:
    """Entry `stop`.

    Args:
        winner: the promoted arm.
        last_answer: the hour of the last answer at a risk (`account.last_hour`); None if there was
            none.
    """
    return {"winner": winner, "last_answer": last_answer}


def table_detail(
    number: int,
    version: int,
    table: Table,
    counts: bytes,
    decisions: int,
    strategy: str,
    published_at: int,
    late_band: Band | None = None,
) -> JsonObject:
    """Entry `table`: digests of a table and its counts, and its worst ratios.

    `late_band` was not fixed at the start; it is named by every table from the first one inside it.
    """
    ratios = [f"{ratio.numerator}/{ratio.denominator}" for ratio in table.worst_ratios()]
    return {
        "number": number,
        "version": version,
        "strategy": strategy,
        "rows": table.digest(),
        "counts": sha256(counts).hexdigest(),
        "decisions": decisions,
        "published_at": published_at,
        "ratios": ratios,
        **({} if late_band is None else band_detail(late_band)),
    }


# -- published tables ------------------------------------------------------------------------------


@dataclass(frozen=True)
class PromisedTable:
    """A published table by the digests that the chain holds.

    Attributes:
        number: its number within the experiment.
        version: version of the promise.
        rows: SHA-256 of the encoded table, in hexadecimal.
        counts: SHA-256 of the counts it was made from.
        decisions: number of decisions stored at that time.
        ratios: the exact worst ratio of each arm, "numerator/denominator".
        strategy: the strategy that made it.
        recorded_at: when it was chained, as a stored time.
        published_at: when it was made, as a stored time; None in entries from before it was chained.
        late_band: whether it names a band that was not fixed at the start.
    """

    number: int
    version: int
    rows: str
    counts: str
    decisions: int
    ratios: tuple[str, ...]
    strategy: str
    recorded_at: int
    published_at: int | None = None
    late_band: bool = False


def table_problem(row: StoredRow | None, chained: PromisedTable | None) -> str | None:
    """Return what is wrong with a stored table, compared with its entry; None if nothing is."""
    if chained is None:
        return "is not in the ledger"
    if row is None:
        return "was removed"
    if not isinstance(row.rows, bytes) or not isinstance(row.counts, bytes):
        return "was changed"  # SQLite stores text in any column
    stored = (
        row.version,
        row.decisions,
        sha256(row.rows).hexdigest(),
        sha256(row.counts).hexdigest(),
    )
    if stored != (chained.version, chained.decisions, chained.rows, chained.counts):
        return "was changed"
    if row.strategy != chained.strategy:
        return "has another strategy"
    if chained.published_at not in (None, row.published_at):
        return "has another time"
    return None


def promised_table(entry: Entry) -> PromisedTable:
    """Parse a `table` entry."""
    detail = entry.detail
    return PromisedTable(
        number=detail["number"],
        version=detail["version"],
        rows=detail["rows"],
        counts=detail["counts"],
        decisions=detail["decisions"],
        ratios=tuple(detail["ratios"]),
        strategy=detail["strategy"],
        published_at=detail.get("published_at"),
        recorded_at=entry.recorded_at,
        late_band=detail.get("band") is not None,
    )


# -- scores of an external model -------------------------------------------------------------------


def scores_detail(wanted: Wanted) -> JsonObject:
    """Return the form stored in the chain and in the counts of a table."""
    return {"what": wanted.kind, "rows": [list(row) for row in wanted.rows]}


def newest_scores(connection: Connection, experiment: Experiment) -> Wanted | None:
    """Return the model's newest scores, or None."""
    mine = commitments.c.experiment_id == bytes.fromhex(experiment.id)
    found = linked(connection, mine, commitments.c.kind == "scores", newest=1)
    return _wanted(found[0].detail) if found else None


def scores_of(connection: Connection, experiment: Experiment) -> dict[int, Wanted]:
    """Return table number -> the newest scores at that time, according to the chain."""
    mine = commitments.c.experiment_id == bytes.fromhex(experiment.id)
    return scores_by_table(linked(connection, mine, commitments.c.kind.in_(("scores", "table"))))


def scores_by_table(entries: Iterable[Entry]) -> dict[int, Wanted]:
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
