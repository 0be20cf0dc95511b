"""Visitors joined over experiments, against a plain recomputation from the log's rows."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.leak.logs import SEGMENTS, SHARES, TRUTH, VARIANTS, visits, written

from deniable.leak.report import Leak, measure_leak


def read(frame: pl.DataFrame, folder: Path, **options: float) -> Leak:
    return measure_leak(written(frame, folder / "log.csv"), **options)  # type: ignore[arg-type]


def first_exposures(frame: pl.DataFrame) -> dict[str, dict[str, tuple[str, str]]]:
    """Visitor -> experiment -> (segment, variant), the earliest of each."""
    found: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for row in frame.sort("time", maintain_order=True).iter_rows(named=True):
        found[row["visitor"]].setdefault(row["experiment"], (row["segment"], row["variant"]))
    return found


def test_a_visitor_counts_once_with_the_first_variant(tmp_path: Path) -> None:
    log = visits(3, 3_000)
    again = log.head(1_000).with_columns(variant=pl.lit("red"), time=pl.col("time") + 10_000_000)
    frame = pl.concat([again, log])  # the repeats stand first in the file, but come later
    found = read(frame, tmp_path)
    firsts = first_exposures(frame)
    assert found.tally.visitors == len(firsts)
    expected = Counter(
        (experiment, *cell) for met in firsts.values() for experiment, cell in met.items()
    )
    for counts in found.tally.experiments:
        for s, segment in enumerate(counts.segments):
            for v, variant in enumerate(counts.variants):
                assert counts.total[s, v] == expected[counts.experiment, segment, variant]
    changed = again.join(log, on=["visitor", "experiment"]).filter(pl.col("variant_right") != "red")
    assert found.tally.changed_variant == changed.height
    # Without times the order of the file decides: the repeats would be first.
    naive = measure_leak(tmp_path / "log.csv", columns={"time": "-"})
    assert any(
        not np.array_equal(a.total, b.total)
        for a, b in zip(naive.tally.experiments, found.tally.experiments, strict=True)
    )


def test_moves_are_the_products_of_the_likelihoods(tmp_path: Path) -> None:
    frame = visits(4, 2_000)
    found = read(frame, tmp_path)
    assert found.joint is not None
    smoothed = {c.experiment: c.total + 0.5 for c in found.tally.experiments}
    chances = {name: n / n.sum(axis=1, keepdims=True) for name, n in smoothed.items()}
    limits = {leak.experiment: leak for leak in found.experiments}
    moved, proven = [], []
    for met in first_exposures(frame).values():
        likelihood, low, high = (np.ones(len(SEGMENTS)) for _ in range(3))
        for experiment, (_, variant) in met.items():
            place = VARIANTS.index(variant)
            likelihood *= chances[experiment][:, place]
            low *= limits[experiment].low[:, place]
            high *= limits[experiment].high[:, place]
        moved.append(likelihood.max() / likelihood.min())
        proven.append(max(low.max() / high.min(), 1))
    assert found.joint.visitors == len(moved)
    assert found.joint.met_most == 3
    assert found.joint.most == pytest.approx((max(moved), max(proven)))
    for quantile, pair in found.joint.moved.items():
        for told, every in zip(pair, (moved, proven), strict=True):
            exact = np.quantile(every, quantile, method="inverted_cdf")
            assert math.log(told) == pytest.approx(math.log(exact), abs=0.0101)  # bins of .01 nats


def test_joining_guesses_as_bayes_rule_would(tmp_path: Path) -> None:
    """With everybody in all experiments, the true score is a sum over all patterns."""
    found = read(visits(5, 60_000, met=1.1), tmp_path, confidence=1 - 1e-9)
    patterns = np.einsum("s,sa,sb,sc->sabc", SHARES, TRUTH, TRUTH, TRUTH)
    best = patterns.max(axis=0).sum()
    assert found.joint is not None
    guesses = found.joint.guesses
    assert guesses.after.low < best < guesses.after.high
    assert guesses.before == pytest.approx(0.5, abs=0.02)
    single = (SHARES[:, None] * TRUTH).max(axis=0).sum()
    for leak in found.experiments:
        assert leak.guesses is not None
        assert leak.guesses.after.low < single < leak.guesses.after.high
        assert not leak.guesses.after.low < best < leak.guesses.after.high  # it can tell the two


def test_beliefs_in_the_true_segment(tmp_path: Path) -> None:
    found = read(visits(6, 60_000, met=1.1), tmp_path)
    joint = np.einsum("s,sa,sb,sc->sabc", SHARES, TRUTH, TRUTH, TRUTH)
    belief = joint / joint.sum(axis=0)
    assert found.joint is not None
    for s, told in enumerate(found.joint.beliefs):
        mean = (joint[s] * belief[s]).sum() / SHARES[s]
        assert told.segment == SEGMENTS[s]
        assert told.mean == pytest.approx(
            mean, abs=0.02
        )  # 5 standard errors of the smallest segment
        assert told.top_tenth > told.mean > told.before


def test_visitors_with_several_segments_are_left_out(tmp_path: Path) -> None:
    frame = visits(7, 1_000)
    other = pl.when(pl.col("experiment") == "e0").then(pl.lit("premium")).otherwise("segment")
    found = read(frame.with_columns(segment=other), tmp_path)
    assert found.joint is not None
    assert found.joint.left_out > 300
    assert found.joint.left_out + found.joint.visitors == found.tally.visitors
    assert "e0" in found.unmeasured


def test_one_experiment_is_not_joined(tmp_path: Path) -> None:
    assert read(visits(8, 500, experiments=1), tmp_path).joint is None


def test_variants_that_tell_nothing_leave_the_odds_alone(tmp_path: Path) -> None:
    """The planted opposite: the same table for every segment proves nothing, jointly either."""
    found = read(visits(9, 20_000, truth=np.tile(TRUTH[0], (3, 1))), tmp_path)
    assert found.joint is not None
    assert found.joint.most[1] == 1
    assert found.experiments[0].ratio.low == 1
    assert found.joint.guesses.after.value == pytest.approx(0.5, abs=0.02)
