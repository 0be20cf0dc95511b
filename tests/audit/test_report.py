"""Sound experiments pass, every planted fault is found, and by the check that should find it."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest
from tests.audit.bandit import Bandit, by_arm, larger_risk, leaks_segment, promise

from deniable.audit.decisions import DecisionLog
from deniable.audit.draws import compare_draws
from deniable.audit.promise import Promise
from deniable.audit.report import Audit, audit
from deniable.errors import InvalidTableError


def broken(found: Audit) -> set[str]:
    return {check.name for check in found.checks if check.outcome == "broken"}


@pytest.mark.parametrize(
    "promised",
    [promise(1.0), promise(3.0, dynamic=False), by_arm(0.5, 1, 2), by_arm(0.5, 1, 2, dynamic=True)],
    ids=["dynamic", "constant", "by arm", "by arm, dynamic"],
)
def test_a_sound_experiment_is_acquitted(promised: Promise) -> None:
    found = audit(promised, Bandit(promised).log(20_000))
    assert found.sound, broken(found)
    assert "20,000 decisions" in found.verdict


def test_false_accusations_are_rare_also_while_learning() -> None:
    """100 short adaptive runs: p-values of the arms are spread evenly, not piled up at 0."""
    promised = promise(2.0)
    values = [
        [test.p_value for test in compare_draws(promised, Bandit(promised, seed=seed).log(400))]
        for seed in range(100)
    ]
    arms, greedy = (np.array([line[place] for line in values]) for place in (0, 1))
    for p_values in (arms, greedy):
        assert p_values.min() > 1e-4
        assert 0.35 < np.median(p_values) < 0.65


@pytest.mark.parametrize("dynamic", [True, False])
def test_more_risk_than_recorded_is_caught(dynamic: bool) -> None:
    promised = promise(1.0, dynamic=dynamic)
    log = Bandit(promised, fault=larger_risk(promised, 1.3)).log(20_000)
    found = audit(promised, log)
    assert "greedy arm shown" in broken(found)
    assert next(c.p_value for c in found.checks if c.name == "greedy arm shown") < 1e-9  # type: ignore[operator]


def test_a_lying_log_is_caught_by_counts_alone() -> None:
    """Shown as drawn from budget 2.5, recorded as greedy of budget 2.5: only counts can tell."""
    real, promised = promise(2.5, dynamic=False), promise(1.0, dynamic=False)
    frame = Bandit(real).run(20_000)
    log = DecisionLog.from_frame(frame.with_columns(risk_nano=pl.lit(10**9)), promised)
    found = audit(promised, log)
    assert "counts alone" in broken(found)
    assert found.proven is not None
    assert 1.0 < found.proven.nats <= 2.5


def test_counts_alone_do_not_accuse_a_sound_experiment_that_uses_its_whole_budget() -> None:
    promised = promise(1.0, dynamic=False)
    for seed in range(20):
        found = audit(promised, Bandit(promised, seed=seed).log(3_000))
        assert found.proven is not None
        assert not found.proven.exceeds


def test_an_arm_that_follows_the_segment_is_caught() -> None:
    promised = promise(1.0)
    found = audit(promised, Bandit(promised, fault=leaks_segment(0.1)).log(20_000))
    assert "arms within each segment" in broken(found)


def test_a_second_arm_for_one_visitor_is_caught() -> None:
    promised = promise(1.0)
    frame = Bandit(promised).run(2_000)
    again = frame.head(1).with_columns(shown=(pl.col("shown") + 1) % 3)
    found = audit(promised, DecisionLog.from_frame(pl.concat([frame, again]), promised))
    assert broken(found) == {"one arm per visitor"}
    repeated = audit(promised, DecisionLog.from_frame(pl.concat([frame, frame.head(1)]), promised))
    assert "one arm per visitor" not in broken(repeated)


def test_one_decision_above_the_budget_is_caught() -> None:
    promised = promise(1.0)
    frame = Bandit(promised).run(2_000)
    frame[1_500, "risk_nano"] = 10**9 + 1
    found = audit(promised, DecisionLog.from_frame(frame, promised))
    assert {"risk within the budget"} <= broken(found)


def test_one_decision_ahead_of_the_schedule_is_caught() -> None:
    promised = promise(1.0)
    frame = Bandit(promised).run(500)
    frame[0, "risk_nano"] = 500_000_000  # the first visitor must be served uniformly
    assert "risk follows the schedule" in broken(
        audit(promised, DecisionLog.from_frame(frame, promised))
    )


def test_an_arm_shown_after_it_was_switched_off_is_caught() -> None:
    two = Promise(
        "p", ("a", "b", "c"), ("x", "y"), (10**9,) * 3, dynamic=True,
        versions={1: (0, 1, 2), 2: (0, 1)},
    )  # fmt: skip
    frame = Bandit(promise(1.0)).run(1_000).with_columns(segment=pl.lit(0), version=pl.lit(2))
    only_two = frame.filter((pl.col("shown") < 2) & (pl.col("greedy") < 2))
    assert "only arms on offer" not in broken(audit(two, DecisionLog.from_frame(only_two, two)))
    frame = frame.with_columns(greedy=pl.lit(0))
    assert "only arms on offer" in broken(audit(two, DecisionLog.from_frame(frame, two)))


def test_uniform_service_of_unlisted_visitors_is_judged() -> None:
    by_arms = by_arm(0.5, 1, 2)
    log = Bandit(by_arms, unlisted=0.1).log(2_000)
    assert broken(audit(by_arms, log)) == {"visitors of unlisted segments"}
    symmetric = promise(1.0)
    assert audit(symmetric, Bandit(symmetric, unlisted=0.1).log(2_000)).sound


def test_beliefs_move_within_the_budget_and_the_arm_does_help_the_tracker() -> None:
    promised = promise(2.0, dynamic=False)
    beliefs = audit(promised, Bandit(promised).log(10_000)).beliefs
    assert beliefs is not None
    assert 1.9 < beliefs.arm.moved <= 2 + 1e-9
    assert beliefs.arm.highest <= beliefs.arm.bound + 1e-12
    assert beliefs.arm.guessed > beliefs.arm.guessed_before + 0.05
    assert beliefs.arm_and_response.moved > 2  # the response is not promised
    assert beliefs.arm_and_response.highest > beliefs.arm.bound


def test_beliefs_are_bayes_rule() -> None:
    """Two visitors by hand: constant strategy, two arms, the second visitor's tracker knows both."""
    promised = promise(1.0, arms=2, dynamic=False)
    frame = pl.DataFrame(
        {
            "visitor": ["a", "b"],
            "segment": [0, 1],
            "greedy": [0, 1],
            "shown": [0, 1],
            "clock": [1, 1],
            "risk_nano": [10**9, 10**9],
            "version": [1, 1],
        }
    )
    beliefs = audit(promised, DecisionLog.from_frame(frame, promised)).beliefs
    assert beliefs is not None
    # Prior 1/2 each; the second arm is e times likelier in the second segment.
    assert beliefs.arm.highest == pytest.approx(math.e / (math.e + 1), rel=1e-12)
    assert beliefs.arm.moved == pytest.approx(1.0, rel=1e-12)


