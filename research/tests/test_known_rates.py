"""The worth of knowing click rates: on drawn experiments, on a file, and loudly without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deniable.expectations.prior import Prior
from research.__main__ import main
from research.known_rates import compare


def drawn(count: int, seed: int) -> list[dict[str, Any]]:
    """Tests of very different base rates and arms, with visitors that say nothing about them."""
    rng = np.random.default_rng(seed)
    rows = []
    for test in range(count):
        arms, shows = int(rng.integers(2, 9)), int(10 ** rng.uniform(3.5, 5))
        rate = float(10 ** rng.uniform(-2.5, -0.5))
        clicks = rng.binomial(shows, Prior(rate, 0.15, 0).draw(arms, 1, 1, rng)[0, 0])
        rows += [
            {"experiment": test, "arm": arm, "shows": shows, "clicks": int(own)}
            for arm, own in enumerate(clicks)
        ]
    return rows


def test_base_rates_are_worth_clicks_and_the_truth_more() -> None:
    fitted, table = compare(drawn(80, seed=1), (5.0, 15.0, 40.0))
    assert fitted.lift == pytest.approx(0.15, rel=0.25)
    assert table[0].by_base_rate > 1.05 * table[0].by_bound
    for line in table:
        assert line.by_base_rate >= line.by_bound
        assert line.by_truth >= max(line.by_base_rate, line.by_fitted_lift) * (1 - 1e-3)


def test_an_archive_of_headlines_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "headlines.csv"
    lines = [f"{r['experiment']},x,{r['shows']},{r['clicks']}" for r in drawn(20, seed=2)]
    path.write_text("clickability_test_id,headline,impressions,clicks\n" + "\n".join(lines))
    assert main(["known-rates", str(path)]) == 0
    told = capsys.readouterr().out
    assert "10 past experiments" in told
    assert len(told.splitlines()) == 7


def test_without_data_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("DENIABLE_DATA", raising=False)
    few, other = tmp_path / "few.csv", tmp_path / "other.csv"
    few.write_text("experiment,arm,shows,clicks\na,1,10,2\n")
    other.write_text("experiment,arm,clicks\na,1,2\n")
    for file in ([], [str(tmp_path / "none.csv")], [str(few)], [str(other)]):
        assert main(["known-rates", *file]) == 2
        assert capsys.readouterr().err.count("error: ") == 1
