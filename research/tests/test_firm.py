"""The firm's budget: regret-based allocation beats an equal split, and the verdict would notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.public_data import needs_public_data

from deniable import Constant, Portfolio, Random
from deniable.datasets import ExperimentData, data_folder
from research import firm
from research.firm import summary_claims
from research.firm_clicks import divisions, load_firm, policy_of, simulate_firm
from research.study import Context


def test_regret_based_beats_equal_split_at_mid_budgets(tmp_path: Path) -> None:
    context = Context(kept=tmp_path)
    found = load_firm(context)
    compared = [
        division
        for division in divisions(found.portfolio, (10.0, 20.0))
        if division.regime == "flexible" and division.firm_budget is not None
    ]
    clicks = simulate_firm(context, found.experiments, [d.policies for d in compared], 12)
    names = [each.name for each in found.experiments]
    for firm_budget in (10.0, 20.0):
        ours, even = (
            next(d for d in compared if (d.rule, d.firm_budget) == (rule, firm_budget))
            for rule in ("regret-based", "equal split")
        )
        ahead = clicks.expected_improvement(names, ours.policies) - clicks.expected_improvement(
            names, even.policies
        )
        assert ahead.mean() > 6 * ahead.std(ddof=1) / ahead.size**0.5
        # The clicks themselves say the same, with ten times the noise.
        seen = clicks.improvement(names, ours.policies) - clicks.improvement(names, even.policies)
        noise = seen.std(ddof=1) / seen.size**0.5
        assert seen.mean() == pytest.approx(ahead.mean(), abs=5 * noise)


def test_a_quick_run_and_its_verdicts(tmp_path: Path) -> None:
    result = firm.run(Context(kept=tmp_path, quick=True))
    table = result.figures[1].data
    gaps = {
        budget: firm._one(table, "regret-based", "flexible", budget)["expected"]
        - firm._one(table, "equal split", "flexible", budget)["expected"]
        for budget in (0.1, 20.0)
    }
    assert gaps[20.0] > 5 * abs(gaps[0.1])
    upper = firm._one(table, "best budgets", "flexible", None)["median"]
    assert firm._large(table, upper).verdict == "holds"
    claims = {claim.text: claim for claim in result.claims}
    beats = claims[
        "Under a fixed firm budget, regret-based allocation often gets substantially more clicks"
    ]
    assert beats.verdict in ("holds", "holds in part")  # of three repetitions
    perfect = sum(
        e.visitors * (max(e.rates) - np.mean(e.rates))
        for e in load_firm(Context(kept=tmp_path)).experiments
    )
    assert max(table["median"].to_list()) < perfect
    assert result.paragraphs[0].startswith("SYNTHETIC DATA")
    assert all("SYNTHETIC" in figure.caption for figure in result.figures)


def _gains(ahead: dict[float, float], noise: float) -> dict[tuple[str, str, float | None], Any]:
    """Thirty repetitions in which regret-based allocation is ahead by so much."""
    rng = np.random.default_rng(3)
    made: dict[tuple[str, str, float | None], Any] = {}
    for budget, by in ahead.items():
        base = rng.normal(0, 1_000, 30)
        made["equal split", "flexible", budget] = base
        made["regret-based", "flexible", budget] = base + by + rng.normal(0, noise, 30)
    return made


@pytest.mark.parametrize(
    ("ahead", "noise", "often", "largest"),
    [
        ({0.1: 0.0, 5.0: 90.0, 20.0: 99.0, 500.0: 20.0}, 1.0, "holds", "holds"),
        ({0.1: 0.0, 5.0: 90.0, 20.0: 99.0, 500.0: 20.0}, 900.0, "does not hold", "does not hold"),
        ({0.1: 0.0, 5.0: -90.0, 20.0: -99.0, 500.0: 9.0}, 1.0, "holds in part", "does not hold"),
        ({0.1: 0.0, 5.0: 9.0, 100.0: 99.0, 500.0: 20.0}, 1.0, "holds", "holds in part"),
    ],
    ids=["clear", "inside noise", "behind", "largest elsewhere"],
)
def test_verdicts_come_from_what_is_beyond_noise(
    ahead: dict[float, float], noise: float, often: str, largest: str
) -> None:
    gains = _gains(ahead, noise)
    assert firm._beats(gains).verdict == often
    assert firm._where_largest(gains).verdict == largest


def test_every_division_keeps_the_firm_budget() -> None:
    portfolio = Portfolio.from_sizes(
        [2, 3, 2, 5], [10_000, 200_000, 3_000_000, 50_000], form="paper"
    )
    for division in divisions(portfolio, (0.1, 3.0, 20.0)):
        if division.firm_budget is not None:
            assert sum(division.budgets) <= division.firm_budget + 1e-9
        for policy, budget in zip(division.policies, division.budgets, strict=True):
            assert getattr(policy, "budget", 0.0) == pytest.approx(budget, rel=1e-5)


def test_improvement_is_clicks_minus_random_clicks(tmp_path: Path) -> None:
    experiments = [
        ExperimentData("one", (0.5, 0.1), 20_000),
        ExperimentData("two", (0.3, 0.2, 0.1), 10_000),
    ]
    policies = [Constant(4.0), policy_of("constant", 0.0)]
    clicks = simulate_firm(Context(kept=tmp_path), experiments, [policies], 200)
    gained = clicks.improvement(["one", "two"], policies)
    exploration = 2 / (1 + np.exp(4))
    expected = 20_000 * (1 - exploration) * 0.2  # from .3 on average to .5 when greedy
    assert isinstance(policies[1], Random)
    assert gained.mean() == pytest.approx(expected, abs=5 * gained.std() / 200**0.5 + 10)


@needs_public_data
def test_published_summary_of_asos(tmp_path: Path) -> None:
    found = load_firm(Context(kept=tmp_path, data=data_folder()))
    assert not found.synthetic
    assert "checksum is verified" in found.source
    claims = {claim.text: claim for claim in summary_claims(found)}
    assert [claim.verdict for claim in claims.values()].count("holds") == 4
    days = claims["On average experiments ran for 43.5 days, 131 at most"]
    assert days.ours == "mean 46.6, median 43.5, most 131"
    assert days.settled
    assert sum(e.visitors for e in found.experiments) == 1_645_259_220


def test_a_changed_file_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "asos"
    folder.mkdir()
    pl.DataFrame(
        {
            "experiment_id": ["a", "a"],
            "variant_id": [1, 1],
            "metric_id": [1, 1],
            "time_since_start": [1.0, 2.0],
            "count_c": [50.0, 100.0],
            "count_t": [50.0, 100.0],
            "mean_c": [0.1, 0.2],
            "mean_t": [0.1, 0.3],
        }
    ).write_parquet(folder / "asos_digital_experiments_dataset.parquet")
    found = load_firm(Context(kept=tmp_path, data=tmp_path))
    assert "CHECKSUM IS NOT" in found.source
    assert found.experiments[0].rates == (0.2, 0.3)
