"""Imports rewards from a CSV or Parquet file, by decision id or by visitor and experiment.

The whole file is checked before any of it is applied: numbers, metrics, caps, currency, and how
many of its ids are known. It is then applied in parts, each in one durable transaction. Only the
first reward per decision and metric ever counts, so an interrupted import can simply be repeated:
rows that were already applied count as duplicates. Whether a reward is late is decided when it is
applied. Messages name rows and columns but never the content of a cell, which could be a visitor.

Messages name rows and columns, never what is in a cell: it could be a visitor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter
from pathlib import Path

import polars as pl
from sqlalchemy import Connection

from deniable._formatting import listed
from deniable.errors import InvalidArgumentError
from deniable.service.ids import DecisionIds, VisitorHash, normalised, visitor_scopes
from deniable.storage import experiments
from deniable.storage.records import MICRO, Experiment

COLUMNS: dict[str, tuple[str, ...]] = {
    "decision": ("decision", "decision_id"),
    "visitor": ("visitor", "visitor_id", "user_id"),
    "experiment": ("experiment", "experiment_key"),
    "value": ("value", "reward", "amount"),
    "metric": ("metric", "metric_name"),
    "currency": ("currency",),
    "context": ("context",),
}
"""Recognised column names; `columns` can specify others."""

AT_ONCE = 5_000
"""Rewards per transaction."""

LOOKED_UP_AT_ONCE = 500
"""Ids per statement."""

PROGRESS_ROWS = 10_000
"""Rows looked up between two calls of the progress callback."""

MOST_UNKNOWN = 0.1
"""A file with more than this share of unknown ids is assumed to be the wrong file."""

BAD = {
    "not a number": "without a number of 0 or more",
    "other currency": "in another currency",
    "wrong metric": "with a metric that the experiment does not have",
    "above the cap": "above the metric's cap",
    "no id": "without an id",
    "no context": "by visitor without a column of contexts, which the experiment has",
}
"""Reasons for rejecting a whole file, as shown to the user."""

Progress = Callable[[str, int, int], None]
"""Callback that receives the current step, the rows done and the total."""


@dataclass(frozen=True)
class ImportSummary:
    """The outcome of importing a file.

    Attributes:
        rows: number of rows.
        applied: rows counted now.
        duplicate: rows whose decision already had a reward of this metric, in the store or in the
            file.
        unknown: rows with an unknown decision, visitor or experiment, or an erased visitor.
        late: rows whose attribution window had closed.
        skipped: reason -> bad rows that were left out.
    """

    rows: int
    applied: int = 0
    duplicate: int = 0
    unknown: int = 0
    late: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)


def silent(_what: str, _done: int, _total: int) -> None:
    """Progress callback that does nothing."""


@dataclass(frozen=True)
class CheckedFile:
    """A file whose rows can be applied.

    Attributes:
        rows: number of rows.
        rewards: (decision id as shown, metric, millionths) of the good, known rows, in the order of
            the store.
        unknown: rows whose decision is not stored.
        skipped: reason -> bad rows that were left out.
    """

    rows: int
    rewards: list[tuple[bytes, str | None, int]]
    unknown: int
    skipped: dict[str, int]


def checked_file(
    connection: Connection,
    path: Path,
    *,
    key: bytes,
    experiment: str | None,
    metric: str | None,
    currency: str | None,
    columns: Mapping[str, str],
    skip_bad: bool,
    allow_unknown: bool,
    progress: Progress,
) -> CheckedFile:
    """Check a file against the store. See `Deniable.import_rewards` for the arguments.

    Args:
        connection: a view of the store.
        path: the file.
        key: key for visitor HMACs.
        experiment: experiment of all rows, if the file has no such column.
        metric: metric of all rows, if the file has no such column.
        currency: rows in other currencies are bad.
        columns: maps the names in `COLUMNS` to other column names.
        skip_bad: skip bad rows instead of rejecting the file.
        allow_unknown: accept any number of unknown ids.
        progress: progress callback.
    """
    rows = _read(path, columns)
    known = {one.key: one for one in experiments.everything(connection)}
    good, bad, unknown = _checked(rows, known, experiment, metric, currency)
    if bad and not skip_bad:
        problems = ", ".join(
            f"{n:,} {BAD[why]} (first: row {row:,})" for why, (n, row) in bad.items()
        )
        raise InvalidArgumentError(
            "file", path.name, f"rows that can all count, but has {problems}; nothing was applied"
        )
    found = _resolved(connection, good, known, key, progress)
    unknown += len(good) - len(found)
    if not allow_unknown and unknown > MOST_UNKNOWN * max(len(rows), 1):
        raise InvalidArgumentError(
            "file",
            path.name,
            f"ids that are known, but {unknown:,} of {len(rows):,} are not; nothing was applied",
        )
    return CheckedFile(len(rows), found, unknown, {why: n for why, (n, _) in bad.items()})


def applied(
    file: CheckedFile,
    apply: Callable[[Sequence[tuple[bytes, str | None, int]]], Mapping[str, int]],
    progress: Progress,
) -> ImportSummary:
    """Apply a file in parts.

    Args:
        file: the checked file.
        apply: applies rewards in one transaction and returns the outcome counts.
        progress: progress callback.
    """
    totals = {"applied": 0, "duplicate": 0, "unknown": file.unknown, "late": 0}
    for start in range(0, len(file.rewards), AT_ONCE):
        part = file.rewards[start : start + AT_ONCE]
        for outcome, count in apply(part).items():
            totals[outcome] += count
        progress("applying", start + len(part), len(file.rewards))
    return ImportSummary(file.rows, **totals, skipped=file.skipped)


def _read(path: Path, columns: Mapping[str, str]) -> pl.DataFrame:
    """Return the relevant columns under our names, with row numbers."""
    for what in columns:
        if what not in COLUMNS:
            raise InvalidArgumentError("column", what, "one of " + ", ".join(COLUMNS))
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith(b"PAR1"):
        frame, first = _opened(path, lambda: pl.read_parquet(path)), 1
    else:
        separator = ";" if b";" in head.partition(b"\n")[0] else ","
        reading = {"infer_schema": False, "separator": separator, "encoding": "utf8"}
        frame, first = _opened(path, lambda: pl.read_csv(path, **reading)), 2  # type: ignore[arg-type]
    names = {name.strip().lower(): name for name in frame.columns}
    chosen: dict[str, str] = {}
    for what, usual in COLUMNS.items():
        if what in columns:
            if columns[what] not in frame.columns:
                raise InvalidArgumentError(
                    "column", columns[what], f"one of {listed(frame.columns, 10)}"
                )
            chosen[what] = columns[what]
        else:
            match = next((names[name] for name in usual if name in names), None)
            if match is not None:
                chosen[what] = match
    if "value" not in chosen or not {"decision", "visitor"} & chosen.keys():
        raise InvalidArgumentError(
            "file",
            path.name,
            f"columns decision (or visitor) and value; it has {listed(frame.columns, 10)}",
        )
    return frame.select(**{what: pl.col(name) for what, name in chosen.items()}).with_row_index(
        "row", offset=first
    )


def _opened(path: Path, read: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    try:
        return read()
    except (pl.exceptions.PolarsError, UnicodeDecodeError):
        raise InvalidArgumentError("file", path.name, "a CSV or Parquet file") from None


def _checked(
    rows: pl.DataFrame,
    known: Mapping[str, Experiment],
    experiment: str | None,
    metric: str | None,
    currency: str | None,
) -> tuple[pl.DataFrame, dict[str, tuple[int, int]], int]:
    """Return the good rows, the bad ones (reason -> count, first row), and the number unknown."""
    if experiment is not None and experiment not in known:
        raise InvalidArgumentError("experiment", experiment, "one that exists")
    caps = {f"{one.key} {m.name}": m.cap_micro for one in known.values() for m in one.metrics}
    first = {one.key: one.metrics[0].name for one in known.values()}
    tags = {one.id[:8]: one.key for one in known.values()}
    by_id = "decision" in rows.columns
    identity = pl.col("decision" if by_id else "visitor").cast(pl.String).str.strip_chars()
    if by_id:
        of = identity.str.to_lowercase().str.slice(0, 8).replace_strict(tags, default=None)
    elif "experiment" in rows.columns and experiment is None:
        of = (
            pl.col("experiment").cast(pl.String).replace_strict({k: k for k in known}, default=None)
        )
    elif experiment is not None:
        of = pl.lit(experiment)
    else:
        raise InvalidArgumentError("experiment", None, "a column of the file, or --experiment")
    named = (
        pl.col("metric").cast(pl.String)
        if "metric" in rows.columns and metric is None
        else pl.lit(metric, dtype=pl.String)
    )
    value = pl.col("value").cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)
    on_contexts = [one.key for one in known.values() if len(one.contexts) > 1]
    context = pl.col("context").cast(pl.String) if "context" in rows.columns else pl.lit(None)
    marked = rows.with_columns(
        identity.alias("identity"),
        of.cast(pl.String).alias("of"),
        value.alias("number"),
        context.alias("context"),
    ).with_columns(
        pl.coalesce(named, pl.col("of").replace_strict(first, default=None)).alias("what")
    )
    marked = marked.with_columns(
        pl.concat_str("of", pl.lit(" "), "what")
        .replace_strict(caps, default=None, return_dtype=pl.Int64)
        .alias("cap"),
        (pl.col("number") * MICRO).round().alias("micro"),
    )
    is_number = pl.col("number").is_finite() & (pl.col("number") >= 0)
    why = (
        pl.when(pl.col("identity").fill_null("") == "")
        .then(pl.lit("no id"))
        .when(~is_number.fill_null(False))
        .then(pl.lit("not a number"))
        .when(_other_currency(rows, currency))
        .then(pl.lit("other currency"))
        .when(pl.col("of").is_null())
        .then(pl.lit("unknown"))
        .when(
            pl.col("of").is_in(on_contexts)
            if not by_id and "context" not in rows.columns
            else False
        )
        .then(pl.lit("no context"))
        .when(pl.col("cap").is_null())
        .then(pl.lit("wrong metric"))
        .when(pl.col("micro") > pl.col("cap"))
        .then(pl.lit("above the cap"))
    )
    marked = marked.with_columns(why.alias("why"))
    counts = marked.filter(pl.col("why").is_not_null()).group_by("why").agg(pl.len(), pl.min("row"))
    found = {row[0]: (row[1], row[2]) for row in counts.iter_rows()}
    unknown, _ = found.pop("unknown", (0, 0))
    bad = {reason: found[reason] for reason in BAD if reason in found}
    good = marked.filter(pl.col("why").is_null()).select(
        "of",
        "identity",
        "context",
        "what",
        pl.col("micro").cast(pl.Int64),
        pl.lit(by_id).alias("by_id"),
    )
    return good, bad, unknown


def _other_currency(rows: pl.DataFrame, currency: str | None) -> pl.Expr:
    if "currency" not in rows.columns:
        if currency is not None:
            raise InvalidArgumentError("currency", currency, "none: the file has no such column")
        return pl.lit(False)
    code = pl.col("currency").cast(pl.String).str.strip_chars().str.to_uppercase()
    if currency is None:
        different = rows.select(code.n_unique()).item()
        if different > 1:
            raise InvalidArgumentError(
                "currency", None, f"one of the {different} currencies in the file: give --currency"
            )
        return pl.lit(False)
    return (code != currency.strip().upper()).fill_null(True)


def _resolved(
    connection: Connection,
    good: pl.DataFrame,
    known: Mapping[str, Experiment],
    key: bytes,
    progress: Progress,
) -> list[tuple[bytes, str | None, int]]:
    """Return (decision id as shown, metric, millionths) of the rows whose decision is stored."""
    found: list[tuple[bytes, bytes, str | None, int]] = []
    done = 0
    for (name,), mine in good.group_by("of", maintain_order=True):
        experiment = bytes.fromhex(known[str(name)].id)
        contexts, ids = known[str(name)].contexts, DecisionIds(key, experiment)
        first, *own = [VisitorHash(key, scope) for scope in visitor_scopes(experiment, contexts)]
        hashes = dict(zip(contexts[1:], own, strict=True))
        for start in range(0, len(mine), PROGRESS_ROWS):
            part = mine.slice(start, PROGRESS_ROWS)
            texts = part["identity"].to_list()
            if part["by_id"][0]:
                wanted = list(map(_id_bytes, texts))
                places = {ids.stored(one): one for one in wanted if one}
                stored = {places[row]: row for row in _stored(connection, experiment, "id", places)}
            else:
                named = zip(part["context"].to_list(), texts, strict=True)
                wanted = [hashes.get(context, first)(normalised(t)) for context, t in named]
                stored = _stored(connection, experiment, "visitor", set(wanted))
            values = zip(wanted, part["what"].to_list(), part["micro"].to_list(), strict=True)
            found += [
                (stored[one], ids.stored(stored[one]), what, micro)
                for one, what, micro in values
                if one in stored
            ]
            done += len(part)
            progress("checking", done, len(good))
    # Sort by id for index locality. The sort is stable, so that the first row of a decision counts.
    found.sort(key=itemgetter(0))
    return [row[1:] for row in found]


@cache
def _lookup(column: str, mark: str) -> str:
    """Query decisions that are not erased, by a list of ids or visitors padded with NULL."""
    marks = ", ".join([mark] * LOOKED_UP_AT_ONCE)
    return (
        f"SELECT {column}, id FROM decisions WHERE experiment_id = {mark} "
        f"AND salt IS NOT NULL AND {column} IN ({marks})"
    )


def _stored(
    connection: Connection, experiment: bytes, column: str, wanted: Collection[bytes]
) -> dict[bytes, bytes]:
    """Map each requested id or visitor to the stored id of its decision, if there is one not erased.

    Uses the driver's SQL directly: SQLAlchemy takes longer to compile a list of ten thousand
    parameters than SQLite takes to look them up.
    """
    statement = _lookup(column, "?" if connection.dialect.paramstyle == "qmark" else "%s")
    values = list(wanted)
    found: dict[bytes, bytes] = {}
    for start in range(0, len(values), LOOKED_UP_AT_ONCE):
        part = values[start : start + LOOKED_UP_AT_ONCE]
        padding = (None,) * (LOOKED_UP_AT_ONCE - len(part))
        rows = connection.exec_driver_sql(statement, (experiment, *map(bytearray, part), *padding))
        found.update((bytes(row[0]), bytes(row[1])) for row in rows)
    return found


def _id_bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text) if len(text) == 32 else b""
    except ValueError:
        return b""
