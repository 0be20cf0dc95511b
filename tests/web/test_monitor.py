"""The monitor: samples stay few, spot checks find a planted fault and no other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from sqlalchemy import update
from tests.web import shop
from tests.web.making import cells_of, experiment_of
from tests.web.site import EXPERIMENT, create_demo

from deniable.analysis.alerts import SILENT_AFTER, alerts
from deniable.analysis.leaderboard import Leaderboard
from deniable.analysis.result_health import SUSPICIOUS, DrawCheck, Health, mismatch_chance
from deniable.service.service import Deniable
from deniable.storage.counts import MOST_SAMPLES, Sample, add_sample, thin_samples
from deniable.storage.records import Better, Metric
from deniable.storage.schema import counters
from deniable.web.monitor import Monitor


@pytest.fixture
def watched(service: Deniable) -> Deniable:
    create_demo(service)
    shop.send(service, 1_000, seed=3)
    return service


def test_honest_draws_are_as_designed(watched: Deniable) -> None:
    monitor = Monitor(watched)
    monitor.look()
    health = monitor.health[EXPERIMENT]
    assert health.check.decisions == 1_000
    assert sum(health.check.expected) == pytest.approx(1_000)
    assert health.rewarded_share == 1
    assert health.as_designed


def test_a_planted_fault_is_noticed_and_told(watched: Deniable) -> None:
    """The same store, with one arm's shows counted as another arm's."""
    with watched._store.begin() as connection:
        connection.execute(
            update(counters)
            .where(counters.c.arm == 2)
            .values(arm=0, writer_id=counters.c.writer_id + 1)
        )
    monitor = Monitor(watched)
    monitor.look()
    assert not monitor.health[EXPERIMENT].as_designed
    board = Leaderboard(watched.experiments.get(EXPERIMENT), watched.experiments.counts(EXPERIMENT))
    told = alerts(watched.firm.current(), [board], monitor.health, watched.figures)
    bad = [one for one in told if one.kind == "bad"]
    assert [one.experiment for one in bad] == [EXPERIMENT]
    assert "designed proportions" in bad[0].text


@pytest.mark.parametrize(("better", "n_told"), [("less", 1), ("more", 0)])
def test_a_guardrail_that_got_worse_is_told(service: Deniable, better: Better, n_told: int) -> None:
    """The second arm has all the refunds; whether that is worse is up to the metric."""
    service.firm.set(budget=3)
    metrics = [Metric("click"), Metric("refund", better=better)]
    service.experiments.create("e", arms=["a", "b"], segments=["s"], budget=1, metrics=metrics)
    service.experiments.start("e")
    for start in range(0, 3_000, 300):
        names = [(f"v{number}", "s") for number in range(start, start + 300)]
        service.reward_batch(
            [
                (one.id, float(one.arm == "b" and place % 2), "refund")
                for place, one in enumerate(service.decide_batch("e", names))
            ]
        )
    monitor = Monitor(service)
    monitor.look()
    board = Leaderboard(service.experiments.get("e"), service.experiments.counts("e"))
    told = alerts(service.firm.current(), [board], monitor.health, service.figures)
    guardrails = [one for one in told if one.text.startswith("Guardrail: refund rose with b: +")]
    assert [one.kind for one in guardrails] == ["note"] * n_told


@pytest.mark.parametrize(("sigmas", "suspicious"), [(0, False), (3, False), (9, True)])
def test_chance_is_not_suspicious_and_nine_deviations_are(
    watched: Deniable, sigmas: int, suspicious: bool
) -> None:
    check = watched.experiments.draw_check(watched.experiments.get(EXPERIMENT))
    for arm, (expected, variance) in enumerate(zip(check.expected, check.variance, strict=True)):
        shown = [round(mean) for mean in check.expected]
        shown[arm] = round(expected + sigmas * variance**0.5)
        moved = type(check)(check.decisions, 0, tuple(shown), check.expected, check.variance)
        assert (mismatch_chance(moved) < SUSPICIOUS) is suspicious


def test_samples_are_taken_when_due_and_not_before(
    watched: Deniable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deniable.web.monitor.SECONDS", 3600.0)
    monitor = Monitor(watched)
    monitor.look()
    monitor.look()
    taken = watched.experiments.samples(EXPERIMENT)
    assert len(taken) == 1
    assert sum(taken[0].shows) == 1_000
    # People see samples too, so they hold what was released with the last table.
    released = watched.experiments.released_counts(EXPERIMENT)
    board = Leaderboard(watched.experiments.get(EXPERIMENT), released)
    assert sum(taken[0].clicks) == board.total_clicks
    assert taken[0].lost == pytest.approx(board.lost, abs=0.01)
    monkeypatch.setattr("deniable.web.monitor.SECONDS", 0.0)
    monitor.look()
    assert len(watched.experiments.samples(EXPERIMENT)) == 2


def test_samples_stay_few_and_span_the_whole_life(service: Deniable) -> None:
    experiment = service.experiments.create("long", arms=["a", "b"], segments=["s"], budget=1)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with service._store.begin() as connection:
        for n in range(1_000):
            moment = start + timedelta(seconds=5 * n)
            add_sample(connection, experiment, Sample(moment, (n, 0), (0, 0), 0.0))
            thin_samples(connection, experiment)
    kept = service.experiments.samples("long")
    assert len(kept) == MOST_SAMPLES
    assert kept[0].shows[0] == 0
    assert kept[-1].shows[0] == 999
    gaps = [b.shows[0] - a.shows[0] for a, b in pairwise(kept)]
    assert max(gaps) <= 4 * 1_000 / MOST_SAMPLES


def test_alerts_are_told_in_words(service: Deniable) -> None:
    service.firm.set(budget=1.0)
    service.experiments.create("most", arms=["a", "b"], segments=["s"], budget=0.95)
    service.experiments.start("most")
    firm = service.firm.current()
    silent = experiment_of(planned_visitors=1_000)
    cells = cells_of(silent, [(900, 900), (0, 0), (0, 0)], [(0, 0)] * 3)
    told = [a.text for a in alerts(firm, [Leaderboard(silent, cells)], {}, service.figures)]
    assert any("Only 0.05 of the firm’s 1 nat are free" in text for text in told)
    assert any("not a single click" in text for text in told)
    assert any("as planned" in text for text in told)


def test_few_visitors_raise_no_alert_about_responses(service: Deniable) -> None:
    experiment = experiment_of()
    board = Leaderboard(experiment, cells_of(experiment, [(2, 1), (0, 0), (0, 0)], [(1, 0)] * 3))

    def told(decisions: int) -> list[str]:
        check = DrawCheck(decisions, 0, (decisions, 0), (decisions, 0.0), (1.0, 1.0))
        health = {experiment.key: Health(check, 1.0, experiment.created_at)}
        return [alert.text for alert in alerts(None, [board], health, service.figures)]

    assert told(3) == []
    assert told(SILENT_AFTER - 1) == []
    assert told(SILENT_AFTER) == ["Only 0.0% of the decisions have a reported reward."]
