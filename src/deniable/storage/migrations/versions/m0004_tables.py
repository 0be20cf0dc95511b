"""Temporary."""

from alembic import op

from deniable.storage import schema

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    for name in (
        "periods",
        "clocks",
        "arms",
        "segments",
        "decisions",
        "rewards",
        "counters",
        "memberships",
        "commitments",
        "samples",
        "replies",
        "api_keys",
        "experiments",
        "facts",
    ):
        op.drop_table(name)
    schema.metadata.create_all(op.get_bind())
