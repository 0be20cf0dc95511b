"""A table is made from the decisions up to the number at which it was due, whoever comes meanwhile."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, select
from tests.patience import PATIENCE, eventually
from tests.service.support import running, serving

from deniable.audit import recount as recounting
from deniable.audit.log import audit_log
from deniable.audit.promise import AuditedTable, Promise
from deniable.audit.recount import recounted
from deniable.privacy.epochs import due_at, epochs_of, last_due
from deniable.service import table_making
from deniable.service.audits import _frame
from deniable.service.publisher import Publisher
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage.records import Experiment
from deniable.storage.schema import decisions
from deniable.storage.table_counts import Cut, cut_at, table_counts

EPOCHS = epochs_of(3, 2)


def visit(service: Deniable, first: int, count: int, segment: str | None = "a") -> list[str]:
    pairs = [(f"v{first + n}", segment) for n in range(count)]
    return [answer.id for answer in service.decide_batch("checkout", pairs)]


def counts(service: Deniable, place: int = -1) -> Any:
    return json.loads(service.experiments.tables("checkout")[place].counts)


def outcomes(service: Deniable) -> dict[str, str]:
    return {check.name: check.outcome for check in service.audits.run("checkout").checks}


def broken(service: Deniable) -> set[str]:
    """What an audit of the store finds; the audit of an exported log must find the same."""
    found = {name for name, outcome in outcomes(service).items() if outcome == "broken"}
    with TemporaryDirectory() as folder:
        service.ledger.export_log(Path(folder) / "log.parquet")
        log = audit_log(Path(folder) / "log.parquet")
    assert log.problem is None or found
    checks = [check for one in log.experiments for check in one.checks]
    wrong = {check.name for check in checks if check.outcome == "broken"}
    assert log.problem is not None or found == wrong
    return found


RECOUNT, SCHEDULE = "counts follow from the decisions", "tables when they were due"


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """A publisher that notices that a table is due, and then waits before it makes one."""
    noticed, go_on = threading.Event(), threading.Event()
    look = Publisher._look

    def late(publisher: Publisher, state: Any) -> None:
        if state.new_decisions >= 100:
            noticed.set()
            assert go_on.wait(PATIENCE)
        look(publisher, state)

    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "_look", late)
        yield noticed, go_on
        go_on.set()


# -- the cut ---------------------------------------------------------------------------------------

CUTS = st.dictionaries(st.integers(1, 5), st.tuples(st.integers(0, 50), st.integers(0, 50)))


@given(CUTS, st.data())
def test_a_cut_adds_up_and_never_falls(writers: dict[int, tuple[int, int]], data: Any) -> None:
    before = {writer: old for writer, (old, _) in writers.items() if old}
    every = {writer: old + new for writer, (old, new) in writers.items() if old + new}
    number = data.draw(st.integers(sum(before.values()), sum(every.values())))
    cut = cut_at(number, every, before)
    assert sum(cut.values()) == number
    assert all(before.get(writer, 0) <= cut[writer] <= every[writer] for writer in cut)
    assert set(before) <= set(cut) <= set(every)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_last_due_number_is_one_of_the_schedule(decisions: int, more: int) -> None:
    number = last_due(decisions, decisions + more, EPOCHS)
    passed = decisions
    while passed < number:
        passed = due_at(passed, EPOCHS)
    assert passed == number <= decisions + more < due_at(number, EPOCHS)


# -- who comes while a table is made ---------------------------------------------------------------


@pytest.mark.parametrize("victim", ["a", "b"])
def test_who_comes_meanwhile_enters_the_next_table_whichever_the_cell(
    store_url: str, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first visitor's segment must not decide which table others enter: they all enter the next."""
    with serving(store_url) as service:
        running(service)
        visit(service, -1, 1, victim)
        service._publisher.close()  # it has looked
        with held(monkeypatch) as (noticed, go_on):
            visit(service, 0, 99, None)
            if service._store.durable:
                assert noticed.wait(PATIENCE)
            clicked = visit(service, 1_000, 60, "a")
            service.reward_batch([(decision, 1) for decision in clicked])
            go_on.set()
            eventually(lambda: service.experiments.get("checkout").table_number == 2, "table 2")
        second = service.experiments.tables("checkout")[-1]
        assert second.decisions == 100
        assert sum(map(sum, counts(service)["shows"])) == 1
        assert sum(map(sum, counts(service)["rewards"])) == 0
        visit(service, 2_000, 100, None)
        eventually(lambda: service.experiments.get("checkout").table_number == 3, "table 3")
        assert sum(map(sum, counts(service)["shows"])) == 61
        assert sum(map(sum, counts(service)["rewards"])) == 60_000_000
        assert not broken(service)


