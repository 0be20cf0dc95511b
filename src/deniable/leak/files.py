"""Detects the format of an exposure log from its first bytes, not its name."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Literal, cast

from deniable.errors import InvalidArgumentError

Kind = Literal["CSV", "Parquet", "JSON lines"]

READABLE = "a CSV, Parquet or JSON-lines file"
_HEAD = 1 << 16
_BLOCK = 1 << 25
_LONGEST_LINE = 1 << 24
_SAMPLE = 1_000

_GZIP = b"\x1f\x8b"
_REFUSED = {
    b"PK\x03\x04": f"{READABLE}; this is an Excel or zip file: save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": f"{READABLE}; this is an Excel file: save the sheet as CSV",
    b"%PDF": f"{READABLE}, not a PDF",
    b"SQLite": f"{READABLE}, not a database",
    b"ARROW1": f"{READABLE}, not an Arrow or Feather file: write it as Parquet",
    b"\xff\xfe": f"{READABLE} in UTF-8; this one is in UTF-16",
    b"\xfe\xff": f"{READABLE} in UTF-8; this one is in UTF-16",
}
_SEPARATORS = (",", ";", "\t", "|")
_WHOLE: dict[Kind, str] = {
    "CSV": "a CSV file in UTF-8 whose rows have as many fields as its header",
    "Parquet": "a Parquet file that is whole",
    "JSON lines": "one whole JSON object in every line",
}
_WHOLE_GZIP = "a gzip file that is whole"


@dataclass(frozen=True)
class LogFile:
    """A file of a known format.

    Attributes:
        path: its path.
        kind: its format.
        header: its columns.
        keys: keys of objects in its first rows, as `column.key`.
        separator: field separator of a CSV file.
        compressed: whether it is a gzip file.
    """

    path: Path
    kind: Kind
    header: tuple[str, ...]
    keys: tuple[str, ...] = ()
    separator: str = ","
    compressed: bool = False

    def open(self) -> BinaryIO:
        """Open the file for reading, decompressed."""
        return cast(BinaryIO, gzip.open(self.path)) if self.compressed else self.path.open("rb")


def open_log(path: str | Path) -> LogFile:
    """Detect the format of a file from its first bytes.

    Raises:
        InvalidArgumentError: the file is empty, or not a log.
        OSError: the file is missing or unreadable.

    >>> open_log("exposures.xlsx")
    Traceback (most recent call last):
    ...
    FileNotFoundError: [Errno 2] No such file or directory: 'exposures.xlsx'
    """
    source = Path(path)
    start, compressed = _start(source)
    for magic, allowed in _REFUSED.items():
        if start.startswith(magic):
            raise InvalidArgumentError("file", source.name, allowed)
    if start.startswith(b"PAR1"):
        if compressed:
            raise InvalidArgumentError("file", source.name, "a Parquet file that is not gzipped")
        return LogFile(source, "Parquet", *_parquet_columns(source))
    text = start.decode("utf-8-sig", errors="replace")
    if not text.strip():
        raise InvalidArgumentError("file", source.name, f"{READABLE} with rows; this one is empty")
    if "\x00" in text:
        raise InvalidArgumentError("file", source.name, f"{READABLE} in UTF-8")
    if text.lstrip().startswith("["):
        raise InvalidArgumentError("file", source.name, "one JSON object a line, not a JSON array")
    if text.lstrip().startswith("{"):
        return LogFile(
            source, "JSON lines", *_json_columns(source.name, text), compressed=compressed
        )
    separator = max(_SEPARATORS, key=text.lstrip().splitlines()[0].count)
    header = _csv_header(source.name, start, separator)
    keys = _csv_keys(text, header, separator)
    return LogFile(source, "CSV", header, keys, separator, compressed)


@contextmanager
def as_file(log: Any) -> Iterator[Path]:
    """Yield a log's path; a DataFrame of Polars or pandas is written to a temporary file.

    Raises:
        InvalidArgumentError: it is neither.
    """
    if isinstance(log, str | PathLike):
        yield Path(log)
        return
    import polars as pl

    frame = log.collect() if isinstance(log, pl.LazyFrame) else log
    if not isinstance(frame, pl.DataFrame):
        if not all(hasattr(frame, name) for name in ("columns", "items")):
            raise InvalidArgumentError("path", log, "a path, or a DataFrame of Polars or pandas")
        # Missing cells of pandas (NaN, NaT, NA) become None; its own conversion needs PyArrow.
        cells = {
            str(name): column.astype(object).where(column.notna(), None).tolist()
            for name, column in frame.items()
        }
        frame = pl.DataFrame(cells, infer_schema_length=None)
    with TemporaryDirectory(prefix="deniable-leak-") as folder:
        path = Path(folder) / "DataFrame"
        frame.write_parquet(path)
        yield path


def json_pieces(log: LogFile) -> Iterator[bytes]:
    """Yield a JSON Lines file in blocks of whole lines, so that memory does not grow with the file."""
    rest = b""
    with log.open() as file:
        while block := file.read(_BLOCK):
            lines, newline, tail = block.rpartition(b"\n")
            if newline:
                yield (rest + lines).removeprefix(b"\xef\xbb\xbf")
                rest = b""
            rest += tail
            if len(rest) > _LONGEST_LINE:
                raise InvalidArgumentError("file", log.path.name, _WHOLE["JSON lines"])
    if rest.strip():
        yield rest.removeprefix(b"\xef\xbb\xbf")


def what_is_wrong(log: LogFile) -> str:
    """Describe what a file that could not be read should be; names the line if known."""
    line = 0
    try:
        with log.open() as file:
            if log.kind != "CSV":
                while file.read(_BLOCK):
                    pass
                return _WHOLE[log.kind]
            rows = csv.reader((raw.decode() for raw in file), delimiter=log.separator)
            width = len(log.header)
            for row in rows:
                line = rows.line_num
                if len(row) > width:
                    return f"{_WHOLE['CSV']}; line {line:,} has {len(row):,}, the header {width:,}"
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return _WHOLE_GZIP
    except UnicodeDecodeError:
        return f"{_WHOLE['CSV']}; line {line + 1:,} is not UTF-8"
    except (csv.Error, OSError):
        pass
    return _WHOLE[log.kind]


def _start(source: Path) -> tuple[bytes, bool]:
    """Return the first bytes, and whether they were compressed."""
    with source.open("rb") as file:
        start = file.read(_HEAD)
    if not start.startswith(_GZIP):
        return start, False
    try:
        with gzip.open(source) as file:
            return file.read(_HEAD), True
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise InvalidArgumentError("file", source.name, _WHOLE_GZIP) from None


def _parquet_columns(source: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    import polars as pl

    try:
        schema = pl.read_parquet_schema(source)
    except (pl.exceptions.PolarsError, OSError):
        raise InvalidArgumentError("file", source.name, _WHOLE["Parquet"]) from None
    keys = tuple(
        f"{name}.{field.name}"
        for name, kind in schema.items()
        if isinstance(kind, pl.Struct)
        for field in kind.fields
    )
    return tuple(schema), keys


def _json_columns(name: str, text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys of the first lines, in order of appearance, and those of nested objects."""
    lines = text.splitlines()
    whole = lines[:-1] if len(lines) > 1 and not text.endswith("\n") else lines
    header: dict[str, None] = {}
    keys: dict[str, None] = {}
    try:
        for line in filter(str.strip, whole[:_SAMPLE]):
            row = dict(json.loads(line))
            header |= dict.fromkeys(row)
            for column, value in row.items():
                keys |= dict.fromkeys(_inner(column, value))
    except (ValueError, TypeError):
        raise InvalidArgumentError("file", name, _WHOLE["JSON lines"]) from None
    return tuple(header), tuple(keys)


