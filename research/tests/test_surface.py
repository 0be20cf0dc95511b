"""Making the surface of expected gains: runs go on where they were, fits find a known curve."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.neural_network import MLPRegressor
from typer.testing import CliRunner

from deniable.expectations import surface as shipped
from deniable.expectations.curves import Network, read_curve
from deniable.expectations.expected import expected_loss
from deniable.expectations.prior import highest_lift
from deniable.expectations.surface import LEAST_ROOM, Entry, Question, reach
from research import surface, surface_check, surface_runs
from research.surface_luck import expected_rows


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface_runs, "CHUNK", 40)
    monkeypatch.setattr(surface_check, "ROUND", 25)
    monkeypatch.setattr(surface_check, "FEWEST", 50)


def test_runs_go_on_where_they_were(tmp_path: Path) -> None:
    wanted = {"random": 3}
    first = list(surface_runs.make_runs(tmp_path, wanted, seconds=-1))
    assert first == []  # no time: nothing is begun
    runs = surface_runs.make_runs(tmp_path, wanted)
    assert next(runs)[:2] == ("random", 0)
    del runs  # interrupted
    again = [(name, number) for name, number, _ in surface_runs.make_runs(tmp_path, wanted)]
    assert again == [("random", 1), ("random", 2)]
    asked, rows = surface_runs.read_runs(tmp_path, "random")
    made = np.concatenate([surface_runs.make_chunk("random", number) for number in range(3)])
    at = dict(zip(surface_runs.COLUMNS, made.T, strict=True))
    room = highest_lift(at["base_rate"], at["lift"]) >= LEAST_ROOM
    assert 0 < (~room).sum() < 5  # rates that are clipped tell of another curve
    assert rows.lost.tolist() == at["lost"][room].tolist()
    low, high = surface_runs.SIGNALS
    assert ((asked.signal >= low) & (asked.signal <= high)).all()


def test_random_arms_lose_the_gain_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface_runs, "CHUNK", 3000)
    rows = surface_runs.make_chunk("random", 0)
    place = surface_runs.COLUMNS.index("lost")
    assert rows[:, place].mean() == pytest.approx(1, abs=0.03)


def test_a_run_loses_between_nothing_and_a_bit_more_than_everything() -> None:
    rng = np.random.default_rng(3)
    for asked in surface_runs.draw_questions("constant", 5, rng):
        row = surface_runs.run_row("constant", asked, rng)
        assert 0 <= row.known <= row.gain
        assert 0 <= row.lost < 4


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
    unjudged = np.full(true.shape, np.nan)
    rows = surface_runs.Rows(lost, gain, known, unjudged, unjudged, unjudged)
    found = surface.fit_entry("constant", asked, rows)
    error = found.shares(asked) - true
    assert np.sqrt(np.mean(error**2)) < 0.02
    low, high = found.spreads(asked)
    inside = (lost >= low * (1 - true)) & (lost <= high * (1 - true))
    assert inside.mean() == pytest.approx(0.8, abs=0.04)


def test_a_look_on_the_way_is_a_run_with_fewer_visitors() -> None:
    """Not only in law: from the same random numbers it is the very run that ends there."""
    (asked,) = surface_runs.draw_questions("constant", 1, np.random.default_rng(4))
    looks = surface_runs.looks_of(asked, np.random.default_rng(1))
    visitors = [float(look.visitors) for look in looks]
    assert visitors == sorted(set(visitors))
    assert visitors[-1] == float(asked.visitors)
    for seed in range(20):
        seen = surface_runs.run_rows("constant", looks, np.random.default_rng(seed))
        ended = surface_runs.run_row("constant", looks[0], np.random.default_rng(seed))
        assert seen[0] == ended
        assert len({row.lost for row in seen}) == len(looks)  # every look sees something else


def test_the_package_evaluates_networks_as_the_library_does() -> None:
    """Also after they were a file."""
    rng = np.random.default_rng(1)
    points = rng.uniform(-1, 1, (500, 2))
    true = np.sin(3 * points[:, 0]) * points[:, 1] + 1
    models = [
        MLPRegressor(
            hidden_layer_sizes=(12, 12),
            activation="tanh",
            solver="lbfgs",
            max_iter=5000,
            random_state=seed,
        )
        for seed in range(2)
    ]
    predicted = np.mean([model.fit(points, true).predict(points) for model in models], axis=0)
    assert np.abs(predicted - true).max() < 0.1
    network = Network(("x", "y"), np.full(2, -1.0), np.ones(2), surface._layers(models))
    stored = read_curve(json.loads(json.dumps(network.stored())))
    at = {"x": points[:, 0], "y": points[:, 1]}
    assert network(at) == pytest.approx(predicted, abs=1e-9)
    assert stored(at) == pytest.approx(predicted, abs=1e-3)


def test_a_surface_is_made_from_nothing_and_the_package_reads_it(tmp_path: Path) -> None:
    """A few hundred runs of each strategy are enough to be near the surface that ships."""
    rows, target = str(tmp_path / "rows"), tmp_path / "surface.json"
    made = CliRunner().invoke(surface.app, ["make", "--folder", rows, "--files", "4"])
    assert made.exit_code == 0, made.output
    done = CliRunner().invoke(surface.app, ["fit", "--folder", rows, "--target", str(target)])
    assert done.exit_code == 0, done.output
    assert list(json.loads(target.read_text())["entries"]) == list(surface_runs.names())
    sizes: dict[str, Any] = {
        "n_arms": np.array([2, 5, 12]),
        "horizon": 300_000,
        "n_segments": 3,
        "lift": 0.1,
    }
    for name in ("constant", "dynamic", "joint", "pooled"):
        before = expected_loss(name, **sizes, base_rate=0.05, budgets=2.0)
        with shipped.reading(target):
            after = expected_loss(name, **sizes, base_rate=0.05, budgets=2.0)
        gain = expected_loss("random", **sizes, base_rate=0.05).lost
        assert not np.array_equal(after.lost, before.lost)
        assert (np.abs(after.lost - before.lost) < 0.12 * gain).all(), name


def test_the_command_tells_what_it_made(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        surface.app, ["make", "--folder", str(tmp_path), "--only", "random", "--files", "2"]
    )
    assert done.exit_code == 0, done.output
    assert "random 2:" in done.output
    assert len(list(tmp_path.glob("random-*.npy"))) == 2


def test_one_surface_can_be_fitted_and_the_others_kept(tmp_path: Path) -> None:
    shipped = files("deniable.expectations").joinpath("surface.json").read_text(encoding="utf-8")
    target = tmp_path / "surface.json"
    target.write_text(shipped, encoding="utf-8")
    folder = str(tmp_path / "rows")
    CliRunner().invoke(
        surface.app, ["make", "--folder", folder, "--only", "random", "--files", "3"]
    )
    done = CliRunner().invoke(
        surface.app, ["fit", "--folder", folder, "--target", str(target), "--only", "random"]
    )
    assert done.exit_code == 0, done.output
    before, after = (json.loads(text)["entries"] for text in (shipped, target.read_text()))
    assert list(before) == list(after)
    changed = [name for name in before if before[name] != after[name]]
    assert changed == ["random"]


def test_a_copy_is_fitted_relative_to_its_own_surfaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to the package's: joint begins at one bandit for everybody, as the copy has it."""
    stored = json.loads(files("deniable.expectations").joinpath("surface.json").read_text("utf-8"))
    for network in stored["entries"]["pooled"]["share"]["layers"][-1]:
        network[-1][0] += 1.0
    target = tmp_path / "surface.json"
    target.write_text(json.dumps(stored), encoding="utf-8")
    list(surface_runs.make_runs(tmp_path, {"joint": 1}))
    (asked,) = surface_runs.draw_questions("joint", 1, np.random.default_rng(1))
    before = float(shipped.start("joint", asked).score)
    seen = []

    def fit(name: str, *_: object) -> Entry:
        seen.append(float(shipped.start(name, asked).score))
        return shipped.surface()[name]

    monkeypatch.setattr(surface, "fit_entry", fit)
    options = ["--folder", str(tmp_path), "--target", str(target), "--only", "joint"]
    done = CliRunner().invoke(surface.app, ["fit", *options])
    assert done.exit_code == 0, done.output
    assert seen == pytest.approx([before + 1])
    assert float(shipped.start("joint", asked).score) == before


