"""What Citus, CockroachDB and YugabyteDB lack of PostgreSQL, and a watch on the store's statements.

None of the three can be had from a package registry, so the next best thing is proved: while tests run
on PostgreSQL, each statement that a store's connection sends is looked at, and one that uses something
of this table fails the test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from deniable.storage.postgres import _Connection

COCKROACH = "https://www.cockroachlabs.com/docs/v24.1/postgresql-compatibility"
YUGABYTE = (
    "https://docs.yugabyte.com/latest/explore/ysql-language-features/postgresql-compatibility/"
)
CITUS = "https://docs.citusdata.com/en/stable/develop/reference_workarounds.html"

SPREAD = ("counters", "decisions", "rewards")
"""Tables that grow with visitors: what Citus would spread over machines, by the experiment's id."""

_SPREAD = "|".join(SPREAD)
SETTINGS = (
    "lock_timeout",
    "plan_cache_mode",
    "statement_timeout",
    "synchronous_commit",
)
"""Settings of a session that the store sets; CockroachDB knows `plan_cache_mode` in newer releases."""


@dataclass(frozen=True)
class Lack:
    """Something of PostgreSQL that one of the engines does not have.

    Attributes:
        what: its name.
        pattern: finds it in a statement.
        source: where an engine says so.
        example: a statement that has it.
    """

    what: str
    pattern: str
    source: str
    example: str


LACKS = (
    Lack(
        "LISTEN and NOTIFY",
        r"^\s*(un)?listen\b|^\s*notify\b|\bpg_notify\s*\(",
        YUGABYTE,
        "LISTEN x",
    ),
    Lack("advisory locks", r"\bpg_(try_)?advisory_", COCKROACH, "SELECT pg_advisory_xact_lock(1)"),
    Lack(
        "triggers",
        r"\bcreate\s+(constraint\s+)?trigger\b",
        COCKROACH,
        "CREATE TRIGGER t AFTER INSERT",
    ),
    Lack("rules", r"\bcreate\s+(or\s+replace\s+)?rule\b", CITUS, "CREATE RULE r AS ON INSERT TO x"),
    Lack(
        "functions and procedures in the database",
        r"\bcreate\s+(or\s+replace\s+)?(function|procedure)\b|^\s*do\s+\$",
        COCKROACH,
        "CREATE OR REPLACE FUNCTION f() RETURNS int",
    ),
    Lack("LOCK TABLE", r"^\s*lock\b", YUGABYTE, "LOCK TABLE decisions IN EXCLUSIVE MODE"),
    Lack("table inheritance", r"\binherits\s*\(", YUGABYTE, "CREATE TABLE x () INHERITS (y)"),
    Lack(
        "exclusion constraints",
        r"\bexclude\s+using\b",
        YUGABYTE,
        "ADD EXCLUDE USING gist (x WITH =)",
    ),
    Lack(
        "deferrable constraints",
        r"\bdeferrable\b|\binitially\s+deferred\b",
        YUGABYTE,
        "UNIQUE DEFERRABLE",
    ),
    Lack(
        "GiST, GIN, BRIN indexes",
        r"\busing\s+(gist|gin|brin|spgist)\b",
        YUGABYTE,
        "CREATE INDEX USING gist",
    ),
    Lack("two-phase commit", r"\bprepare\s+transaction\b", COCKROACH, "PREPARE TRANSACTION 'x'"),
    Lack("XML", r"\bxml\w*\s*\(|::xml\b", COCKROACH, "SELECT xmlelement(name x)"),
    Lack("domains", r"\bcreate\s+domain\b", COCKROACH, "CREATE DOMAIN d AS int"),
    Lack("own types", r"\b(create|alter)\s+type\b", YUGABYTE, "ALTER TYPE t RENAME TO u"),
    Lack(
        "range types",
        r"::\w*range\b|\b(int4|int8|num|ts|tstz|date)range\b",
        COCKROACH,
        "SELECT int8range(1, 2)",
    ),
    Lack(
        "stored generated columns",
        r"\bgenerated\s+always\s+as\b",
        YUGABYTE,
        "x int GENERATED ALWAYS AS (y) STORED",
    ),
    Lack(
        "sequences, which are slow or differ",
        r"\b(small|big)?serial\b|\bcreate\s+sequence\b|\bnextval\s*\(|\bas\s+identity\b",
        CITUS,
        "CREATE TABLE x (id BIGSERIAL)",
    ),
    Lack("foreign data", r"\bcreate\s+(foreign|server)\b", COCKROACH, "CREATE FOREIGN TABLE x"),
    Lack("extensions", r"\bcreate\s+extension\b", COCKROACH, "CREATE EXTENSION pgcrypto"),
    Lack("partitions", r"\bpartition\s+(by|of)\b", CITUS, "CREATE TABLE x PARTITION BY RANGE (y)"),
    Lack("recursive queries", r"\bwith\s+recursive\b", CITUS, "WITH RECURSIVE x AS (SELECT 1)"),
    Lack(
        "grouping sets",
        r"\bgrouping\s+sets\b|\brollup\s*\(|\bcube\s*\(",
        CITUS,
        "GROUP BY ROLLUP (x)",
    ),
    Lack("TABLESAMPLE", r"\btablesample\b", CITUS, "SELECT 1 FROM x TABLESAMPLE system (1)"),
    Lack(
        "row locks on tables that are spread",
        rf"\bfrom\s+({_SPREAD})\b.*\bfor\s+(no\s+key\s+)?(update|share|key\s+share)\b",
        CITUS,
        "SELECT id FROM decisions WHERE salt IS NULL FOR UPDATE",
    ),
    Lack(
        "subqueries within INSERT ... VALUES",
        r"\binsert\s+into\b.*\bvalues\s*\(.*\(\s*select\b",
        CITUS,
        "INSERT INTO x VALUES (1, (SELECT 2))",
    ),
    Lack("whole-number division, which differs", r"\w\s*/\s*[\w(%]", COCKROACH, "SELECT hour / 24"),
    Lack("bit operators, whose order differs", r"\s[#&|~]\s|<<|>>", COCKROACH, "SELECT 1 | 2 & 3"),
    Lack(
        "system columns", r"\b(ctid|xmin|xmax|tableoid)\b", COCKROACH, "SELECT ctid FROM decisions"
    ),
    Lack(
        "row security",
        r"\brow\s+level\s+security\b|\bcreate\s+policy\b",
        CITUS,
        "CREATE POLICY p ON x",
    ),
    Lack(
        "server-side cursors and COPY",
        r"^\s*(declare|copy)\b",
        COCKROACH,
        "COPY decisions FROM STDIN",
    ),
    Lack(
        "settings that not all of them know",
        rf"^\s*set\s+(?!((local|session)\s+)?({'|'.join(SETTINGS)}|transaction|characteristics)\b)",
        COCKROACH,
        "SET LOCAL enable_seqscan = off",
    ),
)


