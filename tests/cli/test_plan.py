"""`deniable plan` as a stranger calls it: in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE

from deniable.cli import COMMANDS, main


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deniable", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_prints_the_plan_for_a_person() -> None:
    options = "--arms 2 --visitors 100000 --segments 1 --prior .2 --budget 1"
    done = run("plan", *options.split())
    assert done.returncode == 0, done.stderr
    for words in ("0.084 to 0.405", "too random", "Recommended: budget", "best budget", "53.8%"):
        assert words in done.stdout


def test_json_is_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    options = "plan --arms 2 --visitors 1e4 --segments 1 --budget 1 --json"
    assert main(options.split()) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["strategies"]["constant"]["regret"] == pytest.approx(8689.255, abs=5e-4)
    assert told["horizon"] == 10_000
    assert told["prior"] == 0.2  # unless somebody says otherwise


def test_without_a_budget_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--arms", "5", "--visitors", "1000000", "--segments", "2"]) == 0
    out = capsys.readouterr().out
    assert "above the" in out
    assert "349,818" in out  # the constant bound at budget 3, of two segments


def test_bounds_are_shown_on_request_where_clicks_are_expected(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["plan", "--arms", "4", "--visitors", "1e6", "--base-rate", ".05"]
    assert main(options) == 0
    short = capsys.readouterr().out
    assert "regret bound" not in short.rpartition("--bounds shows regret bounds")[0]
    assert "Recommended: no personalisation" in short
    assert "To personalise this experiment alone: budget" in short
    assert main([*options, "--bounds"]) == 0
    long = capsys.readouterr().out
    assert "elasticity of the bound" in long
    assert "--bounds" not in long


def test_shares(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--arms", "2", "--visitors", "1e5", "--shares", ".7,.3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shares"] == [0.7, 0.3]


def test_arm_budgets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--visitors", "10000", "--arm-budgets", ".5,1,2"]) == 0
    out = capsys.readouterr().out
    assert "0.775" in out
    assert "69.5%" in out


@pytest.mark.parametrize(
    ("ending", "start"),
    [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF"), ("html", b"<!DOCTYPE html>")],
)
def test_draws_every_format(tmp_path: Path, ending: str, start: bytes) -> None:
    target = tmp_path / f"plan.{ending}"
    assert main(["plan", "--arms", "2", "--visitors", "1000", "--chart", str(target)]) == 0
    content = target.read_bytes().lstrip()
    assert content.startswith(start)
    if ending == "html":  # carries its scripts inside
        assert b"src=" not in content[:2000]
        assert b"cdn" not in content[:2000]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("plan --arms 1 --visitors 100", "arms='1'"),
        ("plan --arms 2.5 --visitors 100", "arms='2.5'"),
        ("plan --arms 2 --visitors 0", "visitors='0'"),
        ("plan --arms 2 --visitors many", "visitors='many'"),
        ("plan --arms 2 --visitors 100 --budget -1", "budget=-1:"),
        ("plan --arms 2 --visitors 100 --budget nan", "budget=nan"),
        ("plan --arms 2 --visitors 100 --budget inf", "budget=inf"),
        ("plan --arms 2 --visitors 100 --prior 2", "prior=2:"),
        ("plan --arms 2 --visitors 100 --segments 0", "segments='0'"),
        ("plan --arms 3 --visitors 100 --arm-budgets 1,2", "arm_budgets='1,2'"),
        ("plan --visitors 100 --arm-budgets 1,x", "arm_budgets='1,x'"),
        ("plan --visitors 100 --arm-budgets 1,0", "arm_budgets="),
        ("plan --visitors 100 --arm-budgets 1,2 --budget 1", "budget=1.0"),
        ("plan --visitors 100", "arms=None"),
        ("plan --arms 2 --visitors 100 --chart plan.gif", "chart='plan.gif'"),
        ("plan --arms 2 --visitors 100 --chart no/such/folder/plan.svg", "chart="),
        ("plan --arms 2", "--visitors"),
        ("plan --arms 2 --visitors 100 --shares .5,.4", "shares=[0.5, 0.4]"),
        ("plan --arms 2 --visitors 100 --segments 3 --shares .5,.5", "shares=[0.5, 0.5]"),
        ("plan --visitors 100 --arm-budgets 1,2 --shares .5,.5", "shares='.5,.5'"),
        ("plan --arms 2 --visitors 100 --base-rate 0", "base_rate=0"),
        ("plan --arms 2 --visitors 100 --base-rate 1.5", "base_rate=1.5"),
        ("plan --arms 2 --visitors 100 --lift .1", "lift=0.1"),
        ("plan --arms 2 --visitors 100 --heterogeneity .1", "heterogeneity=0.1"),
        ("plan --arms 2 --visitors 100 --per-day 10", "per_day='10'"),
        ("plan --arms 2 --visitors 100 --base-rate .1 --heterogeneity 2", "heterogeneity=2"),
        ("plan --arms 2 --visitors 100 --base-rate .1 --lift 0", "lift=0"),
        ("plan --arms 2 --visitors 100 --base-rate .1 --per-day 0", "per_day='0'"),
        ("plan --visitors 100 --arm-budgets 1,2 --base-rate .1", "base_rate=0.1"),
        ("plan --colour", "--colour"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    arguments: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert named in err


def test_help_lists_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(f"  {name}" in done.stdout for name in COMMANDS)
    assert run().stdout == done.stdout


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


def test_version() -> None:
    assert run("--version").stdout.startswith("deniable 0.")


def test_help_and_import_load_nothing_heavy() -> None:
    heavy = ("numpy", "typer", "rich", "altair", "polars", "scipy", "numba")
    code = (
        "import sys, deniable, deniable.cli; deniable.cli.main(['--help']); "
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.splitlines()[-1] == "[]"
