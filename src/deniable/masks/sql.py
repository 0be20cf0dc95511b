"""The label as a SQL statement, so that a warehouse computes the same labels as Python.

The statement reads a table with a visitor and a segment and returns each visitor with its label. The key
is not in its text: queries end up in histories and build artefacts. It is read from a table of one
row, `deniable_mask_key`, whose columns hold the key padded for HMAC, in hexadecimal
(`key_pads`); give that table its own grants. HMAC is spelt out as two SHA-256, because most
engines do not have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from deniable.errors import InvalidArgumentError
from deniable.masks.mask import Mask

_BLOCK = 64  # bytes of a SHA-256 block


@dataclass(frozen=True)
class Dialect:
    """How an engine spells what the statement needs.

    Attributes:
        name: of the engine.
        quote: the quotation mark of identifiers.
        is_visitor: whether {visitor} consists of printable ASCII characters.
        hashed: the 64 hex digits of HMAC-SHA256 of the text {message}, with the padded keys
            {inner} and {outer} in hexadecimal.
        text: a column {column} as text that is compared byte by byte.
        separator: the byte that separates fields, as an expression.
        backslashes: whether a backslash in a literal begins an escape.
        tested: whether the tests run the statement on this engine.
    """

    name: str
    quote: str
    is_visitor: str
    hashed: str
    text: str
    separator: str
    backslashes: bool
    tested: bool


DIALECTS: Mapping[str, Dialect] = {
    "duckdb": Dialect(
        name="DuckDB",
        quote='"',
        is_visitor="regexp_full_match({visitor}, '[!-~]+')",
        hashed="sha256(unhex({outer}) || unhex(sha256(unhex({inner}) || encode({message}))))",
        text="CAST({column} AS VARCHAR) COLLATE C",
        separator="chr(31)",
        backslashes=False,
        tested=True,
    ),
    "postgres": Dialect(
        name="PostgreSQL",
        quote='"',
        is_visitor="{visitor} ~ '^[!-~]+$'",
        hashed="encode(sha256(decode({outer}, 'hex') || sha256(decode({inner}, 'hex') || "
        "convert_to({message}, 'UTF8'))), 'hex')",
        text='CAST({column} AS text) COLLATE "C"',
        separator="chr(31)",
        backslashes=False,
        tested=True,
    ),
    "bigquery": Dialect(
        name="BigQuery",
        quote="`",
        is_visitor=r"REGEXP_CONTAINS({visitor}, r'\A[!-~]+\z')",
        hashed="TO_HEX(SHA256(CONCAT(FROM_HEX({outer}), SHA256(CONCAT(FROM_HEX({inner}), "
        "CAST({message} AS BYTES))))))",
        text="COLLATE(CAST({column} AS STRING), '')",
        separator="CHR(31)",
        backslashes=True,
        tested=False,
    ),
    "snowflake": Dialect(
        name="Snowflake",
        quote='"',
        is_visitor="REGEXP_LIKE({visitor}, '[!-~]+')",
        hashed="LOWER(HEX_ENCODE(SHA2_BINARY(TO_BINARY({outer}, 'HEX') || "
        "SHA2_BINARY(TO_BINARY({inner}, 'HEX') || TO_BINARY({message}, 'UTF-8'), 256), 256)))",
        text="COLLATE(CAST({column} AS VARCHAR), '')",
        separator="CHR(31)",
        backslashes=True,
        tested=False,
    ),
    "spark": Dialect(
        name="Spark",
        quote="`",
        is_visitor=r"{visitor} RLIKE '\\A[!-~]+\\z'",
        hashed="sha2(concat(unhex({outer}), unhex(sha2(concat(unhex({inner}), "
        "encode({message}, 'UTF-8')), 256))), 256)",
        text="CAST({column} AS STRING)",
        separator="char(31)",
        backslashes=True,
        tested=False,
    ),
}
"""Name in options -> dialect."""


def label_sql(
    mask: Mask,
    dialect: str,
    *,
    table: str = "visitors",
    visitor: str = "visitor",
    segment: str = "segment",
    key_table: str = "deniable_mask_key",
) -> str:
    """Return a statement that selects each visitor with its label.

    The label is NULL if the visitor is not printable ASCII or the segment is not one of the mask's.
    A segment that is NULL gets a label from the null row.

    Args:
        mask: whose labels.
        dialect: a key of `DIALECTS`.
        table: has a row for each visitor, with the first segment that was known.
        visitor: its column with the visitor's id.
        segment: its column with the segment.
        key_table: the table with the padded key: inner_pad, outer_pad.
    """
    engine = _dialect(dialect)
    visitor_text = engine.text.format(column="t." + _identifier(visitor, engine))
    segment_text = engine.text.format(column="t." + _identifier(segment, engine))
    groups = "\n".join(
        f"      WHEN {_literal(name, engine)} THEN {number}"
        for number, members in enumerate(mask.groups.values())
        for name in members
    )
    head = " || ".join(
        f"{_literal(field, engine)} || {engine.separator}" for field in mask.message_head
    )
    tail = "CASE WHEN g.label_group < 0 THEN '-' ELSE CAST(g.label_group AS {}) END".format(
        "STRING" if engine.quote == "`" else "VARCHAR"
    )
    message = f"{head} || g.visitor || {engine.separator} || {tail}"
    hashed = engine.hashed.format(message=message, inner="k.inner_pad", outer="k.outer_pad")
    drawn = engine.text.format(column="d.draw")
    return f"""\
