"""A smaller index of visitors for SQLite, which requires rebuilding the table."""

from alembic import op

revision = "0003"
down_revision = "0002"

_NAMES = {"uq": "unique_%(column_0_N_name)s"}
"""Constraints that the first migration left unnamed."""


def upgrade() -> None:
    """Index decisions by visitor only: the HMAC covers the experiment."""
    if op.get_bind().dialect.name != "sqlite":
        return
    with op.batch_alter_table("decisions", naming_convention=_NAMES) as table:
        table.drop_constraint("unique_experiment_id_visitor", type_="unique")
    op.create_index("decisions_visitor", "decisions", ["visitor"], unique=True)
    # Without statistics, SQLite assumes ten rows per experiment, and scans all of them when looking
    # up more than a few visitors.
    op.execute("ANALYZE")
    op.execute("DELETE FROM sqlite_stat1 WHERE tbl = 'decisions'")
    op.execute(
        "INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES "
        "('decisions', 'sqlite_autoindex_decisions_1', '1000000 100000 1'), "
        "('decisions', 'decisions_visitor', '1000000 1')"
    )
