"""Reads an exported log in blocks of columns, so that memory does not grow with the file.

`.parquet` is read in slices; `.csv` and `.jsonl`, also with `.gz`, in pieces of some megabytes that
end at a line break. A value that cannot be parsed is null in its column; the checks then report the
row.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from io import SEEK_END, BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

from deniable._types import JsonObject
from deniable.errors import InvalidArgumentError
from deniable.storage.log_rows import FORMAT, FORMAT_VERSION, LogRow

if TYPE_CHECKING:
    import polars as pl

ENDINGS = (".parquet", ".csv", ".csv.gz", ".jsonl", ".jsonl.gz")
WIDTHS = {"experiment": 16, "id": 16, "visitor": 16, "salt": 16, "commitment": 32, "hash": 32}
"""Byte lengths of the binary columns."""

TEXT = ("kind", "detail")
COLUMNS = LogRow._fields

_MAGIC = b"PAR1"
_ROWS = 1 << 17
_BYTES, _PART = 1 << 25, 1 << 20


class UnreadableRowsError(Exception):
    """The file is a log, but no more rows can be read. The message says why."""


def ending_of(path: Path) -> str:
    """Return the file's extension; raise InvalidArgumentError if it is unknown."""
    for ending in sorted(ENDINGS, key=len, reverse=True):
        if path.name.endswith(ending):
            return ending
    raise InvalidArgumentError("file", str(path), f"a log that ends in {', '.join(ENDINGS)}")


def blocks(path: Path) -> Iterator[pl.DataFrame]:
    """Yield the rows of a log in order, in blocks: text, Int64 and Binary columns, null if missing.

    Raises:
        InvalidArgumentError: the file is not a log of this format.
        UnreadableRowsError: it was truncated or damaged, so that further rows cannot be read.
    """
    ending = ending_of(path)
    path.open("rb").close()  # raises if the file is missing
    if ending == ".parquet":
        return _parquet(path)
    return _lines(path, ending)


def check_format(block: pl.DataFrame, path: Path) -> None:
    """Raise InvalidArgumentError unless the first row of a log describes one of this version."""
    try:
        about = json.loads(block["detail"][0] if block["kind"][0] == "F" else "null")
        known = about["format"] == FORMAT
        version = about["version"]
    except (IndexError, KeyError, TypeError, ValueError):
        known, version = False, None
    if not known:
        raise _unknown(path, "does not begin as one")
    if version != FORMAT_VERSION:
        raise _unknown(path, f"has version {version!r}, and this is {FORMAT_VERSION}")


def _unknown(path: Path, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "file", str(path), f"a log from `deniable ledger export`; this file {why}"
    )


def _parquet(path: Path) -> Iterator[pl.DataFrame]:
    import polars as pl
    from polars.exceptions import PolarsError

    if _cut_off(path):
        raise UnreadableRowsError(
            "the Parquet file was cut off, and no row can be read without its end, which says where "
            "they are"
        )
    try:
        lazy = pl.scan_parquet(path)
        columns = lazy.collect_schema().names()
        height = lazy.select(pl.len()).collect().item()
    except (PolarsError, OSError) as error:
        raise _unknown(path, "is not Parquet, or its end was changed") from error
    if tuple(columns) != COLUMNS:
        raise _unknown(path, "has other columns")
    for start in range(0, height, _ROWS):
        try:
            block = lazy.slice(start, _ROWS).collect()
        except (PolarsError, OSError) as error:
            raise UnreadableRowsError("these bytes of the Parquet file were changed") from error
        yield _typed(block)


def _cut_off(path: Path) -> bool:
    """Whether a Parquet file was truncated: it must begin and end with the same four bytes."""
    with path.open("rb") as file:
        begins = file.read(len(_MAGIC)) == _MAGIC
        size = file.seek(0, SEEK_END)
        if not begins or size < 3 * len(_MAGIC):
            return False  # too short to be a Parquet file
        file.seek(-len(_MAGIC), SEEK_END)
        return file.read() != _MAGIC


