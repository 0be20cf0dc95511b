"""The details of each kind of entry about an experiment, as written to the chain and read from it.

Tables are chained by digests, which `table_problem` compares with what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from deniable._types import JsonObject
from deniable.privacy.tables import Band, Row, Table
from deniable.storage.commitments import Entry
from deniable.storage.records import Arm, Experiment
from deniable.storage.schema import StoredRow


def create_detail(experiment: Experiment) -> JsonObject:
    """Entries `create` and `redraft`: everything that is promised before the start."""
    return {
        "key": experiment.key,
        "arms": [[arm.key, arm.budget_nano] for arm in experiment.arms],
        "weights": [arm.weight for arm in experiment.arms],
        "segments": list(experiment.segments),
        "contexts": list(experiment.contexts),
        "observed": experiment.observed,
        "strategy": experiment.strategy,
        "budget_nano": experiment.budget_nano,
        "mask": experiment.mask,
        "sticky": experiment.sticky,
        "layer": experiment.layer,
        "holdout": experiment.holdout,
        "default_arm": experiment.default_arm,
        "attribution_seconds": experiment.attribution_seconds,
        "metrics": [metric.plain for metric in experiment.metrics],
        "planned_visitors": experiment.planned_visitors,
    }


def replan_detail(experiment: Experiment) -> JsonObject:
    """Entry `replan`: what changed in a draft."""
    return {
        "budget_nano": experiment.budget_nano,
        "strategy": experiment.strategy,
    }


def commit_detail(experiment: Experiment, slots: bytes | None) -> JsonObject:
    """Details that the account adds to the entries `start` and `resume`."""
    return {
        "layer": experiment.layer,
        "slots": None if slots is None else slots.hex(),
        "budget_nano": experiment.budget_nano,
    }


def rows_detail(band: Band | None, neutral: Row) -> JsonObject:
    """Rows that are fixed by `start`, `switch_off` and `add_arm`: the neutral row, and the band.

    The band is None for a strategy without one.
    """
    if band is None:
        return {"band": None, "neutral": list(neutral)}
    rows = {"floors": band.floors, "ceilings": band.ceilings, "neutral": band.neutral}
    return {"band": {name: list(row) for name, row in rows.items()}, "neutral": list(neutral)}


def switch_off_detail(arm: str, version: int, band: Band | None, neutral: Row) -> JsonObject:
    """Entry `switch_off`: the arm, and the new version with its fixed rows."""
    return {"arm": arm, "version": version, **rows_detail(band, neutral)}


def add_arm_detail(arm: Arm, version: int, band: Band | None, neutral: Row) -> JsonObject:
    """Entry `add_arm`: the arm with its own budget, and the rest as in `switch_off`."""
    own = {"budget_nano": arm.budget_nano}
    return {**switch_off_detail(arm.key, version, band, neutral), **own}


def restart_detail(after: int) -> JsonObject:
    """Entry `restart`: the table in force, with whose decisions the earlier counts end."""
    return {"after": after}


def add_segment_detail(segment: str, after: int) -> JsonObject:
    """Entry `add_segment`: its name, and the table in force, which has no row for it."""
    return {"segment": segment, "after": after}


def add_context_detail(context: str, after: int) -> JsonObject:
    """Entry `add_context`: its name, and the table in force, which has no row for it."""
    return {"context": context, "after": after}


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
) -> JsonObject:
    """Entry `table`: digests of a table and its counts, and its worst ratios."""
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
        published_at: when it was made, as a stored time.
    """

    number: int
    version: int
    rows: str
    counts: str
    decisions: int
    ratios: tuple[str, ...]
    strategy: str
    recorded_at: int
    published_at: int


@dataclass(frozen=True)
class TableContent:
    """A published table as a log contains it; names as in `schema.tables`."""

    version: int
    decisions: int
    rows: bytes
    counts: bytes
    strategy: str
    published_at: int


def table_problem(
    row: StoredRow | TableContent | None, chained: PromisedTable | None
) -> str | None:
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
    if row.published_at != chained.published_at:
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
        published_at=detail["published_at"],
        recorded_at=entry.recorded_at,
    )
