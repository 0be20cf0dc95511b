"""The hour of the last answer, from which an experiment's cost counts, never goes back."""

from __future__ import annotations

from sqlalchemy import select
from tests.service.support import running, serving

from deniable.storage.schema import answers


def test_the_hour_of_the_last_answer_only_rises(store_url: str) -> None:
    with serving(store_url) as service:
        experiment = bytes.fromhex(running(service).id)
        service.decide("checkout", "v", "a")
        found = service.writer.engine._identity
        assert found is not None
        for hour in (10**6, 10**6 - 5, 10**6 + 2, 10**6 + 1):
            with service._store.hot() as transaction:
                transaction.answered(experiment, found.writer, hour)
        with service._store.read() as connection:
            assert connection.execute(select(answers.c.hour)).scalars().all() == [10**6 + 2]
