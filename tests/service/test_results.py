"""What the service says an experiment learned, against the pure layer on the very same log."""

from __future__ import annotations

import csv
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import update as changing
from tests.service.support import published, running

from deniable.analysis.alerts import alerts
from deniable.analysis.evidence import evidence_of
from deniable.analysis.leaderboard import Leaderboard
from deniable.analysis.result_health import DrawCheck, Health, health_of
from deniable.analysis.result_records import Results
from deniable.errors import InvalidArgumentError
from deniable.expectations.prior import Prior
from deniable.inference import intervals
from deniable.inference.intervals import compare
from deniable.inference.state import State, VisitorBatch, new_state, update
from deniable.planning.experiment import PlannedExperiment
from deniable.planning.power import power
from deniable.service.drafts import NewArm
from deniable.service.service import Deniable
from deniable.storage import experiments, schema, times
from deniable.storage.records import MICRO, Better, Metric

RATES = {"first": (0.40, 0.45, 0.75), "returning": (0.45, 0.80, 0.40)}
ARMS = ("grey", "green", "large")
DAY = 86_400 * MICRO


def visit(
    service: Deniable,
    rng: random.Random,
    visitors: int,
    *,
    key: str = "checkout",
    rates: Mapping[str, Sequence[float]] = RATES,
    amount: float = 1.0,
    prefix: str = "v",
) -> list[tuple[str, float]]:
    """Send visitors through an experiment in small groups; returns their decisions and rewards."""
    told: list[tuple[str, float]] = []
    for start in range(0, visitors, 50):
        names = [f"{prefix}{rng.getrandbits(64)}" for _ in range(min(50, visitors - start))]
        places = rng.choices(list(rates), k=len(names))
        decisions = service.decide_batch(key, zip(names, places, strict=True))
        rewards = []
        for decision, place in zip(decisions, places, strict=True):
            chance = rates[place][ARMS.index(decision.arm)]
            value = float(rng.random() < chance)
            rewards.append((decision.id, value * amount * (rng.random() if amount != 1 else 1)))
        service.reward_batch(rewards)
        told += rewards
    return told


def log_of(service: Deniable, path: Path, key: str = "checkout") -> list[dict[str, str]]:
    """The private log of the tables that results use: nothing of it comes from the counters."""
    service.ledger.export(path, experiment=key, shape="private")
    newest = service.experiments.get(key).table_number - 1
    with path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if int(row["table"]) < newest]


def folded(log: Sequence[dict[str, str]], state: State, cap: float, arms: Sequence[str]) -> State:
    """The pure layer on the rows of a log: members of listed segments, table by table."""
    segments = list(RATES)
    by_table: dict[int, list[dict[str, str]]] = {}
    for row in log:
        if row["role"] == "member" and row["segment"]:
            by_table.setdefault(int(row["table"]), []).append(row)
    for _, rows in sorted(by_table.items()):
        table = np.full((len(segments), len(arms)), 1 / len(arms))
        shows, rewards, squares = np.zeros((3, len(segments), len(arms)))
        for row in rows:
            at = segments.index(row["segment"]), arms.index(row["shown"])
            table[at[0]] = [float(row[f"propensity_{arm}"]) for arm in arms]
            share = float(row["reward"] or 0) / cap
            shows[at] += 1
            rewards[at] += share
            squares[at] += share * share
        state = update(state, VisitorBatch(table, shows, rewards, squares))
    return state


def wired(found: Results) -> dict[tuple[str, str], tuple[float | None, ...]]:
    return {
        (part.segment, one.arm): (one.estimate, one.low, one.high, one.exact_low, one.exact_high)
        for part in found.segments
        for one in part.differences
    }


def pure(state: State, arms: Sequence[str], cap: float) -> dict[tuple[str, str], Any]:
    """Every arm against the first one, as the pure layer says."""
    found = compare(state)
    ends = [
        getattr(found.segments, name)
        for name in ("estimate", "low", "high", "exact_low", "exact_high")
    ]
    return {
        (segment, arms[b]): tuple(cap * float(end[j, row]) for end in ends)
        if found.segments.ready[j, row]
        else (None,) * 5
        for j, segment in enumerate(RATES)
        for row, (a, b) in enumerate(state.pairs.tolist())
        if a == 0
    }


STRATEGIES: list[dict[str, Any]] = [
    {"budget": 2.0, "strategy": "dynamic"},
    {"budget": 1.0, "strategy": "constant"},
    {"budget": 2.0, "strategy": "joint"},
    {"arms": [NewArm(arm, budget=b) for arm, b in zip(ARMS, (1, 2, 2), strict=True)]},
]