def test_several_processes_share_the_files(tmp_path: Path) -> None:
    parts = [surface_runs.make_runs(tmp_path, {"random": 5}, part=(i, 2)) for i in range(2)]
    assert [[number for _, number, _ in made] for made in parts] == [[0, 2, 4], [1, 3]]


def test_rows_of_joint_lie_a_bit_beyond_its_domain() -> None:
    rng = np.random.default_rng(1)
    drawn = surface_runs.draw_questions("joint", 400, rng, fitted=True)
    domain = shipped.domain_of("joint")
    for field, (low, high) in (
        ("visitors", domain.visitors),
        ("lift", domain.lifts),
        ("budget", (0.0, domain.budget)),
    ):
        values = np.array([float(getattr(one, field)) for one in drawn])
        beyond = (values < low) | (values > high)
        assert 0 < beyond.mean() < 0.2
        assert (values >= low / surface_runs.BEYOND).all()
        assert (values <= high * surface_runs.BEYOND).all()
    checked = surface_runs.draw_questions("joint", 50, rng)
    assert all(shipped.usual("joint", one) for one in checked)


def test_checks_go_on_where_they_were_and_end_where_luck_is_small(tmp_path: Path) -> None:
    """Priors whose noise is small get no more runs, and a second look makes none."""
    priors = surface_check.priors_of("constant", 4, 3)
    rounds = list(surface_check.make_checks(tmp_path, "constant", priors, 3, np.inf, 0.03))
    assert len(rounds) >= 2
    assert all(one.noise <= 0.03 for one in rounds[-1])
    made = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = list(surface_check.make_checks(tmp_path, "constant", priors, 3, -1, 0.03))
    assert [one.found for one in again[-1]] == [one.found for one in rounds[-1]]
    assert made == {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert "4 priors" in surface_check.summary("constant", again[-1])


def test_taking_luck_off_leaves_the_mean_and_less_noise() -> None:
    """At one prior: the mean of many plain runs, within their noise, and a part of their spread."""
    (asked,) = surface_runs.draw_questions("dynamic", 1, np.random.default_rng(8))
    rng = np.random.default_rng(2)
    each = np.array([surface_runs.run_row("dynamic", asked, rng) for _ in range(300)])
    rows = surface_runs.Rows(*each.T)
    plain = 1 - rows.lost
    for share in (0.1, 0.4):  # whatever it is thought to be
        found = expected_rows("dynamic", share, asked, rows)
        assert found.mean() == pytest.approx(plain.mean(), abs=4 * plain.std() / 300**0.5)
        assert found.std() < 0.7 * plain.std()
