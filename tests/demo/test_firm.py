from __future__ import annotations

from collections import Counter

import pytest
from tests.patience import PATIENCE

from deniable.demo.firm import (
    CHECKOUT,
    DEVICES,
    HERO,
    INTERESTS,
    LIVE,
    ON_LABEL,
    Simulator,
    Visitor,
    prepare,
)
from deniable.service.service import open as open_service


def test_the_simulator_sends_what_it_was_asked_for_and_rests() -> None:
    with open_service("memory:") as service:
        secret = prepare(service)
        simulator = Simulator(service, 600, seed=1)
        for _ in range(4):
            simulator.step(200)
        for experiment in LIVE:
            stored = sum(cell.shows for cell in service.experiments.counts(experiment.key))
            held_out = experiment.on_label and experiment.usual
            assert 600 - (150 if held_out else 0) <= stored <= 600
        assert service.keys.authenticate(secret) is not None


def test_visitors_follow_from_their_ids() -> None:
    people = [Visitor(f"v{n}") for n in range(4_000)]
    for shares, kinds in (
        (INTERESTS, [person.interest for person in people]),
        (DEVICES, [person.device for person in people]),
    ):
        for kind, count in Counter(kinds).items():
            assert count == pytest.approx(4_000 * shares[kind], rel=0.15)
    assert [Visitor(person.id) for person in people] == people


@pytest.mark.parametrize("experiment", ON_LABEL, ids=lambda experiment: experiment.key)
def test_interests_prefer_different_arms_but_in_one(experiment: object) -> None:
    assert isinstance(experiment, type(HERO))
    for device in DEVICES:
        liked = set()
        for interest in INTERESTS:
            rates = experiment.rates_for(interest, device)
            liked.add(rates.index(max(rates)))
        assert (len(liked) == 1) == (experiment.key == "demo-delivery-note")


def test_only_one_experiment_has_a_budget_of_its_own() -> None:
    with open_service("memory:") as service:
        prepare(service)
        firm = service.firm.current()
        assert firm.committed == pytest.approx(2 + CHECKOUT.budget)
        assert {e.mask for e in service.experiments.all() if e.key != CHECKOUT.key} == {"interest"}


def test_preparing_twice_makes_one_firm_and_one_live_key() -> None:
    with open_service("memory:") as service:
        first, second = prepare(service), prepare(service)
        assert service.keys.authenticate(first) is None
        assert service.keys.authenticate(second) is not None
        assert [entry.kind for entry in service.ledger.entries()].count("firm") == 1


def test_a_closed_service_ends_the_simulator() -> None:
    service = open_service("memory:")
    prepare(service)
    simulator = Simulator(service, 1_000_000)
    simulator.start()
    service.close()
    simulator.join(PATIENCE)
    assert not simulator.is_alive()


def test_visitors_rest_while_nobody_watches() -> None:
    with open_service("memory:") as service:
        prepare(service)
        assert not Simulator(service, 10).idle
        assert Simulator(service, 10, watched=lambda: 0.0 - 1e9).idle
