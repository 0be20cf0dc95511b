"""`deniable layers`, and what is known about experiments in `deniable allocate`."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import polars as pl
import pytest

from deniable.cli import main
from deniable.portfolio.allocation import allocate
from deniable.portfolio.layers import design_layers
from deniable.portfolio.table import read_portfolio

CSV = """id,arms,visitors,base_rate,lift,heterogeneity,shares,value
home,20,800000,0.05,0.1,,,
search,12,500000,0.12,0.1,0.2,0.5/0.3/0.2,
cart,3,200000,0.3,,,,4
"""


@pytest.fixture
def firm(tmp_path: Path) -> str:
    path = tmp_path / "firm.csv"
    path.write_text(CSV)
    return str(path)


def test_layers_are_the_librarys(firm: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layers", firm, "--firm-budget", "2", "--regime", "constant", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    design = design_layers(read_portfolio(firm), 2, regime="constant")
    assert told == json.loads(json.dumps(design.to_dict()))
    assert [point["layers"] for point in told["curve"]] == [1, 2, 3]


def test_layers_are_told_written_and_drawn(
    firm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, chart = tmp_path / "layers.csv", tmp_path / "layers.svg"
    line = ["layers", firm, "--firm-budget", "2", "--out", str(out), "--chart", str(chart)]
    assert main(line) == 0
    told = capsys.readouterr().out
    assert "3 experiments, firm budget 2" in told
    assert "What if there were more, or fewer" in told
    assert set(pl.read_csv(out)["id"]) == {"home", "search", "cart"}
    assert chart.read_text().startswith("<svg")
    assert main(["layers", firm, "--firm-budget", "2", "--out", str(tmp_path / "l.json")]) == 0
    assert json.loads((tmp_path / "l.json").read_text())["firm_budget"] == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--firm-budget", "-1"], "firm_budget=-1"),
        (["--firm-budget", "2", "--meets", "0"], "meets=0"),
        (["--firm-budget", "2", "--together", "home,nobody"], "together='nobody'"),
        (["--firm-budget", "2", "--regime", "best"], "regime='best'"),
        (["--firm-budget", "2", "--out", "layers.txt"], "ends in .csv or .json"),
        ([], "firm-budget"),
    ],
)
def test_mistakes_are_one_line(
    firm: str, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["layers", firm, *options]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1


def test_what_is_impossible_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "least.csv"
    path.write_text(
        CSV.replace("value", "min_budget").replace(",4\n", ",1\n").replace(",\n", ",1\n")
    )
    assert main(["layers", str(path), "--firm-budget", "2"]) == 0
    told = capsys.readouterr().out
    assert "Every visitor in every experiment is impossible" in " ".join(told.split())
    assert main(["layers", str(path), "--firm-budget", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["one_sum_loss"] is None
    assert [point["loss"] is None for point in found["curve"]] == [False, False, True]
    assert main(["layers", str(path), "--firm-budget", "0.5"]) == 2
    assert "largest least budget" in capsys.readouterr().err


def test_layers_need_base_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bare.csv"
    path.write_text("id,arms,visitors\na,2,100\n")
    assert main(["layers", str(path), "--firm-budget", "1"]) == 2
    assert "a file with a column base_rate" in capsys.readouterr().err


def test_allocate_is_judged_by_what_is_known(firm: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["allocate", firm, "--firm-budget", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = allocate(read_portfolio(firm), 2)
    assert told["objective"] == "expected"
    assert told["total_regret"] == found.total_regret
    assert main(["allocate", firm, "--firm-budget", "2"]) == 0
    words = capsys.readouterr().out
    assert "judged by the expected loss" in words
    assert re.search(r"2 experiments\s+name no segments", words)
    assert main(["allocate", firm, "--firm-budget", "2", "--objective", "bound"]) == 0
    assert "judged by the regret bound" in capsys.readouterr().out
    assert main(["allocate", firm, "--firm-budget", "2", "--objective", "clicks"]) == 2
    assert "objective='clicks'" in capsys.readouterr().err


PAGE = Path(__file__).parents[2] / "docs" / "layers.md"


@pytest.mark.parametrize("line", re.findall(r"^\$ deniable (.+)$", PAGE.read_text("utf-8"), re.M))
def test_the_guides_commands_run(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = re.search(r"^```csv\n(.*?)^```", PAGE.read_text("utf-8"), re.S | re.M)
    assert table is not None
    (tmp_path / "firm.csv").write_text(table.group(1))
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)) == 0, capsys.readouterr().err
