from __future__ import annotations

import json

import pytest

from deniable.demo.firm import (
    CHECKOUT,
    DELIVERY,
    FIRM_NAME,
    INTERESTS,
    LIVE,
    MANAGER,
    OFFICER,
    PEOPLE,
    only_demo,
    prepare,
)
from deniable.demo.month import DAY, DRAFTS, opened
from deniable.demo.scores import scores
from deniable.service.service import Deniable
from deniable.service.service import open as open_service
from deniable.storage import times


@pytest.fixture(scope="module")
def month() -> tuple[Deniable, int]:
    """A month that was lived through with few visitors, and how often somebody looked."""
    looks = []
    service = opened(
        lambda: open_service("memory:"),
        watching=lambda _service: lambda: looks.append(times.now()),
        visitors=12,
    )
    assert looks == sorted(looks)
    return service, len(looks)


def test_every_state_and_thirty_days(month: tuple[Deniable, int]) -> None:
    service, looks = month
    everything = {experiment.key: experiment for experiment in service.experiments.all()}
    assert len(everything) == 11
    assert looks == 90
    states = {key: experiment.status for key, experiment in everything.items()}
    assert {states[experiment.key] for experiment in LIVE} == {"running"}
    assert {states[experiment.key] for experiment in DRAFTS} == {"draft"}
    assert states[DELIVERY.key] == "stopped"
    assert everything[DELIVERY.key].winner == "beside"
    assert everything[CHECKOUT.key].strategy == "joint"
    entries = service.ledger.entries()
    span = entries[-1].recorded_at - entries[0].recorded_at
    assert 28 <= span.days <= 30
    assert times.as_stored(entries[-1].recorded_at) <= times.now()
    audits = [json.loads(entry.detail) for entry in entries if entry.kind == "audit"]
    assert [audit["sound"] for audit in audits] == [True, True]


def test_the_month_went_through_the_service(month: tuple[Deniable, int]) -> None:
    service, _ = month
    assert service.ledger.verify().sound
    firm = service.firm.current()
    assert firm.remaining == pytest.approx(1)
    for experiment in LIVE:  # tables were published while it learned
        assert service.experiments.get(experiment.key).table_number > 1


def test_people_with_names_did_it(month: tuple[Deniable, int]) -> None:
    service, _ = month
    assert {user.name: user.role for user in service.people.all()} == PEOPLE
    by_itself = {"key", "table", "access", "clock"}
    acts = [one for one in service.ledger.entries() if one.kind not in by_itself]
    assert {"create", "start", "stop", "note", "audit", "firm", "mask"} <= {a.kind for a in acts}
    assert all(one.actor for one in acts)
    deciding = next(one for one in service.ledger.entries() if one.kind == "stop")
    assert deciding.actor == f"user:{MANAGER}"
    issued = service.documents.all(CHECKOUT.key)
    assert [(one.kind, one.firm, one.actor) for one in issued] == [
        ("statement", FIRM_NAME, OFFICER)
    ]
    prepare(service)
    assert only_demo(service)  # nobody knows these people's passwords
    service.people.invite("somebody@real.example", "viewer")
    assert not only_demo(service)


def test_the_clock_is_the_systems_again() -> None:
    before = times.now()
    with times.running_on(lambda: 5):
        assert times.now() == 5
    assert before <= times.now() < before + DAY


def test_what_a_tracker_guesses_and_what_the_shop_earns(month: tuple[Deniable, int]) -> None:
    service, _ = month
    found = scores(service)
    assert found.blind == max(INTERESTS.values())
    # e^2 / (e^2 + 2): a tracker that knows the label is right so often.
    assert found.possible == pytest.approx(0.787, abs=1e-3)
    assert found.followed == 36
    assert found.blind < found.guessed < found.possible + 0.3 < 1.2
    assert found.open > 0.99
    assert found.everybody < found.no_privacy
    counted = [
        cell
        for experiment in LIVE
        if experiment.on_label
        for cell in service.experiments.counts(experiment.key)
    ]
    assert found.views == sum(cell.shows for cell in counted)
    assert found.labels == sum(cell.clicks for cell in counted) / found.views
