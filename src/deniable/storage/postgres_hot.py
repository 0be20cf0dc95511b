"""The hot path on PostgreSQL: psycopg and prepared SQL, without SQLAlchemy, arrays packed by hand."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import chain, repeat

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format
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


def _types(table: Table, names: Iterable[str]) -> list[str]:
    return [_TYPES[type(table.c[name].type)] for name in names]


def _typed(table: Table, names: Iterable[str], suffix: str = "") -> str:
    """Return a typed parameter for each of these columns."""
    return ", ".join(f"%b::{kind}{suffix}" for kind in _types(table, names))


def _insert(table: Table, names: tuple[str, ...], ending: str) -> bytes:
    arrays = _typed(table, names, "[]")
    into = f"INSERT INTO {table.name} ({', '.join(names)})"
    return f"{into} SELECT * FROM unnest({arrays}) {ending}".encode()


_HEADS = "SELECT id, revision, table_number FROM experiments WHERE id IN ({}) ORDER BY id FOR SHARE"


def _one_by_one(table: str, key: str, columns: str, condition: str) -> bytes:
    """Build a lookup of an array of keys, each through the index.

    For `key = ANY(array)` the server may choose to read the whole table instead: with fresh statistics
    from about 3,000 keys on, without any from 400 on. OFFSET keeps it from merging the two parts.
    """
    return (
        f"SELECT found.* FROM unnest(%b::bytea[]) AS wanted (key) CROSS JOIN LATERAL "
        f"(SELECT {columns} FROM {table} WHERE {condition} AND {key} = wanted.key OFFSET 0) AS found"
    ).encode()


_MINE = "experiment_id = %b"
_STORED = _one_by_one(
    "decisions", "visitor", "visitor, id, shown, table_number IS NULL AS older", _MINE
)
_ERASED = _one_by_one("tombstones", "visitor", "visitor", _MINE)
_MEMBERS = _one_by_one("memberships", "visitor", "visitor, experiment_id", "group_name = %b::text")
_ADD_DECISIONS = (
    f"INSERT INTO decisions ({', '.join((*SHARED_COLUMNS, *OWN_COLUMNS))}) "
    f"SELECT {_typed(schema.decisions, SHARED_COLUMNS)}, own.* "
    f"FROM unnest({_typed(schema.decisions, OWN_COLUMNS, '[]')}) AS own ON CONFLICT DO NOTHING"
).encode()
_SHOWN = _one_by_one(
    "decisions",
    "id",
    "id, salt, segment, shown, decided_at, coalesce(table_number, 0) AS number, "
    "coalesce(role, 0) AS part",
    f"shown IS NOT NULL AND {_MINE}",
)
_REWARDED = _one_by_one("rewards", "decision_id", "decision_id, metric", _MINE)
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
_OWN_TYPES = _types(schema.decisions, OWN_COLUMNS)
_REWARD_TYPES = _types(schema.rewards, NewReward._fields)
_COUNT_TYPES = _types(schema.counters, Count._fields)
_EXTEND = (
    b"UPDATE writers SET seq = %b, head = %b, lease_until = %b "
    b"WHERE id = %b AND owner = %b AND head = %b"
)
_COUNT_AND_EXTEND = b"WITH counted AS (%b) %b" % (_ADD_COUNTS, _EXTEND)
"""Combined into one statement, because each statement is a round trip."""
_CHAIN = b"SELECT seq, head FROM writers WHERE id = %b AND owner = %b"


class PostgresTransaction:
    """Implements `HotTransaction` on one connection.

    Attributes:
        begun: whether the transaction has begun, which happens with its first statement.
    """

    def __init__(self, connection: psycopg.Connection[TupleRow]) -> None:
        connection.adapters.register_dumper(_Array, _ArrayDumper)
        self._cursor = connection.cursor(binary=True)
        self._plain = connection.cursor()
        self.begun = False

    def heads(self, experiments: Sequence[bytes]) -> dict[bytes, Head]:
        """See HotTransaction."""
        listed = ", ".join(f"decode('{identity.hex()}', 'hex')" for identity in experiments)
        wanted = _HEADS.format(listed)
        if self.begun:
            self._plain.execute(wanted.encode())
        else:  # usually the first statement: saves a round trip
            self._plain.execute(f"BEGIN; {wanted}".encode())
            self._plain.nextset()
            self.begun = True
        return {row[0]: Head(row[1], row[2]) for row in self._plain.fetchall()}

    def stored(self, experiment: bytes, visitors: Sequence[bytes]) -> dict[bytes, Stored]:
        """See HotTransaction."""
        rows = self._rows(_STORED, [_bytes_array(visitors), experiment])
        return {row[0]: Stored(*row[1:]) for row in rows}

    def erased(self, experiment: bytes, tombstones: Sequence[bytes]) -> set[bytes]:
        """See HotTransaction."""
        return {row[0] for row in self._rows(_ERASED, [_bytes_array(tombstones), experiment])}

    def members(self, group: str, visitors: Sequence[bytes]) -> dict[bytes, bytes]:
        """See HotTransaction."""
        return dict(self._rows(_MEMBERS, [_bytes_array(visitors), group]))

    def add_decisions(self, new: NewDecisions) -> int:
        """See HotTransaction."""
        values = [*new[:5], *_columns(new.rows, _OWN_TYPES)]
        return self._executed(_ADD_DECISIONS, values).rowcount

    def shown(self, experiment: bytes, decisions: Sequence[bytes]) -> dict[bytes, Shown]:
        """See HotTransaction."""
        rows = self._rows(_SHOWN, [_bytes_array(decisions), experiment])
        return {row[0]: Shown(*row[1:]) for row in rows}

    def rewarded(self, experiment: bytes, decisions: Sequence[bytes]) -> set[tuple[bytes, int]]:
        """See HotTransaction."""
        return set(self._rows(_REWARDED, [_bytes_array(decisions), experiment]))

    def add_rewards(self, rows: Sequence[NewReward]) -> int:
        """See HotTransaction."""
        return self._added(_ADD_REWARDS, rows, _REWARD_TYPES)

    def answered(self, experiment: bytes, writer: int, hour: int) -> None:
        """See HotTransaction."""
        self._executed(_ANSWERED, [experiment, writer, hour])

    def extend(
        self,
        writer: int,
        owner: bytes,
        before: bytes,
        chain: Chain,
        lease_until: int,
        counts: Sequence[Count],
    ) -> bool:
        """See HotTransaction."""
        values = [*chain, lease_until, writer, owner, before]
        if not counts:
            return self._executed(_EXTEND, values).rowcount == 1
        values = [*_columns(counts, _COUNT_TYPES), *values]
        return self._executed(_COUNT_AND_EXTEND, values).rowcount == 1

    def chain(self, writer: int, owner: bytes) -> Chain | None:
        """See HotTransaction."""
        rows = self._rows(_CHAIN, [writer, owner])
        return rows[0] if rows else None

    def _rows(self, statement: bytes, values: Sequence[object]) -> list[TupleRow]:
        return self._executed(statement, values).fetchall()

    def _executed(self, statement: bytes, values: Sequence[object]) -> psycopg.Cursor[TupleRow]:
        if not self.begun:
            self._plain.execute(b"BEGIN")
            self.begun = True
        return self._cursor.execute(statement, values)

    def _added(
        self, statement: bytes, rows: Sequence[tuple[int | bytes, ...]], types: Sequence[str]
    ) -> int:
        if not rows:
            return 0
        return self._executed(statement, _columns(rows, types)).rowcount


class _Array(bytes):
    """An array in PostgreSQL's binary format. The statement specifies the element type.

    psycopg's general, nestable arrays took a sixth of a batch's CPU time.
    """


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: bytes) -> bytes:
        """See Dumper."""
        return obj


_ELEMENTS = {"bytea": 17, "int2": 21, "int4": 23, "int8": 20}
"""PostgreSQL OIDs of these types."""

_INTEGERS = {"int2": (2, "h"), "int4": (4, "i"), "int8": (8, "q")}
"""Size and struct format of an element."""


def _columns(rows: Sequence[tuple[int | bytes, ...]], types: Sequence[str]) -> list[_Array]:
    columns = zip(*rows, strict=True)
    return [
        _bytes_array(column) if kind == "bytea" else _integer_array(column, kind)
        for column, kind in zip(columns, types, strict=True)
    ]


def _array(kind: str, count: int, elements: bytes) -> _Array:
    if not count:
        return _Array(struct.pack(">iiI", 0, 0, _ELEMENTS[kind]))
    # One dimension, no NULLs, element type, count, lower bound 1.
    return _Array(struct.pack(">iiIii", 1, 0, _ELEMENTS[kind], count, 1) + elements)


def _bytes_array(values: Sequence[bytes]) -> _Array:
    parts = chain.from_iterable((len(value).to_bytes(4, "big"), value) for value in values)
    return _array("bytea", len(values), b"".join(parts))


def _integer_array(values: Sequence[int], kind: str) -> _Array:
    length, form = _INTEGERS[kind]
    flat = chain.from_iterable(zip(repeat(length), values))
    return _array(kind, len(values), struct.pack(f">{f'i{form}' * len(values)}", *flat))
