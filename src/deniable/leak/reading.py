"""An exposure log as a stream of plain columns, whatever tool wrote it: CSV, Parquet or JSON lines.

The kind of a file is told by its first bytes, not by its name. Everything is read as text and turned
into numbers here, so that what is wrong with a column is told in one sentence. Messages never quote a
cell: it could be a visitor or a segment.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from deniable.errors import InvalidArgumentError
from deniable.leak.columns import Columns

if TYPE_CHECKING:
    import polars as pl

Kind = Literal["CSV", "Parquet", "JSON lines"]

KEYS = ("experiment", "segment", "variant")
"""What identifies a cell of the counts; always present, as text."""

ONE_EXPERIMENT = "all exposures"
"""The experiment's name where the log has no column for it."""

READABLE = "a CSV, Parquet or JSON-lines file"
_BATCH = 250_000
_HEAD = 1 << 16
_SAMPLE = 1_000
_HASH_SEED = 20_240_229

_REFUSED = {
    b"PK\x03\x04": f"{READABLE}; this is an Excel or zip file: save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": f"{READABLE}; this is an Excel file: save the sheet as CSV",
    b"%PDF": f"{READABLE}, not a PDF",
    b"SQLite": f"{READABLE}, not a database",
}
_SEPARATORS = (",", ";", "\t", "|")
_TIMES = (
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M:%S%.f%#z",
    "%Y-%m-%d %H:%M:%S%.f%#z",
    "%Y-%m-%d %H:%M:%S%.f UTC",
    "%Y-%m-%d",
    "%d.%m.%Y %H:%M:%S",
    "%m/%d/%Y %H:%M:%S",
)


@dataclass(frozen=True)
class LogFile:
    """A file whose kind is known.

    Attributes:
        path: where it is.
        kind: what it is.
        header: its columns.
        separator: between the fields of a CSV file.
    """

    path: Path
    kind: Kind
    header: tuple[str, ...]
    separator: str = ","


def open_log(path: str | Path) -> LogFile:
    """Look at the first bytes of a file.

    Raises:
        InvalidArgumentError: an empty file, or one that is no log.
        OSError: one that is missing or unreadable.

    >>> open_log("exposures.xlsx")
    Traceback (most recent call last):
    ...
    FileNotFoundError: [Errno 2] No such file or directory: 'exposures.xlsx'
    """
    source = Path(path)
    with source.open("rb") as file:
        start = file.read(_HEAD)
    if start.startswith(b"\x1f\x8b"):
        with gzip.open(source) as file:
            start = file.read(_HEAD)
    for magic, allowed in _REFUSED.items():
        if start.startswith(magic):
            raise InvalidArgumentError("file", source.name, allowed)
    if start.startswith(b"PAR1"):
        return LogFile(source, "Parquet", _parquet_header(source))
    text = start.decode("utf-8-sig", errors="replace").lstrip()
    if not text:
        raise InvalidArgumentError("file", source.name, f"{READABLE} with rows; this one is empty")
    if "\x00" in text:
        raise InvalidArgumentError("file", source.name, f"{READABLE} in UTF-8")
    if text.startswith("["):
        raise InvalidArgumentError("file", source.name, "one JSON object a line, not a JSON array")
    if text.startswith("{"):
        return LogFile(source, "JSON lines", _keys(source.name, text))
    first = text.splitlines()[0]
    separator = max(_SEPARATORS, key=first.count)
    header = tuple(_fields(first, separator))
    if len(header) < 2:
        raise InvalidArgumentError(
            "file",
            source.name,
            "a header of two or more columns, separated by commas or semicolons",
        )
    return LogFile(source, "CSV", header, separator)


