"""PostgreSQL 15 or newer: the store for several machines.

Writers do not wait for each other: each has its own counters and its own chain of decisions. If two
decide for the same visitor, the first commit wins and the other batch is retried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.exc import DBAPIError

from deniable._types import JsonObject
from deniable.errors import InvalidArgumentError, StoreUnavailableError, WrongStateError
from deniable.storage import schema
from deniable.storage.postgres_arrays import (
    accept_arrays,
    bytes_array,
    column_arrays,
    column_types,
    insert_arrays,
    typed,
)
from deniable.storage.store import (
    OWN_COLUMNS,
    PUT_LABELS,
    SHARED_COLUMNS,
    Chain,
    Count,
    FirstLabel,
    Head,
    NewDecisions,
    NewLabel,
    NewReward,
    Shown,
    Stored,
    TryAgain,
)

if TYPE_CHECKING:
    from psycopg.abc import PQGen


T = TypeVar("T")

CONNECT_SECONDS = 3
STATEMENT_SECONDS, READ_SECONDS, WRITE_SECONDS = 12.0, 60.0, 300.0
"""Client-side timeouts of one statement: for a writer, a reader, and administration.

The server's own timeouts end what is slow. These end what the server does not answer at all: a process
that is stopped, a machine that hangs while its network still acknowledges.
"""

_NETWORK: JsonObject = {
    "connect_timeout": CONNECT_SECONDS,
    "tcp_user_timeout": 10_000,  # milliseconds until unacknowledged data ends a connection
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
"""A peer that disappears silently is noticed within about ten seconds."""

PAUSES = (0.05, 0.2, 0.5, 1.0, 2.0)
"""Seconds before each retry of an administrative transaction."""

_RUN_AGAIN = ("40001", "40P01", "57P01", "57P02", "57P03", "08")
"""SQLSTATEs (or classes) after which a retry can succeed: races, restarts, lost connections."""

_PLANS = b"SET plan_cache_mode = force_custom_plan"
"""A generic plan cached while the table was empty would scan it, slower as it grows."""

_SETTINGS = (
    b"SET synchronous_commit = on; SET statement_timeout = '10s'; SET lock_timeout = '5s'; "
    + _PLANS
)
"""Regardless of the server's defaults, answered decisions are on its disk and waits are bounded."""

_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITING = "BEGIN; SET LOCAL lock_timeout = '30s'; SET LOCAL synchronous_commit = "
_LASTING, _FLEETING = f"{_WRITING}on", f"{_WRITING}off"
"""How transactions beside the writer's begin, each in one round trip."""

_Found = TypeVar("_Found")


class _Connection(psycopg.Connection[TupleRow]):
    """A connection with client-side statement timeouts."""

    limit_seconds = STATEMENT_SECONDS

    def wait(
        self, gen: PQGen[_Found], interval: float = 0.1, timeout: float | None = None
    ) -> _Found:
        """See psycopg.Connection."""
        limit = self.limit_seconds if timeout is None else timeout
        begin = time.monotonic()
        try:
            return super().wait(gen, interval, limit)
        except psycopg.Error:
            if time.monotonic() - begin >= limit:
                self.pgconn.finish()  # a late response would be taken for the next one
            raise

    def rollback(self) -> None:
        """See psycopg.Connection, which would also drop all prepared statements.

        These could name what the transaction had created, but only migrations create anything.
        """
        with self.lock:
            if self.pgconn.transaction_status != TransactionStatus.IDLE:
                self.wait(self._exec_command(b"ROLLBACK"))


