"""The figures of the click studies by hand, from made-up clicks: no simulation is run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl
import pytest

from deniable.simulation.environment import Environment
from deniable.strategies.benchmarks import Random
from deniable.strategies.constant import Constant
from deniable.strategies.dynamic import Dynamic
from research.clicks import best_budget, clicks_table, difference, row_of
from research.firm import _large, _regimes, _small
from research.firm_clicks import FirmClicks
from research.study import Context, paired

MEANS = {
    "random": 1_000.0,
    "perfect": 3_000.0,
    "constant(1)": 1_500.0,
    "constant(3)": 2_500.0,
    "dynamic(1)": 1_400.0,
    "dynamic(3)": 2_900.0,
    "epsilon-greedy": 2_800.0,
    "gittins": 2_950.0,
}
Z = 1.959963984540054


class MadeUp:
    """A context that simulates nothing: clicks have a standard error of 5, regret one of 2."""

    def simulate_each(self, batches: Any, repetitions: int) -> list[Any]:
        found = []
        for batch in batches:
            labels = [case.policy.label for case in batch]
            horizons = [case.environment.horizon for case in batch]

            def summary(value: str = "clicks", labels: Any = labels, of: Any = horizons) -> Any:
                lost = {label: MEANS["perfect"] - mean for label, mean in MEANS.items()}
                means = MEANS if value == "clicks" else lost
                error = 5 if value == "clicks" else 2
                return pl.DataFrame(
                    {
                        "policy": labels,
                        "visitors": of,
                        "repetitions": [repetitions] * len(labels),
                        "mean": [means[label] for label in labels],
                        "low": [means[label] - error * Z for label in labels],
                        "high": [means[label] + error * Z for label in labels],
                    }
                )

            found.append(SimpleNamespace(summary=summary))
        return found


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    world = Environment([0.3, 0.1], 10_000, name="made up")
    return clicks_table(cast(Context, MadeUp()), {world: {"rates": ".3/.1"}}, (1.0, 3.0), 7)


def test_a_share_is_the_way_from_random_to_perfect(table: pl.DataFrame) -> None:
    shares = {(row["policy"], row["budget"]): row["share"] for row in table.iter_rows(named=True)}
    assert shares["random", None] == 0
    assert shares["perfect", None] == 1
    assert shares["constant", 1.0] == pytest.approx(0.25)
    assert shares["constant", 3.0] == pytest.approx(0.75)
    assert shares["dynamic", 3.0] == pytest.approx(0.95)


def test_errors_and_differences(table: pl.DataFrame) -> None:
    assert row_of(table, "dynamic", 1.0)["error"] == pytest.approx(5)
    assert row_of(table, "dynamic", 1.0)["regret"] == 1_600
    assert row_of(table, "dynamic", 1.0)["regret_error"] == pytest.approx(2)
    gap, errors = difference(table, 3.0)
    assert gap == 400
    assert errors == pytest.approx(400 / np.sqrt(8))  # expected clicks: less noise than clicks
    assert difference(table, 1.0)[0] == -100
    assert (best_budget(table, "constant"), best_budget(table, "dynamic")) == (3.0, 3.0)


def test_the_firm_gains_what_its_experiments_gain() -> None:
    constant, dynamic = Constant(1), Dynamic(3)
    clicks = {
        ("a", "random"): np.array([10, 20]),
        ("a", constant.label): np.array([15, 26]),
        ("b", "random"): np.array([100, 100]),
        ("b", dynamic.label): np.array([130, 90]),
    }
    gained = FirmClicks(clicks).improvement(["a", "b"], [constant, dynamic])
    assert gained.tolist() == [5 + 30, 6 - 10]
    nothing = FirmClicks(clicks).improvement(["a", "b"], [Random(), Random()])
    assert nothing.tolist() == [0, 0]
    regret = {key: 200.0 - values for key, values in clicks.items()}
    expected = FirmClicks(clicks, regret).expected_improvement(["a", "b"], [constant, dynamic])
    assert expected.tolist() == [5 + 30, 6 - 10]


def test_a_difference_is_told_beyond_noise_only() -> None:
    """Against the t distribution's own quantile, for a few repetitions and for many."""
    rng = np.random.default_rng(1)
    base = rng.normal(0, 100, 400)
    assert not paired(base + rng.normal(0, 10, 400), base).clear
    far = paired(base + 2.5 + rng.normal(0, 10, 400), base)
    assert far.clear
    assert far.noise == pytest.approx(3 * 10 / 20, rel=0.1)
    few = paired([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])
    assert few.noise == pytest.approx(19.2 / np.sqrt(3), rel=0.01)
    assert not few.clear
    assert not paired([5.0], [1.0]).clear  # one repetition says nothing


def gains(at: dict[str, float], noise: float) -> dict[tuple[str, str, float | None], Any]:
    rng = np.random.default_rng(2)
    base = rng.normal(0, 1_000, 100)
    return {
        ("regret-based", regime, budget): base + at[regime] + rng.normal(0, noise, 100)
        for regime in at
        for budget in (5.0, 20.0, 500.0)
    }


def test_dynamic_is_valuable_only_beyond_noise() -> None:
    flexible = pl.DataFrame(
        {"rule": ["regret-based"], "regime": ["flexible"], "funded": [10], "dynamic": [9]}
    )
    clear = _regimes(flexible, gains({"constant": 0.0, "dynamic": 144.0}, 10.0))
    assert clear.verdict == "holds"
    noisy = _regimes(flexible, gains({"constant": 0.0, "dynamic": 144.0}, 1_000.0))
    assert noisy.verdict == "holds in part"
    behind = _regimes(flexible, gains({"constant": 144.0, "dynamic": 0.0}, 10.0))
    assert behind.verdict == "holds in part"


def medians(median: float) -> dict[str, float]:
    return {"median": median, "q25": median - 1, "q75": median + 1}


def firm_table(small: float, large: float) -> pl.DataFrame:
    rules = ("regret-based", "equal split")
    return pl.DataFrame(
        [
            {"rule": rule, "regime": "flexible", "firm_budget": budget, **medians(median)}
            for rule in rules
            for budget, median in ((0.1, small), (500.0, large))
        ]
    )


def test_the_claims_of_small_and_large_budgets_have_their_lines() -> None:
    for small, verdict in ((9.9, "holds"), (10.1, "does not hold"), (-10.1, "does not hold")):
        assert _small(firm_table(small, 0.0), 100.0).verdict == verdict
    for large, verdict in ((95.1, "holds"), (94.9, "does not hold")):
        assert _large(firm_table(0.0, large), 100.0).verdict == verdict