def test_a_large_batch_is_one_table_at_the_last_due_number(store_url: str) -> None:
    with serving(store_url) as service:
        running(service)
        visit(service, 0, 350)
        eventually(lambda: service.experiments.get("checkout").table_number == 2, "table 2")
        assert service.experiments.tables("checkout")[-1].decisions == 300
        assert sum(map(sum, counts(service)["shows"])) == 300
        assert not broken(service)


def test_only_due_tables_are_published(store_url: str) -> None:
    with serving(store_url) as service:
        running(service)
        visit(service, 0, 99)
        assert service.experiments.publish("checkout") is None
        service.experiments.stop("checkout")
        assert service.experiments.publish("checkout") is None
        assert service.experiments.get("checkout").table_number == 1


def test_several_writers_add_up(store_url: str) -> None:
    """Decisions and rewards of two processes, each with a chain of its own."""
    with serving(store_url) as one, open_service(store_url) as other:
        running(one)
        for number in range(12):
            service, teller = (one, other) if number % 2 else (other, one)
            known = visit(service, 100 * number, 37, "ab"[number % 2])
            teller.reward_batch([(decision, 1) for decision in known[::3]])
            service.experiments.publish("checkout")
        tables = one.experiments.tables("checkout")
        assert len(tables) > 3
        assert max(len(counts(one, n)["cut"]["decisions"]) for n in range(len(tables))) == 2
        assert not broken(one)


def test_a_large_log_is_counted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("memory:") as service:
        running(service)
        for number in range(10):
            known = visit(service, 100 * number, 50, "ab"[number % 2])
            service.reward_batch([(decision, 1) for decision in known[::3]])
        monkeypatch.setattr(recounting, "AT_ONCE", 100)
        assert not broken(service)


