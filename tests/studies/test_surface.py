"""Making the surface of expected gains: runs go on where they were, fits find a known curve."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from deniable.expectations.surface import Question, reach
from deniable.studies import surface, surface_runs


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface_runs, "CHUNK", 40)


def test_runs_go_on_where_they_were(tmp_path: Path) -> None:
    wanted = {"random": 3}
    first = list(surface_runs.make_runs(tmp_path, wanted, seconds=-1))
    assert first == []  # no time: nothing is begun
    runs = surface_runs.make_runs(tmp_path, wanted)
    assert next(runs)[:2] == ("random", 0)
    del runs  # interrupted
    again = [(name, number) for name, number, _ in surface_runs.make_runs(tmp_path, wanted)]
    assert again == [("random", 1), ("random", 2)]
    asked, lost, gain, known = surface_runs.read_runs(tmp_path, "random")
    assert lost.shape == gain.shape == known.shape == (120,)
    assert (lost == surface_runs.make_chunk("random", 0)[:, -3].tolist()
            + surface_runs.make_chunk("random", 1)[:, -3].tolist()
            + surface_runs.make_chunk("random", 2)[:, -3].tolist()).all()  # fmt: skip
    low, high = surface_runs.SIGNALS
    assert ((asked.signal >= low) & (asked.signal <= high)).all()


def test_random_arms_lose_the_gain_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface_runs, "CHUNK", 3000)
    rows = surface_runs.make_chunk("random", 0)
    assert rows[:, -3].mean() == pytest.approx(1, abs=0.03)


def test_a_run_loses_between_nothing_and_a_bit_more_than_everything() -> None:
    rng = np.random.default_rng(3)
    for asked in surface_runs.draw_questions("constant", 5, rng):
        lost, gain, known = surface_runs.run_row("constant", asked, rng)
        assert 0 <= known <= gain
        assert 0 <= lost < 4


def test_the_fit_finds_a_curve_that_it_can_have() -> None:
    """Rows of a known share with noise: the fit is nearer than the noise of any row."""
    rng = np.random.default_rng(5)
    drawn = surface_runs.draw_questions("constant", 4000, rng)
    asked = Question.of(
        **{name: [float(getattr(one, name)) for one in drawn] for name in surface_runs.FIELDS}
    )
    slope = 0.6 * (np.log(asked.signal / asked.segments) - 1.2 * np.log(asked.arms))
    true = reach("constant", asked) / (1 + np.exp(-slope))
    gain = rng.gamma(9, 1 / 9, true.shape)
    lost = (1 - true) * gain * np.exp(0.2 * rng.standard_normal(true.shape) - 0.02)
    known = (1 - reach("constant", asked)) * gain
    found = surface.fit_entry("constant", asked, lost, gain, known)
    error = found.shares(asked) - true
    assert np.sqrt(np.mean(error**2)) < 0.02
    low, high = found.spreads(asked)
    inside = (lost >= low * (1 - true)) & (lost <= high * (1 - true))
    assert inside.mean() == pytest.approx(0.8, abs=0.04)


def test_the_command_tells_what_it_made(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        surface.app, ["make", "--folder", str(tmp_path), "--only", "random", "--files", "2"]
    )
    assert done.exit_code == 0, done.output
    assert "random 2:" in done.output
    assert len(list(tmp_path.glob("random-*.npy"))) == 2
