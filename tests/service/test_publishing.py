"""When tables are looked for, and from which table visitors are drawn afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.service.support import published, running, serving

from deniable.service import table_making
from deniable.service.experiment_state import ExperimentState, ExperimentStates
from deniable.service.publisher import Publisher
from deniable.service.service import Deniable
from deniable.service.service import open as open_service


def decide(service: Deniable, first: int, count: int = 20) -> None:
    service.decide_batch("checkout", [(f"v{first + i}", "a") for i in range(count)])


def test_the_counters_are_looked_at_once_for_each_table(monkeypatch: Any) -> None:
    looks: list[str] = []
    look = Publisher._look

    def counted(publisher: Publisher, state: Any) -> None:
        looks.append(state.key)
        look(publisher, state)

    monkeypatch.setattr(Publisher, "_look", counted)
    with serving("memory:") as service:  # publishes before it answers
        running(service)
        for first in range(0, 6_000, 20):
            decide(service, first)
        tables = service.experiments.get("checkout").table_number - 1
    assert tables >= 40
    assert len(looks) <= tables + 1, "the first decision of all asks too"


def drawn_from(service: Deniable) -> tuple[object, ...]:
    """What the writer draws the next visitor from."""
    state = service.writer.engine.state("checkout")
    assert state is not None
    return (
        state.table_number,
        state.revision,
        state.rows,
        state.unlisted,
        state.neutral,
        state.segments,
    )


def stored(service: Deniable) -> tuple[object, ...]:
    """The same, read from the store."""
    states = ExperimentStates(service._store, service.writer._key)
    states.learn(["checkout"], [])
    state = states.by_key.get("checkout")
    assert state is not None
    return (
        state.table_number,
        state.revision,
        state.rows,
        state.unlisted,
        state.neutral,
        state.segments,
    )


def test_what_changed_besides_the_table_is_read() -> None:
    """A table is published, then a segment is added before anybody comes."""
    with serving("memory:") as service:
        running(service)
        decide(service, 0, 100)
        service.experiments.add_segment("checkout", "new")
        decide(service, 100)
        assert drawn_from(service) == stored(service)
        assert drawn_from(service)[-1] == {"a": 0, "b": 1, "new": 2}


def test_another_processs_table_is_read(store_url: str) -> None:
    with serving(store_url) as one, open_service(store_url) as other:
        running(one)
        decide(one, 0)
        published(other)
        decide(one, 20)
        assert drawn_from(one) == stored(one)
        assert drawn_from(one)[0] == 2


def looked(tmp_path: Path, look: Callable[[Publisher, ExperimentState], None]) -> tuple[int, int]:
    """A publisher that ends after a look: how many there were, and how many still wait."""
    with serving(f"sqlite:///{tmp_path / 'store.db'}") as service:
        running(service)
        decide(service, 0)
        state = service.writer.engine.state("checkout")
        assert state is not None
        publisher, looks = Publisher(service._store), 0
        publisher._thread = threading.current_thread()  # it needs no other

        def looking(seen: ExperimentState) -> None:
            nonlocal looks
            looks += 1
            look(publisher, seen)
            publisher._waiting.put(None)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(publisher, "_look", looking)
            publisher.grown(state)
            publisher._run()
        return looks, publisher._waiting.qsize()


def test_batches_that_are_stored_during_a_look_ask_for_none(tmp_path: Path) -> None:
    def look(publisher: Publisher, seen: ExperimentState) -> None:
        for _ in range(5):
            publisher.grown(seen)
        seen.look_after = seen.new_decisions + 1_000

    assert looked(tmp_path, look) == (1, 0)


def test_what_became_due_during_a_look_is_looked_at_again(tmp_path: Path) -> None:
    def look(publisher: Publisher, seen: ExperimentState) -> None:
        seen.look_after = seen.new_decisions + 5
        seen.new_decisions += 10  # the writer has stored so many meanwhile
        publisher.grown(seen)

    assert looked(tmp_path, look) == (1, 1)


def test_the_next_state_knows_when_to_look_again(tmp_path: Path) -> None:
    """A writer that reads the next table at once must not ask for a look after every batch."""
    with serving(f"sqlite:///{tmp_path / 'store.db'}") as service:
        running(service)
        decide(service, 0, 99)
        service._publisher.close()
        decide(service, 99, 1)
        service._publisher.close()
        decide(service, 100, 1)
        state = service.writer.engine.state("checkout")
        assert state is not None
        assert (state.table_number, state.look_after) == (2, 100)


def test_whatever_fails_publishing_goes_on(tmp_path: Path, monkeypatch: Any) -> None:
    """A fault of one strategy must not end the thread that publishes for all experiments."""

    def faulty(*_: object) -> object:
        raise OverflowError("never shown")

    with serving(f"sqlite:///{tmp_path / 'store.db'}") as service:
        running(service)
        decide(service, 0, 90)
        service._publisher.close()
        state = service.writer.engine.state("checkout")
        assert state is not None
        state.look_after = 1_000  # nobody else looks
        decide(service, 90, 20)
        with monkeypatch.context() as patch:
            patch.setattr(table_making, "next_table", faulty)
            service._publisher._look(state)
        before = service.experiments.get("checkout").table_number
        assert state.new_decisions < state.look_after
        service._publisher._look(state)
        assert service.experiments.get("checkout").table_number == before + 1