class PostgresStore:
    """Implements `Store` on one database.

    Attributes:
        engine: for migrations.
    """

    durable = True

    def __init__(self, url: str) -> None:
        # Read by libpq, which unlike SQLAlchemy knows several hosts with ports.
        try:
            parts = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            raise InvalidArgumentError(
                "url", url.rpartition("@")[2], "postgresql://USER@HOST/DATABASE"
            ) from None
        self._conninfo = url
        user, database = parts.get("user", ""), parts.get("dbname", "")
        hosts = f"{parts.get('host', '')}:{parts.get('port', '')}".rstrip(":")
        self.url = f"postgresql://{user}@{hosts}/{database}"
        # Transactions are begun explicitly, except those of migrations.
        self._connections = create_engine(
            "postgresql+psycopg://",
            creator=self._connected,
            isolation_level="AUTOCOMMIT",
        )
        event.listen(self._connections, "connect", _prepare)
        self.engine = self._connections.execution_options(isolation_level="READ COMMITTED")
        self._hot: psycopg.Connection[TupleRow] | None = None
        self._transaction: PostgresTransaction | None = None

    def check_sessions(self) -> None:
        """Refuse a pooler that gives each transaction another server connection.

        Settings and prepared statements would belong to whichever connection comes next, so commits
        could return before they are on the disk, and statements could fail at random.
        """
        try:
            with self._connected() as first:
                first.autocommit = True
                if first.info.backend_pid == _backend(first):  # no pooler in between
                    return
                with self._connected() as second:  # begins a transaction, and keeps it
                    seen = [_backend(first), _backend(first)]
                    other = _backend(second)
                    seen.append(_backend(first))
        except psycopg.Error as error:
            raise StoreUnavailableError(f"cannot open {self.url}: {error}") from error
        if len({*seen}) > 1 or other in seen:
            raise WrongStateError(
                "the database is behind a pooler in transaction mode, such as PgBouncer: "
                "set pool_mode = session for this database, or connect to it directly"
            )

    @contextmanager
    def hot(self) -> Iterator[PostgresTransaction]:
        """See Store."""
        try:
            if self._hot is None or self._transaction is None:
                self._hot = self._connected()
                self._hot.autocommit = True
                self._hot.execute(_SETTINGS)
                self._transaction = PostgresTransaction(self._hot)
            self._transaction.begun = False
            try:
                yield self._transaction
                if self._transaction.begun:
                    self._hot.execute(b"COMMIT")
            except BaseException:
                self._undo()
                raise
        except psycopg.Error as error:
            lost = self._hot is None or self._hot.broken or self._hot.closed
            self._drop()
            if lost or _run_again(error):
                raise TryAgain(f"PostgreSQL: {type(error).__name__}") from error
            raise StoreUnavailableError(f"PostgreSQL: {type(error).__name__}") from error

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """See Store."""
        with self._begun(_LASTING, WRITE_SECONDS) as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """See Store."""
        try:
            with self._begun(_READING, READ_SECONDS) as connection:
                yield connection
        except DBAPIError as error:
            raise _unavailable(error) from error

    def retried(self, work: Callable[[Connection], T], *, lasting: bool = True) -> T:
        """See Store."""
        for pause in (*PAUSES, None):
            try:
                with self._begun(_LASTING if lasting else _FLEETING, WRITE_SECONDS) as connection:
                    return work(connection)
            except DBAPIError as error:
                original = error.orig
                if isinstance(original, psycopg.IntegrityError):
                    raise
                again = error.connection_invalidated or _run_again(original)
                if pause is None or not again:
                    raise _unavailable(error) from error
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def shrink(self) -> None:
        """See Store. Autovacuum makes the space usable again; VACUUM FULL would lock everything."""

    def free_bytes(self) -> None:
        """See Store. The database's own monitoring knows it."""

    def close(self) -> None:
        """See Store."""
        self._drop()
        self._connections.dispose()

    @contextmanager
    def _begun(self, begin: str, seconds: float) -> Iterator[Connection]:
        # Closing a connection rolls back.
        with self._in_transaction(begin) as connection, _patient(connection, seconds):
            yield connection
            connection.commit()

    def _in_transaction(self, begin: str) -> Connection:
        """Return a connection after this statement.

        One that was lost while nobody used it is noticed here and replaced. To ask before every
        transaction whether it is still there would be a round trip more.
        """
        for replaced in (False, True):
            connection = self._connections.connect()
            try:
                connection.exec_driver_sql(begin)
            except DBAPIError as error:
                connection.close()
                if replaced or not error.connection_invalidated:
                    raise
            else:
                return connection
        raise AssertionError("the last attempt returns or raises")

    def _connected(self) -> _Connection:
        return _Connection.connect(self._conninfo, **_NETWORK)

    def _undo(self) -> None:
        if self._hot is not None and not self._hot.closed:
            with suppress(psycopg.Error):
                self._hot.rollback()

    def _drop(self) -> None:
        """Close the writer's connection. The next transaction opens a new one."""
        connection, self._hot, self._transaction = self._hot, None, None
        if connection is not None:
            connection.close()