def _lines(path: Path, ending: str) -> Iterator[pl.DataFrame]:
    is_csv = ending.startswith(".csv")
    with path.open("rb") as raw:
        file = gzip.GzipFile(fileobj=raw) if ending.endswith(".gz") else raw
        header_is_due = is_csv
        for piece in _pieces(file, path):
            if header_is_due:
                header, _, piece = piece.partition(b"\n")
                if header.decode("utf-8", "replace").rstrip("\r").split(",") != list(COLUMNS):
                    raise _unknown(path, "has other columns")
                header_is_due = False
            if piece:
                yield _typed((_csv if is_csv else _jsonl)(piece))


def _pieces(file: BufferedReader | gzip.GzipFile, path: Path) -> Iterator[bytes]:
    """Yield the file in pieces of whole lines; the last line may be incomplete."""
    parts: list[bytes] = []
    size = 0
    begun = False
    while True:
        try:
            part = file.read1(_PART)
        except EOFError:  # truncated gzip: its last rows are missing
            part = b""
        except (gzip.BadGzipFile, zlib.error) as error:
            if not begun:
                raise _unknown(path, "is not gzip, or was damaged") from error
            yield b"".join(parts).rpartition(b"\n")[0]
            raise UnreadableRowsError("the compressed bytes were changed") from error
        begun = True
        if not part:
            break
        parts.append(part)
        size += len(part)
        if size >= _BYTES:
            whole, newline, rest = b"".join(parts).rpartition(b"\n")
            parts, size = [rest], len(rest)
            if newline:
                yield whole + newline
    if size:
        yield b"".join(parts)


def _csv(piece: bytes) -> pl.DataFrame:
    import polars as pl
    from polars.exceptions import PolarsError

    schema = dict.fromkeys(COLUMNS, pl.String)
    try:
        return pl.read_csv(piece, has_header=False, schema=schema, encoding="utf8-lossy")
    # Parse row by row: one with too few or too many values becomes an empty row.
    except PolarsError:
        rows = csv.reader(piece.decode("utf-8", "replace").splitlines())
        width = len(COLUMNS)
        return pl.DataFrame(
            [[v or None for v in row] if len(row) == width else [None] * width for row in rows],
            schema=schema,
            orient="row",
        )


def _jsonl(piece: bytes) -> pl.DataFrame:
    import polars as pl
    from polars.exceptions import PolarsError

    texts = dict.fromkeys([*WIDTHS, *TEXT], pl.String)
    schema = {name: texts.get(name, pl.Int64) for name in COLUMNS}
    try:
        return pl.read_ndjson(piece, schema=schema)
    except PolarsError:  # parse line by line: unreadable ones become empty rows
        return pl.DataFrame(
            [_parsed(line, schema) for line in piece.splitlines()], schema=schema, orient="row"
        )


def _parsed(line: bytes, schema: Mapping[str, object]) -> JsonObject:
    import polars as pl

    try:
        found = json.loads(line)
    except ValueError:
        return dict.fromkeys(COLUMNS)
    kinds = {name: str if schema[name] == pl.String else int for name in COLUMNS}
    values = found if isinstance(found, dict) else {}
    return {
        name: values.get(name) if type(values.get(name)) is kinds[name] else None
        for name in COLUMNS
    }


def _typed(frame: pl.DataFrame) -> pl.DataFrame:
    """Convert hexadecimal to bytes and digits to integers. Rows with anything else get no kind."""
    import polars as pl

    wanted = []
    for name in COLUMNS:
        column, kind = pl.col(name), frame.schema[name]
        if name in WIDTHS and kind == pl.String:
            column = column.str.decode("hex", strict=False)
        if name in WIDTHS:
            column = pl.when(column.bin.size() == WIDTHS[name]).then(column)
        elif name not in TEXT and kind != pl.Int64:
            column = column.cast(pl.Int64, strict=False)
        wanted.append(column)
    garbled = pl.any_horizontal(
        pl.col(name).is_not_null() & column.is_null()
        for name, column in zip(COLUMNS, wanted, strict=True)
    )
    wanted[0] = pl.when(~garbled).then(wanted[0])
    return frame.select(wanted)
