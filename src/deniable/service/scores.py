"""Scores for experiments with the strategy "gate": validated and chained until the next publication.

Sending scores publishes nothing; they are used by the next scheduled publication, whose time
depends only on the number of decisions. They are chained on arrival, so that an auditor can
recompute every table from the scores known at that time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import get_args

from sqlalchemy import Connection

from deniable._types import JsonObject
from deniable.errors import InvalidArgumentError, WrongStateError
from deniable.service.drafts import NO_TRACE
from deniable.service.limits import LARGEST_SCORE, MOST_SCORES
from deniable.service.publisher import next_due
from deniable.service.table_making import counts_now, recipe_of
from deniable.storage import commitments, experiments
from deniable.storage.promise_entries import newest_scores, scores_detail
from deniable.storage.records import Experiment, GateReport
from deniable.storage.store import Store
from deniable.storage.sums import growth, sums
from deniable.strategies.gate import GateRule
from deniable.strategies.rules import Kind, Wanted

_SUM_TOLERANCE = 1e-6
_SHAPE = "segment -> arm -> a finite number, such as {segment: {arm: 0.1}}"


class Scores:
    """The part of `Deniable` that receives scores from an external model."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(
        self, key: str, given: Mapping[str, Mapping[str, float]], *, kind: Kind = "scores"
    ) -> GateReport:
        """Store a model's scores; the next scheduled publication uses them.

        Args:
            key: an experiment with the strategy "gate" that is not stopped.
            given: segment -> arm -> score, for every listed segment and every active arm.
            kind: `scores` of any unit and sign, higher is better; or `probabilities`, which sum to
                1 per segment.

        Raises:
            WrongStateError: the experiment has another strategy, or is stopped.
            InvalidArgumentError: the scores do not fit this experiment; the message never names a
                segment.
        """
        given = checked_scores(given)
        if kind not in get_args(Kind):
            raise InvalidArgumentError("kind", kind, " or ".join(get_args(Kind)))
        with self._store.read() as connection:
            experiment = _open(connection, key)
            wanted = _in_order(experiment, given, kind)
            report = _report(connection, experiment, wanted)

        def put(connection: Connection) -> bool:
            commitments.lock_chain(connection)
            locked = _open(connection, key, lock=True)
            if newest_scores(connection, locked) == wanted:
                return False
            commitments.record(connection, "scores", locked, **scores_detail(wanted))
            return True

        recorded = self._store.retried(put)
        return GateReport(experiment=key, kind=kind, recorded=recorded, **report)


def checked_scores(given: object) -> dict[str, dict[str, float]]:
    """Validate the shape of scores and convert them to floats, regardless of the experiment.

    Raises:
        InvalidArgumentError: the message omits the value, which may name segments.

    >>> checked_scores({"a": {"old": 0, "new": 0.5}})
    {'a': {'old': 0.0, 'new': 0.5}}
    """
    if not isinstance(given, Mapping) or not given:
        raise InvalidArgumentError("scores", "...", _SHAPE)
    found: dict[str, dict[str, float]] = {}
    total = 0
    for segment, row in given.items():
        if not isinstance(segment, str) or not isinstance(row, Mapping) or not row:
            raise InvalidArgumentError("scores", "...", _SHAPE)
        total += len(row)
        if total > MOST_SCORES:
            raise InvalidArgumentError("scores", "...", f"at most {MOST_SCORES:,} scores")
        found[segment] = {_arm(arm): _score(score) for arm, score in row.items()}
    return found


def _arm(arm: object) -> str:
    if not isinstance(arm, str):
        raise InvalidArgumentError("scores", "...", _SHAPE)
    return arm


def _score(score: object) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise InvalidArgumentError("scores", "...", _SHAPE)
    # Compare before converting: an integer may be too large for a float.
    if not -LARGEST_SCORE <= score <= LARGEST_SCORE or not math.isfinite(score):
        raise InvalidArgumentError("scores", "...", f"finite numbers of at most {LARGEST_SCORE:g}")
    return float(score)


def _open(connection: Connection, key: str, *, lock: bool = False) -> Experiment:
    """Return the experiment, if it accepts scores."""
    experiment = experiments.by_key(connection, key, lock=lock)
    if not recipe_of(experiment).kind.follows_scores:
        raise WrongStateError(
            f"experiment {key!r} has the {experiment.strategy} strategy, which learns by itself; "
            f"scores need the {GateRule.name} strategy"
        )
    # Cannot be created this way, but the row may have been edited.
    if experiment.trace_nano is not None:
        raise WrongStateError(f"experiment {key!r} has a trace budget; expected {NO_TRACE}")
    if experiment.status not in ("draft", "running", "paused"):
        raise WrongStateError(f"experiment {key!r} is {experiment.status}; its tables have ended")
    return experiment


def _in_order(
    experiment: Experiment, given: Mapping[str, Mapping[str, float]], kind: Kind
) -> Wanted:
    """Return the scores in the order of the experiment's segments and arms; 0 for inactive arms."""
    if set(given) != set(experiment.segments):
        allowed = (
            f"the {len(experiment.segments)} segments of the experiment, all of them and no other"
        )
        raise InvalidArgumentError("scores", "...", allowed)
    known = {arm.key for arm in experiment.arms}
    needed = {arm.key for arm in experiment.active_arms}
    for row in given.values():
        if not needed <= set(row) <= known:
            allowed = "in every segment a score of each arm: " + ", ".join(
                arm.key for arm in experiment.active_arms
            )
            raise InvalidArgumentError("scores", "...", allowed)
        if kind == "probabilities" and (
            min(row.values()) < 0 or abs(sum(row.values()) - 1) > _SUM_TOLERANCE
        ):
            raise InvalidArgumentError(
                "scores", "...", "probabilities that sum to 1 in every segment"
            )
    return Wanted(
        kind,
        tuple(
            tuple(given[segment].get(arm.key, 0.0) for arm in experiment.arms)
            for segment in experiment.segments
        ),
    )


def _report(connection: Connection, experiment: Experiment, wanted: Wanted) -> JsonObject:
    """Return what a table made now would preserve of the scores, and when the next one is due."""
    recipe = recipe_of(experiment)
    found = sums(connection, experiment)
    counts = counts_now(connection, experiment, commitments.moment(connection), found)
    seen = recipe.counts(counts["shows"], counts["rewards"], wanted=wanted)
    gated = GateRule.gated(recipe.active_budgets, seen)
    assert gated is not None
    grown = growth(connection, bytes.fromhex(experiment.id))
    return {
        "wanted": gated.wanted,
        "kept": gated.kept,
        "table": grown.table,
        "decisions": grown.decisions,
        "next_at": next_due(grown) if grown.table else None,
    }
