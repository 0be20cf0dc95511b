"""An empty store gets the declared schema; an earlier one is migrated, by `migrate` alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Select, insert, select, text
from tests.patience import PATIENCE
from tests.postgres import PostgresServer
from tests.storage.pooler import pooled

from deniable.errors import (
    InvalidArgumentError,
    MigrationNeededError,
    StoreUnavailableError,
    WrongStateError,
)
from deniable.storage import connect as connecting
from deniable.storage.connect import connect, migrate, revision
from deniable.storage.schema import HEAD, decisions, leases, metadata

pytestmark = pytest.mark.usefixtures("real_migrations")


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


def test_an_empty_store_gets_the_declared_schema(empty_url: str) -> None:
    store = connect(empty_url)
    with store.begin() as connection:
        assert revision(connection) == HEAD
        dialect = connection.dialect.name

        def declared_here(thing: Any, *_others: object) -> bool:
            """Alembic does not look at what `ddl_if` says."""
            condition = getattr(thing, "_ddl_if", None)
            return condition is None or condition.dialect == dialect

        options = {"compare_type": True, "include_object": declared_here}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []
    store.close()


@pytest.mark.parametrize("visitors", [1, 30, 200])
def test_visitors_are_found_by_their_index(tmp_path: Path, visitors: int) -> None:
    """SQLite would rather read the whole experiment, if nobody told it how large that is."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    connect(url).close()
    wanted = select(decisions.c.id).where(
        decisions.c.experiment_id == bytes(16), decisions.c.visitor.in_([bytes(16)] * visitors)
    )
    with connect(url).read() as connection:
        assert "decisions_visitor" in _plan(connection, wanted)
    with connect(url).begin() as connection:
        connection.execute(text("DELETE FROM sqlite_stat1"))
    with connect(url).read() as connection:
        assert ("decisions_visitor" in _plan(connection, wanted)) == (visitors == 1)


def _plan(connection: Connection, query: Select[Any]) -> str:
    literal = query.compile(connection.engine, compile_kwargs={"render_postcompile": True})
    statement = f"EXPLAIN QUERY PLAN {literal}"
    values = tuple(literal.params[name] for name in literal.positiontup or ())
    return str(connection.exec_driver_sql(statement, values).one()[3])


def test_several_processes_at_once(empty_url: str) -> None:
    code = "import sys; from deniable.storage.connect import connect; connect(sys.argv[1]).close()"
    starting = [subprocess.Popen([sys.executable, "-c", code, empty_url]) for _ in range(16)]
    assert [process.wait(PATIENCE) for process in starting] == [0] * 16
    store = connect(empty_url)
    with store.read() as connection:
        chains = connection.execute(text("SELECT count(*) FROM writers")).scalar()
    assert chains == 1
    store.close()


REVISIONS = {
    "0001": "",
    "0002": """
import sqlalchemy as sa
from alembic import op


def upgrade() -> None:
    op.add_column("leases", sa.Column("reason", sa.Text, nullable=False, server_default="work"))
    op.execute("UPDATE leases SET reason = 'publish'")
""",
    "0003": """
from alembic import op


def upgrade() -> None:
    op.execute("INSERT INTO leases (name, owner, until, reason) VALUES ('m', 'o', 1, 'new')")
    op.execute("{last}")
""",
}


@pytest.fixture
def later_revisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Plant two more revisions; the last statement of the second one is given."""

    def plant(last: str) -> None:
        versions = tmp_path / "migrations" / "versions"
        versions.mkdir(parents=True, exist_ok=True)
        before = None
        for number, body in REVISIONS.items():
            head = f"revision = {number!r}\ndown_revision = {before!r}\n"
            (versions / f"m{number}.py").write_text(head + body.replace("{last}", last))
            before = number
        monkeypatch.setattr(connecting, "MIGRATIONS", versions.parent)
        monkeypatch.setattr(connecting, "HEAD", "0003")

    return plant


def _leases(url: str) -> list[tuple[object, ...]]:
    store = connect(url)
    with store.read() as connection:
        assert revision(connection) == "0003"
        rows = connection.execute(text("SELECT name, reason FROM leases ORDER BY name"))
        found = [tuple(row) for row in rows]
    store.close()
    return found


def test_an_earlier_store_is_migrated_step_by_step(
    empty_url: str, later_revisions: Callable[[str], None]
) -> None:
    store = connect(empty_url)
    with store.begin() as connection:
        connection.execute(insert(leases), {"name": "a", "owner": b"o", "until": 1})
    store.close()
    later_revisions("UPDATE leases SET until = 2")
    assert migrate(empty_url, check=True) == ("0001", "0003")
    with pytest.raises(MigrationNeededError, match=r"0001.*needs 0003.*`deniable migrate`"):
        connect(empty_url)
    assert migrate(empty_url) == ("0001", "0003")
    assert migrate(empty_url) == migrate(empty_url, check=True) == ("0003", "0003")
    assert _leases(empty_url) == [("a", "publish"), ("m", "new")]


def test_a_failed_migration_leaves_the_store_as_it_was(
    empty_url: str, later_revisions: Callable[[str], None]
) -> None:
    connect(empty_url).close()
    later_revisions("UPDATE nothing SET until = 2")
    with pytest.raises(StoreUnavailableError, match="nothing"):
        migrate(empty_url)
    later_revisions("UPDATE leases SET until = 2")
    migrate(empty_url)
    assert _leases(empty_url) == [("m", "new")]


def test_the_revisions_end_at_the_declared_one() -> None:
    assert ScriptDirectory(str(connecting.MIGRATIONS)).get_current_head() == HEAD


def test_a_newer_store_is_left_alone(empty_url: str) -> None:
    store = connect(empty_url)
    with store.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    store.close()
    for opened in (connect, migrate):
        with pytest.raises(WrongStateError, match=r"revision 9999.*newer version"):
            opened(empty_url)


def test_checking_an_empty_store_changes_nothing(empty_url: str) -> None:
    assert migrate(empty_url, check=True) == (None, HEAD)
    assert migrate(empty_url, check=True) == (None, HEAD)


def test_a_pooler_that_changes_connections_is_refused(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    with pooled(url, "transaction") as through_pooler:
        for _ in range(2):  # also once it has idle connections
            with pytest.raises(WrongStateError, match="pooler in transaction mode"):
                connect(through_pooler)
    with pooled(url, "session") as through_pooler:
        for _ in range(2):
            connect(through_pooler).close()


def test_a_store_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match=r"nowhere/x\.db: unable to open"):
        connect(f"sqlite:///{tmp_path}/nowhere/x.db")


def test_several_hosts_are_tried(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    database = url.partition("?")[0].rpartition("/")[2]
    with pooled(url, "session") as reachable:
        port = reachable.rpartition(":")[2].partition("/")[0]
        several = f"postgresql://deniable@127.0.0.1:1,127.0.0.1:{port}/{database}"
        store = connect(several)
        assert store.url == f"postgresql://deniable@127.0.0.1,127.0.0.1:1,{port}/{database}"
        store.close()


def test_a_url_that_cannot_be_read_is_refused_without_its_password() -> None:
    with pytest.raises(InvalidArgumentError, match="postgresql://USER") as refused:
        connect("postgresql://deniable:hidden@database/x?no_such=1")
    assert "hidden" not in str(refused.value)