@pytest.mark.parametrize("options", STRATEGIES, ids=["dynamic", "constant", "joint", "arms"])
def test_the_wired_intervals_are_those_of_the_pure_layer_on_the_same_log(
    memory: Deniable, options: dict[str, Any], tmp_path: Path
) -> None:
    arms = options.pop("arms", ARMS)
    made = running(memory, arms=arms, segments=list(RATES), planned_visitors=8_000, **options)
    rng = random.Random(5)
    typical = 1 / (2 + math.exp(made.budget))
    ready = 0
    for look in range(4):
        visit(memory, rng, 700)
        log = log_of(memory, tmp_path / f"{look}.csv")
        state = folded(log, new_state(2, 3, horizon=4_000, typical=typical), 1.0, ARMS)
        kept = memory.experiments.evidence("checkout").state()
        for sums in ("between", "alone"):  # to the last bit, ready or not
            for name in ("visitors", "weight", "total", "variance"):
                one, other = (getattr(getattr(of, sums), name) for of in (kept, state))
                assert np.array_equal(one, other), (sums, name)
        found = wired(memory.experiments.results("checkout"))
        expected = pure(state, ARMS, 1.0)
        # The joint strategy may starve an arm: then the segment has a small cell and is not told.
        hidden = expected.keys() - found.keys()
        assert not hidden or options.get("strategy") == "joint"
        assert found == {place: expected[place] for place in found}
        ready += sum(one[0] is not None for one in found.values())
    assert ready >= 2 or options.get("strategy") == "joint"


