"""Does personalising pay, by a log: verdicts in words, what is missing, propensities, public data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.leak.logs import written
from tests.public_data import needs_public_data

import deniable
from deniable.analysis.worth_words import worth_notes, worth_sentence
from deniable.datasets import data_file
from deniable.errors import InvalidArgumentError
from deniable.leak.report import measure_leak
from deniable.leak.words import leak_sections

RATES = np.array([[0.12, 0.08], [0.08, 0.12]])


def exposures(
    seed: int, visitors: int = 20_000, rates: Any = RATES, learns: bool = False
) -> pl.DataFrame:
    """A log of an A/B test, or of an experiment whose shares follow the clicks by halves."""
    rng = np.random.default_rng(seed)
    segment = rng.integers(2, size=visitors)
    late = np.arange(visitors) >= visitors // 2
    chance = np.where(learns & late, np.where(segment == 0, 0.9, 0.1), 0.5)
    arm = (rng.random(visitors) > chance).astype(int)
    clicked = rng.random(visitors) < rates[segment, arm]
    return pl.DataFrame(
        {
            "visitor": [f"v{n}" for n in range(visitors)],
            "segment": np.array(["new", "loyal"])[segment],
            "variant": np.array(["red", "blue"])[arm],
            "time": 1_760_000_000 + np.arange(visitors),
            "clicked": clicked.astype(int),
            "propensity": np.where(arm == 0, chance, 1 - chance),
        }
    )


def test_where_it_pays_the_words_say_how_much_and_what_privacy_keeps(tmp_path: Path) -> None:
    log = written(exposures(1), tmp_path / "log.parquet")
    found = deniable.worth(log)
    assert found.answer == "pays"
    assert found.propensities == "known"
    assert found.no_privacy.low < 0.02 < found.no_privacy.high  # 0.12 against 0.10
    assert found.one_arm.value == pytest.approx(0.1, abs=0.01)
    sentence = worth_sentence(found)
    assert sentence.startswith("Personalising by segment pays: each segment its best arm brings +")
    assert "a private label keeps" in sentence
    report = leak_sections(measure_leak(log))
    assert report[0].title == "Does personalising pay?"
    assert report[0].text == sentence
    assert len(report[0].table.rows) == 6


def test_where_one_arm_is_best_for_all_it_is_named(tmp_path: Path) -> None:
    log = written(exposures(2, rates=np.array([[0.3, 0.1], [0.4, 0.2]])), tmp_path / "log.csv")
    found = deniable.worth(log)
    assert found.answer == "does not pay"
    assert worth_sentence(found) == (
        "Personalising by segment does not pay here: at most +0.0% over “red” for everybody, and "
        "at most +0.0% if all rates were known. Show “red” to everybody; no budget is needed."
    )


def test_a_small_log_does_not_say(tmp_path: Path) -> None:
    found = deniable.worth(written(exposures(3, 300), tmp_path / "log.csv"))
    assert found.answer == "unclear"
    assert worth_sentence(found).startswith(
        "This log cannot say whether personalising by segment pays"
    )


def test_a_log_of_an_experiment_that_learned_asks_for_propensities(tmp_path: Path) -> None:
    frame = exposures(4, learns=True)
    known = deniable.worth(written(frame, tmp_path / "known.csv"))
    assert known.propensities == "known"
    assert not known.warnings
    unknown = deniable.worth(written(frame.drop("propensity"), tmp_path / "unknown.csv"))
    assert "shares of the variants changed over time" in unknown.warnings[0]
    assert unknown.warnings[0] in worth_notes(unknown)
    fixed = deniable.worth(written(exposures(4).drop("propensity"), tmp_path / "fixed.csv"))
    assert not fixed.warnings
    untimed = deniable.worth(written(frame.drop("propensity", "time"), tmp_path / "untimed.csv"))
    assert "no times and no propensities" in untimed.warnings[0]


def test_propensities_are_used(tmp_path: Path) -> None:
    """Clicks fall by half as red is shown more and more to the new: only propensities tell it apart."""
    frame = exposures(5, 40_000, rates=np.full((2, 2), 0.2), learns=True)
    first = pl.Series(np.arange(frame.height) < frame.height // 2)
    falling = frame.with_columns(clicked=pl.when(first | (pl.col("visitor").hash() % 2 == 0))
                                 .then("clicked").otherwise(0))  # fmt: skip
    known = deniable.worth(written(falling, tmp_path / "known.csv"))
    unknown = deniable.worth(written(falling.drop("propensity"), tmp_path / "unknown.csv"))
    assert known.one_arm.value_low < 0.15 < known.one_arm.value_high
    assert unknown.one_arm.value_low > 0.15


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop("clicked"), "a column of rewards"),
        (lambda frame: frame.with_columns(propensity=0.0), "above 0, up to 1"),
        (lambda frame: frame.with_columns(propensity=1.5), "above 0, up to 1"),
        (lambda frame: frame.with_columns(segment=pl.lit("all")), "2 or more segments"),
        (lambda frame: frame.with_columns(variant=pl.lit("red")), "every segment was shown"),
        (
            lambda frame: frame.with_columns(experiment=pl.col("segment")),
            "one of the log's experiments",
        ),
        (
            lambda frame: frame.drop("visitor", "propensity").with_columns(count=2, clicked=0.7),
            "a row for each visitor",
        ),
    ],
)
def test_bad_logs_are_refused_in_words(change: Any, words: str, tmp_path: Path) -> None:
    log = written(change(exposures(6, 500)), tmp_path / "log.csv")
    with pytest.raises(InvalidArgumentError, match=words):
        deniable.worth(log)


def test_the_report_of_a_log_without_rewards_says_what_is_missing(tmp_path: Path) -> None:
    log = written(exposures(7, 500).drop("clicked"), tmp_path / "log.csv")
    section = leak_sections(measure_leak(log))[0]
    assert "--reward with a column of rewards" in section.text


def test_several_experiments_have_a_row_each(tmp_path: Path) -> None:
    frames = [exposures(8 + n, 4_000).with_columns(experiment=pl.lit(f"e{n}")) for n in range(3)]
    found = measure_leak(written(pl.concat(frames), tmp_path / "log.parquet"))
    assert [worth.experiment for worth in found.worths] == ["e0", "e1", "e2"]
    assert all(worth.confidence == pytest.approx(1 - 0.05 / 3) for worth in found.worths)
    assert len(leak_sections(found)[0].table.rows) == 3


@needs_public_data
def test_hillstrom_personalising_by_past_purchases_does_not_pay() -> None:
    """Visits: +.0002 +-.0035 by 60 random splits in halves; segments differ, best e-mails hardly."""
    file = data_file(None, "hillstrom", "hillstrom.csv.gz")
    roles = {"segment": "mens,womens", "variant": "segment", "reward": "visit"}
    found = deniable.worth(file, columns=roles)
    assert (found.answer, found.arm, found.visitors) == ("does not pay", "Mens E-Mail", 64_000)
    gain = found.no_privacy
    assert gain.low < 0.0002 < gain.high
    assert gain.low > -0.004
    assert gain.high < 0.0037
    assert found.one_arm.value_low < 0.1825 < found.one_arm.value_high
    assert "at most +0.6%" in worth_sentence(found)
