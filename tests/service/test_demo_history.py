from __future__ import annotations

import json

import pytest

from deniable.service.demo import (
    DELIVERY,
    EXPERIMENTS,
    FIRM_NAME,
    LIVE,
    MANAGER,
    OFFICER,
    PEOPLE,
    SECONDS_PER_VISITOR,
    Simulator,
    only_demo,
    prepare,
    tracker_score,
)
from deniable.service.demo_history import (
    DAY,
    DRAFTS,
    NEWSLETTER,
    PHOTOS,
    STEPS_A_DAY,
    VISITORS_A_STEP,
    opened,
)
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
    everything = {one.key: one for one in service.experiments.all()}
    assert len(everything) == 8
    assert looks == 90
    states = {one.key: one.status for one in everything.values()}
    assert {states[one.key] for one in LIVE} == {"running"}
    assert {states[one.key] for one in DRAFTS} == {"draft"}
    assert (states[PHOTOS.key], states[NEWSLETTER.key]) == ("paused", "stopped")
    assert everything[NEWSLETTER.key].winner == "voucher"
    assert everything[PHOTOS.key].layer == everything[DELIVERY.key].layer == "product-page"
    entries = service.ledger.entries()
    span = entries[-1].recorded_at - entries[0].recorded_at
    assert 28 <= span.days <= 30
    assert times.as_stored(entries[-1].recorded_at) <= times.now()
    audits = [json.loads(entry.detail) for entry in entries if entry.kind == "audit"]
    assert [audit["sound"] for audit in audits] == [True, True]


def test_the_month_went_through_the_service(month: tuple[Deniable, int]) -> None:
    service, _ = month
    assert service.ledger.verify().sound
    assert service.audits.firm().sound
    firm = service.firm.current()
    assert 0.5 <= firm.remaining <= firm.budget - 2
    for one in LIVE:  # tables were published while it learned
        assert service.experiments.get(one.key).table_number > 1


def test_people_with_names_did_it(month: tuple[Deniable, int]) -> None:
    service, _ = month
    assert {user.name: user.role for user in service.people.all()} == PEOPLE
    by_itself = {"key", "table", "access", "clock"}
    acts = [one for one in service.ledger.entries() if one.kind not in by_itself]
    assert {"create", "start", "pause", "stop", "note", "audit", "firm"} <= {a.kind for a in acts}
    assert all(one.actor for one in acts)
    deciding = next(one for one in service.ledger.entries() if one.kind == "stop")
    assert deciding.actor == f"user:{MANAGER}"
    issued = service.documents.all(NEWSLETTER.key)
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


def test_the_trackers_score_is_within_the_promise(month: tuple[Deniable, int]) -> None:
    service, _ = month
    prepare(service)
    Simulator(service, 3_000, seed=2).step(3_000)
    score = tracker_score(service)
    assert score.experiment == EXPERIMENTS[0].key
    assert score.blind == 0.5
    # 0.731 is promised; a score from counts of 1,500 visitors a segment is 0.05 off by chance less
    # often than once in 10^9 runs, and the best tables of this budget allow 0.682.
    assert score.private < score.promised + 0.05 < score.ordinary
    assert score.promised == pytest.approx(0.7311, abs=1e-4)


def test_visitors_rest_while_nobody_watches() -> None:
    with open_service("memory:") as service:
        prepare(service)
        assert not Simulator(service, 10).idle
        assert Simulator(service, 10, watched=lambda: 0.0 - 1e9).idle


def test_visitors_who_are_watched_do_not_end_the_months_charts_in_a_cliff() -> None:
    """Ten minutes at a page bring fewer visitors than one day of the month."""
    assert 600 / SECONDS_PER_VISITOR < STEPS_A_DAY * VISITORS_A_STEP
