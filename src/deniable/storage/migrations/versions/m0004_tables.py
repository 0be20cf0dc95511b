"""Published tables, chained rewards with values, layers, tombstones and a rolling budget.

Decisions keep their old format. Rewards get values in millionths and a separate chain, hidden by
the salts of their decisions. The contents of periods, groups and rows are added to the ledger as
`migrate` entries: one for the firm, one per experiment. Facts that the ledger contains are taken
from there and not from the rows, so that a row that was tampered with does not become a promise.
"""

import json
import os
import time
from typing import Any

import sqlalchemy as sa
from alembic import op

from deniable.storage.chain import GENESIS, commitment_hash, reward_hash, reward_salted_hash

revision = "0004"
down_revision = "0003"

_WINDOW_DAYS = 90
_HOUR = 3_600_000_000
_MILLION = 1_000_000
_SLOTS = 1000
_PAGE = 5_000
_LIVE = ("running", "paused")
_STATUS = {"start": "running", "resume": "running", "pause": "paused", "stop": "stopped"}

_REWARDS = {
    "experiment_id": "bytea",
    "decision_id": "bytea",
    "metric": "smallint",
    "value": "bigint",
    "rewarded_at": "bigint",
    "writer_id": "integer",
    "seq": "bigint",
    "hash": "bytea",
}
"""Columns of rewards, with their types for PostgreSQL."""

_COUNTERS = """
INSERT INTO counters (experiment_id, table_number, role, segment, arm, metric, writer_id, shows,
                      rewarded, value, square)
SELECT o.experiment_id, 0, 0, o.segment, o.arm, 0, o.writer_id, o.shows, coalesce(r.rewarded, 0),
       o.clicks * 1000000, o.clicks * 1000000
FROM old_counters AS o
LEFT JOIN (
    SELECT d.experiment_id, d.segment, d.shown, d.writer_id, count(*) AS rewarded
    FROM old_rewards AS w
    JOIN decisions AS d ON d.experiment_id = w.experiment_id AND d.id = w.decision_id
    WHERE d.salt IS NOT NULL
    GROUP BY d.experiment_id, d.segment, d.shown, d.writer_id
) AS r ON r.experiment_id = o.experiment_id AND r.segment = o.segment AND r.shown = o.arm
      AND r.writer_id = o.writer_id
"""


def upgrade() -> None:
    """Upgrade from the schema of 0003, in one transaction."""
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        # One process migrates; another that waited here fails at the next statement and checks
        # again.
        op.execute("SELECT id FROM writers FOR UPDATE")
    _new_tables()
    _columns()
    _rebuild_rewards(connection)
    _rebuild_counters()
    _record(connection, _facts(connection))
    for table in ("old_rewards", "old_counters", "periods", "clocks"):
        op.drop_table(table)


