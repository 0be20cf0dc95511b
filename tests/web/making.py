"""Experiments and counters that tests make up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from deniable.errors import NANO
from deniable.storage.records import MICRO, Arm, Cell, Experiment, Metric, PublishedTable
from deniable.strategies.recipe import Recipe


def experiment_of(
    *,
    n_arms: int = 2,
    n_segments: int = 2,
    budget: float = 1.0,
    off: Sequence[int] = (),
    **more: Any,
) -> Experiment:
    """A running experiment with arms `arm0`, ... and segments `segment0`, ..."""
    values: dict[str, Any] = {
        "id": "00" * 16,
        "key": "made-up",
        "status": "running",
        "arms": tuple(Arm(f"arm{i}", active=i not in off) for i in range(n_arms)),
        "segments": tuple(f"segment{i}" for i in range(n_segments)),
        "strategy": "dynamic",
        "budget_nano": round(budget * NANO),
        "planned_visitors": None,
        "layer": None,
        "slots": None,
        "holdout": 0,
        "default_arm": "arm0",
        "attribution_seconds": None,
        "metrics": (Metric(),),
        "version": 1,
        "winner": None,
        "table_number": 1,
        "has_tombstones": False,
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "started_at": datetime(2026, 1, 2, tzinfo=UTC),
        "stopped_at": None,
        "revision": 2,
        "mask": None,
        "sticky": True,
        "contexts": (),
        "observed": True,
    }
    return Experiment(**{**values, **more})


def cells_of(
    experiment: Experiment, shows: Sequence[Sequence[int]], clicks: Sequence[Sequence[int]]
) -> list[Cell]:
    """Counters: a row for each segment, the last one for visitors of no listed segment."""
    return [
        Cell(segment, arm.key, shows[s][a], clicks[s][a], clicks[s][a] * MICRO)
        for s, segment in enumerate([*experiment.segments, None])
        for a, arm in enumerate(experiment.arms)
    ]


def table_of(
    experiment: Experiment, shows: Sequence[Sequence[int]], clicks: Sequence[Sequence[int]]
) -> PublishedTable:
    """The table that the experiment's strategy makes of these counters, as published."""
    recipe = Recipe(
        experiment.strategy,
        experiment.budgets,
        experiment.active,
        cap=MICRO,
    )
    rewards = [[MICRO * count for count in row] for row in clicks[:-1]]
    made = recipe.table(recipe.counts(shows[:-1], rewards))
    return PublishedTable(
        number=1,
        version=1,
        strategy=experiment.strategy,
        published_at=datetime(2026, 1, 12, tzinfo=UTC),
        decisions=sum(map(sum, shows)),
        counts=json.dumps({"shows": shows[:-1]}).encode(),
        rows=made.encoded(),
    )
