"""A chain has one owner: whoever lost its lease notices before it stores, and goes on elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Select, select, update
from tests.service.support import running, serving, shows

from deniable.service.lease import Identity, claim
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage.records import Decision
from deniable.storage.schema import COMMITMENT_CHAIN, decisions, writers


def identity(service: Deniable) -> Identity:
    found = service.writer.engine._identity
    assert found is not None
    return found


def run_out(service: Deniable) -> None:
    """The leases of all writers are over, as if a minute had passed without a batch."""
    with service._store.begin() as connection:
        connection.execute(
            update(writers).where(writers.c.id != COMMITMENT_CHAIN).values(lease_until=0)
        )


def rows_of(service: Deniable, writer: int) -> list[int]:
    with service._store.read() as connection:
        query = select(decisions.c.seq).where(decisions.c.writer_id == writer)
        return sorted(connection.execute(query).scalars())


def test_a_chain_that_was_taken_over_is_left_to_its_new_owner(store_url: str) -> None:
    with serving(store_url) as first, open_service(store_url) as second:
        running(first)
        before = [first.decide("checkout", f"v{n}", "a") for n in range(3)]
        lost = identity(first)
        run_out(first)
        second.decide("checkout", "of the second", "b")
        assert identity(second).writer == lost.writer
        assert identity(second).owner != lost.owner
        # The first service still believes in its chain, and in the end of it that it remembers.
        assert identity(first) == lost
        after = [first.decide("checkout", f"w{n}", "b") for n in range(3)]
        assert identity(first).writer != lost.writer
        assert [first.decide("checkout", f"v{n}", None) for n in range(3)] == before
        assert [second.decide("checkout", f"w{n}", None) for n in range(3)] == after
        assert rows_of(first, lost.writer) == [1, 2, 3, 4]
        assert rows_of(first, identity(first).writer) == [1, 2, 3]
        assert shows(first) == 7
        assert first.ledger.verify().problem is None


def test_a_writer_that_reads_its_chain_anew_notices_too(store_url: str) -> None:
    """After a failure the end of the chain is read again: only by its owner."""
    with serving(store_url) as first, open_service(store_url) as second:
        running(first)
        first.decide("checkout", "v", "a")
        lost = identity(first)
        run_out(first)
        second.decide("checkout", "of the second", "b")
        first.writer.engine._chain = None
        first.decide("checkout", "w", "b")
        assert identity(first).writer != lost.writer
        assert first.ledger.verify().problem is None


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_lease_that_runs_is_nobody_elses(store_url: str) -> None:
    with serving(store_url) as first, open_service(store_url) as second:
        running(first)
        answers: list[Decision] = []
        for service in (first, second):
            answers.append(service.decide("checkout", "v", "a"))
            service.decide("checkout", f"of {len(answers)}", "a")
        assert answers[0] == answers[1]
        assert identity(first).writer != identity(second).writer


def test_of_two_who_saw_the_same_free_chain_one_gets_it(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking and taking, another process may be faster: then a new chain begins."""
    with serving(store_url) as service:
        running(service)
        service.decide("checkout", "v", "a")
        run_out(service)
        free = identity(service).writer
        with service._store.begin() as connection:
            faster = claim(connection)
            assert faster.writer == free
            execute = connection.execute

            def seen_before(statement: Any, *more: Any) -> Any:
                """The question which chain is free is answered as before the other one took it."""
                if isinstance(statement, Select):
                    return execute(select(writers.c.id).where(writers.c.id == free))
                return execute(statement, *more)

            monkeypatch.setattr(connection, "execute", seen_before)
            slower = claim(connection)
        assert slower.writer != faster.writer
