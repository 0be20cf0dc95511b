"""The schema of both databases, in SQLAlchemy Core.

Keys are 16 random bytes (UUIDs), times are whole microseconds since 1970 (UTC), budgets whole
nano-nats, rewards whole millionths of the metric's unit. The experiment's id leads every key of what
grows with visitors, so that rows can be sharded by it (except on SQLite, which is one
machine, not the key of visitors). No triggers, no sequences, no database functions.

`commitments` is the chain of everything that carries a promise: budgets, experiments, tables. Rows of
`decisions` and `rewards` are their own ledger entries, chained by `hash` to the row with the previous
`seq` of the same writer. Promises are read from the chain; the columns of `experiments` are a
copy for searching and displaying, and an experiment whose copy disagrees is not served.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Row,
    Select,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

HEAD = "0001"
"""The newest revision in `migrations/versions`."""

StoredRow: TypeAlias = "Row[*tuple[Any, ...]]"
"""A row of a query's result, with columns as attributes. Only the query knows their types."""

Query: TypeAlias = "Select[*tuple[Any, ...]]"
"""A query for such rows."""

metadata = MetaData()


def _id(name: str, *, nullable: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary(16), nullable=nullable)


facts = Table(
    "facts",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("value", LargeBinary(32), nullable=False),
)
"""Single values: `visitor_key` is a fingerprint of the key that the visitors' HMACs were made with."""

