"""A result in a notebook, and what a data scientist types first: pictures, pandas, plain errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from html.parser import HTMLParser
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest

from deniable import (
    Case,
    Constant,
    Custom,
    Dynamic,
    Environment,
    Gittins,
    Joint,
    Perfect,
    Random,
    ThompsonSampling,
    simulate,
    simulate_many,
)
from deniable.errors import DeniableError, InvalidArgumentError
from deniable.simulation.results import SimulationResult
from deniable.simulation.scenario import policy_named, read_scenario
from deniable.strategies.kernel_rules import Simulated

PAGE = Environment([0.3, 0.2], 1_000)
POLICIES: list[Simulated] = [Constant(1), Dynamic(3), Random(), Perfect()]


@pytest.fixture(scope="module")
def result() -> SimulationResult:
    return simulate(PAGE, POLICIES, repetitions=5, checkpoints=[10, 100], workers=1)


def test_a_chart_shows_every_policy_at_the_horizon(result: SimulationResult) -> None:
    text = str(result.chart().to_dict())
    for policy in POLICIES:
        assert policy.label in text
    assert "Clicks of 1,000 visitors" in text
    assert "Regret, and its bounds" in text
    values = {row["policy"]: row for row in result.summary().to_dicts() if row["visitors"] == 1_000}
    assert f"{values['random']['mean']}" in text


def test_a_shorter_horizon_is_the_charts_horizon() -> None:
    short = simulate(PAGE, POLICIES, horizon=50, repetitions=2, workers=1)
    assert "Clicks of 50 visitors" in str(short.chart().to_dict())


def test_a_chart_of_rewards_has_no_bounds_of_clicks() -> None:
    shop = Environment([0.3, 0.2], 300, values=9.5)
    found = simulate(shop, POLICIES, repetitions=2, checkpoints=[10, 100], workers=1)
    text = str(found.chart().to_dict())
    assert "Reward of 300 visitors" in text
    assert "bound" not in text.lower()


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_a_notebook_shows_the_table_and_the_picture(result: SimulationResult) -> None:
    page = _Tags()
    page.feed(result._repr_html_())
    assert page.seen.count("tr") == 1 + len(POLICIES) * 3
    assert "svg" in page.seen
    assert "script" not in page.seen
    assert "dynamic(3)" in page.text


def test_names_are_escaped_in_a_notebook() -> None:
    page = Environment([0.3, 0.2], 10, name="<script>alert(1)</script>")
    assert "<script>" not in simulate(page, [Random()], repetitions=1, workers=1)._repr_html_()


def test_several_environments_are_drawn_one_by_one() -> None:
    pages = [Environment([0.3, 0.2], 10 * (i + 1), name=f"page {i}") for i in range(2)]
    cases = [Case(page, policy) for page in pages for policy in POLICIES[:2]]
    found = simulate_many(cases, 2, workers=1)
    assert "Clicks of 20 visitors" in str(found.chart("page 1").to_dict())
    for wrong in (None, "page 2"):
        with pytest.raises(InvalidArgumentError, match="page 0, page 1"):
            found.chart(wrong)
    assert found._repr_html_().count("<svg") == 2


def test_pandas_gets_plain_columns(
    result: SimulationResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in takes the columns as pandas would: arrays of its own, whole numbers whole."""
    stand_in = ModuleType("pandas")
    stand_in.__spec__ = sys.__spec__
    stand_in.DataFrame = dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", stand_in)
    frame = result.to_pandas()
    assert list(frame) == result.frame.columns
    assert frame["visitors"].dtype == np.int64
    assert frame["clicks"].dtype == np.int64
    assert frame["regret"].dtype == np.float64
    assert [type(name) for name in frame["policy"][:2]] == [str, str]
    before = result.frame["clicks"].to_list()
    frame["clicks"][:] = 0
    assert result.frame["clicks"].to_list() == before
    assert list(result.to_pandas("arms")) == result.arms.columns