@contextmanager
def _patient(connection: Connection, seconds: float) -> Iterator[None]:
    """Allow longer statements in this block."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, _Connection)
    driver.limit_seconds = seconds
    try:
        yield
    finally:
        driver.limit_seconds = STATEMENT_SECONDS


def _backend(connection: psycopg.Connection[TupleRow]) -> object:
    """Return the server process that runs the connection's statements now."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return row[0]


def _prepare(connection: psycopg.Connection[TupleRow], _record: object) -> None:
    connection.execute(_PLANS)
    connection.commit()  # settings made in a transaction that is rolled back would be lost


def _run_again(error: BaseException | None) -> bool:
    state = getattr(error, "sqlstate", None)
    if state is None:  # the server was never reached, or the connection was lost
        return isinstance(error, psycopg.OperationalError)
    return str(state).startswith(_RUN_AGAIN)


def _unavailable(error: DBAPIError) -> StoreUnavailableError:
    return StoreUnavailableError(f"PostgreSQL: {type(error.orig).__name__}")


_HEADS = "SELECT id, revision, table_number FROM experiments WHERE id IN ({}) ORDER BY id FOR SHARE"


def _one_by_one(table: str, key: str, columns: str, condition: str) -> bytes:
    """Build a lookup of an array of keys, each through the index.

    For `key = ANY(array)` the server may choose to read the whole table instead: with fresh statistics
    from about 3,000 keys on, without any from 400 on. OFFSET keeps it from merging the two parts.
    """
    return (
        f"SELECT found.* FROM unnest(%b::bytea[]) AS wanted (key) CROSS JOIN LATERAL "
        f"(SELECT {columns} FROM {table} WHERE {condition} AND {key} = wanted.key OFFSET 0) AS found"
    ).encode()


_MINE = "experiment_id = %b"
_STORED = _one_by_one("decisions", "visitor", "visitor, id, shown", _MINE)
_ERASED = _one_by_one("tombstones", "visitor", "visitor", _MINE)
_LABELS = _one_by_one("mask_labels", "visitor", "visitor, label, known", "mask_id = %b")
_PUT_LABELS = insert_arrays(schema.mask_labels, NewLabel._fields, PUT_LABELS)
_LABEL_TYPES = column_types(schema.mask_labels, NewLabel._fields)
_ADD_DECISIONS = (
    f"INSERT INTO decisions ({', '.join((*SHARED_COLUMNS, *OWN_COLUMNS))}) "
    f"SELECT {typed(schema.decisions, SHARED_COLUMNS)}, own.* "
    f"FROM unnest({typed(schema.decisions, OWN_COLUMNS, '[]')}) AS own ON CONFLICT DO NOTHING"
).encode()
_SHOWN = _one_by_one(
    "decisions",
    "id",
    "id, salt, segment, shown, decided_at, table_number, role",
    f"shown IS NOT NULL AND {_MINE}",
)
_REWARDED = _one_by_one("rewards", "decision_id", "decision_id, metric", _MINE)
_ADD_REWARDS = insert_arrays(schema.rewards, NewReward._fields, "ON CONFLICT DO NOTHING")
_ADD_COUNTS = insert_arrays(
    schema.counters,
    Count._fields,
    "ON CONFLICT (experiment_id, table_number, role, segment, arm, metric, writer_id) "
    "DO UPDATE SET shows = counters.shows + excluded.shows, "
    "rewarded = counters.rewarded + excluded.rewarded, "
    "value = counters.value + excluded.value, square = counters.square + excluded.square",
)
_ANSWERED = (
    b"INSERT INTO answers (experiment_id, writer_id, hour) VALUES (%b, %b, %b) "
    b"ON CONFLICT (experiment_id, writer_id) "
    b"DO UPDATE SET hour = greatest(answers.hour, excluded.hour)"
)
_OWN_TYPES = column_types(schema.decisions, OWN_COLUMNS)
_REWARD_TYPES = column_types(schema.rewards, NewReward._fields)
_COUNT_TYPES = column_types(schema.counters, Count._fields)
_EXTEND = (
    b"UPDATE writers SET seq = %b, head = %b, lease_until = %b "
    b"WHERE id = %b AND owner = %b AND head = %b"
)
_COUNT_AND_EXTEND = b"WITH counted AS (%b) %b" % (_ADD_COUNTS, _EXTEND)
"""Combined into one statement, because each statement is a round trip."""
_CHAIN = b"SELECT seq, head FROM writers WHERE id = %b AND owner = %b"