def test_a_peeking_interval_would_be_noticed(
    memory: Deniable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(memory, arms=ARMS, segments=list(RATES), planned_visitors=8_000)
    visit(memory, random.Random(6), 2_000)
    log = log_of(memory, tmp_path / "log.csv")
    state = folded(log, new_state(2, 3, horizon=4_000, typical=1 / (2 + math.e)), 1.0, ARMS)
    assert wired(memory.experiments.results("checkout")) == pure(state, ARMS, 1.0)
    honest = pure(state, ARMS, 1.0)

    def once(variance: Any, progress: Any, alpha: float) -> Any:
        return 1.96 * np.sqrt(variance)

    monkeypatch.setattr(intervals, "normal_mixture", once)
    peeking = wired(memory.experiments.results("checkout"))
    assert peeking != honest
    for place, (_, low, high, *_) in honest.items():
        if low is not None:
            assert peeking[place][2] - peeking[place][1] < 0.75 * (high - low)  # type: ignore[operator]


def test_amounts_are_told_in_their_unit_and_rounded_squares_do_not_matter(
    memory: Deniable, tmp_path: Path
) -> None:
    running(
        memory,
        arms=ARMS,
        segments=list(RATES),
        planned_visitors=8_000,
        metrics=[Metric("revenue", 30 * MICRO)],
    )
    visit(memory, random.Random(7), 4_000, amount=30.0)
    log = log_of(memory, tmp_path / "log.csv")
    state = folded(log, new_state(2, 3, horizon=4_000, typical=1 / (2 + math.e)), 30.0, ARMS)
    found = memory.experiments.results("checkout")
    for place, ends in pure(state, ARMS, 30.0).items():
        assert wired(found)[place] == pytest.approx(ends, abs=1e-4)
    keep = next(one for one in found.choices if one.what == "keep")
    assert keep.value.estimate is not None
    assert 5 < keep.value.estimate < 14
    assert any(text.startswith("Keep running: ") and "%" not in text for text in found.sentences)


def test_only_tables_whose_windows_have_closed_enter(
    memory: Deniable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = [times.now()]
    monkeypatch.setattr(times, "now", lambda: clock[0])
    running(memory, arms=ARMS, segments=list(RATES), attribution_seconds=3_600)
    rng = random.Random(8)
    first = visit(memory, rng, 1_000)
    assert memory.experiments.results("checkout").visitors == 0
    assert memory.experiments.results("checkout").waiting == 1_000
    clock[0] += 3_599 * MICRO
    published(memory)
    assert memory.experiments.results("checkout").visitors < 1_000  # the last table ended just now
    clock[0] += 3_600 * MICRO
    found = memory.experiments.results("checkout")
    assert (found.visitors, found.waiting) == (1_000, 0)
    before = wired(found)
    memory.reward_batch([(decision, 1.0) for decision, _ in first])  # late: they change nothing
    visit(memory, rng, 60)
    found = memory.experiments.results("checkout")
    assert wired(found) == before
    assert (found.visitors, found.waiting) == (1_000, 0)
    published(memory)
    found = memory.experiments.results("checkout")
    assert (found.visitors, found.waiting) == (1_000, 60)
    assert "60 visitors are not counted yet: rewards may still come." in found.sentences
    memory.experiments.stop("checkout")
    clock[0] += DAY
    assert memory.experiments.results("checkout").visitors == 1_060


def test_counting_visitors_when_their_reward_came_would_bias_every_rate(
    memory: Deniable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables may do that; results may not: half of the visitors are not rewarded yet."""
    clock = [times.now()]
    monkeypatch.setattr(times, "now", lambda: clock[0])
    running(memory, arms=("a", "b"), segments=["s"], attribution_seconds=3_600)
    decisions = memory.decide_batch("checkout", [(f"v{i}", "s") for i in range(2_000)])
    memory.reward_batch([(one.id, 1.0) for one in decisions[::4]])
    published(memory)
    counts = json.loads(memory.experiments.tables("checkout")[-1].counts)
    assert np.sum(counts["rewards"]) == np.sum(counts["shows"]) * MICRO  # a rate of 1
    clock[0] += 3_601 * MICRO
    found = memory.experiments.results("checkout")
    assert [one.estimate for one in found.rates] == pytest.approx([0.25, 0.25], abs=0.06)


def test_a_comparison_stops_when_an_arm_is_switched_off(memory: Deniable) -> None:
    running(memory, arms=ARMS, segments=list(RATES), planned_visitors=8_000)
    rng = random.Random(9)
    visit(memory, rng, 2_000)
    memory.experiments.switch_off("checkout", "large")
    visit(memory, rng, 200)
    found = memory.experiments.results("checkout")
    stopped = {(one.arm, one.stopped) for part in found.segments for one in part.differences}
    assert stopped == {("green", False), ("large", True)}
    assert "Large has retired for first; its comparisons there have stopped." in found.sentences
    assert "large" not in {one.arm for one in found.choices}


def test_choices_say_what_they_earn_and_what_they_do_to_privacy(memory: Deniable) -> None:
    running(memory, arms=ARMS, segments=list(RATES), budget=2.0, planned_visitors=8_000)
    visit(memory, random.Random(10), 4_000)
    found = memory.experiments.results("checkout")
    value = {(one.what, one.arm): one.value.estimate for one in found.choices}
    truth = {
        ("promote", "grey"): 0.425,
        ("promote", "green"): 0.625,
        ("promote", "large"): 0.575,
        ("winners", None): 0.775,
    }
    for place, expected in truth.items():
        assert value[place] == pytest.approx(expected, abs=0.16)  # more than six standard errors
    # Within the promise, two segments with two favourites: e^2 / (1 + e^2) each, grey is never shown.
    favourite = math.exp(2) / (1 + math.exp(2))
    rates = {(one.segment, one.arm): one.estimate for one in found.rates}
    by_hand = 0.0
    for segment in RATES:
        worse, best = sorted(rates[segment, arm] or 0.0 for arm in ARMS[1:])
        part = next(one for one in found.segments if one.segment == segment)
        mixed = favourite * best + (1 - favourite) * worse
        by_hand += mixed * (part.visitors or 0) / found.visitors
    assert value["within", None] == pytest.approx(by_hand, abs=1e-9)
    gain = next(one.gain for one in found.choices if one.arm == "grey")
    assert gain.estimate == pytest.approx(value["promote", "grey"] - value["keep", None])  # type: ignore[operator]
    assert all(one.privacy for one in found.choices)
    assert found.sentences[0] == "Two winners: " + found.sentences[0].removeprefix("Two winners: ")
    assert found.stop_rule.startswith("Every segment has a winner")


def test_small_cells_are_hidden(memory: Deniable) -> None:
    running(memory, arms=("a", "b"), segments=["large", "small", "tiny"])
    memory.decide_batch("checkout", [(f"v{i}", "large") for i in range(1_000)])
    memory.decide_batch("checkout", [(f"w{i}", "small") for i in range(20)])
    memory.decide_batch("checkout", [(f"x{i}", "tiny") for i in range(20)])
    memory.experiments.stop("checkout")
    found = memory.experiments.results("checkout")
    assert {one.segment for one in found.rates} == {"large"}
    told = {one.segment: one.visitors for one in found.segments}
    assert told == {"large": 1_000, "small": None, "tiny": None}
    assert not any(one.differences for one in found.segments if one.segment != "large")


@pytest.mark.parametrize("better", ["more", "less"])
def test_guardrails_have_their_own_sequences_and_alerts(memory: Deniable, better: Better) -> None:
    """An alert is for what got worse; whether that is more or less is part of the metric."""
    running(
        memory,
        arms=("old", "new"),
        segments=["s"],
        metrics=[
            Metric("click"),
            Metric("seconds", 60 * MICRO, better),
            Metric("errors", better="less"),
        ],
    )
    rng = random.Random(11)
    for start in range(0, 4_000, 500):
        visitors = [(f"v{i}", "s") for i in range(start, start + 500)]
        rewards: list[tuple[str, float, str]] = []
        for one in memory.decide_batch("checkout", visitors):
            slow = 40 if one.arm == "new" else 20
            rewards.append((one.id, float(rng.random() < 0.2), "click"))
            rewards.append((one.id, slow * rng.random(), "seconds"))
        memory.reward_batch(rewards)
    found = memory.experiments.results("checkout")
    seconds, errors = found.guardrails
    [told], [] = (
        (seconds.alerts, seconds.improved)
        if better == "less"
        else (seconds.improved, seconds.alerts)
    )
    assert told.startswith("seconds rose with new: +")
    assert told.endswith(f" against old, and {better} is better.")
    [whole, *_] = seconds.differences
    assert whole.low is not None
    assert whole.high is not None
    assert whole.low < 10 < whole.high
    assert errors.alerts == errors.improved == ()
    assert errors.differences[0].estimate is None  # nobody reported any: nothing is claimed
    assert found.alerts == seconds.alerts
    with memory._store.read() as connection:
        health = health_of(connection, experiments.by_key(connection, "checkout"))
    assert health.guardrails == seconds.alerts
    assert memory.ledger.verify().sound


def test_the_deciding_metric_is_one_of_which_more_is_better(memory: Deniable) -> None:
    arms, metric = ["old", "new"], Metric("seconds", better="less")
    with pytest.raises(InvalidArgumentError, match="the first metric decides"):
        memory.experiments.create("a", arms=arms, segments=["s"], budget=1, metrics=[metric])
    wrong = Metric("errors", better="fewer")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="more or less"):
        memory.experiments.create("a", arms=arms, segments=["s"], budget=1, metrics=[metric, wrong])


def test_a_direction_that_was_changed_in_the_store_is_noticed(memory: Deniable) -> None:
    running(
        memory,
        arms=("old", "new"),
        segments=["s"],
        metrics=[Metric("click"), Metric("errors", better="less")],
    )
    assert memory.experiments.get("checkout").metrics[1].better == "less"
    with memory._store.begin() as connection:
        stored = json.dumps([["click", MICRO], ["errors", MICRO]])
        connection.execute(changing(schema.experiments).values(metrics=stored))
    assert not memory.ledger.verify().sound


def test_the_holdout_tells_what_personalisation_is_worth(memory: Deniable) -> None:
    running(
        memory, arms=ARMS, segments=list(RATES), budget=3.0, holdout=0.3, planned_visitors=6_000
    )
    visit(memory, random.Random(12), 6_000)
    memory.experiments.stop("checkout")
    effect = memory.experiments.results("checkout").holdout
    assert effect is not None
    assert effect.held_out + effect.members == 6_000
    assert effect.held_out == pytest.approx(1_800, abs=230)  # 6.5 standard errors
    assert effect.worth.estimate is not None
    # Plain means of the two groups, from the log, are what the scores estimate.
    with memory._store.read() as connection:
        evidence = evidence_of(connection, experiments.by_key(connection, "checkout"))
    means = evidence.group_rewards[0].sum(axis=0) / evidence.groups.sum(axis=0)
    assert effect.worth.estimate == pytest.approx(means[1] - means[0], abs=0.01)
    assert effect.worth.low is not None
    assert effect.worth.high is not None
    assert effect.worth.low < effect.worth.estimate < effect.worth.high
    assert effect.price is not None
    assert effect.price.estimate is not None
    assert memory.experiments.results("checkout").to_dict()["holdout"]["share"] == 0.3


def test_counters_that_were_read_before_are_read_again_where_they_grew(memory: Deniable) -> None:
    running(memory, arms=ARMS, segments=list(RATES), budget=3.0)

    def same() -> None:
        cached = memory.experiments.evidence("checkout")
        with memory._store.read() as connection:
            fresh = evidence_of(connection, experiments.by_key(connection, "checkout"))
        assert cached.numbers == fresh.numbers
        for name in ("shows", "rewards", "squares", "all_shows", "groups", "group_rewards"):
            np.testing.assert_array_equal(getattr(cached, name), getattr(fresh, name), name)

    same()
    waiting = [
        one.id for one in memory.decide_batch("checkout", [(f"w{i}", "first") for i in range(9)])
    ]
    for seed in range(3):
        visit(memory, random.Random(seed), 600, prefix=f"{seed}-")
        same()
    before = memory.experiments.evidence("checkout").rewards[0, 0].sum()
    memory.reward_batch([(one, 1.0) for one in waiting])  # of the first table, long after
    same()
    assert memory.experiments.evidence("checkout").rewards[0, 0].sum() == before
    published(memory)
    same()
    assert memory.experiments.evidence("checkout").rewards[0, 0].sum() == before + 9


def test_without_a_table_there_is_nothing_to_say(service: Deniable) -> None:
    service.experiments.create("draft", arms=["a", "b"], segments=["s"], budget=1)
    found = service.experiments.results("draft")
    assert found.sentences == ("Not started yet.",)
    assert found.visitors == 0
    running(service, arms=("a", "b"), segments=["s"])
    service.decide("checkout", "v", "s")
    found = service.experiments.results("checkout")
    assert found.sentences == ("No winner yet.", "Too early to say anything for s.")
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_visitor_without_a_listed_segment_hides_no_listed_one(memory: Deniable) -> None:
    """One such visitor used to hide the smallest listed segment, and its winner with it."""
    running(memory, arms=ARMS, segments=list(RATES), budget=2.0, planned_visitors=8_000)
    visit(memory, random.Random(10), 4_000)
    before = memory.experiments.results("checkout")
    memory.decide("checkout", "one more", None)
    after = memory.experiments.results("checkout")
    assert before.sentences[0].startswith("Two winners: ")
    assert [one.status for one in after.segments] == ["winner", "winner"]
    assert after.sentences == before.sentences


def test_a_segment_that_may_not_be_shown_is_not_too_early(memory: Deniable) -> None:
    """The smallest of two large segments is hidden, or a third of 20 could be computed from it."""
    running(memory, arms=ARMS, segments=[*RATES, "rare"], budget=2.0, planned_visitors=8_000)
    rng = random.Random(10)
    visit(memory, rng, 4_000)
    visit(memory, rng, 20, rates={"rare": (0.5, 0.5, 0.5)})
    memory.experiments.stop("checkout")
    found = memory.experiments.results("checkout")
    status = {one.segment: one.status for one in found.segments}
    hidden = min(
        RATES,
        key=lambda name: sum(
            c.shows for c in memory.experiments.counts("checkout") if c.segment == name
        ),
    )
    assert status[hidden] == "not shown"
    assert status["rare"] == "too early"
    assert f"Not shown separately, to protect small groups: {hidden}." in found.sentences
    assert "Too early to say anything for rare." in found.sentences


@pytest.mark.parametrize("strategy", ["joint", "constant", "dynamic"])
def test_sentences_and_table_of_a_verdict_say_the_same(memory: Deniable, strategy: str) -> None:
    """And no table that keeps the promise earns more than the one that is called the best."""
    running(memory, arms=ARMS, segments=[*RATES, "rare"], budget=1.0, strategy=strategy)
    rng, shown = random.Random(3), 0
    visit(memory, rng, 1, rates={"rare": (0.5, 0.5, 0.5)})
    for _ in range(4):
        visit(memory, rng, 900)
        found = memory.experiments.results("checkout")
        level = {one.what: found.level(one.value) for one in found.choices}
        told = " ".join(found.sentences)
        for what, words in (("keep", "Keep running: "), ("within", "within the guarantee: ")):
            assert (words in told) == (level[what] != "too early"), (what, told)
            assert level[what] == "too early" or f"{words}{level[what]}" in told
        known = {one.what: one.value.estimate for one in found.choices if one.value.estimate}
        if "within" in known and "keep" in known:
            shown += 1
            assert known["within"] >= known["keep"] - 1e-9
    assert shown


def test_a_guardrail_is_too_early_or_has_numbers(memory: Deniable) -> None:
    """A sixfold rise of refunds, with a visitor of a rare segment among them, is never "no change"."""
    refunds = Metric("refund", better="less")
    running(memory, arms=["old", "new"], segments=["a", "rare"], metrics=[Metric("sale"), refunds])
    rng, said = random.Random(4), []
    memory.decide("checkout", "first", "rare")
    for start in range(0, 4_000, 500):
        rewards: list[tuple[str, float, str]] = []
        for one in memory.decide_batch("checkout", [(f"{start + i}", "a") for i in range(500)]):
            chance = 0.12 if one.arm == "new" else 0.02
            rewards.append((one.id, float(rng.random() < chance), "refund"))
        memory.reward_batch(rewards)
        [guardrail] = memory.experiments.results("checkout").guardrails
        [whole] = guardrail.overall
        said.append(guardrail.judgement(whole))
        assert (guardrail.change(whole) == "too early") == (said[-1] == "too early")
    assert set(said) == {"too early", "worse"}
    assert whole.low is not None
    assert whole.low < 0.1 < (whole.high or 0)
    assert guardrail.alerts[0].startswith("refund rose with new: +")


def test_held_out_visitors_tell_whether_personalising_pays(memory: Deniable) -> None:
    """A context each likes its own arm; held-out visitors nearly all see the first."""
    for key, rates in (
        ("pays", {"phone": (0.1, 0.5), "desktop": (0.5, 0.1)}),
        ("not", {"phone": (0.4, 0.2), "desktop": (0.4, 0.2)}),
    ):
        memory.experiments.create(
            key,
            arms=[NewArm("old", weight=999), "new"],
            contexts=[*rates],
            holdout=0.3,
            planned_visitors=6_000,
        )
        memory.experiments.start(key)
        rng = random.Random(5)
        for first in range(0, 6_000, 100):
            contexts = rng.choices([*rates], k=100)
            visitors = [(f"{key}-{first + n}", None) for n in range(100)]
            decisions = memory.decide_batch(key, visitors, contexts=contexts)
            memory.reward_batch(
                (decision.id, int(rng.random() < rates[context][decision.arm == "new"]))
                for decision, context in zip(decisions, contexts, strict=True)
            )
    said = {key: memory.experiments.results(key).sentences for key in ("pays", "not")}
    assert said["pays"][0].startswith("Personalising pays: +")
    assert said["not"][0].startswith("Personalising has not paid so far: −")
    assert not any("retired" in sentence for sentence in said["pays"])


def test_results_and_overview_forecast_the_same(memory: Deniable) -> None:
    """At the planned visitors the overview says "time to decide" only where nothing is open."""
    running(memory, arms=("grey", "green"), segments=["s"], planned_visitors=1_500)
    visit(memory, random.Random(5), 2_000, rates={"s": (0.40, 0.42)})
    running(memory, key="clear", arms=("grey", "green"), segments=["s"], planned_visitors=1_500)
    visit(memory, random.Random(6), 2_000, rates={"s": (0.30, 0.80)}, key="clear")

    def noted(key: str) -> str:
        experiment = memory.experiments.get(key)
        learned = memory.experiments.result_health(experiment)
        check = DrawCheck(100, 100, (50, 50), (50.0, 50.0), (25.0, 25.0))
        health = {key: Health(check, 1.0, datetime.now(UTC), learned)}
        board = Leaderboard(experiment, memory.experiments.released_counts(key))
        (note,) = [one.text for one in alerts(None, [board], health, memory.figures)]
        return note

    (open_still,) = [
        one for one in memory.experiments.results("checkout").sentences if "Undecided" in one
    ]
    assert noted("checkout") == f"It has seen as many visitors as planned. {open_still}"
    assert noted("clear") == "It has seen as many visitors as planned. Time to decide."


def test_results_compare_the_plan_with_what_came(memory: Deniable) -> None:
    """The planner at the observed rate says the same smallest difference."""
    planned = 40_000
    running(memory, arms=("grey", "green"), segments=["s", "t"], planned_visitors=planned)
    visit(memory, random.Random(7), 4_000, rates={"s": (0.30, 0.30), "t": (0.30, 0.30)})
    (said,) = [one for one in memory.experiments.results("checkout").sentences if "Planned" in one]
    match = re.fullmatch(
        r"Planned: 40,000 visitors, who decide a difference of ([0-9.]+) points for everybody\. "
        r"So far: ([0-9,]+)\.",
        said,
    )
    assert match is not None, said
    found = power(PlannedExperiment(2, planned, 2), Prior(0.30)).everybody.detectable
    assert found is not None
    assert float(match[1]) == pytest.approx(100 * found, abs=0.11)
    assert 3_500 <= int(match[2].replace(",", "")) <= 4_000
