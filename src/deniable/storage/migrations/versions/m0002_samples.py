"""Totals over time."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table of samples."""
    op.create_table(
        "samples",
        sa.Column("experiment_id", sa.LargeBinary(16), nullable=False),
        sa.Column("taken_at", sa.BigInteger, nullable=False),
        sa.Column("figures", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "taken_at"),
    )
