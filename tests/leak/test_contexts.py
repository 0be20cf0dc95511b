"""What a variant tells beyond the context, and which columns would be worth being contexts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.leak.logs import written

import deniable
from deniable.errors import InvalidArgumentError
from deniable.leak.page import report
from deniable.leak.report import measure_leak
from deniable.leak.words import leak_sections

DEVICES = np.array(["phone", "desktop"])


def log(*, beyond: float = 0.0, visitors: int = 40_000) -> pl.DataFrame:
    """Variants follow the device, of which the segment tells much; a share of them the segment."""
    rng = np.random.default_rng(38)
    device = rng.integers(2, size=visitors)
    segment = np.where(rng.random(visitors) < 0.8, device, 1 - device)
    greedy = np.where(rng.random(visitors) < beyond, segment, device)
    shown = np.where(rng.random(visitors) < 0.8, greedy, 1 - greedy)
    return pl.DataFrame(
        {
            "visitor": [f"v{i}" for i in range(visitors)],
            "segment": np.array(["new", "loyal"])[segment],
            "variant": np.array(["red", "blue"])[shown],
            "device": DEVICES[device],
            "weekday": rng.integers(7, size=visitors),
            "order": np.arange(visitors),
            "clicked": (rng.random(visitors) < np.where(shown == device, 0.2, 0.1)).astype(int),
        }
    )


def test_what_follows_the_context_alone_tells_nothing_beyond_it(tmp_path: Path) -> None:
    file = written(log(), tmp_path / "log.parquet")
    alone, beyond = measure_leak(file), measure_leak(file, context="device")
    assert alone.worst.ratio.low > 2
    assert beyond.worst.ratio.low <= 1
    assert beyond.ratio_high < 1.3
    assert {found.experiment for found in beyond.experiments} == set(DEVICES)
    assert beyond.worths[0].answer == "does not pay"


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_within_a_context_figures_are_those_of_its_rows(tmp_path: Path, suffix: str) -> None:
    frame = log(beyond=0.5, visitors=5_000)
    found = measure_leak(written(frame, tmp_path / f"log{suffix}"), context="device")
    for inside in found.experiments:
        rows = frame.filter(pl.col("device") == inside.experiment)
        table = rows.group_by("segment", "variant").len().sort("segment", "variant")["len"]
        counts = table.to_numpy().reshape(2, 2)
        assert inside.table == pytest.approx(counts / counts.sum(axis=1, keepdims=True))
        assert inside.ratio.low > 1.3  # what follows the segment is seen


def test_a_missing_context_is_other_and_experiments_keep_their_names(tmp_path: Path) -> None:
    frame = log(visitors=4_000).with_columns(
        experiment=pl.lit("hero"), device=pl.when(pl.col("device") == "phone").then("device")
    )
    found = measure_leak(written(frame, tmp_path / "log.csv"), context="device")
    assert {inside.experiment for inside in found.experiments} == {"hero / other", "hero / phone"}


def test_columns_worth_being_contexts_are_told_apart(tmp_path: Path) -> None:
    found = measure_leak(written(log(), tmp_path / "log.csv"))
    assert [worth.attribute for worth in found.contexts] == ["device", "weekday"]  # no ids
    device, weekday = found.contexts
    assert device.answer == "pays"
    assert device.no_privacy.low < 0.05 < device.no_privacy.high  # 0.2 against 0.15
    assert weekday.no_privacy.low <= 0
    assert device.confidence == pytest.approx(1 - 0.05 / 2)
    title = "Which columns would be worth being contexts?"
    assert title in [part.title for part in leak_sections(found)]
    assert title in [part.title for part in report(found).sections]
    named = measure_leak(tmp_path / "log.csv", context="device")
    assert named.contexts == found.contexts


def test_without_rewards_no_column_is_judged(tmp_path: Path) -> None:
    found = measure_leak(written(log(visitors=2_000).drop("clicked"), tmp_path / "log.csv"))
    assert found.contexts == ()


def test_a_context_needs_a_column_of_its_own(tmp_path: Path) -> None:
    file = written(log(visitors=100), tmp_path / "log.csv")
    for column in ("segment", "country"):
        with pytest.raises(InvalidArgumentError, match="column"):
            deniable.measure_leak(file, context=column, segment="segment")
