"""`deniable simulate`: tables, JSON, files, resuming, and one-line errors."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from deniable.cli import main

BASE = ["simulate", "--rates", ".324,.295", "--visitors", "1e4", "--repetitions", "5"]
BASE += ["--workers", "1", "--seed", "1"]
ALL = "constant,dynamic,epsilon-greedy,gittins,random,perfect"


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BASE, "--policies", ALL, "--budget", "3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["visitors"], document["repetitions"], document["seed"]) == (10_000, 5, 1)
    clicks = {row["policy"]: row["clicks"] for row in document["policies"]}
    assert list(clicks) == [
        "constant(3)",
        "dynamic(3)",
        "epsilon-greedy",
        "gittins",
        "random",
        "perfect",
    ]
    assert clicks["perfect"]["low"] < 3240 < clicks["perfect"]["high"] + 60
    assert all(row["low"] <= row["mean"] <= row["high"] for row in clicks.values())
    assert document["policies"][-1]["regret"]["mean"] == 0


def test_table_and_parquet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results.parquet"
    assert main([*BASE, "--policies", "constant,random", "--budget", "1,3", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    for word in ("constant(1)", "constant(3)", "random", "10,000 visitors"):
        assert word in printed
    assert pl.read_parquet(out).height == 3 * 5


def test_both_kernels_and_the_same_seed(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for kernel in ("leap", "leap", "step"):
        main([*BASE, "--policies", "dynamic", "--budget", "1", "--kernel", kernel, "--json"])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


def test_a_scenario_with_flags_over_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.toml"
    path.write_text('rates = [0.3, 0.2]\nvisitors = 500\npolicies = ["random"]\nrepetitions = 3\n')
    assert main(["simulate", str(path), "--seed", "4", "--workers", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["visitors"], document["repetitions"], document["seed"]) == (500, 3, 4)


def test_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*BASE, "--policies", "random", "--resume", str(tmp_path / "run"), "--json"]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    written = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").glob("*.parquet")}
    assert main(arguments) == 0
    assert capsys.readouterr().out == first
    assert written == {
        file: file.stat().st_mtime_ns for file in (tmp_path / "run").glob("*.parquet")
    }


@pytest.mark.parametrize("ending", ["svg", "png", "pdf", "html"])
def test_chart(ending: str, tmp_path: Path) -> None:
    target = tmp_path / f"chart.{ending}"
    assert main([*BASE, "--policies", ALL, "--budget", "3", "--chart", str(target)]) == 0
    assert target.stat().st_size > 5000
    if ending == "svg":
        text = target.read_text()
        for word in ("Clicks of 10,000 visitors", "clicks lost", "dynamic(3)"):
            assert word in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rates", ".3"], "rates="),
        (["--rates", ".3,x"], "rates="),
        (["--visitors", "0"], "visitors="),
        (["--visitors", "1e13"], "visitors="),
        (["--policies", "softmax"], "policies="),
        (["--delay", "-1"], "delay="),
        (["--values", "1,2,3"], "values="),
        (["--values", "much"], "values="),
        (["--policies", "gittins", "--delay", "3"], "delay="),
        (["--policies", "thompson", "--values", "3"], "values="),
        (["--policies", "ucb", "--values", "3"], "values="),
        (["--budget", "-1"], "budget="),
        (["--policies", "arm-constant"], "budgets="),
        (["--policies", "arm-constant", "--budgets", "1,2,3"], "budgets="),
        (["--kernel", "jump"], "kernel="),
        (["--out", "x.csv"], "out="),
        (["--chart", "x.gif"], "chart="),
        (["--repetitions", "0"], "repetitions="),
        (["missing.toml"], "missing.toml"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*BASE, *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert error.count("\n") == 1


def test_rivals_late_rewards_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    names = "thompson,thompson-response,ucb,ucb-response,constant"
    few = ["simulate", "--rates", ".5,.2", "--visitors", "300", "--repetitions", "2"]
    few += ["--workers", "1", "--policies", names]
    assert main([*few, "--delay", "5", "--values", ".25", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {row["policy"]: row for row in document["policies"]}
    assert list(rows) == [
        "thompson",
        "thompson-response(1)",
        "ucb",
        "ucb-response(1)",
        "constant(1)",
    ]
    for row in rows.values():
        assert row["reward"]["mean"] == pytest.approx(0.25 * row["clicks"]["mean"])
    some = [*few[:-2], "--policies", "constant,random", "--values", "2,1", "--value-spread", ".3"]
    assert main(some) == 0
    assert "reward" in capsys.readouterr().out


def test_a_scenario_with_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.toml"
    path.write_text(
        """
        horizon = 20
        policies = ["perfect", "random"]
        repetitions = 3
        [rates]
        old = 1.0
        new = 0.0
        [[changes]]
        visitor = 11
        rates = { new = 1.0, old = 0.0 }
        [values]
        new = 3.0
        old = 1.0
        """
    )
    assert main(["simulate", str(path), "--workers", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["visitors"] == 20
    perfect = document["policies"][0]
    assert (perfect["clicks"]["mean"], perfect["reward"]["mean"]) == (20, 40)
