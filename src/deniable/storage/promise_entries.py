"""The details of each kind of entry about an experiment, as written to the chain."""

from __future__ import annotations

from hashlib import sha256

from deniable._types import JsonObject
from deniable.privacy.tables import Band, Table
from deniable.storage.records import Arm, Experiment


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