def batches(log: LogFile, columns: Columns) -> Iterator[pl.DataFrame]:
    """The log in pieces, in its own order.

    Columns: `experiment`, `segment`, `variant` as text and `key`, a hash of the three; where the log
    has them `visitor` (a hash), `time` (microseconds), `count` and `reward` (numbers). Missing cells
    are null.
    """
    import polars as pl

    try:
        frame = _scan(log, columns)
        schema = frame.collect_schema()
        cells = frame.select(_cells(schema, column, role) for role, column in columns.used())
        if columns.experiment is None:
            cells = cells.with_columns(experiment=pl.lit(ONE_EXPERIMENT))
        readings = [*map(pl.col, KEYS), pl.struct(KEYS).hash(_HASH_SEED).alias("key")]
        if columns.visitor is not None:
            hashed = pl.col("visitor").hash(_HASH_SEED)  # a null must stay one
            readings.append(pl.when(pl.col("visitor").is_not_null()).then(hashed).alias("visitor"))
        if columns.time is not None:
            sample = cells.select("time").head(_SAMPLE).collect()["time"]
            readings.append(_time(sample))
        numbers = cells.collect_schema()
        for role in ("count", "reward"):
            if getattr(columns, role) is not None:
                number = _number(role, numbers[role], decimal_comma=log.separator == ";")
                bad = pl.col(role).is_not_null() & number.is_null()
                readings += [number, bad.alias(f"bad_{role}")]
        for batch in cells.select(readings).collect_batches(
            chunk_size=_BATCH, maintain_order=True, engine="streaming"
        ):
            yield _checked(batch, columns)
    except pl.exceptions.PolarsError:
        raise InvalidArgumentError("file", log.path.name, _WHOLE[log.kind]) from None


_WHOLE = {
    "CSV": "a CSV file in UTF-8 whose rows have as many fields as its header",
    "Parquet": "a Parquet file that is whole",
    "JSON lines": "one whole JSON object in every line",
}


def _scan(log: LogFile, columns: Columns) -> pl.LazyFrame:
    import polars as pl

    if log.kind == "Parquet":
        return pl.scan_parquet(log.path, glob=False)
    if log.kind == "CSV":
        return pl.scan_csv(log.path, separator=log.separator, infer_schema=False, glob=False)
    used = {
        part if part in log.header else part.partition(".")[0]
        for _, column in columns.used()
        for part in column.split(",")
    }
    return pl.scan_ndjson(log.path, schema=dict.fromkeys(sorted(used), pl.String))


def _cells(schema: pl.Schema, column: str, role: str) -> pl.Expr:
    """A column under its role's name, as text or a number; several segments' columns joined."""
    import polars as pl

    parts = [column] if column in schema else column.split(",")
    cells = [_cell(schema, part, role) for part in parts]
    whole = cells[0] if len(cells) == 1 else pl.concat_str(cells, separator=" / ")
    return whole.alias(role)


def _cell(schema: pl.Schema, column: str, role: str) -> pl.Expr:
    import polars as pl

    if column in schema:
        kind, cell = schema[column], pl.col(column)
        if kind.is_nested():
            raise InvalidArgumentError(
                role, column, f"a column of single values, or {column}.KEY for a key of its objects"
            )
        if kind == pl.Binary:
            return cell.bin.encode("hex")
    else:
        name, _, key = column.partition(".")
        kind = schema[name]
        if isinstance(kind, pl.Struct):
            if key not in {field.name for field in kind.fields}:
                raise InvalidArgumentError(role, column, "a key that the column's objects have")
            cell = pl.col(name).struct.field(key)
        else:
            cell = pl.col(name).cast(pl.String).str.json_path_match(f"$.{key}")
    if role == "time" and kind.is_temporal():
        return cell.cast(pl.Datetime("us")).cast(pl.Int64)
    if role in ("count", "reward") and (kind.is_numeric() or kind == pl.Boolean):
        return cell.cast(pl.Float64)
    return cell.cast(pl.String)