def test_pandas_may_be_missing(result: SimulationResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setattr("deniable.simulation.results.is_installed", lambda module: False)
    with pytest.raises(DeniableError, match="pip install pandas"):
        result.to_pandas()


MISTAKES: dict[str, tuple[str, Callable[[], Any]]] = {
    "one policy": ("policies", lambda: simulate(PAGE, Constant(1))),  # type: ignore[arg-type]
    "a name": ("policies", lambda: simulate(PAGE, "constant")),  # type: ignore[arg-type]
    "names": ("policies", lambda: simulate(PAGE, ["constant"])),  # type: ignore[list-item]
    "a class": ("policies", lambda: simulate(PAGE, [Random])),  # type: ignore[list-item]
    "a learner": ("policies", lambda: simulate(PAGE, [ThompsonSampling])),  # type: ignore[list-item]
    "nothing": ("policies", lambda: simulate(PAGE, [])),
    "none": ("policies", lambda: simulate(PAGE, None)),  # type: ignore[arg-type]
    "twice": ("policies", lambda: simulate(PAGE, [Random(), Random()])),
    "rates alone": ("environment", lambda: simulate([0.3, 0.2], [Random()])),  # type: ignore[arg-type]
    "repetitions": ("repetitions", lambda: simulate(PAGE, POLICIES, repetitions="9")),  # type: ignore[arg-type]
    "no repetitions": ("repetitions", lambda: simulate(PAGE, POLICIES, repetitions=0)),
    "seed": ("seed", lambda: simulate(PAGE, POLICIES, seed=None)),  # type: ignore[arg-type]
    "horizon": ("horizon", lambda: simulate(PAGE, POLICIES, horizon="1e4")),  # type: ignore[arg-type]
    "one checkpoint": ("checkpoints", lambda: simulate(PAGE, POLICIES, checkpoints=10)),  # type: ignore[arg-type]
    "late checkpoint": ("checkpoints", lambda: simulate(PAGE, POLICIES, checkpoints=[2_000])),
    "kernel": ("kernel", lambda: simulate(PAGE, POLICIES, kernel="fast")),  # type: ignore[arg-type]
    "kernels": ("kernel", lambda: simulate(PAGE, POLICIES, kernel=["leap"])),  # type: ignore[arg-type]
    "workers": ("workers", lambda: simulate(PAGE, POLICIES, workers=0)),
    "executor": ("executor", lambda: simulate(PAGE, POLICIES, executor=4)),  # type: ignore[arg-type]
    "folder": ("folder", lambda: simulate(PAGE, POLICIES, folder=3)),  # type: ignore[arg-type]
    "progress": ("progress", lambda: simulate(PAGE, POLICIES, progress=True)),  # type: ignore[arg-type]
    "a case": ("cases", lambda: simulate_many(Case(PAGE, Random()))),  # type: ignore[arg-type]
    "pairs": ("cases", lambda: simulate_many([(PAGE, Random())])),  # type: ignore[list-item]
    "a case of names": ("policies", lambda: simulate_many([Case(PAGE, "random")])),  # type: ignore[arg-type]
    "text for rates": ("rates", lambda: Environment("0.3,0.2", 10)),
    "rates by name": ("rates", lambda: Environment({"a": 0.3}, 10)),  # type: ignore[arg-type]
    "one arm": ("rates", lambda: Environment([0.3], 10)),
    "percent": ("rates", lambda: Environment([30, 20], 10)),
    "ragged": ("rates", lambda: Environment([[0.3, 0.2], [0.1]], 10)),
    "no visitors": ("horizon", lambda: Environment([0.3, 0.2])),
    "visitors twice": ("horizon", lambda: Environment([0.3, 0.2], 10, visitors=10)),
    "visitors": ("visitors", lambda: Environment([0.3, 0.2], visitors=0)),
    "shares": ("shares", lambda: Environment([0.3, 0.2], 10, "half")),
    "name": ("name", lambda: Environment([0.3, 0.2], 10, name=3)),  # type: ignore[arg-type]
    "arms": ("arms", lambda: Environment([0.3, 0.2], 10, arms="ab")),
    "number of arms": ("arms", lambda: Environment([0.3, 0.2], 10, arms=2)),  # type: ignore[arg-type]
    "changes": ("changes", lambda: Environment([0.3, 0.2], 10, changes={5: [0.2, 0.3]})),  # type: ignore[arg-type]
    "a change": ("changes", lambda: Environment([0.3, 0.2], 10, changes=[5])),  # type: ignore[list-item]
    "late first": (
        "changes",
        lambda: Environment([0.3, 0.2], 10, changes=[(9, [0.1, 0.2]), (5, [0.2, 0.3])]),
    ),
    "delay": ("delay", lambda: Environment([0.3, 0.2], 10, delay=2.5)),  # type: ignore[arg-type]
    "delays": ("delay", lambda: Environment([0.3, 0.2], 10, delay=[0.5, 0.6])),
    "values": ("values", lambda: Environment([0.3, 0.2], 10, values=[1, 2, 3])),
    "value": ("values", lambda: Environment([0.3, 0.2], 10, values="high")),
    "spread": ("value_spread", lambda: Environment([0.3, 0.2], 10, value_spread=-1)),
    "data": ("data", lambda: Environment.of([0.3, 0.2])),  # type: ignore[arg-type]
    "discount": ("discount", lambda: Gittins("0.9")),  # type: ignore[arg-type]
    "budget as text": ("budget", lambda: Constant("1")),  # type: ignore[arg-type]
    "two budgets": ("budget", lambda: Constant([1.0, 2.0])),  # type: ignore[arg-type]
    "two budgets of joint": ("budget", lambda: Joint([1.0, 2.0])),  # type: ignore[arg-type]
    "a policy's name": ("policies", lambda: policy_named(3)),  # type: ignore[arg-type]
    "scenario": ("scenario", lambda: read_scenario(3)),  # type: ignore[arg-type]
    "no scenario": ("scenario", lambda: read_scenario("no-such.toml")),
    "learner": ("learner", lambda: Custom(3)),  # type: ignore[arg-type]
    "learner's arguments": (
        "learner",
        lambda: simulate(PAGE, [Custom(dict)], repetitions=1, workers=1),  # type: ignore[arg-type]
    ),
    "no learner": (
        "learner",
        lambda: simulate(
            PAGE,
            [Custom(lambda *given: 5, name="five")],  # type: ignore[arg-type]
            repetitions=1,
            workers=1,
        ),
    ),
    "value to sum up": (
        "value",
        lambda: simulate(PAGE, POLICIES[2:], repetitions=1, workers=1).summary("click"),
    ),
    "table for pandas": (
        "table",
        lambda: simulate(PAGE, POLICIES[2:], repetitions=1, workers=1).to_pandas("all"),  # type: ignore[arg-type]
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_names_its_argument(case: str) -> None:
    argument, call = MISTAKES[case]
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    assert caught.value.argument == argument
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_horizon_and_visitors_are_one_thing() -> None:
    assert Environment([0.3, 0.2], visitors=50).horizon == 50


def test_shares_are_of_what_perfect_information_gains() -> None:
    rates = [[0.5, 0.1], [0.1, 0.3]]
    world = Environment(
        rates, 3_000, [0.25, 0.75], changes=[(1_001, np.array(rates)[:, ::-1])], name="one"
    )
    policies: list[Simulated] = [Perfect(), Random(), Constant(1)]
    result = simulate(world, policies, repetitions=20, seed=3, checkpoints=[1_500], workers=1)
    shares = {(row["policy"], row["visitors"]): row for row in result.summary("share").to_dicts()}
    for visitors in (1_500, 3_000):
        assert shares["perfect", visitors]["mean"] == pytest.approx(1, abs=1e-12)
        assert abs(shares["random", visitors]["mean"]) < 0.03
    kept = result.frame.filter(pl.col("policy") == "constant(1)")["regret"].to_list()[1::2]
    possible = 3_000 * (0.25 * 0.2 + 0.75 * 0.1)  # by hand: half of the gap, in both phases
    by_hand = 1 - np.array(kept) / possible
    row = shares["constant(1)", 3_000]
    assert row["mean"] == pytest.approx(by_hand.mean())
    assert row["q05"] == pytest.approx(np.quantile(by_hand, 0.05))


def test_policies_are_compared_repetition_by_repetition() -> None:
    worlds = [Environment([0.5, 0.2], 500, name=name) for name in ("first", "second")]
    cases = [Case(world, policy) for world in worlds for policy in (Constant(1), Random())]
    result = simulate_many(cases, 30, seed=2, workers=1)
    compared = result.compare("constant(1)", "random", "regret")
    assert compared["environment"].to_list() == ["first", "second"]
    regret = result.frame.partition_by("environment", "policy", as_dict=True)
    first = (
        regret["first", "constant(1)"]["regret"] - regret["first", "random"]["regret"]
    ).to_numpy()
    row = compared.to_dicts()[0]
    error = 1.959963984540054 * first.std(ddof=1) / 30**0.5
    assert row["repetitions"] == 30
    assert row["difference"] == pytest.approx(first.mean())
    assert row["high"] - row["difference"] == pytest.approx(error)
    assert row["high"] < 0
    with pytest.raises(InvalidArgumentError, match="random"):
        result.compare("constant(1)", "joint(1)")
