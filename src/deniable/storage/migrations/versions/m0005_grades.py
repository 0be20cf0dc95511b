"""Experiments may require a promise across time if their strategy does not keep it anyway."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column; no existing experiment requires it."""
    column = sa.Column("across_time", sa.Boolean, nullable=False, server_default=sa.false())
    op.add_column("experiments", column)
