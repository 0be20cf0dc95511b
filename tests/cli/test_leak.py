"""`deniable leak` from the command line: figures, files, and mistakes told in one line."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest
from tests.leak.logs import visits, written

import deniable
from deniable.charts.leak import people
from deniable.cli import main

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
EXPOSURES = str(EXAMPLES / "exposures.csv")


def test_the_table_says_what_was_read_and_what_it_tells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leak", EXPOSURES]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for words in (
        "by 6.40 (6.06 to 6.76)",
        "“move fast” speaks for commuters and against families",
        "places 71 there",
        "count exposures guessed; --count to change",
        "families 31.8% 70.7% 70.0% to 71.4% feel safe",
        "Today's tables already keep a budget of 2",
    ):
        assert words in out


def test_json_is_finite_and_whole(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("segment,variant,count\na,x,90\nb,y,80\n")  # nothing in common: infinite odds
    assert main(["leak", str(log), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["worst_odds_ratio"]["value"] is None
    assert told["worst_odds_ratio"]["low"] > 5
    assert told["joint"] is None
    assert main(["leak", EXPOSURES, "--json", "--budgets", "1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["columns"] == {
        "segment": "segment", "variant": "variant", "count": "exposures", "reward": "clicks"
    }  # fmt: skip
    (effect,) = told["budgets"]
    prior = told["experiments"][0]["beliefs"][1]["before"]
    assert effect["belief"] == pytest.approx(float(deniable.highest_belief(prior, 1)))
    assert told["todays_reward"] == 5247


def test_recipes_of_other_tools_agree(capsys: pytest.CaptureFixture[str]) -> None:
    """The three example files are one log in three tools' words."""
    found = []
    for name in ("growthbook.csv", "ga4.jsonl", "statsig.csv"):
        assert main(["leak", str(EXAMPLES / name), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        ratios = [experiment["worst_odds_ratio"] for experiment in told["experiments"]]
        found.append((told["visitors"], told["rows"], ratios, told["joint"]["met_most"]))
    assert found[0] == found[1] == found[2]
    assert found[0][0] == 294


@pytest.mark.parametrize(
    ("ending", "start"),
    [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF"), ("html", b"<!DOCTYPE html>")],
)
def test_draws_every_format(tmp_path: Path, ending: str, start: bytes) -> None:
    target = tmp_path / f"leak.{ending}"
    assert main(["leak", EXPOSURES, "--chart", str(target)]) == 0
    assert target.read_bytes().lstrip().startswith(start)


def test_people_are_a_hundred() -> None:
    states = [person["state"] for person in people(32, 71)]
    assert [states.count(state) for state in ("before", "added", "rest")] == [32, 39, 29]


class _Page(HTMLParser):
    """What a page would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "iframe", "img"):
            self.fetched.append(tag)
        self.fetched += [
            v for k, v in attrs if k in ("src", "href") and v and not v.startswith("#")
        ]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.parametrize("joined", [True, False])
def test_the_report_stands_alone(tmp_path: Path, joined: bool) -> None:
    log = written(visits(1, 2_000), tmp_path / "log.csv") if joined else Path(EXPOSURES)
    target = tmp_path / "report.html"
    assert main(["leak", str(log), "--out", str(target)]) == 0
    html = target.read_text()
    page = _Page()
    page.feed(html)
    assert page.fetched == []
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    words = " ".join(" ".join(page.text).split())
    assert f"What {log.name} tells a tracker" in words
    assert ("All experiments of a visitor together" in words) == joined
    assert "nan" not in words.lower().split()


def test_names_from_the_log_cannot_inject_html(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    evil = "<script>alert(1)</script>"
    log.write_text(f"segment,variant,count\n{evil},x,90\nb,x,30\n{evil},{evil},10\nb,{evil},80\n")
    assert main(["leak", str(log), "--out", str(tmp_path / "r.html")]) == 0
    assert "<script" not in (tmp_path / "r.html").read_text()


BAD: dict[str, tuple[bytes, str]] = {
    "unknown columns": (b"foo,bar\na,x\nb,y\n", "--segment"),
    "one segment": (b"segment,variant\na,x\na,y\n", "two or more segments"),
    "one variant": (b"segment,variant\na,x\nb,x\n", "two or more variants"),
    "empty": (b"", "empty"),
    "header only": (b"segment,variant\n", "rows=0"),
    "cells missing": (b"segment,variant\n,x\na,\n", "rows=2"),
    "Excel": (b"PK\x03\x04rest", "save the sheet as CSV"),
    "old Excel": (b"\xd0\xcf\x11\xe0rest", "save the sheet as CSV"),
    "JSON array": (b'[{"segment": "a"}]', "one JSON object a line"),
    "broken JSON": (b'{"segment":"a","variant":"x"}\nsecret\n', "one whole JSON object"),
    "broken Parquet": (b"PAR1 secret PAR1", "Parquet file that is whole"),
    "ragged": (b"segment,variant\na,x\nsecret,y,z\n", "as many fields as its header"),
    "not UTF-8": (b"segment,variant\ncaf\xe9,x\nb,y\n", "UTF-8"),
    "UTF-16": ("segment,variant\na,x\n".encode("utf-16"), "UTF-8"),
    "one column": (b"segment\na\n", "two or more columns"),
    "words for counts": (b"segment,variant,count\na,x,secret\nb,y,3\n", "column of numbers"),
    "negative counts": (b"segment,variant,count\na,x,-3\nb,y,3\n", "whole numbers"),
    "words for rewards": (b"segment,variant,clicks\na,x,1\nb,y,secret\n", "column of numbers"),
    "words for times": (b"segment,variant,time\na,x,secret\nb,y,secret\n", "times such as"),
    "ids for segments": (
        b"segment,variant\n" + b"".join(b"secret%d,x\n" % i for i in range(200_002)),
        "as if it held ids",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_line_and_status_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, named = BAD[name]
    log = tmp_path / "log.csv"
    log.write_bytes(content)
    assert main(["leak", str(log)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert named in err
    assert "secret" not in err  # a cell could be a visitor or a segment


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--segment nope", "segment='nope'"),
        ("--segment -", "--segment"),
        ("--reward variant --variant variant", "a column of its own"),
        ("--budgets x", "budgets='x'"),
        ("--budgets -1", "budgets=-1"),
        ("--confidence 1", "confidence=1"),
        ("--out report.pdf", "out='report.pdf'"),
        ("--chart no/such/folder/c.svg", "chart="),
        ("--rows 0", "--rows"),
    ],
)
def test_a_bad_option_is_one_line_and_status_2(
    options: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["leak", EXPOSURES, *options.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert named in err


def test_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leak", "nowhere.csv"]) == 2
    assert capsys.readouterr().err == "error: nowhere.csv: No such file or directory\n"


def test_our_own_export_keeps_its_budget(tmp_path: Path) -> None:
    """The private export of a running experiment is a log; its proven ratio is below e^budget."""
    with deniable.open("memory:") as service:
        service.firm.set(budget=3)
        service.experiments.create("shop", arms=["old", "new"], segments=["a", "b"], budget=1)
        service.experiments.start("shop")
        for i in range(600):
            segment = "ab"[i % 2]
            shown = service.decide("shop", visitor=f"v{i}", segment=segment)
            service.reward(shown.id, int((shown.arm == "new") == (segment == "a")))
        service.ledger.export(tmp_path / "shop.csv", experiment="shop")
    found = deniable.measure_leak(tmp_path / "shop.csv", confidence=1 - 1e-9)
    assert found.tally.visitors == 600
    assert found.columns.variant == "shown"
    assert found.experiments[0].ratio.low <= math.e
    log = pl.read_csv(tmp_path / "shop.csv")  # the fault: everybody sees the segment's own arm
    best = pl.when(pl.col("segment") == "a").then(pl.lit("new")).otherwise(pl.lit("old"))
    log.with_columns(shown=best).write_csv(tmp_path / "planted.csv")
    planted = deniable.measure_leak(tmp_path / "planted.csv", confidence=1 - 1e-9)
    assert planted.experiments[0].ratio.low > math.e  # without the randomized response