def _new_tables() -> None:
    op.create_table(
        "tables",
        sa.Column("experiment_id", sa.LargeBinary(16), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("strategy", sa.String(16), nullable=False),
        sa.Column("published_at", sa.BigInteger, nullable=False),
        sa.Column("decisions", sa.BigInteger, nullable=False),
        sa.Column("counts", sa.LargeBinary, nullable=False),
        sa.Column("rows", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "number"),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("owner", sa.LargeBinary(16), nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "answers",
        sa.Column("experiment_id", sa.LargeBinary(16), nullable=False),
        sa.Column("writer_id", sa.Integer, nullable=False),
        sa.Column("hour", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "writer_id"),
    )
    op.create_table(
        "tombstones",
        sa.Column("experiment_id", sa.LargeBinary(16), nullable=False),
        sa.Column("visitor", sa.LargeBinary(16), nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "visitor"),
    )
    op.create_index("commitments_experiment", "commitments", ["experiment_id", "seq"])


def _columns() -> None:
    """Add columns without rebuilding tables: others refer to experiments, and decisions are many."""
    metrics = json.dumps([["reward", _MILLION]])
    for column in (
        sa.Column("trace_nano", sa.BigInteger),
        sa.Column("slots", sa.LargeBinary(125)),
        sa.Column("holdout", sa.SmallInteger, nullable=False, server_default="0"),
        sa.Column("metrics", sa.Text, nullable=False, server_default=metrics),
        sa.Column("table_number", sa.Integer, nullable=False, server_default="0"),
        sa.Column("has_tombstones", sa.Boolean, nullable=False, server_default=sa.false()),
    ):
        op.add_column("experiments", column)
        if column.server_default is not None and op.get_bind().dialect.name == "postgresql":
            op.alter_column("experiments", column.name, server_default=None)
    op.execute("ALTER TABLE experiments RENAME COLUMN group_name TO layer")
    op.add_column("decisions", sa.Column("table_number", sa.Integer))
    op.add_column("decisions", sa.Column("role", sa.SmallInteger))


def _renamed(name: str) -> None:
    """Rename a table, together with its key."""
    op.rename_table(name, f"old_{name}")
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"ALTER INDEX {name}_pkey RENAME TO old_{name}_pkey")


def _rebuild_rewards(connection: sa.Connection) -> None:
    """Convert values to millionths, chained one after another under a separate writer."""
    _renamed("rewards")
    op.create_table(
        "rewards",
        sa.Column("experiment_id", sa.LargeBinary(16), nullable=False),
        sa.Column("decision_id", sa.LargeBinary(16), nullable=False),
        sa.Column("metric", sa.SmallInteger, nullable=False),
        sa.Column("value", sa.BigInteger),
        sa.Column("rewarded_at", sa.BigInteger, nullable=False),
        sa.Column("writer_id", sa.Integer, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.LargeBinary(32), nullable=False),
        sa.Column("commitment", sa.LargeBinary(32)),
        sa.PrimaryKeyConstraint("experiment_id", "decision_id", "metric"),
    )
    taken = set(connection.execute(sa.text("SELECT id FROM writers")).scalars())
    writer = 0
    while writer in taken:  # 0 is the chain of commitments
        writer = int.from_bytes(os.urandom(4), "big") >> 1
    seq, head = 0, GENESIS
    old = sa.text(
        "SELECT w.experiment_id, w.decision_id, w.value, w.rewarded_at, d.salt "
        "FROM old_rewards AS w "
        "JOIN decisions AS d ON d.experiment_id = w.experiment_id AND d.id = w.decision_id "
        "WHERE d.salt IS NOT NULL ORDER BY w.experiment_id, w.decision_id"
    )
    with connection.execute(old, execution_options={"yield_per": _PAGE}) as rows:
        for page in rows.partitions(_PAGE):
            made = []
            for experiment, decision, given, at, salt in page:
                seq, value = seq + 1, given * _MILLION
                committed = reward_salted_hash(salt, 0, value)
                head = reward_hash(head, experiment, decision, 0, at, writer, seq, committed)
                made.append((experiment, decision, 0, value, at, writer, seq, head))
            _insert_rewards(connection, made)
    if seq:
        connection.execute(
            sa.text(
                "INSERT INTO writers (id, owner, lease_until, seq, head) "
                "VALUES (:id, NULL, 0, :seq, :head)"
            ),
            {"id": writer, "seq": seq, "head": head},
        )


def _insert_rewards(connection: sa.Connection, rows: list[tuple[Any, ...]]) -> None:
    names = ", ".join(_REWARDS)
    if connection.dialect.name == "postgresql":
        arrays = ", ".join(f"CAST(:{name} AS {kind}[])" for name, kind in _REWARDS.items())
        columns = map(list, zip(*rows, strict=True))
        connection.execute(
            sa.text(f"INSERT INTO rewards ({names}) SELECT * FROM unnest({arrays})"),
            dict(zip(_REWARDS, columns, strict=True)),
        )
    else:
        values = ", ".join(f":{name}" for name in _REWARDS)
        connection.execute(
            sa.text(f"INSERT INTO rewards ({names}) VALUES ({values})"),
            [dict(zip(_REWARDS, row, strict=True)) for row in rows],
        )


def _rebuild_counters() -> None:
    """Everything counted so far belongs to no table: number 0. Clicks were 0 or 1."""
    _renamed("counters")
    op.create_table(
        "counters",
        sa.Column("experiment_id", sa.LargeBinary(16), nullable=False),
        sa.Column("table_number", sa.Integer, nullable=False),
        sa.Column("role", sa.SmallInteger, nullable=False),
        sa.Column("segment", sa.SmallInteger, nullable=False),
        sa.Column("arm", sa.SmallInteger, nullable=False),
        sa.Column("metric", sa.SmallInteger, nullable=False),
        sa.Column("writer_id", sa.Integer, nullable=False),
        sa.Column("shows", sa.BigInteger, nullable=False),
        sa.Column("rewarded", sa.BigInteger, nullable=False),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.Column("square", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint(
            "experiment_id", "table_number", "role", "segment", "arm", "metric", "writer_id"
        ),
    )
    op.execute(_COUNTERS)


def _facts(connection: sa.Connection) -> list[tuple[str, bytes | None, int, dict[str, Any]]]:
    """Return the entries to append: kind, experiment, amount, detail. Sets the experiments' slots."""
    chained = connection.execute(sa.text("SELECT * FROM commitments ORDER BY seq")).all()
    acts: dict[bytes | None, list[Any]] = {}
    for entry in chained:
        acts.setdefault(entry.experiment_id, []).append((entry, json.loads(entry.detail)))
    budgets = [
        detail["budget_nano"] for entry, detail in acts.get(None, []) if entry.kind == "period"
    ]
    debits = [
        [entry.amount_nano, entry.recorded_at]
        for entry in chained
        if entry.kind in ("erase", "purge") and entry.amount_nano > 0
    ]
    firm = {
        "budget_nano": budgets[-1] if budgets else None,
        "window_days": _WINDOW_DAYS,
        "debits": debits,
        "from": "0003",
    }
    made: list[tuple[str, bytes | None, int, dict[str, Any]]] = []
    fingerprint = connection.execute(
        sa.text("SELECT value FROM facts WHERE name = 'visitor_key'")
    ).scalar()
    if fingerprint is not None:
        made.append(("key", None, 0, {"fingerprint": fingerprint.hex()}))
    if chained:
        made.append(("migrate", None, 0, firm))
    details = {
        row.id: _experiment(connection, row, acts.get(row.id, []))
        for row in connection.execute(
            sa.text("SELECT * FROM experiments ORDER BY started_at, key")
        ).all()
    }
    _share_slots(connection, list(details.items()))
    for identity, detail in details.items():
        started = detail["started_at"] is not None
        made.append(("migrate", identity, detail["budget_nano"] if started else 0, detail))
    return made


def _experiment(connection: sa.Connection, row: Any, acts: list[Any]) -> dict[str, Any]:
    """Return what an experiment promises, from the ledger if possible, else from its rows."""
    arms = connection.execute(
        sa.text("SELECT * FROM arms WHERE experiment_id = :id ORDER BY position"), {"id": row.id}
    ).all()
    names = connection.execute(
        sa.text("SELECT name FROM segments WHERE experiment_id = :id ORDER BY position"),
        {"id": row.id},
    ).scalars()
    detail: dict[str, Any] = {
        "key": row.key,
        "arms": [[arm.key, arm.budget_nano] for arm in arms],
        "segments": list(names),
        "strategy": row.strategy,
        "budget_nano": row.budget_nano,
        "trace_nano": None,
        "layer": row.layer,
        "slots": None,
        "holdout": 0,
        "default_arm": arms[row.default_arm].key,
        "attribution_seconds": row.attribution_seconds,
        "metrics": [["reward", _MILLION]],
        "version": 1,
        "off": [],
        "status": "draft",
        "winner": None,
        "exhausted": bool(row.exhausted),
        "started_at": None,
        "answered_until": None,
    }
    for entry, said in acts:
        if entry.kind == "create":
            told = ("key", "arms", "strategy", "budget_nano")
            detail |= {name: said[name] for name in told} | {"layer": said["group"]}
        elif entry.kind == "replan":
            detail |= {name: said[name] for name in ("strategy", "budget_nano")}
        elif entry.kind == "switch_off":
            detail["off"].append(said["arm"])
            detail["version"] = said["version"]
        elif entry.kind in _STATUS:
            detail["status"] = _STATUS[entry.kind]
        if entry.kind == "start":
            detail["started_at"] = entry.recorded_at
        elif entry.kind == "stop":
            detail["winner"] = said["winner"]
            # There were no answers at a risk after the stop; add an hour for clock differences.
            detail["answered_until"] = entry.recorded_at + _HOUR
    return detail


def _share_slots(connection: sa.Connection, details: list[tuple[bytes, dict[str, Any]]]) -> None:
    """Live experiments of one group share its slots equally. Known members keep their experiment."""
    layers: dict[str, list[tuple[bytes, dict[str, Any]]]] = {}
    for identity, detail in details:
        if detail["layer"] is not None and detail["status"] in _LIVE:
            layers.setdefault(detail["layer"], []).append((identity, detail))
    for members in layers.values():
        for place, (identity, detail) in enumerate(members):
            first, end = (_SLOTS * edge // len(members) for edge in (place, place + 1))
            slots = ((1 << end) - (1 << first)).to_bytes(_SLOTS // 8, "little")
            detail["slots"] = slots.hex()
            connection.execute(
                sa.text("UPDATE experiments SET slots = :slots WHERE id = :id"),
                {"slots": slots, "id": identity},
            )
    connection.execute(sa.text("UPDATE experiments SET revision = revision + 1"))


def _record(
    connection: sa.Connection, entries: list[tuple[str, bytes | None, int, dict[str, Any]]]
) -> None:
    """Append to the chain of commitments."""
    end = connection.execute(sa.text("SELECT seq, head FROM writers WHERE id = 0")).one()
    seq, head = end.seq, end.head
    newest = connection.execute(sa.text("SELECT max(recorded_at) FROM commitments")).scalar() or 0
    now = max(time.time_ns() // 1000, newest)
    rows = []
    for kind, identity, amount, detail in entries:
        seq, text = seq + 1, json.dumps(detail, sort_keys=True)
        head = commitment_hash(head, seq, kind, identity, amount, text, now)
        rows.append(
            {
                "seq": seq,
                "kind": kind,
                "experiment_id": identity,
                "amount_nano": amount,
                "detail": text,
                "recorded_at": now,
                "hash": head,
            }
        )
    if not rows:
        return
    connection.execute(
        sa.text(
            "INSERT INTO commitments (seq, kind, experiment_id, amount_nano, detail, recorded_at, hash) "
            "VALUES (:seq, :kind, :experiment_id, :amount_nano, :detail, :recorded_at, :hash)"
        ),
        rows,
    )
    connection.execute(
        sa.text("UPDATE writers SET seq = :seq, head = :head WHERE id = 0"),
        {"seq": seq, "head": head},
    )
