"""The writer's transaction on PostgreSQL: each statement takes whole columns as arrays.

Only what PostgreSQL, CockroachDB, YugabyteDB and Citus share: `unnest`, `= ANY`, `ON CONFLICT`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psycopg import Connection
from psycopg.rows import TupleRow
from sqlalchemy import BigInteger, Integer, LargeBinary, SmallInteger, String, Table

from deniable.storage import schema
from deniable.storage.store import (
    OWN_COLUMNS,
    SHARED_COLUMNS,
    Chain,
    Count,
    Head,
    NewDecisions,
    NewReward,
    Shown,
    Stored,
)

_TYPES: dict[type, str] = {
    LargeBinary: "bytea",
    SmallInteger: "int2",
    Integer: "int4",
    BigInteger: "int8",
    String: "text",
}


def _typed(table: Table, names: Iterable[str], suffix: str = "") -> str:
    """A parameter for each of these columns."""
    return ", ".join(f"%b::{_TYPES[type(table.c[name].type)]}{suffix}" for name in names)


def _insert(table: Table, names: tuple[str, ...], ending: str) -> bytes:
    arrays = _typed(table, names, "[]")
    into = f"INSERT INTO {table.name} ({', '.join(names)})"
    return f"{into} SELECT * FROM unnest({arrays}) {ending}".encode()


_HEADS = (
    b"SELECT id, revision, table_number FROM experiments WHERE id = ANY(%b) ORDER BY id FOR SHARE"
)
_STORED = (
    b"SELECT visitor, id, shown, table_number IS NULL "
    b"FROM decisions WHERE experiment_id = %b AND visitor = ANY(%b)"
)
_ERASED = b"SELECT visitor FROM tombstones WHERE experiment_id = %b AND visitor = ANY(%b)"
_MEMBERS = (
    b"SELECT visitor, experiment_id FROM memberships "
    b"WHERE group_name = %b::text AND visitor = ANY(%b)"
)
_ADD_DECISIONS = (
    f"INSERT INTO decisions ({', '.join((*SHARED_COLUMNS, *OWN_COLUMNS))}) "
    f"SELECT {_typed(schema.decisions, SHARED_COLUMNS)}, own.* "
    f"FROM unnest({_typed(schema.decisions, OWN_COLUMNS, '[]')}) AS own ON CONFLICT DO NOTHING"
).encode()
_SHOWN = (
    b"SELECT id, salt, segment, shown, decided_at, coalesce(table_number, 0), coalesce(role, 0) "
    b"FROM decisions WHERE shown IS NOT NULL AND experiment_id = %b AND id = ANY(%b)"
)
_REWARDED = (
    b"SELECT decision_id, metric FROM rewards WHERE experiment_id = %b AND decision_id = ANY(%b)"
)
_ADD_REWARDS = _insert(schema.rewards, NewReward._fields, "ON CONFLICT DO NOTHING")
_ADD_COUNTS = _insert(
    schema.counters,
    Count._fields,
    "ON CONFLICT (experiment_id, table_number, role, segment, arm, metric, writer_id) "
    "DO UPDATE SET shows = counters.shows + excluded.shows, "
    "rewarded = counters.rewarded + excluded.rewarded, "
    "value = counters.value + excluded.value, square = counters.square + excluded.square",
)
_ANSWERED = (
    b"INSERT INTO answers (experiment_id, writer_id, hour) VALUES (%b, %b, %b) "
    b"ON CONFLICT (experiment_id, writer_id) "
    b"DO UPDATE SET hour = greatest(answers.hour, excluded.hour)"
)
_EXTEND = b"UPDATE writers SET seq = %b, head = %b, lease_until = %b WHERE id = %b AND owner = %b"
_CHAIN = b"SELECT seq, head FROM writers WHERE id = %b AND owner = %b"


class PostgresTransaction:
    """Implements `HotTransaction` on one connection."""

    def __init__(self, connection: Connection[TupleRow]) -> None:
        self._cursor = connection.cursor(binary=True)

    def heads(self, experiments: Sequence[bytes]) -> dict[bytes, Head]:
        """See HotTransaction."""
        rows = self._rows(_HEADS, [list(experiments)])
        return {row[0]: Head(row[1], row[2]) for row in rows}

    def stored(self, experiment: bytes, visitors: Sequence[bytes]) -> dict[bytes, Stored]:
        """See HotTransaction."""
        rows = self._rows(_STORED, [experiment, list(visitors)])
        return {row[0]: Stored(*row[1:]) for row in rows}

    def erased(self, experiment: bytes, tombstones: Sequence[bytes]) -> set[bytes]:
        """See HotTransaction."""
        return {row[0] for row in self._rows(_ERASED, [experiment, list(tombstones)])}

    def members(self, group: str, visitors: Sequence[bytes]) -> dict[bytes, bytes]:
        """See HotTransaction."""
        return dict(self._rows(_MEMBERS, [group, list(visitors)]))

    def add_decisions(self, new: NewDecisions) -> int:
        """See HotTransaction."""
        self._cursor.execute(_ADD_DECISIONS, [*new[:5], *_columns(new.rows)])
        return self._cursor.rowcount

    def shown(self, experiment: bytes, decisions: Sequence[bytes]) -> dict[bytes, Shown]:
        """See HotTransaction."""
        rows = self._rows(_SHOWN, [experiment, list(decisions)])
        return {row[0]: Shown(*row[1:]) for row in rows}

    def rewarded(self, experiment: bytes, decisions: Sequence[bytes]) -> set[tuple[bytes, int]]:
        """See HotTransaction."""
        return set(self._rows(_REWARDED, [experiment, list(decisions)]))

    def add_rewards(self, rows: Sequence[NewReward]) -> int:
        """See HotTransaction."""
        return self._added(_ADD_REWARDS, rows)

    def add_counts(self, rows: Sequence[Count]) -> None:
        """See HotTransaction."""
        self._added(_ADD_COUNTS, rows)

    def answered(self, experiment: bytes, writer: int, hour: int) -> None:
        """See HotTransaction."""
        self._cursor.execute(_ANSWERED, [experiment, writer, hour])

    def extend(self, writer: int, owner: bytes, chain: Chain, lease_until: int) -> bool:
        """See HotTransaction."""
        self._cursor.execute(_EXTEND, [*chain, lease_until, writer, owner])
        return self._cursor.rowcount == 1

    def chain(self, writer: int, owner: bytes) -> Chain | None:
        """See HotTransaction."""
        rows = self._rows(_CHAIN, [writer, owner])
        return rows[0] if rows else None

    def _rows(self, statement: bytes, values: Sequence[object]) -> list[TupleRow]:
        return self._cursor.execute(statement, values).fetchall()

    def _added(self, statement: bytes, rows: Sequence[Sequence[object]]) -> int:
        if not rows:
            return 0
        self._cursor.execute(statement, _columns(rows))
        return self._cursor.rowcount


def _columns(rows: Sequence[Sequence[object]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]
