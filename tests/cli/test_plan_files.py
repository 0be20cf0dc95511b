"""`deniable plan --from`: what the planner page saves is what the command line reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deniable.cli import main
from deniable.web.planner_setting import Setting, toml


@pytest.mark.parametrize(
    "setting",
    [
        Setting(budget=1.5),
        Setting(arms=3, visitors=10**6, segments=1, prior=12.5),
        Setting(arms=3, arm_budgets=(0.5, 1, 2)),
        Setting(arms=3, arm_budgets=(0.5, 1, 2), max_belief=50),
        Setting(max_belief=40),
        Setting(base_rate=2, lift=10, heterogeneity=25, per_day=5000),
    ],
)
def test_a_saved_plan_is_read_back(
    setting: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(toml(setting))
    assert main(["plan", "--from", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["horizon"] == setting.visitors
    assert found["n_segments"] == setting.segments
    assert found["prior"] == pytest.approx(setting.prior / 100)
    if setting.arm_budgets:
        assert found["budgets"] == list(setting.arm_budgets)
    else:
        assert found["n_arms"] == setting.arms
    if setting.budget:
        assert found["budget"] == setting.budget
    if setting.max_belief and not setting.arm_budgets:
        allowed = setting.max_belief / 100
        assert 0.99 * allowed < found["recommendation"]["belief"] <= allowed


def test_flags_count_more_than_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(toml(Setting(budget=1.5)))
    assert main(["plan", "--from", str(file), "--budget", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["budget"] == 2
    flags = ("--arms", "7", "--visitors", "1234", "--segments", "3", "--prior", ".4")
    assert main(["plan", "--from", str(file), *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["n_arms"], found["horizon"], found["n_segments"]) == (7, 1234, 3)
    assert (found["prior"], found["budget"]) == (0.4, 1.5)


@pytest.mark.parametrize(
    "text", ["arms = 'two'", "nonsense = 1", "arms = true", "not toml", "visitors = 1000"]
)
def test_bad_files_are_told_in_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(text)
    assert main(["plan", "--from", str(file)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_visitors_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--arms", "2"]) == 2
    assert "visitors" in capsys.readouterr().err
