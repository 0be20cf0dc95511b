"""Data against the published numbers; where the files are not there, that is said aloud."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.public_data import needs_public_data

from deniable.datasets import (
    ARMS,
    RECOMMENDATION_COUNTS,
    RECOMMENDATION_RATES,
    WEBSITE_RATES,
    asos,
    first_rates,
    open_bandit,
    synthetic_portfolio,
)
from deniable.errors import InvalidArgumentError
from deniable.simulation.environment import Environment


@needs_public_data
def test_asos_has_the_published_numbers() -> None:
    firm = asos()
    visitors = np.array([experiment.visitors for experiment in firm])
    rates = np.concatenate([experiment.rates for experiment in firm])
    days = np.array([experiment.days for experiment in firm])
    assert len(firm) == 78
    assert len({experiment.name for experiment in firm}) == 78
    assert {k: sum(e.n_arms == k for e in firm) for k in (2, 3, 4, 5)} == ARMS
    assert rates.size == 177
    assert (visitors.sum(), visitors.min(), visitors.max()) == (1_645_259_220, 69_123, 149_197_471)
    assert round(visitors.mean()) == 21_093_067
    assert [round(100 * x, 3) for x in (rates.mean(), *np.quantile(rates, [0.25, 0.75]))] == [
        19.553,
        5.687,
        24.829,
    ]
    assert [round(100 * x, 3) for x in (rates.min(), rates.max())] == [2.647, 77.239]
    assert (round(days.mean(), 1), round(np.median(days), 1), days.max()) == (46.6, 43.5, 131)


@needs_public_data
def test_open_bandit_has_the_built_in_counts() -> None:
    items = open_bandit()
    assert len(items) == 80
    assert sum(shown for _, shown in items) == 1_374_327
    assert tuple(items[:8]) == RECOMMENDATION_COUNTS
    assert first_rates(items, 8) == RECOMMENDATION_RATES
    assert open_bandit("men") != open_bandit("women")


def test_built_in_facts() -> None:
    assert WEBSITE_RATES == (0.324, 0.295)
    assert round(min(RECOMMENDATION_RATES), 4) == 0.0011
    assert round(max(RECOMMENDATION_RATES), 4) == 0.0053


@pytest.mark.parametrize("seed", range(5))
def test_the_synthetic_portfolio_is_like_asos(seed: int) -> None:
    firm = synthetic_portfolio(seed)
    visitors = np.array([experiment.visitors for experiment in firm])
    rates = np.concatenate([experiment.rates for experiment in firm])
    gaps = [np.diff(np.sort(experiment.rates))[-1] for experiment in firm]
    assert {k: sum(e.n_arms == k for e in firm) for k in ARMS} == ARMS
    assert (visitors.sum(), visitors.min(), visitors.max()) == (1_645_259_220, 69_123, 149_197_471)
    assert 0.15 < rates.mean() < 0.24
    assert (rates > 0).all()
    assert (rates < 0.7724).all()
    assert 0.04 < np.quantile(rates, 0.25) < 0.08
    assert 0.2 < np.quantile(rates, 0.75) < 0.3
    assert 5e-5 < np.median(gaps) < 6e-4
    assert firm == synthetic_portfolio(seed)
    assert firm != synthetic_portfolio(seed + 1)
    world = Environment.of(firm[0])
    assert (world.name, world.horizon) == (firm[0].name, firm[0].visitors)


def test_missing_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path without a file, a data folder without one, no data folder: never one beside the project."""
    (tmp_path / "shared" / "data" / "asos").mkdir(parents=True)
    (tmp_path / "shared" / "data" / "asos" / "asos_digital_experiments_dataset.parquet").touch()
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    for load, file in ((asos, "parquet"), (lambda path: open_bandit("all", path), "csv")):
        for folder, given, looked_for in (
            (None, tmp_path / "none", "none"),
            (tmp_path / "empty", None, file),
            (None, None, "None"),
        ):
            monkeypatch.setenv("DENIABLE_DATA", str(folder or ""))
            with pytest.raises(InvalidArgumentError, match="DENIABLE_DATA") as caught:
                load(given)
            assert str(caught.value.value).endswith(looked_for)
    with pytest.raises(InvalidArgumentError, match="campaign"):
        open_bandit("children")