class PostgresTransaction:
    """Implements `HotTransaction` on one connection.

    Attributes:
        begun: whether the transaction has begun, which happens with its first statement.
    """

    def __init__(self, connection: psycopg.Connection[TupleRow]) -> None:
        accept_arrays(connection)
        self._cursor = connection.cursor(binary=True)
        self._plain = connection.cursor()
        self.begun = False

    def heads(self, experiments: Sequence[bytes]) -> dict[bytes, Head]:
        """See HotTransaction."""
        listed = ", ".join(f"decode('{identity.hex()}', 'hex')" for identity in experiments)
        wanted = _HEADS.format(listed)
        if self.begun:
            self._plain.execute(wanted.encode())
        else:  # usually the first statement: saves a round trip
            self._plain.execute(f"BEGIN; {wanted}".encode())
            self._plain.nextset()
            self.begun = True
        return {row[0]: Head(row[1], row[2]) for row in self._plain.fetchall()}

    def stored(self, experiment: bytes, visitors: Sequence[bytes]) -> dict[bytes, Stored]:
        """See HotTransaction."""
        rows = self._rows(_STORED, [bytes_array(visitors), experiment])
        return {row[0]: Stored(*row[1:]) for row in rows}

    def erased(self, experiment: bytes, tombstones: Sequence[bytes]) -> set[bytes]:
        """See HotTransaction."""
        return {row[0] for row in self._rows(_ERASED, [bytes_array(tombstones), experiment])}

    def labels(self, mask: bytes, visitors: Sequence[bytes]) -> dict[bytes, FirstLabel]:
        """See HotTransaction."""
        rows = self._rows(_LABELS, [bytes_array(visitors), mask])
        return {row[0]: FirstLabel(*row[1:]) for row in rows}

    def put_labels(self, rows: Sequence[NewLabel]) -> int:
        """See HotTransaction."""
        return self._added(_PUT_LABELS, rows, _LABEL_TYPES)

    def add_decisions(self, new: NewDecisions) -> int:
        """See HotTransaction."""
        values = [*new[:5], *column_arrays(new.rows, _OWN_TYPES)]
        return self._executed(_ADD_DECISIONS, values).rowcount

    def shown(self, experiment: bytes, decisions: Sequence[bytes]) -> dict[bytes, Shown]:
        """See HotTransaction."""
        rows = self._rows(_SHOWN, [bytes_array(decisions), experiment])
        return {row[0]: Shown(*row[1:]) for row in rows}

    def rewarded(self, experiment: bytes, decisions: Sequence[bytes]) -> set[tuple[bytes, int]]:
        """See HotTransaction."""
        return set(self._rows(_REWARDED, [bytes_array(decisions), experiment]))

    def add_rewards(self, rows: Sequence[NewReward]) -> int:
        """See HotTransaction."""
        return self._added(_ADD_REWARDS, rows, _REWARD_TYPES)

    def answered(self, experiment: bytes, writer: int, hour: int) -> None:
        """See HotTransaction."""
        self._executed(_ANSWERED, [experiment, writer, hour])

    def extend(
        self,
        writer: int,
        owner: bytes,
        before: bytes,
        chain: Chain,
        lease_until: int,
        counts: Sequence[Count],
    ) -> bool:
        """See HotTransaction."""
        values = [*chain, lease_until, writer, owner, before]
        if not counts:
            return self._executed(_EXTEND, values).rowcount == 1
        values = [*column_arrays(counts, _COUNT_TYPES), *values]
        return self._executed(_COUNT_AND_EXTEND, values).rowcount == 1

    def chain(self, writer: int, owner: bytes) -> Chain | None:
        """See HotTransaction."""
        rows = self._rows(_CHAIN, [writer, owner])
        return rows[0] if rows else None

    def _rows(self, statement: bytes, values: Sequence[object]) -> list[TupleRow]:
        return self._executed(statement, values).fetchall()

    def _executed(self, statement: bytes, values: Sequence[object]) -> psycopg.Cursor[TupleRow]:
        if not self.begun:
            self._plain.execute(b"BEGIN")
            self.begun = True
        return self._cursor.execute(statement, values)

    def _added(
        self, statement: bytes, rows: Sequence[tuple[int | bytes, ...]], types: Sequence[str]
    ) -> int:
        if not rows:
            return 0
        return self._executed(statement, column_arrays(rows, types)).rowcount
