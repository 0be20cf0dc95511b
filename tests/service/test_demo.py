from __future__ import annotations

from tests.patience import PATIENCE

from deniable.service.demo import EXPERIMENTS, Simulator, prepare
from deniable.service.service import open as open_service


def test_the_simulator_sends_what_it_was_asked_for_and_rests() -> None:
    with open_service("memory:") as service:
        secret = prepare(service)
        simulator = Simulator(service, 3_000, seed=1)
        for _ in range(5):
            simulator.step(1_000)
        for experiment in EXPERIMENTS:
            cells = service.experiments.counts(experiment.key)
            assert sum(cell.shows for cell in cells) == 3_000
            assert {cell.segment for cell in cells if cell.shows} == set(experiment.click_rates)
            rates = [rate for line in experiment.click_rates.values() for rate in line]
            clicks = sum(cell.clicks for cell in cells)
            assert min(rates) * 3_000 < clicks < max(rates) * 3_000
        assert service.keys.authenticate(secret) is not None


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
