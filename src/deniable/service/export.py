"""Exports: the private decision log, the public exposure log, and two formats for off-policy tools.

Rows are streamed, so memory does not grow with their number. Propensities come from the published
table that a decision names; decisions made before tables were published name the version, the risk
and the greedy arm instead.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from sqlalchemy import Connection, select

from deniable._types import JsonObject
from deniable.errors import InvalidArgumentError
from deniable.privacy.exact import SPACE
from deniable.privacy.serving import ServingTable, arm_specific_table
from deniable.privacy.tables import Table, decoded_table
from deniable.service.ids import DecisionIds
from deniable.storage import experiments, promises, times
from deniable.storage.records import MICRO, Experiment, Role
from deniable.storage.schema import Query, StoredRow, decisions, rewarded_decisions, rewards

Shape: TypeAlias = Literal["private", "public", "open-bandit", "vowpal-wabbit"]
_Record: TypeAlias = JsonObject

_PAGE = 2_000


def export(
    connection: Connection, path: Path, experiment: Experiment, shape: Shape, key: bytes
) -> int:
    """Write the decisions of one experiment, except erased ones; see `Ledger.export`."""
    if shape not in get_args(Shape):
        raise InvalidArgumentError("shape", shape, f"one of {', '.join(get_args(Shape))}")
    allowed = (".vw", ".txt") if shape == "vowpal-wabbit" else (".parquet", ".csv", ".jsonl")
    if path.suffix not in allowed:
        raise InvalidArgumentError("path", str(path), f"a file ending in {', '.join(allowed)}")
    log = DecisionLog(connection, experiment, key)
    with closing(log.rows()) as rows:
        if shape == "vowpal-wabbit":
            return _write_lines(path, map(log.vowpal_wabbit, rows))
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
        self._off_since = experiments.versions_off(connection, experiment)
        self._old_table = lru_cache(maxsize=8_192)(self._built)
        self._tables = {
            table.number: decoded_table(table.rows, len(experiment.arms))
            for table in experiments.published(connection, experiment)
        }

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
        if row.table_number is not None:
            drawn_from = row.segment if row.role == Role.MEMBER else -1
            table: Table = self._tables[row.table_number]
            return [entry / SPACE for entry in table.row(drawn_from)]
        on, old = self._old_table(row.version, row.risk_nano)
        chances = [0.0] * len(self._experiment.arms)
        greedy = on.index(row.greedy)
        for index, position in enumerate(on):
            chances[position] = old.count(index, greedy) / SPACE
        return chances

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
            "role": None if row.role is None else Role(row.role).name.lower(),
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

    def vowpal_wabbit(self, row: StoredRow) -> str:
        """Return a line in Vowpal Wabbit's bandit format: `action:cost:probability | features`.

        Actions are numbered from 1; the cost of a success is -1.
        """
        cost = -(self._reward(row) or 0)
        chance = self.propensities(row)[row.shown]
        return f"{row.shown + 1}:{cost:g}:{chance:.17g} | segment={_feature(self._segment(row))}"

    def _decision(self, row: StoredRow) -> str:
        return row.id.hex() if row.table_number is None else self._ids.shown(row.id)

    def _reward(self, row: StoredRow) -> float | None:
        """Return the reward in the metric's unit; whole numbers as integers."""
        if row.reward is None:
            return None
        value = int(row.reward)
        return value / MICRO if value % MICRO else value // MICRO

    def _segment(self, row: StoredRow) -> str | None:
        return None if row.segment < 0 else self._experiment.segments[row.segment]

    @cached_property
    def _on_since(self) -> tuple[int, ...]:
        """The version that added each arm."""
        return promises.promise_of(self._connection, self._experiment).arms_since

    def _built(self, version: int, risk_nano: int) -> tuple[list[int], ServingTable]:
        """Return the arms that were on in a version, and the table of this risk over them."""
        arms = self._experiment.arms
        on = [
            i
            for i, since in enumerate(self._on_since)  # decisions may be older than an arm
            if since <= version < self._off_since.get(i, version + 1)
        ]
        own = [arms[i].budget_nano for i in on]
        risks = [risk_nano if limit is None else min(limit, risk_nano) for limit in own]
        return on, arm_specific_table(risks)


def _feature(segment: str | None) -> str:
    """Return a name that Vowpal Wabbit accepts as one feature: no spaces, colons or bars."""
    escaped = "".join(c if c.isalnum() or c in "_-." else f"%{ord(c):02X}" for c in segment or "")
    return escaped or "%"


def _write_lines(path: Path, lines: Iterator[str]) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(line + "\n")
            count += 1
    return count


def _write_jsonl(path: Path, records: Iterator[_Record]) -> int:
    return _write_lines(path, (json.dumps(record, ensure_ascii=False) for record in records))


def _write_csv(path: Path, records: Iterator[_Record]) -> int:
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer: csv.DictWriter[str] | None = None
        for record in records:
            if writer is None:
                writer = csv.DictWriter(file, list(record))
                writer.writeheader()
            writer.writerow(record)
            count += 1
    return count


def _write_parquet(path: Path, records: Iterator[_Record]) -> int:
    """Write via a temporary JSON Lines file, to limit memory use."""
    import polars

    lines = path.with_name(path.name + ".jsonl")
    try:
        count = _write_jsonl(lines, records)
        if count:
            polars.scan_ndjson(lines, infer_schema_length=None).sink_parquet(path)
        else:
            polars.DataFrame().write_parquet(path)
        return count
    finally:
        lines.unlink(missing_ok=True)


_WRITERS = {".csv": _write_csv, ".jsonl": _write_jsonl, ".parquet": _write_parquet}
