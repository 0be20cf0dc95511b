"""A smaller index of visitors for SQLite, which has to rebuild the table for that."""

from alembic import op

revision = "0003"
down_revision = "0002"

_NAMES = {"uq": "unique_%(column_0_N_name)s"}
"""What the first migration left without a name."""


def upgrade() -> None:
    """Find decisions by the visitor alone: the HMAC covers the experiment."""
    if op.get_bind().dialect.name != "sqlite":
        return
    with op.batch_alter_table("decisions", naming_convention=_NAMES) as table:
        table.drop_constraint("unique_experiment_id_visitor", type_="unique")
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
