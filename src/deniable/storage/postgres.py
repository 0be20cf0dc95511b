"""PostgreSQL 15 or newer: the store for several machines.

Writers do not wait for each other: each has its own counters and its own chain of decisions. Where two
decide for the same visitor the first one's commit wins and the other batch is run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from psycopg.rows import TupleRow

if TYPE_CHECKING:
    from psycopg.abc import PQGen

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from deniable._types import JsonObject
from deniable.errors import StoreUnavailableError
from deniable.storage.postgres_hot import PostgresTransaction
from deniable.storage.store import TryAgain

T = TypeVar("T")

CONNECT_SECONDS = 3
STATEMENT_SECONDS, READ_SECONDS, WRITE_SECONDS = 12.0, 60.0, 300.0
"""How long the client waits for one statement: of a writer, a reader, and administration.

The server's own timeouts end what is slow. These end what the server does not answer at all: a process
that is stopped, a machine that hangs while its network still acknowledges.
"""

_NETWORK: JsonObject = {
    "connect_timeout": CONNECT_SECONDS,
    "tcp_user_timeout": 10_000,  # milliseconds until data without acknowledgement ends a connection
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
"""A peer that is gone without a word is noticed within about ten seconds."""

PAUSES = (0.05, 0.2, 0.5, 1.0, 2.0)
"""Seconds before each further attempt at an administrative transaction."""

_RUN_AGAIN = ("40001", "40P01", "57P01", "57P02", "57P03", "08")
"""SQLSTATEs (or classes) after which the same transaction can succeed: races, restarts, lost lines."""

_PLANS = b"SET plan_cache_mode = force_custom_plan"
"""A plan that was kept from when the table was empty would read all of it, the longer the slower."""

_SETTINGS = (
    b"SET synchronous_commit = on; SET statement_timeout = '10s'; SET lock_timeout = '5s'; "
    + _PLANS
)
"""Whatever the server's defaults: an answered decision is on its disk, and nobody waits for ever."""


_Found = TypeVar("_Found")


class _Connection(psycopg.Connection[TupleRow]):
    """A connection that does not wait for ever for its server."""

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
                self.pgconn.finish()  # its answer may still come, and would be taken for another one
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
        """Where it is, without the password."""
        return self._url

    @property
    def engine(self) -> Engine:
        """For migrations."""
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
            self._hot.execute(b"BEGIN")
            try:
                yield self._transaction
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
        with self._engine.begin() as connection, _patient(connection, WRITE_SECONDS):
            connection.exec_driver_sql(
                "SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '30s'"
            )
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

    def retried(self, work: Callable[[Connection], T]) -> T:
        """See Store."""
        for pause in (*PAUSES, None):
            try:
                with self.begin() as connection:
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

    def _connected(self) -> _Connection:
        return _Connection.connect(self._conninfo, **_NETWORK)

    def _undo(self) -> None:
        if self._hot is not None and not self._hot.closed:
            with suppress(psycopg.Error):
                self._hot.execute(b"ROLLBACK")

    def _drop(self) -> None:
        """Close the writer's connection; the next transaction opens a new one."""
        connection, self._hot, self._transaction = self._hot, None, None
        if connection is not None:
            connection.close()


@contextmanager
def _patient(connection: Connection, seconds: float) -> Iterator[None]:
    """Statements in this block may take longer."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, _Connection)
    driver.limit_seconds = seconds
    try:
        yield
    finally:
        driver.limit_seconds = STATEMENT_SECONDS


def _prepare(connection: psycopg.Connection[TupleRow], _record: object) -> None:
    connection.execute(_PLANS)
    connection.commit()  # a setting of a transaction that is rolled back would be lost


def _run_again(error: BaseException | None) -> bool:
    state = getattr(error, "sqlstate", None)
    if state is None:  # never reached the server, or lost it
        return isinstance(error, psycopg.OperationalError)
    return str(state).startswith(_RUN_AGAIN)


def _unavailable(error: DBAPIError) -> StoreUnavailableError:
    return StoreUnavailableError(f"PostgreSQL: {type(error.orig).__name__}")
