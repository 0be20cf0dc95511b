"""A smaller index of visitors for SQLite, which has to make the table anew for that."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Find decisions by the visitor alone: the HMAC covers the experiment."""
    if op.get_bind().dialect.name != "sqlite":
        return
    op.rename_table("decisions", "old_decisions")
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
    )
    op.execute("INSERT INTO decisions SELECT * FROM old_decisions ORDER BY rowid")
    op.drop_table("old_decisions")
    op.create_index("decisions_visitor", "decisions", ["visitor"], unique=True)
    # SQLite knows no table's size unless told. Without this it takes an experiment for ten rows and
    # reads all of them where it is to find more visitors than a few.
    op.execute("ANALYZE")
    op.execute("DELETE FROM sqlite_stat1 WHERE tbl = 'decisions'")
    op.execute(
        "INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES "
        "('decisions', 'sqlite_autoindex_decisions_1', '1000000 100000 1'), "
        "('decisions', 'decisions_visitor', '1000000 1')"
    )
