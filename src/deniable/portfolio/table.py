"""Reads portfolios from files and writes allocations: CSV, Parquet, TOML, JSON."""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from itertools import zip_longest
from pathlib import Path

from deniable._extras import require
from deniable._numbers import toml_words
from deniable._types import Record
from deniable.errors import InvalidArgumentError, InvalidTableError
from deniable.portfolio.allocation import Allocation
from deniable.portfolio.problem import Portfolio
from deniable.theory.regret import Form

READABLE = (".csv", ".parquet", ".toml")
WRITABLE = (".csv", ".json")


def read_portfolio(
    path: str | Path, *, form: Form = "summed", objective: str | None = None
) -> Portfolio:
    """Read a portfolio from a file.

    The columns are id, arms and visitors; optionally segments, strategy, min_budget, max_budget,
    committed, layer, and what is known: base_rate, lift, heterogeneity, shares, value. TOML files have
    one [[experiment]] table per experiment. Form and objective are as in `Portfolio.of`.

    Raises:
        InvalidTableError: lists every bad row.
        InvalidArgumentError: the file's extension is unknown.

    >>> read_portfolio("experiments.xlsx")
    Traceback (most recent call last):
    ...
    deniable.errors.InvalidArgumentError: portfolio='experiments.xlsx': expected a file that ends in
    .csv, .parquet, .toml
    """
    return Portfolio.of(read_rows(path), form=form, objective=objective)


def read_rows(path: str | Path) -> list[Record]:
    """Return the rows of a portfolio file without validation."""
    source = Path(path)
    ending = source.suffix.lower()
    if ending not in READABLE:
        raise InvalidArgumentError(
            "portfolio", str(path), f"a file that ends in {', '.join(READABLE)}"
        )
    if ending == ".toml":
        return _toml(source)
    if ending == ".csv":
        try:
            return csv_rows(source.read_text("utf-8-sig"))
        except UnicodeDecodeError:
            raise InvalidTableError([(0, f"{source.name} is not text in UTF-8")]) from None
    require("polars", extra="data")
    import polars as pl

    with source.open("rb"):  # a missing file raises the operating system's error, not the parser's
        pass
    try:
        frame = pl.read_parquet(source)
    except pl.exceptions.PolarsError as error:
        reason = " ".join(str(error).split())[:200]
        raise InvalidTableError([(0, f"{source.name} cannot be read: {reason}")]) from None
    return frame.rename(str.strip).to_dicts()


def csv_rows(text: str) -> list[Record]:
    r"""Parse CSV text; cells stay text, so that errors can be reported with their row.

    Fields are separated by commas, semicolons or tabs, whichever is most frequent in the first
    line. If it is not the comma, a comma within a number is its decimal point.

    Raises:
        InvalidTableError: there are no rows, or lines that are longer than the first.

    >>> csv_rows("id;arms;visitors;max_budget\nhome;2;1000;0,5")
    [{'id': 'home', 'arms': '2', 'visitors': '1000', 'max_budget': '0.5'}]
    """
    first = text.lstrip().partition("\n")[0]
    separator = max(",;\t", key=first.count)
    try:
        lines = list(csv.reader(io.StringIO(text), delimiter=separator, strict=True))
    except csv.Error as error:
        raise InvalidTableError([(0, f"the file cannot be read as CSV: {error}")]) from None
    header, *body = [line for line in lines if any(cell.strip() for cell in line)] or [[]]
    names = [name.strip() for name in header]
    if not body:
        raise InvalidTableError([(0, "the file has no rows below its header")])
    wrong = [
        (number, f"row {number} has {len(line)} fields, the header {len(names)}")
        for number, line in enumerate(body, 1)
        if len(line) > len(names)
    ]
    if wrong:
        raise InvalidTableError(wrong)
    if separator != ",":
        body = [
            [re.sub(r"^(\d*),(\d+)$", r"\1.\2", cell.strip()) for cell in line] for line in body
        ]
    # A short line has missing values at its end.
    return [dict(zip_longest(names, line, fillvalue="")) for line in body]


def check_out_path(path: str | Path) -> Path:
    """Validate the extension of an output path."""
    target = Path(path)
    if target.suffix.lower() not in WRITABLE:
        raise InvalidArgumentError("out", str(path), f"a file that ends in {' or '.join(WRITABLE)}")
    return target


def write_allocation(allocation: Allocation, path: str | Path) -> Path:
    """Write one row per experiment as CSV, or everything with its certificate as JSON.

    >>> from deniable.portfolio.allocation import allocate
    >>> write_allocation(allocate(Portfolio.from_sizes([2], [1000], form="paper"), 1), "allocation.txt")
    Traceback (most recent call last):
    ...
    deniable.errors.InvalidArgumentError: out='allocation.txt': expected a file that ends in .csv or
    .json
    """
    target = check_out_path(path)
    if target.suffix.lower() == ".csv":
        allocation.frame().write_csv(target)
    else:
        target.write_text(json.dumps(allocation.to_dict(), indent=2) + "\n", encoding="utf-8")
    return target


def _toml(source: Path) -> list[Record]:
    try:
        document = tomllib.loads(source.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidTableError([(0, f"{source.name} is not TOML: {toml_words(error)}")]) from None
    rows = document.pop("experiment", None)
    wrong = [(0, f"unknown key {key!r}: expected [[experiment]] tables only") for key in document]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        wrong.append((0, "no [[experiment]] tables"))
    if wrong:
        raise InvalidTableError(wrong)
    assert isinstance(rows, list)
    return rows