-- Labels of mask {mask.name}, version {mask.version}, period {mask.period}: {engine.name}\
{"" if engine.tested else " (not run in our tests: compare `deniable mask check`)"}.
-- channel {mask.channel_hash}, key {mask.fingerprint}, read from {key_table}.
-- A label is NULL if the visitor is not 1 to 256 printable ASCII characters, or the segment is unknown:
-- count those rows.
WITH grouped AS (
  SELECT
    {visitor_text} AS visitor,
    CASE {segment_text}
{groups}
      ELSE CASE WHEN t.{_identifier(segment, engine)} IS NULL THEN -1 END
    END AS label_group
  FROM {table} AS t
),
drawn AS (
  SELECT
    g.visitor,
    g.label_group,
    CASE WHEN {engine.is_visitor.format(visitor="g.visitor")} AND LENGTH(g.visitor) <= 256
      THEN SUBSTR({hashed}, 1, 16)
    END AS draw
  FROM grouped AS g CROSS JOIN {key_table} AS k
)
SELECT
  d.visitor AS {_identifier(visitor, engine)},
  CASE
    WHEN d.draw IS NULL OR d.label_group IS NULL THEN NULL
{_thresholds(mask, drawn, engine)}
    ELSE {_literal(mask.labels_in_order[-1], engine)}
  END AS {_identifier(f"{mask.name}_label", engine)}
FROM drawn AS d;
"""


def check_sql(
    mask: Mask, dialect: str, rows: Sequence[tuple[str, str | None]], **names: str
) -> str:
    """Return the statement for given visitors and segments, to compare engines by hand.

    Args:
        mask: whose labels.
        dialect: a key of `DIALECTS`.
        rows: visitors with their segments.
        names: passed on to `label_sql`.
    """
    engine = _dialect(dialect)
    kind = "STRING" if engine.quote == "`" else "VARCHAR"
    selects = "\n  UNION ALL ".join(
        f"SELECT {_literal(visitor, engine)} AS visitor, "
        + (f"CAST(NULL AS {kind})" if segment is None else _literal(segment, engine))
        + " AS segment"
        for visitor, segment in rows
    )
    return label_sql(mask, dialect, table=f"(\n  {selects}\n)", **names)


def key_pads(key: bytes) -> tuple[str, str]:
    """Return the key padded for the inner and the outer hash of HMAC, in hexadecimal."""
    padded = key.ljust(_BLOCK, b"\0")
    return (
        bytes(byte ^ 0x36 for byte in padded).hex(),
        bytes(byte ^ 0x5C for byte in padded).hex(),
    )


def _dialect(name: str) -> Dialect:
    if name not in DIALECTS:
        raise InvalidArgumentError("dialect", name, f"one of {', '.join(DIALECTS)}")
    return DIALECTS[name]


def _thresholds(mask: Mask, drawn: str, engine: Dialect) -> str:
    """One comparison for each label but the last.

    The threshold of label j depends only on whether the person's group comes after j: the own
    entry is in the sum, or it is not. So m comparisons do, instead of m for each of m groups.
    """
    first, last, null = (
        [f"{threshold:016x}" for threshold in accumulate(mask.entries[row])] for row in (0, -2, -1)
    )
    return "\n".join(
        f"    WHEN {drawn} < CASE WHEN d.label_group < 0 THEN '{null[j]}' "
        f"WHEN d.label_group <= {j} THEN '{first[j]}' ELSE '{last[j]}' END "
        f"THEN {_literal(label, engine)}"
        for j, label in enumerate(mask.labels_in_order[:-1])
    )


def _literal(text: str, engine: Dialect) -> str:
    if engine.backslashes:
        text = text.replace("\\", "\\\\")
        return "'" + text.replace("'", "\\'") + "'"
    return "'" + text.replace("'", "''") + "'"


def _identifier(name: str, engine: Dialect) -> str:
    if not name or engine.quote in name or not name.isprintable():
        raise InvalidArgumentError("column", name, "a name without quotation marks")
    return f"{engine.quote}{name}{engine.quote}"