experiments = Table(
    "experiments",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    Column("tag", Integer, nullable=False, unique=True),  # prefix of its decision ids
    Column("key", String(128), nullable=False, unique=True),
    Column("status", String(8), nullable=False),
    Column("strategy", String(16), nullable=False),
    Column("budget_nano", BigInteger, nullable=False),
    Column("planned_visitors", BigInteger),
    Column("mask", String(64)),  # whose labels are its segments
    Column("sticky", Boolean, nullable=False),
    Column("layer", String(128)),
    Column("slots", LargeBinary(125)),  # one bit for each of the layer's 1,000; set at the start
    Column("holdout", SmallInteger, nullable=False),  # thousandths of the visitors
    Column("default_arm", SmallInteger, nullable=False),
    Column("attribution_seconds", BigInteger),
    Column("metrics", Text, nullable=False),  # JSON; the first one decides
    Column(
        "contexts", Text, nullable=False
    ),  # JSON; "other" is the first; none with segments alone
    Column("observed", Boolean, nullable=False),  # whether third parties may see its visits
    Column("version", Integer, nullable=False),
    Column("winner", SmallInteger),
    Column("table_number", Integer, nullable=False),  # the table in force; 0 before the first
    Column("has_tombstones", Boolean, nullable=False),
    # Raised by every change; a writer with a different revision rereads the experiment.
    Column("revision", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("stopped_at", BigInteger),
)

arms = Table(
    "arms",
    metadata,
    Column("experiment_id", LargeBinary(16), ForeignKey("experiments.id"), primary_key=True),
    Column("position", SmallInteger, primary_key=True, autoincrement=False),
    Column("key", String(128), nullable=False),
    Column("label", Text, nullable=False),
    Column("budget_nano", BigInteger),
    Column("off_since_version", Integer),
    Column("weight", Integer, nullable=False),  # of the neutral row at the start
    UniqueConstraint("experiment_id", "key"),
)

segments = Table(
    "segments",
    metadata,
    Column("experiment_id", LargeBinary(16), ForeignKey("experiments.id"), primary_key=True),
    Column("position", SmallInteger, primary_key=True, autoincrement=False),
    Column("name", String(128), nullable=False),
    UniqueConstraint("experiment_id", "name"),
)

labels = Table(
    "labels",
    metadata,
    _id("experiment_id"),
    Column("kind", String(8), nullable=False),  # owner or tag
    Column("value", String(64), nullable=False),
    PrimaryKeyConstraint("experiment_id", "kind", "value"),
)
"""Labels for finding experiments. They promise nothing; every change is in the ledger."""

mask_labels = Table(
    "mask_labels",
    metadata,
    _id("mask_id"),
    _id("visitor"),  # keyed HMAC within the mask
    Column("label", SmallInteger),  # NULL once the visitor is erased
    Column("known", SmallInteger, nullable=False),  # 1 if it was drawn for a known segment, else 0
    PrimaryKeyConstraint("mask_id", "visitor"),
    sqlite_with_rowid=False,
)
"""The first label of each visitor of a mask. What it was drawn from is stored nowhere.

A label from equal chances (`known` is 0) is replaced once, by that of the first known segment. An
erased visitor's row stays without its label, so that nobody gets a second draw.
"""

tables = Table(
    "tables",
    metadata,
    _id("experiment_id"),
    Column("number", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("strategy", String(16), nullable=False),
    Column("published_at", BigInteger, nullable=False),
    Column("decisions", BigInteger, nullable=False),  # stored at that time, of every role
    Column("counts", LargeBinary, nullable=False),  # the input of the table: JSON
    Column("rows", LargeBinary, nullable=False),  # `privacy.tables.Table.encoded`
    PrimaryKeyConstraint("experiment_id", "number"),
)
"""Published tables. A `table` entry in the commitment chain contains the hash of each."""

leases = Table(
    "leases",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("owner", LargeBinary(16), nullable=False),
    Column("until", BigInteger, nullable=False),
)
"""Leases on work for one process at a time, such as publishing an experiment's next table."""

answers = Table(
    "answers",
    metadata,
    _id("experiment_id"),
    Column("writer_id", Integer, nullable=False),
    Column("hour", Integer, nullable=False),
    PrimaryKeyConstraint("experiment_id", "writer_id"),
)
"""The last hour (since 1970) in which a writer answered with an arm drawn at a risk."""

tombstones = Table(
    "tombstones",
    metadata,
    _id("experiment_id"),
    _id("visitor"),  # a keyed hash of the erased visitor's keyed hash
    Column("entry", BigInteger, nullable=False),  # the commitment with the digest of its tombstones
    PrimaryKeyConstraint("experiment_id", "visitor"),
)
"""Erased visitors of experiments that still count. They get the neutral row instead of a second draw."""

writers = Table(
    "writers",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # random
    Column("owner", LargeBinary(16)),  # who may write to it; replaced when a lease has expired
    Column("lease_until", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("head", LargeBinary(32), nullable=False),
)
"""The chains: one row each, with length and newest hash. Id 0 is the chain of commitments."""

COMMITMENT_CHAIN = 0

decisions = Table(
    "decisions",
    metadata,
    _id("experiment_id"),
    _id("id"),
    # Erasable: all NULL once the visitor is erased; `commitment` then keeps the chain verifiable.
    _id("visitor", nullable=True),  # keyed HMAC
    _id("salt", nullable=True),
    # Its row of the table, -1 for that of unlisted segments: context x segments + segment, where a
    # label counts as a segment, and who has no segments or no contexts has one. See `Experiment.rows`.
    Column("segment", SmallInteger),
    Column("shown", SmallInteger),
    # Permanent.
    Column("version", Integer, nullable=False),
    Column("table_number", Integer, nullable=False),
    # `records.Role`: which row of the table was drawn from.
    Column("role", SmallInteger, nullable=False),
    Column("decided_at", BigInteger, nullable=False),
    Column("writer_id", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", LargeBinary(32), nullable=False),
    # Set by an erasure, from the values that it removes.
    Column("commitment", LargeBinary(32)),
    PrimaryKeyConstraint("experiment_id", "id"),
    # One decision per visitor. The HMAC covers the experiment, so on one machine it suffices as the
    # key: a smaller index has fewer pages to change.
    Index(
        "decisions_visitor", "visitor", unique=True, sqlite_where=text("visitor IS NOT NULL")
    ).ddl_if(dialect="sqlite"),
    UniqueConstraint("experiment_id", "visitor").ddl_if(dialect="postgresql"),
    # The order of a chain, for the newest decisions of an experiment (`table_counts`).
    Index("decisions_order", "writer_id", "experiment_id", "seq"),
)

rewards = Table(
    "rewards",
    metadata,
    _id("experiment_id"),
    _id("decision_id"),
    Column("metric", SmallInteger, nullable=False),
    Column("value", BigInteger),  # millionths; NULL once erased
    Column("rewarded_at", BigInteger, nullable=False),
    Column("writer_id", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", LargeBinary(32), nullable=False),
    Column("commitment", LargeBinary(32)),
    PrimaryKeyConstraint("experiment_id", "decision_id", "metric"),
)

rewarded_decisions = decisions.outerjoin(
    rewards,
    (rewards.c.experiment_id == decisions.c.experiment_id)
    & (rewards.c.decision_id == decisions.c.id)
    & (rewards.c.metric == 0),
)
"""Decisions, each with its reward of the deciding metric where there is one."""

counters = Table(
    "counters",
    metadata,
    _id("experiment_id"),
    Column("table_number", Integer, nullable=False),
    Column("role", SmallInteger, nullable=False),
    Column("segment", SmallInteger, nullable=False),
    Column("arm", SmallInteger, nullable=False),
    Column("metric", SmallInteger, nullable=False),
    Column("writer_id", Integer, nullable=False),
    Column("shows", BigInteger, nullable=False),  # counted once, under the deciding metric
    Column("rewarded", BigInteger, nullable=False),  # how many of them had a reward
    Column("value", BigInteger, nullable=False),  # the sum of the rewards
    Column("square", BigInteger, nullable=False),  # the sum of (reward/cap)^2, in millionths
    PrimaryKeyConstraint(
        "experiment_id", "table_number", "role", "segment", "arm", "metric", "writer_id"
    ),
)
"""Sharded by writer: each adds only to its own rows, so no row is contended."""

commitments = Table(
    "commitments",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("experiment_id", LargeBinary(16)),
    Column("amount_nano", BigInteger, nullable=False),
    Column("detail", Text, nullable=False),
    Column("recorded_at", BigInteger, nullable=False),
    Column("hash", LargeBinary(32), nullable=False),
    Index("commitments_experiment", "experiment_id", "seq"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    Column("label", Text, nullable=False),
    Column("secret_hash", LargeBinary(32), nullable=False, unique=True),
    Column("scopes", String(128), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Column("last_used_hour", Integer),  # since 1970; one write per hour instead of per request
)

users = Table(
    "users",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("role", String(16), nullable=False),
    Column("password_hash", Text),  # NULL until an invitation was accepted
    Column("created_at", BigInteger, nullable=False),
    Column("joined_at", BigInteger),
    Column("disabled_at", BigInteger),
)

invites = Table(
    "invites",
    metadata,
    Column("token_hash", LargeBinary(32), primary_key=True),
    _id("user_id"),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("used_at", BigInteger),
)
"""One-time links for choosing a password. A new one replaces earlier ones."""

sessions = Table(
    "sessions",
    metadata,
    Column("token_hash", LargeBinary(32), primary_key=True),
    _id("user_id", nullable=True),  # one of these two is set
    _id("key_id", nullable=True),
    Column("browser", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("seen_hour", Integer, nullable=False),
    Column("ended_at", BigInteger),
)
"""Sessions of signed-in users. Rows are deleted some time after they expire."""

attempts = Table(
    "attempts",
    metadata,
    Column(
        "bucket", LargeBinary(32), primary_key=True
    ),  # a keyed hash of a name, an address or both
    Column("tried", Integer, nullable=False),
    Column("since", BigInteger, nullable=False),
)
"""Recent sign-in attempts, to slow down guessing."""

approvals = Table(
    "approvals",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("words", Text, nullable=False),
    Column("digest", LargeBinary(32), nullable=False),  # a keyed hash of the exact request
    Column("asked_by", Text, nullable=False),
    Column("asked_at", BigInteger, nullable=False),
    Column("answered_by", Text),
    Column("answered_at", BigInteger),
    Column("granted", Boolean),
)
"""Actions that wait for a second person's approval."""

replies = Table(
    "replies",
    metadata,
    Column("idempotency_key", LargeBinary(32), primary_key=True),
    Column("request_hash", LargeBinary(32), nullable=False),
    Column("status", SmallInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)
"""Responses to administrative requests with an idempotency key."""

samples = Table(
    "samples",
    metadata,
    _id("experiment_id"),
    Column("taken_at", BigInteger, nullable=False),
    Column("figures", Text, nullable=False),
    PrimaryKeyConstraint("experiment_id", "taken_at"),
)
"""Samples of an experiment's totals over all segments, for charts over time."""
