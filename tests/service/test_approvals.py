"""The second person: asked for, granted by somebody else, for exactly one act; in the ledger."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from deniable.errors import ApprovalNeededError, UnknownNameError, WrongStateError
from deniable.service.approvals import VALID_SECONDS, WAITS_SECONDS, Approvals, Request
from deniable.service.service import Deniable
from deniable.storage.commitments import acting

SECOND = 1_000_000
VISITOR = "customer-4711"


class Clock:
    def __init__(self) -> None:
        self.now = 2_000_000 * SECOND

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(service: Deniable) -> Clock:
    """The rules are on, and the time of requests is ours."""
    clock = Clock()
    service.approvals._clock = clock
    service.firm.change_settings(start_above=1.0, approve_budget=True, approve_erasure=True)
    for key, budget in (("small", 1.0), ("large", 1.5), ("other", 1.5)):
        service.experiments.create(key, arms=["a", "b"], segments=["s"], budget=budget)
    return clock


ACTS: dict[str, Callable[[Deniable], object]] = {
    "start": lambda s: s.experiments.start("large"),
    "budget": lambda s: s.firm.set(budget=101, reason="more"),
    "window": lambda s: s.firm.set(budget=100, window_days=30, reason="shorter"),
    "erase": lambda s: s.visitors.erase([VISITOR]),
    "purge": lambda s: s.visitors.purge(before=datetime(2026, 1, 1, tzinfo=UTC)),
    "rules": lambda s: s.firm.change_settings(approve_erasure=False),
}
NEARLY: dict[str, Callable[[Deniable], object]] = {
    "start": lambda s: s.experiments.start("other"),
    "budget": lambda s: s.firm.set(budget=102, reason="more"),
    "window": lambda s: s.firm.set(budget=100, window_days=29, reason="shorter"),
    "erase": lambda s: s.visitors.erase([VISITOR, "customer-4712"]),
    "purge": lambda s: s.visitors.purge(before=datetime(2026, 1, 2, tzinfo=UTC)),
    "rules": lambda s: s.firm.change_settings(approve_budget=False),
}
"""The same kind of act, but not the one that was granted."""


def waiting(service: Deniable) -> Request:
    (found,) = [one for one in service.approvals.all() if one.answered_by is None]
    return found


@pytest.mark.parametrize("act", ACTS)
def test_one_asks_another_grants_the_first_does(service: Deniable, clock: Clock, act: str) -> None:
    with acting("user", "ada"):
        for _ in range(2):  # asking twice leaves one request
            with pytest.raises(ApprovalNeededError, match="second person"):
                ACTS[act](service)
        with pytest.raises(WrongStateError, match="somebody other"):
            service.approvals.answer(waiting(service).id, grant=True)
    with acting("key", "bob"), pytest.raises(WrongStateError, match="by name"):
        service.approvals.answer(waiting(service).id, grant=True)
    with acting("user", "bob"):
        service.approvals.answer(waiting(service).id, grant=True)
        with pytest.raises(ApprovalNeededError):
            ACTS[act](service)  # it was granted to ada
    with acting("user", "ada"):
        with pytest.raises(ApprovalNeededError):
            NEARLY[act](service)
        ACTS[act](service)
    trail = [json.loads(e.detail) for e in service.ledger.entries() if e.kind == "approval"]
    assert [(one["act"], one["by"]) for one in trail][:2] == [
        ("ask", "user:ada"),
        ("grant", "user:bob"),
    ]
    assert service.ledger.verify().sound


@pytest.mark.parametrize("act", ACTS)
def test_a_refusal_or_an_old_grant_does_not_help(service: Deniable, clock: Clock, act: str) -> None:
    for grant in (False, True):
        with acting("user", "ada"), pytest.raises(ApprovalNeededError):
            ACTS[act](service)
        with acting("user", "bob"):
            request = service.approvals.answer(waiting(service).id, grant=grant)
            assert request.granted == grant
        if grant:
            clock.now += VALID_SECONDS * SECOND
        with acting("user", "ada"), pytest.raises(ApprovalNeededError):
            ACTS[act](service)
        with acting("user", "bob"):
            service.approvals.answer(waiting(service).id, grant=False)


def test_what_is_within_the_rules_needs_nobody(service: Deniable, clock: Clock) -> None:
    with acting("user", "ada"):
        service.experiments.start("small")
        service.firm.set(budget=99)
        service.firm.change_settings(start_above=0.5)  # stricter
        service.firm.change_settings(name="Acme")
    assert service.approvals.all() == []


def test_by_default_nobody_is_asked(service: Deniable) -> None:
    service.experiments.create("e", arms=["a", "b"], segments=["s"], budget=40.0)
    service.experiments.start("e")
    service.firm.set(budget=200, reason="more")
    service.visitors.erase([VISITOR])
    assert service.approvals.all() == []


def test_whoever_does_not_say_who_it_is_is_asked_too(service: Deniable, clock: Clock) -> None:
    with pytest.raises(ApprovalNeededError):
        service.experiments.start("large")
    with acting("user", "bob"):
        service.approvals.answer(waiting(service).id, grant=True)
    assert service.experiments.start("large").status == "running"


def test_a_request_ends(service: Deniable, clock: Clock) -> None:
    with acting("user", "ada"), pytest.raises(ApprovalNeededError):
        service.experiments.start("large")
    request = waiting(service)
    clock.now += WAITS_SECONDS * SECOND
    assert service.approvals.all() == []
    with acting("user", "bob"):
        for unknown in (request.id, "00" * 16, "not hexadecimal"):
            with pytest.raises(UnknownNameError):
                service.approvals.answer(unknown, grant=True)


def test_no_visitor_is_stored_with_a_request(service: Deniable, clock: Clock) -> None:
    with pytest.raises(ApprovalNeededError) as needed:
        service.visitors.erase([VISITOR])
    assert VISITOR not in str(needed.value)
    with service._store.read() as connection:
        tables = ("approvals", "commitments")
        stored = repr([connection.execute(text(f"SELECT * FROM {t}")).all() for t in tables])
    assert "erase 1 visitor" in stored
    assert VISITOR not in stored


def test_hashes_of_requests_are_keyed(service: Deniable) -> None:
    """Without the key, a guessed visitor cannot be compared with what is stored."""
    one, other = Approvals(service._store, bytes(32)), Approvals(service._store, b"1" * 32)
    assert one._digest("erase", (VISITOR,)) != other._digest("erase", (VISITOR,))


def test_the_error_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(ApprovalNeededError("start", "start e: 2 nats", b"x")))
    assert (again.kind, again.words, again.digest) == ("start", "start e: 2 nats", b"x")
