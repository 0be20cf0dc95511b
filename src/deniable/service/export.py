"""Exports: the private decision log, the public exposure log, and the Open Bandit format.

Rows are streamed, so memory does not grow with their number. Propensities come from the published
table that a decision names.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal, TextIO, TypeAlias, get_args

from sqlalchemy import Connection, select

from deniable._types import JsonObject
from deniable.errors import InvalidArgumentError
from deniable.privacy.exact import SPACE
from deniable.privacy.tables import Table, decoded_table
from deniable.service.ids import DecisionIds
from deniable.storage import experiments, promises, times
from deniable.storage.records import MICRO, Experiment, Role
from deniable.storage.schema import Query, StoredRow, decisions, rewarded_decisions, rewards

Shape: TypeAlias = Literal["private", "public", "open-bandit"]
_Record: TypeAlias = JsonObject

_PAGE = 2_000


def export(
    connection: Connection, path: Path, experiment: Experiment, shape: Shape, key: bytes
) -> int:
    """Write the decisions of one experiment, except erased ones; see `Ledger.export`."""
    if shape not in get_args(Shape):
        raise InvalidArgumentError("shape", shape, f"one of {', '.join(get_args(Shape))}")
    if path.suffix not in _WRITERS:
        raise InvalidArgumentError("path", str(path), f"a file ending in {', '.join(_WRITERS)}")
    log = DecisionLog(connection, experiment, key)
    with closing(log.rows()) as rows:
        record: Callable[[StoredRow], _Record] = {
            "private": log.private,
            "public": log.public,
            "open-bandit": log.open_bandit,
        }[shape]
        return _WRITERS[path.suffix](path, map(record, rows))


class DecisionLog:
    """The decisions of one experiment with all their details.

    Args:
        connection: a consistent view of the store.
        experiment: the experiment.
        key: key for visitor HMACs; needed for the shown form of decision ids.
    """

    def __init__(self, connection: Connection, experiment: Experiment, key: bytes) -> None:
        self._ids = DecisionIds(key, bytes.fromhex(experiment.id))
        self._connection = connection
        self._experiment = experiment
        self._tables = {
            table.number: decoded_table(table.rows, len(experiment.arms))
            for table in experiments.published(connection, experiment)
        }
        self._promise = promises.promise_of(connection, experiment)

    def rows(self) -> Generator[StoredRow, None, None]:
        """Yield the stored decisions in order of time, each with its reward (None: none yet)."""
        query = self._query().order_by(
            decisions.c.decided_at, decisions.c.writer_id, decisions.c.seq
        )
        with self._connection.execution_options(yield_per=_PAGE).execute(query) as found:
            yield from found

    def _query(self) -> Query:
        return (
            select(decisions, rewards.c.value.label("reward"))
            .select_from(rewarded_decisions)
            .where(
                decisions.c.experiment_id == bytes.fromhex(self._experiment.id),
                decisions.c.salt.is_not(None),
            )
        )

    def propensities(self, row: StoredRow) -> list[float]:
        """Return the probability of each arm for this visitor; 0 for arms that were off."""
        table: Table = self._tables[row.table_number]
        member = row.role == Role.MEMBER
        chances = table.row(row.segment) if member else self._promise.neutral_of(row.version)
        return [entry / SPACE for entry in chances]

    def private(self, row: StoredRow) -> _Record:
        """Return all columns. For the trusted zone only."""
        arms = self._experiment.arms
        chances = self.propensities(row)
        return {
            "experiment": self._experiment.key,
            "decision": self._decision(row),
            "visitor": row.visitor.hex(),
            "decided_at": times.as_datetime(row.decided_at).isoformat(),
            "segment": self._segment(row),
            "shown": arms[row.shown].key,
            "propensity": chances[row.shown],
            **{f"propensity_{arm.key}": p for arm, p in zip(arms, chances, strict=True)},
            "table": row.table_number,
            "role": Role(row.role).name.lower(),
            "version": row.version,
            "reward": self._reward(row),
        }

    def public(self, row: StoredRow) -> _Record:
        """Return what anyone who watches the page sees anyway."""
        return {
            "experiment": self._experiment.key,
            "decision": self._decision(row),
            "decided_at": times.as_datetime(row.decided_at).isoformat(),
            "arm": self._experiment.arms[row.shown].key,
        }

    def open_bandit(self, row: StoredRow) -> _Record:
        """Return the Open Bandit Dataset's columns. A decision without a reward counts as no click."""
        return {
            "timestamp": times.as_datetime(row.decided_at).isoformat(sep=" "),
            "item_id": row.shown,
            "position": 1,
            "click": self._reward(row) or 0,
            "propensity_score": self.propensities(row)[row.shown],
            "user_feature_0": self._segment(row),
        }

    def _decision(self, row: StoredRow) -> str:
        return self._ids.shown(row.id)

    def _reward(self, row: StoredRow) -> float | None:
        """Return the reward in the metric's unit; whole numbers as integers."""
        if row.reward is None:
            return None
        value = int(row.reward)
        return value / MICRO if value % MICRO else value // MICRO

    def _segment(self, row: StoredRow) -> str | None:
        return None if row.segment < 0 else self._experiment.rows[row.segment]


def opened_privately(path: Path, newline: str | None = None) -> TextIO:
    """Open a file for writing that only its owner can read, also if it was there before."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    return path.open("w", encoding="utf-8", newline=newline)


def _write_jsonl(path: Path, records: Iterator[_Record]) -> int:
    count = 0
    with opened_privately(path) as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            count += 1
    return count


def _write_csv(path: Path, records: Iterator[_Record]) -> int:
    count = 0
    with opened_privately(path, newline="") as file:
        writer: csv.DictWriter[str] | None = None
        for record in records:
            if writer is None:
                writer = csv.DictWriter(file, list(record))
                writer.writeheader()
            writer.writerow({name: _no_formula(cell) for name, cell in record.items()})
            count += 1
    return count


def _no_formula(cell: object) -> object:
    """Return a cell that no spreadsheet takes for a formula.

    >>> _no_formula("=1+1"), _no_formula(-2)
    ("'=1+1", -2)
    """
    formula = isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{cell}" if formula else cell


def _write_parquet(path: Path, records: Iterator[_Record]) -> int:
    """Write via a temporary JSON Lines file, to limit memory use."""
    import polars

    lines = path.with_name(path.name + ".jsonl")
    opened_privately(path).close()
    try:
        count = _write_jsonl(lines, records)
        if count:
            polars.scan_ndjson(lines, infer_schema_length=None).sink_parquet(path)
        else:
            polars.DataFrame().write_parquet(path)
        return count
    finally:
        lines.unlink(missing_ok=True)


_WRITERS = {".parquet": _write_parquet, ".csv": _write_csv, ".jsonl": _write_jsonl}