def _number(role: str, kind: pl.DataType, *, decimal_comma: bool) -> pl.Expr:
    """A finite number; yes and no count as 1 and 0."""
    import polars as pl

    if kind == pl.Float64:
        return pl.when(pl.col(role).is_finite()).then(pl.col(role)).alias(role)
    cell = pl.col(role).str.strip_chars().str.to_lowercase()
    if decimal_comma:
        cell = cell.str.replace(",", ".", literal=True)
    # Not `replace`, which gathers the whole column in memory.
    yes, no = cell.is_in(["true", "yes"]), cell.is_in(["false", "no"])
    word = pl.when(yes).then(1.0).when(no).then(0.0)
    number = pl.coalesce(cell.cast(pl.Float64, strict=False), word)
    return pl.when(number.is_finite()).then(number).alias(role)


def _time(sample: pl.Series) -> pl.Expr:
    """Microseconds since 1970; null where the text is no time in the form of the first rows."""
    import polars as pl

    cell, told = pl.col("time"), sample.drop_nulls()
    if sample.dtype == pl.Int64:  # a column of times, not of text
        return cell
    numbers = told.cast(pl.Float64, strict=False).drop_nulls()
    if len(told) and len(numbers) == len(told):
        typical = float(numbers.median() or 0)  # type: ignore[arg-type]
        if 19_000_000 < typical < 22_000_000:  # 20260131
            return cell.str.to_datetime("%Y%m%d", strict=False).cast(pl.Int64)
        # Seconds, milliseconds, microseconds or nanoseconds since 1970, by their size.
        scale = next((s for s in (1e6, 1e3, 1.0) if typical * s < 1e16), 1e-3)
        return (cell.cast(pl.Float64, strict=False) * scale).cast(pl.Int64, strict=False)
    readings = {form: _parsed(pl.lit(told), form) for form in _TIMES}
    counts = pl.select([reading.count().alias(form) for form, reading in readings.items()]).row(0)
    best = max(zip(counts, _TIMES, strict=True), key=lambda pair: pair[0])
    if len(told) and not best[0]:
        raise InvalidArgumentError(
            "time", "unreadable values", "times such as 2026-01-31T12:00:00Z or seconds since 1970"
        )
    return _parsed(cell, best[1])


def _parsed(cell: pl.Expr, form: str) -> pl.Expr:
    import polars as pl

    return cell.str.to_datetime(form, time_unit="us", strict=False).cast(pl.Int64)


def _checked(batch: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """The batch, once its numbers are known to be good."""
    for role in ("count", "reward"):
        if (column := getattr(columns, role)) is None:
            continue
        bad = int(batch[f"bad_{role}"].sum())
        if bad:
            raise InvalidArgumentError(
                role, column, f"a column of numbers; {bad:,} of its cells are none"
            )
    if columns.count is not None:
        counts = batch["count"].drop_nulls()
        if bool(((counts < 0) | (counts != counts.floor())).any()):
            raise InvalidArgumentError(
                "count", columns.count, "a column of whole numbers, 0 or more"
            )
    return batch.select([name for name in batch.columns if not name.startswith("bad_")])


def _parquet_header(source: Path) -> tuple[str, ...]:
    import polars as pl

    try:
        return tuple(pl.read_parquet_schema(source))
    except (pl.exceptions.PolarsError, OSError):
        raise InvalidArgumentError("file", source.name, _WHOLE["Parquet"]) from None


def _keys(name: str, text: str) -> tuple[str, ...]:
    """The keys of the first lines, in order of their first appearance."""
    lines = text.splitlines()
    whole = lines[:-1] if len(lines) > 1 and not text.endswith("\n") else lines
    keys: dict[str, None] = {}
    try:
        for line in filter(str.strip, whole[:_SAMPLE]):
            keys |= dict.fromkeys(json.loads(line))
    except (ValueError, TypeError):
        raise InvalidArgumentError("file", name, _WHOLE["JSON lines"]) from None
    return tuple(keys)


def _fields(line: str, separator: str) -> list[str]:
    import csv

    return next(csv.reader([line], delimiter=separator))
