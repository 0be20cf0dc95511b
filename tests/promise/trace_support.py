"""An experiment with a trace budget, and what its tables were made from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from deniable.service import table_making
from deniable.service.service import Deniable

ETA = 0.5
SEGMENTS, ARMS = ("a", "b"), ("x", "y")

Noise = Callable[[int, int], int]


@contextmanager
def replaced(noise_of: Noise) -> Iterator[None]:
    """Another noise in the publisher."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_making, "discrete_laplace", noise_of)
        yield


def create(service: Deniable, key: str = "e", trace: float | None = ETA, **options: object) -> None:
    service.experiments.create(
        key,
        arms=options.pop("arms", ARMS),  # type: ignore[arg-type]
        segments=options.pop("segments", SEGMENTS),  # type: ignore[arg-type]
        budget=0.5,
        strategy="constant",
        trace_budget=trace,
        **options,  # type: ignore[arg-type]
    )
    service.experiments.start(key)


def counts_of(service: Deniable, key: str = "e") -> list[dict[str, list[list[int]]]]:
    """What each table of an experiment was made from."""
    return [json.loads(table.counts) for table in service.experiments.tables(key)]


def flat(rows: list[list[int]]) -> list[int]:
    return [entry for row in rows for entry in row]