def lacking(statement: str) -> list[str]:
    """What a statement, or several, use that one of the engines lacks."""
    found = []
    values = re.sub(r"'[^']*'", "''", statement)  # what is quoted is a value
    for text in values.split(";"):
        found += [lack.what for lack in LACKS if re.search(lack.pattern, text, re.I | re.S)]
    return found


@dataclass
class Watch:
    """What the store's connections have sent.

    Attributes:
        statements: each once.
        problems: those that use something of the table.
    """

    statements: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def look(self, query: Any) -> None:
        """Take in a statement; AssertionError where it is not portable."""
        if isinstance(query, bytes):
            query = query.decode()
        text = query if isinstance(query, str) else query.as_string()
        if text in self.statements:
            return
        self.statements.add(text)
        found = lacking(text)
        if found:
            self.problems.append(f"{', '.join(found)}: {text}")
            raise AssertionError(self.problems[-1])


@contextmanager
def watching() -> Iterator[Watch]:
    """Look at every statement that a store sends to PostgreSQL in this process."""
    watch = Watch()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("execute", "executemany", "stream", "copy"):
            patch.setattr(psycopg.Cursor, name, _looked_at(getattr(psycopg.Cursor, name), watch))
        yield watch


def _looked_at(original: Any, watch: Watch) -> Any:
    def sent(cursor: Any, query: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(cursor.connection, _Connection):
            watch.look(query)
        return original(cursor, query, *rest, **more)

    return sent
