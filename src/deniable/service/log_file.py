"""Writing the ledger as a log (`storage.log_rows`) to a file, by its ending."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import IO

from sqlalchemy import Connection

from deniable._types import JsonObject
from deniable.audit.log_blocks import COLUMNS, TEXT, WIDTHS, ending_of
from deniable.storage.log_rows import LogRow, log_rows
from deniable.storage.records import Experiment

_ROW_GROUP = 1 << 17


def export_log(connection: Connection, path: Path, experiment: Experiment | None) -> int:
    """Write the log of one experiment, or of all; returns the rows. See `Ledger.export_log`."""
    ending = ending_of(path)
    wanted = None if experiment is None else [bytes.fromhex(experiment.id)]
    with closing(log_rows(connection, wanted)) as rows:
        if ending == ".parquet":
            return _write_parquet(path, rows)
        with _opened(path, ending) as file:
            return (_write_csv if ".csv" in ending else _write_jsonl)(file, rows)


def _opened(path: Path, ending: str) -> IO[str]:
    if not ending.endswith(".gz"):
        return path.open("w", encoding="utf-8", newline="")
    return io.TextIOWrapper(gzip.open(path, "wb", compresslevel=4), encoding="utf-8", newline="")


def _write_csv(file: IO[str], rows: Iterable[LogRow]) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    for row in rows:
        writer.writerow([_plain(value) for value in row])
        count += 1
    return count


def _write_jsonl(file: IO[str], rows: Iterable[LogRow]) -> int:
    count = 0
    for row in rows:
        filled = {
            name: _plain(value)
            for name, value in zip(COLUMNS, row, strict=True)
            if value is not None
        }
        file.write(json.dumps(filled, separators=(",", ":")) + "\n")
        count += 1
    return count


def _write_parquet(path: Path, rows: Iterable[LogRow]) -> int:
    """Through text on the disk, so that memory stays small."""
    import polars as pl

    text = path.with_name(path.name + ".csv")
    kinds: JsonObject = dict.fromkeys(COLUMNS, pl.Int64)
    kinds |= dict.fromkeys([*TEXT, *WIDTHS], pl.String)
    try:
        with text.open("w", encoding="utf-8", newline="") as file:
            count = _write_csv(file, rows)
        lazy = pl.scan_csv(text, schema=kinds).with_columns(
            pl.col(name).str.decode("hex") for name in WIDTHS
        )
        lazy.sink_parquet(path, row_group_size=_ROW_GROUP)
    finally:
        text.unlink(missing_ok=True)
    return count


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value
