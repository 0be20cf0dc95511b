"""What thousands of tests would pay for again and again, paid once: called by `conftest.py`.

Nothing here changes what the product does: files are written and synced, stores have the tables that the
migrations make, and clients verify certificates. The tests of migrations use the migrations themselves
(`real_migrations`), and so does every process that a test starts.
"""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.util import LRUCache

from deniable.storage import connect as connecting

MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30
"""Bytes that must be free there; the tests need a tenth of it."""

_COMPILED = "TESTS_ARE_COMPILED"
"""An environment variable for the workers."""

Item = TypeVar("Item")

real_upgrade = connecting._upgrade


def scratch_in_memory() -> None:
    """Temporary files where syncing takes no time, if there is such a place and nobody chose another."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    if shutil.disk_usage(MEMORY).free > ROOM:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # pytest has asked before


def no_authorities() -> None:
    """Clients do not read 140 certificates each: tests talk to this machine, without TLS."""
    empty = Path(tempfile.gettempdir()) / "deniable-no-certificates"
    empty.mkdir(exist_ok=True)
    os.environ.pop("SSL_CERT_FILE", None)
    os.environ["SSL_CERT_DIR"] = str(empty)


def garbage_not_collected() -> None:
    """Not while tests are collected: nearly all that is made then lives until the end."""
    gc.disable()


def garbage_collected_rarely() -> None:
    """Look for cycles a tenth as often: generated requests and statements are full of young objects.

    What was collected lives until the end, so it need not be visited at all.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


def garbage_collected_once_more() -> None:
    """Collect what is left: pytest does it five times at the end, and then has little to visit."""
    gc.collect()
    gc.freeze()


def note_whether_compiled() -> None:
    """Tell the workers, before they start, whether a fresh clone has to be compiled."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        compiled = any(Path(__file__).parent.glob("*/__pycache__"))
        os.environ[_COMPILED] = str(compiled)


@contextmanager
def one_compiles() -> Iterator[None]:
    """In a fresh clone, one worker collects the tests first: the others find all modules compiled."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None or os.environ.get(_COMPILED) == "True":
        yield
        return
    turn = Path(tempfile.gettempdir()) / f"deniable-collection-{run}"
    with turn.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(file, fcntl.LOCK_SH)
        yield
    turn.unlink(missing_ok=True)


def tables_from_a_copy() -> None:
    """New SQLite stores get a copy of what was created once."""
    connecting._upgrade = _upgrade


class _Compiled(LRUCache[Any, Any]):
    """Compiled statements by kind of dialect: each engine has a dialect of its own, made in one way."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get((type(key[0]), *key[1:]), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__((type(key[0]), *key[1:]), value)


def statements_compiled_once() -> None:
    """Stores share their compiled statements: a process of the product has one store, a test its own."""
    made, compiled = Engine.__init__, _Compiled(5_000)

    def make(self: Engine, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        self._compiled_cache = compiled

    Engine.__init__ = make  # type: ignore[method-assign]


def _upgrade(connection: Connection) -> None:
    made = connection.connection.driver_connection
    if isinstance(made, sqlite3.Connection) and _is_empty(made):
        for statement in _created():
            made.execute(statement)
    else:
        real_upgrade(connection)


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None


@lru_cache(maxsize=1)
def _created() -> list[str]:
    """The statements that make an empty store, with its first rows."""
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        real_upgrade(connection)
        connection.commit()
        made = connection.connection.driver_connection
        assert isinstance(made, sqlite3.Connection)
        dumped = list(made.iterdump())
    engine.dispose()
    return [line for line in dumped if line not in ("BEGIN TRANSACTION;", "COMMIT;")]


def long_ones_first(
    items: Sequence[Item], long_kind: Callable[[Item], object], workers: int
) -> list[Item]:
    """The order in which each worker begins with its share of the long tests.

    xdist gives the workers equal parts in turn, and they take from each other's ends later. So nobody
    is left alone with a long test at the end.

    Args:
        items: the tests.
        long_kind: of a test; None: it is not long. Tests of one kind share what they begin with, and
            stay with one worker.
        workers: how many.
    """
    kinds: dict[object, list[Item]] = {}
    for item in items:
        kinds.setdefault(long_kind(item), []).append(item)
    others = kinds.pop(None, [])
    long = list(kinds.values())
    arranged: list[Item] = []
    for worker in range(workers):
        part = (len(items) - len(arranged)) // (workers - worker)
        share = [item for kind in long[worker::workers] for item in kind]
        short = max(0, part - len(share))
        arranged += [*share, *others[:short]]
        del others[:short]
    return [*arranged, *others]
