"""PostgreSQL 15 or newer: the store for several machines.

Writers do not wait for each other: each has its own counters and its own chain of decisions. If two
decide for the same visitor, the first commit wins and the other batch is retried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import psycopg
from psycopg.rows import TupleRow
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from deniable._types import JsonObject
from deniable.errors import StoreUnavailableError
from deniable.storage.postgres_hot import PostgresTransaction
from deniable.storage.store import TryAgain

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


class PostgresStore:
    """Implements `Store` on one database."""

    durable = True

    def __init__(self, url: str) -> None:
        parsed = make_url(url)
        self._url = parsed.render_as_string(hide_password=True)
        full = parsed.set(drivername="postgresql")
        self._conninfo = full.render_as_string(hide_password=False)
        self._engine = create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            creator=self._connected,
            pool_pre_ping=True,
        )
        event.listen(self._engine, "connect", _prepare)
        self._hot: psycopg.Connection[TupleRow] | None = None
        self._transaction: PostgresTransaction | None = None

    @property
    def url(self) -> str:
        """The database URL without the password."""
        return self._url

    @property
    def engine(self) -> Engine:
        """SQLAlchemy engine for migrations."""
        return self._engine

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

    def brief(self) -> None:
        """See Store."""

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """See Store."""
        with self._begun("on") as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """See Store."""
        try:
            with (
                self._engine.connect().execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                ) as connection,
                _patient(connection, READ_SECONDS),
                connection.begin(),
            ):
                yield connection
        except DBAPIError as error:
            raise _unavailable(error) from error

    def retried(self, work: Callable[[Connection], T], *, lasting: bool = True) -> T:
        """See Store."""
        for pause in (*PAUSES, None):
            try:
                with self._begun("on" if lasting else "off") as connection:
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

    def close(self) -> None:
        """See Store."""
        self._drop()
        self._engine.dispose()

    @contextmanager
    def _begun(self, synchronous: str) -> Iterator[Connection]:
        with self._engine.begin() as connection, _patient(connection, WRITE_SECONDS):
            connection.exec_driver_sql(
                f"SET LOCAL synchronous_commit = {synchronous}; SET LOCAL lock_timeout = '30s'"
            )
            yield connection

    def _connected(self) -> _Connection:
        return _Connection.connect(self._conninfo, **_NETWORK)

    def _undo(self) -> None:
        if self._hot is not None and not self._hot.closed:
            with suppress(psycopg.Error):
                self._hot.execute(b"ROLLBACK")

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
