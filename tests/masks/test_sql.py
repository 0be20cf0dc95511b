"""The SQL statement: the same labels as Python, bit for bit, in DuckDB and PostgreSQL."""

from __future__ import annotations

import random

import duckdb
import psycopg
import pytest
import sqlglot
from tests.postgres import PostgresServer

from deniable.errors import InvalidArgumentError
from deniable.masks.mask import Mask
from deniable.masks.sql import DIALECTS, check_sql, key_pads, label_sql

KEY = bytes(range(32))
ROWS = 10_000
MASKS = [
    Mask(
        segments=["under-25", "25-44", "45-64", "65-plus"], budget=1, key=KEY, name="age", version=3
    ),
    Mask(
        segments=["it's", "back\\slash", "café", "Z", "z"],
        budget="0.3",
        key=KEY,
        name="odd-names",
        period="2027-1",
        groups={"odd": ["it's", "back\\slash"], "café": ["café"], "z's": ["Z", "z"]},
    ),
    Mask(segments=[f"s{n}" for n in range(40)], budget=4, key=KEY, name="many"),
]


def visitors(mask: Mask) -> list[tuple[str | None, str | None]]:
    """Ids of every printable character, bad ids, and all segments, known, unknown and missing."""
    rng = random.Random(1)
    alphabet = [chr(code) for code in range(0x21, 0x7F)]
    bad = ["", "a b", "ü", "v\n", "x" * 257, "tab\t", None, " v"]
    values = [*mask.segments, None, "not a segment", "UNDER-25"]
    return [
        (
            bad[n]
            if n < len(bad)
            else "".join(rng.choices(alphabet, k=rng.randint(1, 30))) + str(n),
            rng.choice(values),
        )
        for n in range(ROWS)
    ]


def expected(mask: Mask, rows: list[tuple[str | None, str | None]]) -> list[str | None]:
    def label(visitor: str | None, segment: str | None) -> str | None:
        try:
            return mask.label(visitor or "", segment)
        except InvalidArgumentError:
            return None

    return [label(*row) for row in rows]


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.name)
@pytest.mark.parametrize("collation", ["", "NOCASE"])
def test_duckdb_gives_the_same_labels(mask: Mask, collation: str) -> None:
    rows = visitors(mask)
    with duckdb.connect() as engine:
        if collation:
            engine.execute(f"PRAGMA default_collation='{collation}'")
        engine.execute("CREATE TABLE deniable_mask_key(inner_pad VARCHAR, outer_pad VARCHAR)")
        engine.execute("INSERT INTO deniable_mask_key VALUES (?, ?)", key_pads(KEY))
        engine.execute(
            "CREATE TABLE visitors AS SELECT unnest(?) AS visitor, unnest(?) AS segment, unnest(?) AS n",
            [[visitor for visitor, _ in rows], [segment for _, segment in rows], list(range(ROWS))],
        )
        ordered = "(SELECT * FROM visitors ORDER BY n)"
        labelled = engine.execute(label_sql(mask, "duckdb", table=ordered)).fetchall()
    assert [visitor for visitor, _ in labelled] == [visitor for visitor, _ in rows]
    assert [label for _, label in labelled] == expected(mask, rows)


@pytest.mark.postgres
@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.name)
@pytest.mark.parametrize("collation", ["C", "en-x-icu"])
def test_postgresql_gives_the_same_labels(
    mask: Mask, collation: str, postgres: PostgresServer
) -> None:
    rows = visitors(mask)
    with psycopg.connect(postgres.new_database().replace("+psycopg", "")) as engine:
        engine.execute("CREATE TABLE deniable_mask_key(inner_pad text, outer_pad text)")
        engine.execute("INSERT INTO deniable_mask_key VALUES (%s, %s)", key_pads(KEY))
        text = f'text COLLATE "{collation}"'
        engine.execute(f"CREATE TABLE visitors(visitor {text}, segment {text}, n integer)")
        with engine.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO visitors VALUES (%s, %s, %s)",
                [(*row, n) for n, row in enumerate(rows)],
            )
        ordered = "(SELECT * FROM visitors ORDER BY n)"
        labelled = engine.execute(label_sql(mask, "postgres", table=ordered)).fetchall()
    assert [label for _, label in labelled] == expected(mask, rows)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.name)
def test_every_dialect_parses(mask: Mask, dialect: str) -> None:
    for statement in (
        label_sql(mask, dialect),
        check_sql(mask, dialect, [("v-1", mask.segments[0]), ("v-2", None)]),
    ):
        parsed = sqlglot.parse_one(statement, dialect=dialect)
        literals = {node.name for node in parsed.find_all(sqlglot.exp.Literal) if node.is_string}
        assert {*mask.segments, *mask.labels_in_order} <= literals or "check" in statement


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_key_is_not_in_the_text(dialect: str) -> None:
    text = label_sql(MASKS[0], dialect)
    assert not any(secret in text for secret in (KEY.hex(), *key_pads(KEY), KEY.hex()[:16]))


def test_bad_names_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="dialect='oracle': expected one of duckdb"):
        label_sql(MASKS[0], "oracle")
    with pytest.raises(InvalidArgumentError, match="quotation marks"):
        label_sql(MASKS[0], "duckdb", visitor='id"; DROP TABLE visitors; --')