def test_two_processes_publish_a_table_once(store_url: str) -> None:
    with serving(store_url) as one, open_service(store_url) as other:
        running(one)
        one.writer.engine._grown = lambda _state: None  # nobody notices
        visit(one, 0, 100)
        made: list[Any] = []
        threads = [
            threading.Thread(target=lambda s=s: made.append(s.experiments.publish("checkout")))
            for s in (one, other) * 3
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counter(table is None for table in made) == {True: 5, False: 1}
        assert one.experiments.get("checkout").table_number == 2


def test_erased_decisions_may_be_missing_and_nothing_else() -> None:
    with serving("memory:") as service:
        running(service)
        known = visit(service, 0, 150)
        service.reward_batch([(decision, 1) for decision in known[::2]])
        service.visitors.erase([f"v{n}" for n in (3, 80, 120)])
        visit(service, 1_000, 200, "b")
        assert not broken(service)
        promise = service.audits.promise("checkout")
        experiment = service.experiments.get("checkout")
        with service._store.read() as connection:
            rows = _frame(connection, experiment)
        last = promise.tables[-1]
        for away in (1, -1):
            shows = [list(row) for row in last.shows]
            shows[1][0] += away
            changed = replace(last, shows=tuple(map(tuple, shows)))
            other = replace(promise, tables=(*promise.tables[:-1], changed))
            assert recounted(other, rows).wrong() == [last.number]
        assert recounted(promise, rows).wrong() == []


def test_with_an_attribution_window_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from deniable.storage import times

    now = times.now()
    monkeypatch.setattr(times, "now", lambda: now)
    with serving("memory:") as service:
        running(service, attribution_seconds=3600)
        for number in range(8):
            known = visit(service, 1_000 * number, 65, "ab"[number % 2])
            service.reward_batch([(decision, 1) for decision in known[::4]])
            now += 1_500_000_000
        assert service.experiments.get("checkout").table_number > 3
        assert not broken(service)
        assert sum(map(sum, counts(service)["shows"])) > sum(
            sum(map(sum, counts(service, place)["shows"])) for place in (1,)
        )


# -- planted faults --------------------------------------------------------------------------------


def test_a_decision_after_the_due_number_that_is_counted_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def everything(
        connection: Connection, experiment: Experiment, every: Cut, cut: Cut, *more: int
    ) -> Any:
        counted = table_counts(connection, experiment, every, every, *more)
        right = table_counts(connection, experiment, every, cut, *more)
        return {**counted, "cut": right["cut"]}

    with serving("memory:") as service:
        running(service)
        monkeypatch.setattr(table_making, "table_counts", everything)
        visit(service, 0, 101)
        assert broken(service) == {RECOUNT}


def test_decisions_that_enter_by_their_cell_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who came meanwhile is counted where the cell was empty before, and only there."""

    def by_cell(
        connection: Connection, experiment: Experiment, every: Cut, cut: Cut, *more: int
    ) -> Any:
        right = table_counts(connection, experiment, every, cut, *more)
        counted = table_counts(connection, experiment, every, every, *more)
        for segment, row in enumerate(right["shows"]):
            for arm, shows in enumerate(row):
                row[arm] = shows or counted["shows"][segment][arm]
        return right

    with serving("memory:") as service:
        running(service)
        monkeypatch.setattr(table_making, "table_counts", by_cell)
        pairs = [(f"v{n}", "a") for n in range(99)] + [(f"w{n}", "b") for n in range(30)]
        # Decisions of a batch are stored in the order of the visitors' hashes, whoever comes first.
        for visitor, segment in pairs:
            service.decide("checkout", visitor, segment) if segment == "a" else None
        service.decide_batch("checkout", [pair for pair in pairs if pair[1] == "b"])
        assert broken(service) == {RECOUNT}


def test_a_reward_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(*given: Any) -> Any:
        counted = table_counts(*given)
        return {**counted, "rewards": [[0] * len(row) for row in counted["rewards"]]}

    with serving("memory:") as service:
        running(service)
        known = visit(service, 0, 50)
        service.reward_batch([(known[0], 1)])
        monkeypatch.setattr(table_making, "table_counts", forgetful)
        visit(service, 50, 50)
        assert broken(service) == {RECOUNT}


def test_a_table_because_somebody_clicked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made from exactly what it says, but at a number that tells that there was a click."""
    with serving("memory:") as service:
        running(service)
        known = visit(service, 0, 60)
        with monkeypatch.context() as patch:
            patch.setattr(table_making, "last_due", lambda _before, stored, _epochs: stored)
            service.reward_batch([(known[0], 1)])
            assert service.experiments.publish("checkout") is not None
        assert broken(service) == {SCHEDULE}


def test_a_table_made_of_its_own_draws_is_found() -> None:
    """No decision can be in a table that it was drawn from."""
    with serving("memory:") as service:
        running(service)
        visit(service, 0, 250)
        with service._store.begin() as connection:
            first = select(decisions.c.id).order_by(decisions.c.seq).limit(1).scalar_subquery()
            connection.execute(
                decisions.update().where(decisions.c.id == first).values(table_number=2)
            )
        assert RECOUNT in broken(service)


def served(*tables_by_writer: list[int]) -> Sequence[str]:
    """What is said of decisions that name these tables, of which a second was due at 100 and made."""
    promise = Promise("e", ("x", "y"), ("a", "b"), (10**9, 10**9), "constant")
    none = ((0, 0), (0, 0))
    first = AuditedTable(1, 1, promise.first_table(1), none, none, made_of={})
    second = replace(first, number=2, made_of={0: 100})
    recount = recounting.Recount(replace(promise, tables=(first, second)))
    for writer, named in enumerate(tables_by_writer):
        for block in np.array_split(np.array(named, dtype=np.int64), 7):
            recount.follow(writer, block)
    return [check.outcome for check in recount.checks()][1:]


def test_a_decision_that_names_an_older_table_than_the_one_before_is_found() -> None:
    assert served([1] * 120 + [2] * 50) == ["kept"]
    assert served([1] * 120 + [2] * 50 + [1] + [2] * 9) == ["broken"]


def test_a_writer_that_never_serves_the_newer_table_is_found_without_a_clock() -> None:
    """The third table is due at 200: before the second one, at most 199 can have been stored."""
    assert served([1] * 100 + [2] * 9, [1] * 99) == ["kept"]
    assert served([1] * 100 + [2] * 9, [1] * 100) == ["broken"]
