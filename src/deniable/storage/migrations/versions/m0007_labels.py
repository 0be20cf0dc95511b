"""Experiments may have an owner and tags, for searching."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the table; no existing experiment has any."""
    op.create_table(
        "labels",
        sa.Column("experiment_id", sa.LargeBinary(16), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("value", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "kind", "value"),
    )
