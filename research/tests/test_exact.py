"""Studies without chance: their numbers against the paper's and against 50-digit formulas."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests import oracle

from research import appendix, beliefs, elasticity, heterogeneity, illustration, strategies
from research.study import Context, StudyResult


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(kept=tmp_path)


def verdicts(result: StudyResult) -> dict[str, str]:
    return {claim.text: claim.verdict for claim in result.claims}


def test_beliefs(context: Context) -> None:
    result = beliefs.run(context)
    assert set(verdicts(result).values()) == {"holds"}
    for row in result.figures[0].data.iter_rows(named=True):
        high = oracle.posterior_high(row["prior"], row["budget"])
        low = oracle.posterior_low(row["prior"], row["budget"])
        assert row["highest"] == pytest.approx(float(high), abs=1e-14)
        assert row["lowest"] == pytest.approx(float(low), abs=1e-14)
    assert result.claims[0].ours == "20.8% 29.2% 40.5% 83.4% 97.4%"


def test_beliefs_would_tell_a_wrong_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict comes from the numbers: a bound that is off in the third digit fails."""
    monkeypatch.setattr(
        beliefs, "highest_belief", lambda p, x: float(oracle.posterior_high(p, 1.01 * x))
    )
    assert beliefs._claims()[0].verdict == "does not hold"


def test_strategies(context: Context) -> None:
    result = strategies.run(context)
    constant, dynamic = (figure.data for figure in result.figures)
    assert (constant["risk"] == constant["budget"]).all()
    for row in dynamic.iter_rows(named=True):
        expected = max(oracle.eps_dyn(2, row["visitor"]), oracle.eps(2, row["budget"]))
        assert row["exploration"] == pytest.approx(float(expected), abs=1e-12)
    clocks = result.tables["exhaustion_clock"].filter(pl.col("arms") == 2)
    assert dict(clocks.select("budget", "visitor").iter_rows())[3.0] == 23_599
    assert (
        verdicts(result)["No visitor's risk exceeds the budget, under either strategy"] == "holds"
    )
    settled = [claim.text for claim in result.claims if claim.settled]
    assert len(settled) == 3  # the raw formula at t = 1, the initialization, the footnote's minimum


def test_elasticity(context: Context) -> None:
    result = elasticity.run(context)
    for figure, bound in zip(result.figures, (oracle.constant, oracle.dynamic), strict=True):
        rows = figure.data.filter(pl.col("budget").is_in([1.0, 3.0])).to_dicts()
        assert len(rows) == 18
        for row in rows:
            k, t, gamma = row["arms"], row["visitors"], row["budget"]
            slope = oracle.slope(bound, k, t, gamma, 1)
            expected = gamma * float(slope / bound(k, t, gamma))
            assert row["elasticity"] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    wrong = {text for text, verdict in verdicts(result).items() if verdict != "holds"}
    assert wrong == {"The constant bound is T e + sqrt(K + e^gamma - 1) sqrt(T log T)"}
    kept = next(claim for claim in result.claims if claim.text in wrong)
    assert kept.settled
    assert (kept.paper, kept.ours) == ("best budget 3.21 (K=2, T=1e4)", "best budget 1.97")


def test_illustration(context: Context) -> None:
    table = illustration.run(context).figures[0].data.filter(pl.col("stage") == "optimal")
    budgets = {
        (row["firm_budget"], row["experiment"]): row["budget"]
        for row in table.iter_rows(named=True)
    }
    best = float(oracle.best_dynamic(2, 10_000))
    assert budgets[4.0, "B"] == pytest.approx(best, abs=1e-8)
    assert budgets[4.0, "A"] == pytest.approx(4 - best, abs=1e-8)
    assert (budgets[1.5, "A"], budgets[1.5, "B"]) == (0.0, 1.5)


def test_heterogeneity(context: Context) -> None:
    result = heterogeneity.run(context)
    expected = oracle.arm_matrix([0.5, 1.0, 2.0])
    for row in result.figures[0].data.iter_rows(named=True):
        exact = float(expected[row["shown"] - 1][row["greedy"] - 1])
        assert row["probability"] == pytest.approx(exact, abs=1e-14)
    for row in result.figures[1].data.head(5).iter_rows(named=True):
        exact = float(oracle.arm_excess([0.5, 1.0, 2.0], row["visitor"]))
        assert row["excess"] == pytest.approx(exact, rel=1e-10)
    wrong = [claim for claim in result.claims if claim.verdict != "holds"]
    assert len(wrong) == 1
    assert "2.32 between a late and a new segment" in wrong[0].ours
    limits = result.tables["limits"]
    assert np.all(np.diff(limits["exploration"]) > 0)  # to 1 as the first arm's risk goes to 0
    assert limits["exploration"][-1] > 0.99


def test_appendix(context: Context) -> None:
    """The hump of the bound for several segments, and the sum over rounds by hand."""
    result = appendix.run(replace(context, quick=True))
    found = verdicts(result)
    assert list(found.values()) == [
        "holds",
        "holds in part",
        "holds in part",
        "holds",
        "holds",
        "holds in part",
    ]
    bounds = result.figures[0].data
    at = dict(bounds.select("budget", "appendix").iter_rows())
    assert round(at[2.5]) == 106_058
    assert round(at[3.6]) == 148_964
    rows = result.tables["finite_rounds"].to_dicts()
    arms, visitors, budget = 2, 10_000, 1.0
    cap = arms / (arms - 1 + math.exp(budget))
    total = 0.0
    for n in range(1, visitors + 1):
        falling = min(1.0, (arms * math.log(n) / n) ** (1 / 3)) if n > 2 else 1.0
        explored = max(falling, cap)
        total += min(explored + 2 * math.sqrt(2 * arms * math.log(n) / (n * explored)), 1)
    assert rows[0]["sum_of_rounds"] == pytest.approx(total, rel=1e-10)
    assert (rows[0]["arms"], rows[0]["visitors"], rows[0]["budget"]) == (arms, visitors, budget)


def test_the_appendix_would_tell_a_bound_without_a_hump(context: Context) -> None:
    falling = pl.DataFrame({"budget": [2.5, 3.6], "appendix": [2.0, 1.0]})
    simulated = pl.DataFrame({"mean": [5.0, 4.0], "high": [5.1, 4.1]})
    assert appendix._dynamic_segments(falling, simulated).verdict == "holds"
    rising = falling.with_columns(appendix=pl.Series([1.0, 2.0]))
    assert appendix._dynamic_segments(rising, simulated).verdict == "holds in part"
