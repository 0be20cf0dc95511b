"""The verdict and its words: who won, what is open, what to do, and when nothing may be said."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from tests.inference.experiments import Setting, constant, run, same
from tests.inference.test_off_policy import only_state

from deniable.errors import InvalidArgumentError
from deniable.inference.intervals import compare
from deniable.inference.off_policy import chosen_value
from deniable.inference.power import Forecast
from deniable.inference.state import State, VisitorBatch, new_state, update
from deniable.inference.verdict import Verdict, verdict
from deniable.inference.words import sentences

ARMS = ["old", "large", "green"]
SEGMENTS = ["first-visit", "returning"]


def state_of(
    rates: list[list[float]], visitors: int, table: list[list[float]] | None = None
) -> State:
    """Counts exactly as expected, in ten batches."""
    rows = np.array(table) if table else np.full((len(rates), len(rates[0])), 1 / len(rates[0]))
    state = new_state(len(rates), len(rates[0]), horizon=visitors)
    shows = np.round(rows * visitors / 10)
    for _ in range(10):
        state = update(
            state, VisitorBatch(rows, shows, shows * np.array(rates), shows * np.array(rates))
        )
    return state


def judged(state: State, **more: float) -> Verdict:
    arms, segments = ARMS[: state.n_arms], SEGMENTS[: state.n_segments]
    return verdict(state, arms=arms, segments=segments, default_arm="old", **more)


def test_two_winners_in_words() -> None:
    state = state_of([[0.2, 0.3, 0.22], [0.15, 0.12, 0.25]], 9000)
    found = judged(state, visitors_per_day=1000)
    assert [(w.segment, w.arm) for w in found.winners] == [
        ("first-visit", "large"),
        ("returning", "green"),
    ]
    assert found.undecided == ()
    lift = found.winners[0].lift
    assert lift is not None
    pairs = compare(state)
    assert (lift.low, lift.high) == (pairs.segments.low[0, 0], pairs.segments.high[0, 0])
    text = " ".join(sentences(found))
    assert text == (
        "Two winners: large for first-visit (+5.8 to +14.2 points), "
        "green for returning (+6.1 to +13.9 points). "
        "Keep running: 20.7%. Green for everybody: 23.5%. Each segment its best arm: 27.5%. "
        "Every segment is decided; stopping now is safe."
    )
    assert found.n_comparisons == 9  # 3 pairs in 2 segments and in the whole


def test_one_arm_that_wins_two_segments_is_one_winner() -> None:
    found = judged(state_of([[0.2, 0.3], [0.12, 0.25]], 9000))
    assert [(w.segment, w.arm) for w in found.winners] == [
        ("first-visit", "large"),
        ("returning", "large"),
    ]
    said = sentences(found)[0]
    assert re.fullmatch(
        r"One winner: large for first-visit \(.* points\) and returning \(.* points\)\.", said
    )


def test_an_experiment_that_has_ended_is_not_told_what_to_do() -> None:
    decided = sentences(judged(state_of([[0.2, 0.3], [0.12, 0.25]], 9000)), stopped=True)
    assert decided[-1] == "Every segment is decided."
    assert decided[1].startswith("The last table: ")
    still = judged(state_of([[0.2, 0.201], [0.12, 0.12]], 900), visitors_per_day=100)
    assert sentences(still, stopped=True)[-1] == "Undecided for first-visit and returning."
    assert "more" in sentences(still)[-1] or "too close" in sentences(still)[-1]


def test_the_default_arm_can_win() -> None:
    found = judged(state_of([[0.3, 0.2]], 9000))
    assert [(w.arm, w.lift) for w in found.winners] == [("old", None)]
    assert sentences(found)[0] == "One winner: old for first-visit."


def test_lifts_of_the_whole_are_share_weighted() -> None:
    state = state_of([[0.2, 0.3], [0.2, 0.2]], 9000)
    (lift,) = judged(state).whole
    assert (lift.arm, lift.against, lift.segment) == ("large", "old", None)
    assert lift.difference == pytest.approx(0.05, abs=0.001)
    arms, shares = ARMS[:2], [3, 1]
    (lift,) = verdict(state, arms=arms, segments=SEGMENTS, default_arm="large", shares=shares).whole
    assert lift.difference == pytest.approx(-0.075, abs=0.001)
    assert lift.high < 0


def test_choices_are_values_of_policies() -> None:
    table = [[0.2, 0.6, 0.2], [0.2, 0.2, 0.6]]
    state = state_of([[0.2, 0.3, 0.22], [0.15, 0.12, 0.25]], 9000, table)
    found = judged(state)
    values = {(choice.what, choice.arm): choice.value for choice in found.choices}
    assert values["keep", None] == chosen_value(state, table)
    assert values["keep", None].estimate == pytest.approx((0.264 + 0.204) / 2, abs=0.002)
    assert values["promote", "green"].estimate == pytest.approx(0.235, abs=0.002)
    assert values["winners", None].estimate == pytest.approx(0.275, abs=0.002)
    for value in values.values():
        assert value.exact_low <= value.low < value.estimate < value.high <= value.exact_high


def test_nothing_is_said_too_early() -> None:
    for visitors in (3, 30, 480):
        found = judged(state_of([[0.0, 0.4]], visitors, [[0.5, 0.5]]))
        assert found.winners == ()
        assert found.too_early == ("first-visit",)
        text = " ".join(sentences(found))
        assert text == "No winner yet. Too early to say anything for first-visit."
    nobody = judged(new_state(2, 3, horizon=100))
    assert nobody.too_early == tuple(SEGMENTS)
    assert sentences(nobody)[0] == "No winner yet."


def test_how_long_until_decided() -> None:
    """The forecast is where the interval really leaves 0, if everything goes on as it did."""
    state = state_of([[0.1, 0.12]], 2000, [[0.5, 0.5]])
    found = judged(state, visitors_per_day=500)
    (item,) = found.undecided
    more = item.forecast.visitors
    assert more is not None
    assert item.forecast.days == math.ceil(more / 500)
    for share, decided in ((0.97, False), (1.03, True)):
        shows = np.array([[0.5, 0.5]]) * round(more * share)
        shows = np.round(shows)
        rewards = shows * [[0.1, 0.12]]
        later = update(state, VisitorBatch([[0.5, 0.5]], shows, rewards, rewards))
        assert bool(judged(later).winners) is decided
    idle = " ".join(sentences(judged(state, visitors_per_day=0)))
    assert f"about {float(f'{more:.2g}'):,.0f} more visitors" in idle
    assert f"about {math.ceil(more / 500):,} more days" in " ".join(sentences(found))


def test_equal_arms_are_never_promised_an_end() -> None:
    found = judged(state_of([[0.1, 0.1]], 4000))
    assert found.undecided[0].forecast == Forecast(None, None)
    assert "not with this traffic: the estimates are too close" in " ".join(sentences(found))


def test_an_absurd_forecast_is_no_number() -> None:
    """Estimates that nearly tie need thousands of times the visitors; a clear one is still forecast."""
    found = judged(state_of([[0.1, 0.1003], [0.1, 0.12]], 2000), visitors_per_day=500)
    assert [item.forecast.visitors is None for item in found.undecided] == [True, False]
    said = sentences(found)
    assert "Undecided for first-visit; not with this traffic: the estimates are too close." in said
    assert any(
        one.startswith("Undecided for returning; if the estimates are right") for one in said
    )


def test_a_retired_arm_is_named_and_out_of_the_contest() -> None:
    state = state_of([[0.2, 0.3, 0.21]], 3000)
    rates = np.array([[0.2, 0.3, 0.21]])
    table = np.array([[0.5, 0.4999, 0.0001]])
    shows = np.array([[3000.0, 3000.0, 0.0]])
    state = update(state, VisitorBatch(table, shows, shows * rates, shows * rates))
    found = judged(state)
    assert found.retired == (("green", "first-visit"),)
    assert [w.arm for w in found.winners] == ["large"]
    told = sentences(found)
    assert "Green has retired for first-visit; its comparisons there have stopped." in told
    alone = np.array([[0.9998, 0.0001, 0.0001]])
    rest = VisitorBatch(alone, [[1000, 0, 0]], [[200, 0, 0]])
    undecided = update(state_of([[0.2, 0.2, 0.2]], 3000), rest)
    found = judged(undecided)
    assert found.winners == ()  # the last arm running has beaten nobody
    text = " ".join(sentences(found))
    assert "No winner will be found for first-visit while the table stays as it is." in text
    assert "decided" not in text


def test_the_best_arm_need_not_have_met_everybody() -> None:
    """Green beats large, large beats old; green against old is known to be better, then."""
    state = state_of([[0.1, 0.2, 0.3]], 6000)
    column = state.pairs.tolist().index([0, 2])
    variance = state.between.variance.copy()
    variance[0, column] *= 200
    vague = replace(state, between=replace(state.between, variance=variance))
    found = judged(vague)
    (winner,) = found.winners
    assert winner.arm == "green"
    assert winner.lift is not None
    assert winner.lift.low < 0 < winner.lift.high


def test_equal_arms_have_no_winner() -> None:
    """A/A with three arms, 80 experiments: fewer than one in twenty may name a winner."""
    setting = Setting(constant(1.0), same(0.1, 0.1, 0.1), horizon=5000, growth=0.5, typical=0.2)
    wrong = np.zeros(80, dtype=bool)
    for n, state, _, _, _ in run(setting, 50, runs=80):
        if n >= 1000:
            for place in range(80):
                wrong[place] |= bool(judged(only_state(state, place)).winners)
    assert wrong.mean() <= 0.05


def test_mistakes_are_refused() -> None:
    state = state_of([[0.1, 0.2]], 1000)
    good = {"arms": ["old", "new"], "segments": ["all"], "default_arm": "old"}
    for name, value in (
        ("arms", ["old", "old"]),
        ("arms", ["old", "new", "third"]),
        ("segments", ["a", "b"]),
        ("segments", ["a", "a"]),
        ("segments", []),
        ("default_arm", "other"),
        ("visitors_per_day", -1),
    ):
        with pytest.raises(InvalidArgumentError):
            verdict(state, **{**good, name: value})  # type: ignore[arg-type]
    some = replace(new_state(1, 3, horizon=10, pairs=[(0, 1)]))
    with pytest.raises(InvalidArgumentError, match="all 3 pairs"):
        verdict(some, arms=ARMS, segments=["all"], default_arm="old")
