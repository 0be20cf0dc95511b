"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables, and the empty chain of commitments."""
    op.create_table(
        "facts",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("value", sa.LargeBinary(32), nullable=False),
    )
    op.create_table(
        "periods",
        sa.Column("id", sa.LargeBinary(16), primary_key=True),
        sa.Column("budget_nano", sa.BigInteger, nullable=False),
        sa.Column("committed_nano", sa.BigInteger, nullable=False),
        sa.Column("starts_at", sa.BigInteger, nullable=False),
        sa.Column("ends_at", sa.BigInteger),
        sa.Column("current", sa.Boolean, nullable=False),
    )
    op.create_table(
        "experiments",
        sa.Column("id", sa.LargeBinary(16), primary_key=True),
        sa.Column("tag", sa.Integer, nullable=False, unique=True),
        sa.Column("key", sa.String(128), nullable=False, unique=True),
        sa.Column("status", sa.String(8), nullable=False),
        sa.Column("strategy", sa.String(16), nullable=False),
        sa.Column("budget_nano", sa.BigInteger, nullable=False),
        sa.Column("planned_visitors", sa.BigInteger),
        sa.Column("group_name", sa.String(128)),
        sa.Column("default_arm", sa.SmallInteger, nullable=False),
        sa.Column("attribution_seconds", sa.BigInteger),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("winner", sa.SmallInteger),
        sa.Column("exhausted", sa.Boolean, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("stopped_at", sa.BigInteger),
    )
    op.create_table(
        "arms",
        sa.Column(
            "experiment_id", sa.LargeBinary(16), sa.ForeignKey("experiments.id"), primary_key=True
        ),
        sa.Column("position", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("key", sa.String(128), nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("budget_nano", sa.BigInteger),
        sa.Column("off_since_version", sa.Integer),
        sa.UniqueConstraint("experiment_id", "key"),
    )
    op.create_table(
        "segments",
        sa.Column(
            "experiment_id", sa.LargeBinary(16), sa.ForeignKey("experiments.id"), primary_key=True
        ),
        sa.Column("position", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.UniqueConstraint("experiment_id", "name"),
    )
    op.create_table(
        "clocks",
        sa.Column(
            "experiment_id", sa.LargeBinary(16), sa.ForeignKey("experiments.id"), primary_key=True
        ),
        sa.Column("clock", sa.BigInteger, nullable=False),
    )
    chains = op.create_table(
        "writers",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.LargeBinary(16)),
        sa.Column("lease_until", sa.BigInteger, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("head", sa.LargeBinary(32), nullable=False),
    )
    op.create_table(
        "decisions",
        sa.Column("experiment_id", sa.LargeBinary(16), nullable=False),
        sa.Column("id", sa.LargeBinary(16), nullable=False),
        sa.Column("visitor", sa.LargeBinary(16)),
        sa.Column("salt", sa.LargeBinary(16)),
        sa.Column("segment", sa.SmallInteger),
        sa.Column("greedy", sa.SmallInteger),
        sa.Column("shown", sa.SmallInteger),
        sa.Column("clock", sa.BigInteger),
        sa.Column("risk_nano", sa.BigInteger),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("decided_at", sa.BigInteger, nullable=False),
        sa.Column("writer_id", sa.Integer, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.LargeBinary(32), nullable=False),
        sa.Column("commitment", sa.LargeBinary(32)),
        sa.PrimaryKeyConstraint("experiment_id", "id"),
        sa.UniqueConstraint("experiment_id", "visitor"),
    )
    op.create_table(
        "rewards",
        sa.Column("experiment_id", sa.LargeBinary(16), nullable=False),
        sa.Column("decision_id", sa.LargeBinary(16), nullable=False),
        sa.Column("value", sa.SmallInteger, nullable=False),
        sa.Column("rewarded_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "decision_id"),
    )
    op.create_table(
        "counters",
        sa.Column("experiment_id", sa.LargeBinary(16), nullable=False),
        sa.Column("segment", sa.SmallInteger, nullable=False),
        sa.Column("arm", sa.SmallInteger, nullable=False),
        sa.Column("writer_id", sa.Integer, nullable=False),
        sa.Column("shows", sa.BigInteger, nullable=False),
        sa.Column("clicks", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "segment", "arm", "writer_id"),
    )
    op.create_table(
        "memberships",
        sa.Column("group_name", sa.String(128), nullable=False),
        sa.Column("visitor", sa.LargeBinary(16), nullable=False),
        sa.Column("experiment_id", sa.LargeBinary(16), nullable=False),
        sa.PrimaryKeyConstraint("group_name", "visitor"),
    )
    op.create_table(
        "commitments",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("experiment_id", sa.LargeBinary(16)),
        sa.Column("amount_nano", sa.BigInteger, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("recorded_at", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.LargeBinary(32), nullable=False),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.LargeBinary(16), primary_key=True),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(32), nullable=False, unique=True),
        sa.Column("scopes", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("revoked_at", sa.BigInteger),
    )
    op.create_table(
        "replies",
        sa.Column("idempotency_key", sa.LargeBinary(32), primary_key=True),
        sa.Column("request_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("status", sa.SmallInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(
        chains, [{"id": 0, "owner": None, "lease_until": 0, "seq": 0, "head": bytes(32)}]
    )
