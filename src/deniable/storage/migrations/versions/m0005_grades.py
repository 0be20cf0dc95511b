"""Experiments may ask for a promise across time where their strategy does not give it anyway."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column; no experiment so far has asked."""
    column = sa.Column("across_time", sa.Boolean, nullable=False, server_default=sa.false())
    op.add_column("experiments", column)
