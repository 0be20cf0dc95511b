"""`deniable allocate` as a stranger calls it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from tests.patience import PATIENCE

from deniable.cli import main
from deniable.portfolio.allocation import allocate
from deniable.portfolio.table import read_portfolio

CSV = "id,arms,visitors\nA,2,1000\nB,2,10000\n"
KNOWN_RATES = """id,arms,visitors,base_rate,lift,heterogeneity,shares,value
home,20,800000,0.05,0.1,,,
search,12,500000,0.12,0.1,0.2,0.5/0.3/0.2,
cart,3,200000,0.3,,,,4
"""


@pytest.fixture
def portfolio(tmp_path: Path) -> str:
    path = tmp_path / "portfolio.csv"
    path.write_text(CSV)
    return str(path)


def test_in_a_process_of_its_own(portfolio: str) -> None:
    command = [sys.executable, "-m", "deniable", "allocate", portfolio, "--firm-budget", "4"]
    command += ["--form", "paper"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    b, a = (
        next(i for i, line in enumerate(lines) if line.split()[:2] == [name, "2"]) for name in "BA"
    )
    assert b < a, "the largest budget comes first"
    assert "2.728852" in lines[b]
    assert "1.271148" in lines[a]
    for words in (
        "19.5% less",
        "57.7% less",
        "lambda",
        "277",
        "Certified: at most",
        "equal split",
    ):
        assert words in done.stdout


def test_json_has_everything(portfolio: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--firm-budget", "1.5", "--regime", "dynamic", "--json", "--compare", "--what-if"]
    options += ["--form", "paper", "--share", ".9", "--participation", ".1"]
    assert main(["allocate", portfolio, *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [e["id"] for e in told["experiments"]] == ["B", "A"]
    assert [e["budget"] for e in told["experiments"]] == [1.5, 0.0]
    assert told["certified"] is True
    assert told["lower_bound"] <= told["total_regret"]
    assert told["rules"][0]["rule"] == "optimal"
    assert told["what_if"]["total_regret"][0] > told["what_if"]["total_regret"][-1]
    assert told["budget_for_share"]["firm_budget"] == pytest.approx(2.7, abs=0.01)
    assert told["realized_risk"]["worst_case"] == 1.5
    assert told["realized_risk"]["quantiles"]["0.999"] == 1.5


def test_every_extra_is_told_to_people(portfolio: str, capsys: pytest.CaptureFixture[str]) -> None:
    extras = ["--compare", "--what-if", "--share", "0.5", "--participation", "0.1"]
    extras += ["--form", "paper"]
    assert main(["allocate", portfolio, "--firm-budget", "2", *extras]) == 0
    told = capsys.readouterr().out
    for words in ("best budgets", "What if", "share of the largest gain", "Least budget",
                  "Realized risk", "Worst case 2 nats", "Certificate"):  # fmt: skip
        assert words in told


def test_writes_a_table_and_a_chart(
    portfolio: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, chart = tmp_path / "allocation.csv", tmp_path / "allocation.svg"
    options = ["--firm-budget", "4", "--out", str(out), "--chart", str(chart), "--compare"]
    assert main(["allocate", portfolio, *options, "--form", "paper"]) == 0
    assert pl.read_csv(out)["budget_nano"].sum() == 4_000_000_000
    drawing = chart.read_text()
    for words in ("Where the next nat helps most", "What another budget would change",
                  "Against simpler rules", "Budgets: 4 of 4 nats", "lambda: "):  # fmt: skip
        assert words in drawing
    assert str(out) in capsys.readouterr().err


def test_several_segments_get_the_joint_strategy_and_one_needs_no_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "segments.csv"
    path.write_text("id,arms,visitors,segments\nA,2,400000,2\nB,5,1000000,3\nalone,5,1000000,1\n")
    assert main(["allocate", str(path), "--firm-budget", "4", "--json", "--compare"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = {e["id"]: (e["strategy"], round(e["budget"], 4)) for e in told["experiments"]}
    assert found == {"A": ("joint", 0.9639), "B": ("joint", 3.0361), "alone": ("joint", 0.0)}
    assert [rule["rule"] for rule in told["rules"]][-2:] == ["zero", "random arms"]
    assert main(["allocate", str(path), "--firm-budget", "4"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "1 experiment has one segment: nothing can leak there and no budget is needed" in words
    assert "random arms is the paper's sense" in words
    assert main(["allocate", str(path), "--firm-budget", "4", "--form", "paper"]) == 0
    assert main(["allocate", str(path), "--firm-budget", "4", "--form", "any"]) == 2
    assert "form='any'" in capsys.readouterr().err
    path.write_text("id,arms,visitors,segments,strategy\nA,201,400000,2,joint\n")
    assert main(["allocate", str(path), "--firm-budget", "4"]) == 2
    assert "at most 200 arms and 200 segments" in capsys.readouterr().err
    path.write_text("id,arms,visitors,segments\nA,10001,400000,2\n")
    assert main(["allocate", str(path), "--firm-budget", "4", "--regime", "joint"]) == 2
    assert "regime='joint'" in capsys.readouterr().err


def test_the_illustration_needs_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chart = tmp_path / "two.svg"
    assert main(["allocate", "--illustration", "--chart", str(chart)]) == 0
    assert "1.271148" in capsys.readouterr().out
    drawing = chart.read_text()
    for words in ("Firm budget 4: optimal", "Firm budget 1.5: optimal", "2.73", "1.27", "1.50"):
        assert words in drawing


def test_long_lists_are_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "many.csv"
    rows = [f"e{i},2,{1000 + i}" for i in range(40)]
    path.write_text("id,arms,visitors\n" + "\n".join(rows))
    assert main(["allocate", str(path), "--firm-budget", "9", "--rows", "5"]) == 0
    assert "35 more with --rows 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--firm-budget", "-1"], "firm_budget=-1"),
        ([], "firm_budget"),
        (["--firm-budget", "1", "--regime", "any"], "flexible or constant or dynamic"),
        (["--firm-budget", "1", "--out", "a.txt"], "ends in .csv or .json"),
        (["--firm-budget", "1", "--chart", "a.txt"], "ends in .svg"),
        (["--firm-budget", "1", "--share", "2"], "share=2"),
        (["--firm-budget", "1", "--participation", "-1"], "share=-1"),
        (["--firm-budget", "1", "--rows", "-1"], "rows=-1"),
        (["--firm-budget", "1", "--reserve", "2"], "only 0 are available"),
    ],
)
def test_mistakes_are_told_in_one_line(
    portfolio: str, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["allocate", portfolio, *options]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert words in told.err


def test_every_bad_row_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("id,arms,visitors,min_budget,max_budget\na,1,10,,\na,2,,,\nb,2,10,3,1\n")
    assert main(["allocate", str(path), "--firm-budget", "1"]) == 2
    told = capsys.readouterr().err
    for words in ("row 1 (a): arms='1'", "row 2 (a): visitors is missing", "not unique",
                  "row 3 (b): min_budget=3 is above max_budget=1"):  # fmt: skip
        assert words in told


def test_a_missing_file_and_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["allocate", "none.csv", "--firm-budget", "1"]) == 2
    assert "none.csv: No such file" in capsys.readouterr().err
    assert main(["allocate", "--firm-budget", "1"]) == 2
    assert "a file, or --illustration" in capsys.readouterr().err


PAGE = Path(__file__).parents[2] / "docs" / "allocate.md"


@pytest.mark.parametrize(
    "line", re.findall(r"^\$ deniable (.+)$", PAGE.read_text(encoding="utf-8"), re.M)
)
def test_the_guide_s_commands_run_on_the_guide_s_table(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = re.search(r"^```csv\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    assert table is not None
    (tmp_path / "portfolio.csv").write_text(table.group(1))
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)) == 0, capsys.readouterr().err
    assert "Certificate" in capsys.readouterr().out


def test_it_is_judged_by_what_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    firm = str(tmp_path / "firm.csv")
    Path(firm).write_text(KNOWN_RATES)
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
