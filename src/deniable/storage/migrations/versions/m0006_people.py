"""Named users with invitations, sessions, sign-in attempts and approvals; the last use of API keys."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the tables. Users signed in with an older version have to sign in again."""
    op.add_column("api_keys", sa.Column("last_used_hour", sa.Integer))
    op.create_table(
        "users",
        sa.Column("id", sa.LargeBinary(16), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False, unique=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("password_hash", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("joined_at", sa.BigInteger),
        sa.Column("disabled_at", sa.BigInteger),
    )
    op.create_table(
        "invites",
        sa.Column("token_hash", sa.LargeBinary(32), primary_key=True),
        sa.Column("user_id", sa.LargeBinary(16), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("used_at", sa.BigInteger),
    )
    op.create_table(
        "sessions",
        sa.Column("token_hash", sa.LargeBinary(32), primary_key=True),
        sa.Column("user_id", sa.LargeBinary(16)),
        sa.Column("key_id", sa.LargeBinary(16)),
        sa.Column("browser", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("seen_hour", sa.Integer, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
    )
    op.create_table(
        "attempts",
        sa.Column("bucket", sa.LargeBinary(32), primary_key=True),
        sa.Column("tried", sa.Integer, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "approvals",
        sa.Column("id", sa.LargeBinary(16), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("words", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("asked_by", sa.Text, nullable=False),
        sa.Column("asked_at", sa.BigInteger, nullable=False),
        sa.Column("answered_by", sa.Text),
        sa.Column("answered_at", sa.BigInteger),
        sa.Column("granted", sa.Boolean),
    )
