"""What the service's tests share: a service with a firm, and a running experiment in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from deniable.service.drafts import NewArm
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage.records import Experiment


@contextmanager
def serving(url: str, *, budget: float = 100) -> Iterator[Deniable]:
    with open_service(url) as service:
        service.firm.set(budget=budget)
        yield service


def running(
    service: Deniable,
    key: str = "checkout",
    *,
    arms: Sequence[str | NewArm] = ("old", "new", "bold"),
    segments: Sequence[str] = ("a", "b"),
    **options: Any,
) -> Experiment:
    if not any(isinstance(arm, NewArm) for arm in arms):
        options = {"budget": 1.0, **options}
    service.experiments.create(key, arms=arms, segments=segments, **options)
    return service.experiments.start(key)


def shows(service: Deniable, key: str = "checkout") -> int:
    return sum(cell.shows for cell in service.experiments.counts(key))


def clicks(service: Deniable, key: str = "checkout") -> int:
    return sum(cell.clicks for cell in service.experiments.counts(key))
