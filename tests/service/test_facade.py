"""Decide and reward as an integrating engineer sees them, on both stores."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from tests.patience import PATIENCE
from tests.service.support import clicks, running, serving, shows

from deniable.errors import InvalidArgumentError, OverloadedError, UnknownNameError, WrongStateError
from deniable.service.jobs import decide_job
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage.records import Decision


def test_a_visitor_keeps_the_arm_whatever_the_segment_and_process(store_url: str) -> None:
    with serving(store_url) as service, open_service(store_url) as second:
        running(service)
        first = service.decide("checkout", "v", "a")
        for segment in ("a", "b", "unheard of", None):
            assert service.decide("checkout", "v", segment) == first
            assert second.decide("checkout", "v", segment) == first
        assert shows(service) == 1


def test_rewards_count_once(service: Deniable) -> None:
    running(service)
    decision = service.decide("checkout", "v", "a")
    for value in (1, 1, 0):
        service.reward(decision.id, value)
    for unknown in ("0" * 32, decision.id[:8] + "0" * 24, "no id at all", "", "Z" * 32):
        service.reward(unknown, 1)
    counted = [
        (c.segment, c.arm, c.shows, c.clicks)
        for c in service.experiments.counts("checkout")
        if c.shows
    ]
    assert counted == [("a", decision.arm, 1, 1)]
    assert service.ledger.verify().sound


def test_a_reward_of_zero_is_final_too(service: Deniable) -> None:
    running(service)
    decision = service.decide("checkout", "v", "a")
    service.reward(decision.id, 0)
    service.reward(decision.id, 1)
    assert clicks(service) == 0


@pytest.mark.parametrize("values", [(0, 1, 1), (1, 0, 0)])
def test_the_first_of_several_rewards_in_one_batch_counts(
    service: Deniable, values: tuple[int, ...]
) -> None:
    running(service)
    answers = service.decide_batch("checkout", [(f"v{n}", "a") for n in range(5)])
    service.reward_batch([(answer.id, value) for value in values for answer in answers])
    assert clicks(service) == 5 * values[0]
    assert service.ledger.verify().sound


def test_batches_are_in_order_and_agree_with_single_calls(service: Deniable) -> None:
    running(service)
    pairs = [(f"v{i % 70}", "ab"[i % 2]) for i in range(700)]
    answers = service.decide_batch("checkout", pairs)
    for (visitor, segment), answer in zip(pairs[:100], answers[:100], strict=True):
        assert service.decide("checkout", visitor, segment) == answer
    assert len({answer.id for answer in answers}) == 70
    service.reward_batch([(answer.id, 1) for answer in answers])
    assert (shows(service), clicks(service)) == (70, 70)
    assert service.ledger.verify().sound


def test_an_empty_batch_is_empty(service: Deniable) -> None:
    running(service)
    assert service.decide_batch("checkout", []) == []
    service.reward_batch([])


def test_unknown_experiment(service: Deniable) -> None:
    with pytest.raises(UnknownNameError, match="no experiment is called 'nope'"):
        service.decide("nope", "v", "a")


@pytest.mark.parametrize("visitor", ["", "x" * 513, 7, None, "\ud800", b"v"])
def test_visitors_must_be_text(visitor: Any) -> None:
    with serving("memory:") as service:
        running(service)
        with pytest.raises(InvalidArgumentError, match="visitor") as refused:
            service.decide("checkout", visitor, "a")
        assert repr(visitor) not in str(refused.value)  # errors carry no ids
        assert shows(service) == 0


@pytest.mark.parametrize("value", [2, -1, 1.5, float("nan"), 1e308, "1", None])
def test_rewards_must_be_within_the_cap(value: Any) -> None:
    with serving("memory:") as service:
        running(service)
        decision = service.decide("checkout", "v", "a")
        with pytest.raises(InvalidArgumentError, match="value"):
            service.reward(decision.id, value)
        assert clicks(service) == 0


@pytest.mark.parametrize(
    "visitor", ["a\0b", "'; DROP TABLE decisions; --", "ß", "e\u0301", "\u00e9"]
)
def test_odd_visitors_are_visitors(service: Deniable, visitor: str) -> None:
    running(service)
    assert service.decide("checkout", visitor, "a") == service.decide("checkout", visitor, "b")
    other = service.decide("checkout", visitor + "x", "a")
    assert other.id != service.decide("checkout", visitor).id


def test_ids_are_opaque_and_only_answers_leave(service: Deniable) -> None:
    running(service)
    decision = service.decide("checkout", "v", "a")
    assert decision._fields == ("id", "arm")
    assert isinstance(decision, Decision)
    assert len(bytes.fromhex(decision.id)) == 16


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_full_queue_refuses_everybody_alike(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(store_url) as first:
        running(first)
    with open_service(store_url, queue_limit=10) as service:
        go, taken, done = threading.Event(), threading.Event(), threading.Semaphore(0)
        engine = service.writer.engine
        run = engine.run

        def held(jobs: Any) -> None:
            taken.set()
            go.wait(PATIENCE)
            run(jobs)

        def submit(visitor: str) -> None:
            job = decide_job("checkout", [visitor], ["a"], lambda _job: done.release())
            service.writer.submit(job)

        monkeypatch.setattr(engine, "run", held)
        submit("at work")
        assert taken.wait(PATIENCE)
        for visitor in range(10):  # what is asked for now has to wait
            submit(f"v{visitor}")
        for segment in ("a", "b", "unheard of"):
            with pytest.raises(OverloadedError, match="waiting already"):
                service.decide("checkout", "one too many", segment)
        assert service.figures.refused == 3
        go.set()
        assert all(done.acquire(timeout=PATIENCE) for _ in range(11))
        service.decide("checkout", "later", "a")


def test_a_closed_service_finishes_what_was_queued(store_url: str) -> None:
    with serving(store_url) as service:
        running(service)
        done: list[object] = []
        for visitor in range(50):
            service.writer.submit(decide_job("checkout", [f"v{visitor}"], ["a"], done.append))
        service.close()
        assert len(done) == 50
    with open_service(store_url) as again:
        assert shows(again) == 50


def test_another_visitor_key_is_refused(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_service(store_url).close()
    monkeypatch.setenv("DENIABLE_VISITOR_KEY", os.urandom(32).hex())
    with pytest.raises(WrongStateError, match="visitor key"):
        open_service(store_url)