def _csv_header(name: str, start: bytes, separator: str) -> tuple[str, ...]:
    """Return the header as Polars names it; Polars handles blank lines, quotes and duplicate names."""
    import polars as pl

    header: list[str] = []
    with suppress(pl.exceptions.PolarsError):
        header = pl.read_csv(start, separator=separator, n_rows=0, infer_schema=False).columns
    if len(header) < 2:
        raise InvalidArgumentError(
            "file", name, "a header of two or more columns, separated by commas or semicolons"
        )
    return tuple(header)


def _csv_keys(text: str, header: tuple[str, ...], separator: str) -> tuple[str, ...]:
    """Return keys of the JSON objects in the first row."""
    rows = csv.reader(text.lstrip().splitlines(keepends=True), delimiter=separator)
    try:
        next(rows)
        first = next(rows, [])
    except csv.Error:
        return ()
    keys: dict[str, None] = {}
    for column, cell in zip(header, first, strict=False):
        with suppress(ValueError):
            if cell.lstrip().startswith("{"):
                keys |= dict.fromkeys(_inner(column, json.loads(cell)))
    return tuple(keys)


def _inner(column: str, value: object) -> list[str]:
    """Return `column.key` for the keys of an object that have scalar values."""
    if not isinstance(value, dict):
        return []
    return [f"{column}.{key}" for key, v in value.items() if not isinstance(v, (dict, list))]
