"""Reads an exposure log as a stream of plain columns.

Everything is read as text and converted to numbers here, so that a problem with a column can be
reported in one sentence. Messages never quote a cell, which could be a visitor or a segment.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from deniable.errors import InvalidArgumentError
from deniable.leak.columns import Columns
from deniable.leak.files import LogFile, json_pieces, what_is_wrong

if TYPE_CHECKING:
    import polars as pl

KEYS = ("experiment", "segment", "variant")
"""Columns that identify a cell of the counts; always present, as text."""

NUMBERS = ("count", "reward", "propensity")
"""Roles whose cells are numbers."""

ONE_EXPERIMENT = "all exposures"
"""Name of the experiment if the log has no column for it."""

_BATCH = 250_000
_SAMPLE = 1_000
_HASH_SEED = 20_240_229

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


def batches(log: LogFile, columns: Columns) -> Iterator[pl.DataFrame]:
    """Yield the log in pieces, in its own order.

    Columns: `experiment`, `segment`, `variant` as text and `key`, a hash of the three; if the log
    has them, `visitor` (a hash), `time` (microseconds), `count`, `reward` and `propensity` (numbers).
    Missing cells are null.
    """
    import polars as pl

    readings: list[pl.Expr] = []
    try:
        for frame in frames(log, columns):
            cells = _roles(frame, columns)
            readings = readings or _readings(cells, columns, decimal_comma=log.separator == ";")
            for batch in cells.select(readings).collect_batches(
                chunk_size=_BATCH, maintain_order=True, engine="streaming"
            ):
                yield _checked(batch, columns)
    except (pl.exceptions.PolarsError, EOFError, zlib.error):
        raise InvalidArgumentError("file", log.path.name, what_is_wrong(log)) from None


def frames(log: LogFile, columns: Columns) -> Iterator[pl.LazyFrame]:
    """Yield the file unchanged; JSON Lines in blocks, because Polars would load the whole file."""
    import polars as pl

    if log.kind == "Parquet":
        yield pl.scan_parquet(log.path, glob=False)
    elif log.kind == "CSV":
        yield pl.scan_csv(log.path, separator=log.separator, infer_schema=False, glob=False)
    else:
        used = {
            part if part in log.header else part.partition(".")[0]
            for _, column in columns.used()
            for part in column.split(",")
        }
        schema = dict.fromkeys(sorted(used), pl.String)
        for piece in json_pieces(log):
            yield pl.read_ndjson(piece, schema=schema).lazy()


def _roles(frame: pl.LazyFrame, columns: Columns) -> pl.LazyFrame:
    """Select the used columns under the names of their roles."""
    import polars as pl

    schema = frame.collect_schema()
    cells = frame.select(_cells(schema, column, role) for role, column in columns.used())
    names = [] if columns.experiment is None else [pl.col("experiment")]
    if columns.context is not None:  # measured within each context, as an experiment of its own
        names.append(pl.col("context").fill_null("other"))
    whole = pl.concat_str(names, separator=" / ") if names else pl.lit(ONE_EXPERIMENT)
    return cells.with_columns(experiment=whole)


def _readings(cells: pl.LazyFrame, columns: Columns, *, decimal_comma: bool) -> list[pl.Expr]:
    """Return how to parse each role, by its column's type and, for times, the first rows' format."""
    import polars as pl

    readings = [*map(pl.col, KEYS), pl.struct(KEYS).hash(_HASH_SEED).alias("key")]
    if columns.visitor is not None:
        hashed = pl.col("visitor").hash(_HASH_SEED)  # null must stay null
        readings.append(pl.when(pl.col("visitor").is_not_null()).then(hashed).alias("visitor"))
    if columns.time is not None:
        readings.append(_time(cells.select("time").head(_SAMPLE).collect()["time"]))
    kinds = cells.collect_schema()
    for role in NUMBERS:
        if getattr(columns, role) is not None:
            number = _number(role, kinds[role], decimal_comma=decimal_comma)
            bad = pl.col(role).is_not_null() & number.is_null()
            readings += [number, bad.alias(f"bad_{role}")]
    return readings


def _cells(schema: pl.Schema, column: str, role: str) -> pl.Expr:
    """Return a column under its role's name, as text or number; several columns are joined."""
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
    if role in NUMBERS and (kind.is_numeric() or kind == pl.Boolean):
        return cell.cast(pl.Float64)
    return cell.cast(pl.String)


def _number(role: str, kind: pl.DataType, *, decimal_comma: bool) -> pl.Expr:
    """Parse a finite number; yes and no count as 1 and 0."""
    import polars as pl

    if kind == pl.Float64:
        return pl.when(pl.col(role).is_finite()).then(pl.col(role)).alias(role)
    cell = pl.col(role).str.strip_chars().str.to_lowercase()
    if decimal_comma:
        cell = cell.str.replace(",", ".", literal=True)
    # Not `replace`, which would load the whole column into memory.
    yes, no = cell.is_in(["true", "yes"]), cell.is_in(["false", "no"])
    word = pl.when(yes).then(1.0).when(no).then(0.0)
    number = pl.coalesce(cell.cast(pl.Float64, strict=False), word)
    return pl.when(number.is_finite()).then(number).alias(role)


def _time(sample: pl.Series) -> pl.Expr:
    """Parse microseconds since 1970; null if the text does not have the format of the first rows."""
    import polars as pl

    cell, known = pl.col("time"), sample.drop_nulls()
    if sample.dtype == pl.Int64:  # already a time column
        return cell
    numbers = known.cast(pl.Float64, strict=False).drop_nulls()
    if len(known) and len(numbers) == len(known):
        typical = float(numbers.median() or 0)  # type: ignore[arg-type]
        if 19_000_000 < typical < 22_000_000:  # 20260131
            return cell.str.to_datetime("%Y%m%d", strict=False).cast(pl.Int64)
        # Seconds, milliseconds, microseconds or nanoseconds since 1970, judged by magnitude.
        scale = next((s for s in (1e6, 1e3, 1.0) if typical * s < 1e16), 1e-3)
        return (cell.cast(pl.Float64, strict=False) * scale).cast(pl.Int64, strict=False)
    readings = {form: _parsed(pl.lit(known), form) for form in _TIMES}
    counts = pl.select([reading.count().alias(form) for form, reading in readings.items()]).row(0)
    best = max(zip(counts, _TIMES, strict=True), key=lambda pair: pair[0])
    if len(known) and not best[0]:
        raise InvalidArgumentError(
            "time", "unreadable values", "times such as 2026-01-31T12:00:00Z or seconds since 1970"
        )
    return _parsed(cell, best[1])


def _parsed(cell: pl.Expr, form: str) -> pl.Expr:
    import polars as pl

    return cell.str.to_datetime(form, time_unit="us", strict=False).cast(pl.Int64)


def _checked(batch: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """Return the batch after validating its numbers."""
    for role in NUMBERS:
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
    if columns.propensity is not None:
        chances = batch["propensity"].fill_null(0.0)
        impossible = int(((chances <= 0) | (chances > 1)).sum())
        if impossible:
            allowed = (
                "probabilities above 0, up to 1, with which the shown variants were drawn; "
                f"{impossible:,} of its cells are none"
            )
            raise InvalidArgumentError("propensity", columns.propensity, allowed)
    return batch.select([name for name in batch.columns if not name.startswith("bad_")])
