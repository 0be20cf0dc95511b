"""A store that does not answer: decisions are answered without it, rewards refused, closing ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.loops import run_apart
from tests.patience import PATIENCE, eventually
from tests.service.support import running, serving, shows

from deniable.errors import OverloadedError, StoreUnavailableError
from deniable.service.engine import Engine
from deniable.service.jobs import decide_job
from deniable.service.service import Deniable
from deniable.service.writer import AsyncDecisions, Writer

SOON = 0.05


@contextmanager
def hanging() -> Iterator[threading.Event]:
    """In this block the store does not answer; the event is set once it was asked."""
    go, asked, run = threading.Event(), threading.Event(), Engine.run

    def held(engine: Engine, jobs: Any) -> None:
        asked.set()
        go.wait(PATIENCE)
        run(engine, jobs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "run", held)
        try:
            yield asked
        finally:
            go.set()


def test_in_process(store_url: str) -> None:
    with serving(store_url) as service:
        running(service)
        known = service.decide("checkout", "v", "a")
        service._decide_seconds = SOON
        with hanging():
            answers = [service.decide("checkout", "w", "a") for _ in range(60)]
            assert {answer.arm for answer in answers} == {"old", "new", "bold"}, "drawn anew"
            assert len({answer.id for answer in answers}) == 60
            with pytest.raises(StoreUnavailableError):
                service.reward(known.id, 1)
            assert service.figures.unstored == 60
            assert service.figures.queue_age > 0
            assert service.close(SOON) is False, "closing does not wait for ever"


def test_awaiting(store_url: str) -> None:
    with serving(store_url) as service:
        running(service)
        known = service.decide("checkout", "v", "a")

        async def ask() -> list[str]:
            decisions = AsyncDecisions(service.writer, decide_seconds=SOON)
            first = await decisions.decide("checkout", ["w"] * 100, ["a"] * 100)
            with pytest.raises(StoreUnavailableError):
                await decisions.reward([(known.id, 1)])
            with pytest.raises(StoreUnavailableError):
                await decisions.decide("never-seen", ["w"], ["a"])
            while not service.writer.stalled(SOON):
                await asyncio.sleep(0)
            before = service.figures.queued
            again = await decisions.decide("checkout", ["w"] * 100, ["a"] * 100)
            assert service.figures.queued == before, "nothing is queued for a store that hangs"
            return [decision.arm for decision in (*first, *again)]

        with hanging():
            assert set(run_apart(ask())) == {"old", "new", "bold"}


def test_what_was_answered_in_time_is_let_go(store_url: str) -> None:
    """Thousands of jobs a second that are kept until their deadline cost a tenth of the CPU time."""
    with serving(store_url) as service:
        running(service)

        async def ask() -> int:
            decisions = AsyncDecisions(service.writer, decide_seconds=PATIENCE)
            for visitor in range(10):
                await decisions.decide("checkout", [f"v{visitor}"], ["a"])
            return len(decisions._waiting)

        assert run_apart(ask()) == 0


def test_nobody_waits_to_hear_that_the_queue_is_not_crowded(service: Deniable) -> None:
    """The writer may hold the queue's lock for as long as it puts a batch together."""
    heard: list[bool] = []
    asking = threading.Thread(target=lambda: heard.append(service.writer.crowded()))
    with service.writer._lock:
        asking.start()
        eventually(lambda: bool(heard), "an answer")
    asking.join()
    assert heard == [False]


def test_what_was_answered_late_is_not_stored_later(store_url: str) -> None:
    """Only the job that the store was already working on may be."""
    with serving(store_url) as service:
        running(service)
        service.decide("checkout", "v", "a")

        async def ask(asked: threading.Event) -> None:
            decisions = AsyncDecisions(service.writer, decide_seconds=SOON)
            first = decisions.decide("checkout", ["first"], ["a"])
            await asyncio.to_thread(asked.wait)
            others = [decisions.decide("checkout", [f"w-{n}"], ["a"]) for n in range(20)]
            await asyncio.gather(first, *others)

        with hanging() as asked:
            run_apart(ask(asked))
        service.decide("checkout", "last", "a")
        assert shows(service) == 3
        assert service.ledger.verify().problem is None


def test_overload_refuses_what_waited_too_long(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that takes 100 decisions in each transaction, and callers who send more for ever."""
    monkeypatch.setenv("DENIABLE_VISITOR_KEY", "5a" * 32)
    with serving(f"sqlite:///{tmp_path / 'store.db'}") as service:
        running(service)
        service.decide("checkout", "v", "a")
        slow = Writer(
            service._store,
            service._key,
            service._publisher,
            queue_seconds=0.02,
            batch_limit=100,
        )
        go, run = threading.Semaphore(0), slow.engine.run

        def held(jobs: Any) -> None:
            go.acquire(timeout=PATIENCE)
            run(jobs)

        monkeypatch.setattr(slow.engine, "run", held)
        answered: dict[str, list[bool]] = {"single": [], "batch": []}
        done = threading.Semaphore(0)

        def sent(caller: str, size: int, name: str) -> None:
            def told(job: Any) -> None:
                answered[caller].append(job.error is None)
                assert job.error is None or isinstance(job.error, OverloadedError)
                done.release()

            visitors = [f"{name}-{n}" for n in range(size)]
            job = decide_job("checkout", visitors, ["a"] * size, told)
            for refused in slow.submit_all([job]):
                refused.error = OverloadedError("full")
                refused.done(refused)

        jobs = 0
        for number in range(3_000):
            if number >= 60 and not all(answered["batch"]):
                break
            for part in range(60):
                sent("single", 1, f"s-{number}-{part}")
            sent("batch", 100, f"b-{number}")
            jobs += 61
            threading.Event().wait(0.01)
            go.release()
        for _ in range(jobs):
            go.release()
        assert all(done.acquire(timeout=PATIENCE) for _ in range(jobs))
        slow.close()
        assert not all(answered["batch"]), "more came than could be stored"
        assert slow.figures.refused == sum(not good for told in answered.values() for good in told)


def test_readiness_is_what_a_decision_needs(service: Deniable, monkeypatch: Any) -> None:
    """The probe draws and inserts for nobody, and leaves nothing behind."""
    from deniable.service.batch import JobBatch

    running(service)
    kept = {f"v-{n}": service.decide("checkout", f"v-{n}", "a") for n in range(5)}
    eventually(service.ready, "a probe passes")
    assert shows(service) == 5
    assert {visitor: service.decide("checkout", visitor, "b") for visitor in kept} == kept
    assert service.ledger.verify().problem is None

    def broken(*_arguments: Any) -> None:
        raise StoreUnavailableError("malformed")

    with monkeypatch.context() as patch:
        patch.setattr(JobBatch, "decide", broken)
        assert not service.ready()
    eventually(service.ready, "a probe passes again")
