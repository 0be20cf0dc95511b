"""Rows and files: everything wrong is told at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from deniable.errors import InvalidArgumentError, InvalidTableError
from deniable.expectations.fit import fit_prior
from deniable.portfolio.allocation import allocate
from deniable.portfolio.problem import Portfolio, firm_nano
from deniable.portfolio.rows import clean_rows
from deniable.portfolio.rules import compare_rules
from deniable.portfolio.table import csv_rows, read_portfolio, write_allocation

GOOD: dict[str, Any] = {"id": "a", "arms": 2, "visitors": 1000}


def problems(rows: list[dict[str, Any]]) -> list[str]:
    with pytest.raises(InvalidTableError) as caught:
        Portfolio.of(rows)
    assert "\n" not in str(caught.value)
    return [message for _, message in caught.value.problems]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arms": 1}, "arms=1: expected a whole number, 2 or more"),
        ({"arms": 2.5}, "arms=2.5"),
        ({"arms": True}, "arms=True"),
        ({"arms": "many"}, "arms='many'"),
        ({"visitors": 0}, "visitors=0"),
        ({"visitors": float("inf")}, "visitors=inf"),
        ({"visitors": None}, "visitors is missing"),
        ({"visitors": float("nan")}, "visitors is missing"),
        ({"id": ""}, "id is missing"),
        ({"segments": 0}, "segments=0"),
        ({"strategy": "both"}, "strategy='both'"),
        ({"min_budget": -1}, "min_budget=-1"),
        ({"max_budget": "lots"}, "max_budget='lots'"),
        ({"committed": float("inf")}, "committed=inf"),
        ({"min_budget": 2, "max_budget": 1}, "min_budget=2 is above max_budget=1"),
        ({"committed": 2, "max_budget": 1}, "committed=2 is above max_budget=1"),
        ({"committed": 1, "min_budget": 2}, "committed=1 is below min_budget=2"),
        ({"colour": "red"}, "unknown column 'colour'"),
    ],
)
def test_each_mistake_is_named(change: dict[str, Any], message: str) -> None:
    assert any(message in told for told in problems([{**GOOD, **change}]))


def test_one_error_lists_every_bad_row() -> None:
    rows = [
        {**GOOD, "arms": 1},
        {**GOOD, "id": "fine"},
        {**GOOD, "visitors": -3},
        {"id": "b", "arms": 2},
        {**GOOD, "id": "c", "min_budget": 3, "max_budget": 1},
    ]
    told = " | ".join(problems(rows))
    for words in ("row 1 (a): arms=1", "row 1 (a): the id is not unique", "row 3 (a): visitors=-3",
                  "row 3 (a): the id is not unique", "row 4 (b): visitors is missing",
                  "row 5 (c): min_budget=3"):  # fmt: skip
        assert words in told
    assert "row 2" not in told


def test_an_empty_table_is_an_error() -> None:
    assert problems([]) == ["the table has no experiments"]


CSV = """id,arms,visitors,segments,strategy,min_budget,max_budget,committed,layer
home,2,100000,,,,,,
cart,5,20000,3,dynamic,0.1,2,,
mail,3,5000,,,,,0.25,letters
"""


def check_file(path: Path) -> None:
    portfolio = read_portfolio(path)
    assert portfolio.ids == ("home", "cart", "mail")
    assert portfolio.segments.tolist() == [2, 3, 2]
    assert portfolio.strategies == (None, "dynamic", None)
    assert portfolio.min_nano.tolist() == [0, 10**8, 25 * 10**7]
    assert portfolio.max_nano[1:].tolist() == [2 * 10**9, 25 * 10**7]
    assert portfolio.groups == (None, None, "letters")


def test_csv_parquet_and_toml_say_the_same(tmp_path: Path) -> None:
    source = tmp_path / "portfolio.csv"
    source.write_text(CSV)
    check_file(source)
    frame = pl.read_csv(source)
    frame.write_parquet(tmp_path / "portfolio.parquet")
    check_file(tmp_path / "portfolio.parquet")
    tables = []
    for row in frame.to_dicts():
        filled = {key: value for key, value in row.items() if value is not None}
        lines = [
            f"{k} = {v!r}" if not isinstance(v, str) else f'{k} = "{v}"' for k, v in filled.items()
        ]
        tables.append("[[experiment]]\n" + "\n".join(lines))
    (tmp_path / "portfolio.toml").write_text("\n\n".join(tables))
    check_file(tmp_path / "portfolio.toml")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("p.csv", "id,arms,visitors\na,2\n", "visitors is missing"),
        ("p.csv", "id,arms,visitors,colour\na,2,9,red\n", "unknown column 'colour'"),
        ("p.csv", "", "no rows below its header"),
        ("p.parquet", "not parquet", "cannot be read"),
        ("p.toml", "[[experiment]\n", "is not TOML"),
        ("p.toml", "title = 'x'\n", "unknown key 'title'"),
        ("p.toml", "experiment = 3\n", "no [[experiment]] tables"),
    ],
)
def test_bad_files_are_explained(tmp_path: Path, name: str, text: str, words: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InvalidTableError) as caught:
        read_portfolio(path)
    assert words in str(caught.value)


def test_unknown_endings_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="ends in"):
        read_portfolio(tmp_path / "p.xlsx")
    with pytest.raises(FileNotFoundError):
        read_portfolio(tmp_path / "none.csv")


def test_an_allocation_is_written_as_csv_and_json(tmp_path: Path) -> None:

    found = allocate(Portfolio.from_sizes([2, 5], [1000, 50_000], form="paper"), 3)
    frame = pl.read_csv(write_allocation(found, tmp_path / "a.csv"))
    assert frame["budget_nano"].sum() == found.spent_nano
    assert frame["budget_nano"].is_sorted(descending=True)
    told = json.loads(write_allocation(found, tmp_path / "a.json").read_text())
    assert told["spent_nano"] == found.spent_nano
    assert told["relative_gap"] <= 1e-6
    assert np.isclose(sum(e["regret"] for e in told["experiments"]), told["total_regret"])
    with pytest.raises(InvalidArgumentError, match="out="):
        write_allocation(found, tmp_path / "a.xml")


@pytest.mark.parametrize(
    ("nats", "exact"), [(1.0, 10**9), (1e-10, 0), (0.1, 10**8), (1.0000000019, 1_000_000_001)]
)
def test_the_firms_budget_is_rounded_down(nats: float, exact: int) -> None:
    assert firm_nano("firm_budget", nats) == exact


def test_names_of_python_arguments_are_columns_too() -> None:
    spelled = [{"id": "a", "n_arms": 3, "horizon": 900, "n_segments": 4}]
    usual = [{"id": "a", "arms": 3, "visitors": 900, "segments": 4}]
    assert clean_rows(spelled) == clean_rows(usual)
    with pytest.raises(InvalidTableError, match="unknown column 'n_arms'"):
        clean_rows([{"id": "a", "n_arms": 3, "arms": 2, "visitors": 9}])


@pytest.mark.parametrize(
    ("call", "argument"),
    [(Portfolio.of, "experiments"), (fit_prior, "past_experiments"), (compare_rules, "allocation")],
)
@pytest.mark.parametrize("given", [None, 3])
def test_what_is_no_table_is_refused_by_name(
    call: Callable[[Any], object], argument: str, given: object
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        call(given)
    assert caught.value.argument == argument


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_files_of_all_countries(separator: str, tmp_path: Path) -> None:
    point = "." if separator == "," else ","
    lines = ["id,arms,visitors,max_budget", f"home,2,1000,0{point}5", "", "search,3,2000,"]
    text = "\n".join(
        line.replace(",", separator) if point == "." or "0,5" not in line else line
        for line in lines
    )
    if point == ",":
        text = text.replace("home,2,1000,0,5", separator.join(["home", "2", "1000", "0,5"]))
    (tmp_path / "p.csv").write_text("\ufeff" + text, "utf-8")
    found = read_portfolio(tmp_path / "p.csv")
    assert list(found.ids) == ["home", "search"]
    assert csv_rows(text)[0]["max_budget"] == "0.5"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no rows below its header"),
        ("id,arms,visitors\n", "no rows below its header"),
        ("id,arms,visitors\nhome,2\nshop,2,3,4,5", "row 2 has 5 fields, the header 3"),
        ('id,arms,visitors\n"home,2,3', "cannot be read as CSV"),
    ],
)
def test_bad_csv_is_told_in_our_words(text: str, words: str) -> None:
    with pytest.raises(InvalidTableError, match=words) as caught:
        csv_rows(text)
    assert "truncate_ragged_lines" not in str(caught.value)
