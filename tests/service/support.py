"""What the service's tests share: a service with a firm, and a running experiment in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.patience import eventually

from deniable.privacy.epochs import due_at, epochs_of
from deniable.service.drafts import NewArm
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.service.table_making import growth
from deniable.storage.records import Experiment, PublishedTable


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
    if "contexts" not in options and "mask" not in options:
        options = {"strategy": "dynamic", **options}  # its tables follow from little traffic
    service.experiments.create(key, arms=arms, segments=segments, **options)
    return service.experiments.start(key)


def shows(service: Deniable, key: str = "checkout") -> int:
    return sum(cell.shows for cell in service.experiments.counts(key))


def clicks(service: Deniable, key: str = "checkout") -> int:
    return sum(cell.clicks for cell in service.experiments.counts(key))


def published(service: Deniable, key: str = "checkout") -> PublishedTable:
    """Return the next table, made from everything stored so far.

    Visitors without a segment come until it is due; they change no counts.
    """
    service.experiments.publish(key)  # what was due before
    experiment = service.experiments.get(key)
    with service._store.read() as connection:
        grown = growth(connection, experiment)
    stored = sum(grown.stored.values())
    epochs = epochs_of(len(experiment.arms), len(experiment.segments))
    due = due_at(sum(grown.made_of.values()), epochs)
    service.decide_batch(key, [(f"filler {n}", None) for n in range(stored, due)])
    service.experiments.publish(key)
    eventually(lambda: service.experiments.tables(key)[-1].decisions == due, "the table")
    return service.experiments.tables(key)[-1]