def test_names_and_positions_mean_the_same() -> None:
    promised = promise(1.0)
    frame = Bandit(promised).run(300)
    names = frame.with_columns(
        segment=pl.col("segment").map_elements(lambda i: f"segment-{i}", return_dtype=pl.String),
        greedy=pl.col("greedy").map_elements(lambda i: f"arm-{i}", return_dtype=pl.String),
        shown=pl.col("shown").map_elements(lambda i: f"arm-{i}", return_dtype=pl.String),
    )
    one, two = (DecisionLog.from_frame(given, promised) for given in (frame, names))
    assert (one.shown == two.shown).all()
    assert (one.segment == two.segment).all()


def test_bad_logs_are_refused_with_their_row() -> None:
    promised = promise(1.0)
    frame = Bandit(promised).run(10)
    with pytest.raises(InvalidTableError, match="no column 'clock'"):
        DecisionLog.from_frame(frame.drop("clock"), promised)
    frame[3, "shown"] = 9
    with pytest.raises(InvalidTableError, match="row 4"):
        DecisionLog.from_frame(frame, promised)


def test_json_never_names_a_segment() -> None:
    promised = promise(1.0)
    text = json.dumps(audit(promised, Bandit(promised).log(500)).to_dict())
    assert "segment-0" not in text
    assert '"sound": true' in text


def test_before_the_first_visitor_the_design_is_checked() -> None:
    found = audit(promise(1.0))
    assert found.sound
    assert found.verdict.startswith("The promise is kept by design")
