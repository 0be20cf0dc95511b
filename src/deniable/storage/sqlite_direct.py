"""Runs SQLAlchemy's statements on the writer's own connection to SQLite, without SQLAlchemy.

Publishing runs a dozen small statements. SQLAlchemy takes longer for each than SQLite does, and a
connection of its own would read all pages again that the writer has changed since. Each statement is
compiled once. Only what publishing needs is implemented: no lists of parameters, no `IN`.
"""

from __future__ import annotations

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import ClauseElement, Select
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.compiler import SQLCompiler

_DIALECT = sqlite.dialect(paramstyle="qmark")


class _Compiled:
    """A statement as SQL, with the order of its parameters and the shape of its rows."""

    def __init__(self, statement: ClauseElement, names: frozenset[str]) -> None:
        compiled = statement.compile(dialect=_DIALECT, column_keys=sorted(names))
        assert isinstance(compiled, SQLCompiler)
        # Lists and constants of the statement itself are written out.
        expanded = compiled.construct_expanded_state(dict.fromkeys(names))
        self.sql, self.names = expanded.statement, names
        self._order = [*(expanded.positiontup or ())]
        if not names <= {*self._order}:
            raise TypeError(f"a parameter that is not in the statement: {self.sql}")
        self._fixed = {name: expanded.parameters[name] for name in {*self._order} - names}
        columns = [*statement.selected_columns] if isinstance(statement, Select) else []
        readers = [
            one.type.dialect_impl(_DIALECT).result_processor(_DIALECT, None) for one in columns
        ]
        self._readers = [(place, read) for place, read in enumerate(readers) if read is not None]
        make: Any = namedtuple  # mypy wants to know the names
        self._make = make("Row", [one.key or "" for one in columns], rename=True)._make

    def values(self, given: Mapping[str, object]) -> list[object]:
        """Parameters in the order of the statement."""
        known = {**self._fixed, **given}
        return [known[name] for name in self._order]

    def row(self, values: tuple[Any, ...]) -> Any:
        """A row as SQLAlchemy would return it."""
        if self._readers:
            converted = list(values)
            for place, read in self._readers:
                converted[place] = read(converted[place])
            return self._make(converted)
        return self._make(values)


class _Result:
    """The part of SQLAlchemy's result that publishing uses."""

    def __init__(self, cursor: sqlite3.Cursor, row: Callable[[tuple[Any, ...]], Any]) -> None:
        self._rows = cursor.fetchall()
        self._row = row
        self.rowcount = cursor.rowcount

    def __iter__(self) -> Iterator[Any]:
        return map(self._row, self._rows)

    def all(self) -> list[Any]:
        """All rows."""
        return [*self]

    def one(self) -> Any:
        """The only row."""
        (row,) = self._rows
        return self._row(row)

    def first(self) -> Any:
        """The first row, or None."""
        return self._row(self._rows[0]) if self._rows else None

    def scalar(self) -> Any:
        """The first value of the first row, or None."""
        return None if not self._rows else self.first()[0]


class DirectConnection:
    """Stands for SQLAlchemy's `Connection` inside a transaction that somebody else began."""

    dialect = _DIALECT

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def execute(
        self, statement: ClauseElement, parameters: Mapping[str, object] | None = None
    ) -> _Result:
        """Run a statement."""
        given = parameters or {}
        compiled = _compiled(statement, given)
        return _Result(self._execute(compiled.sql, compiled.values(given)), compiled.row)


_known: WeakKeyDictionary[ClauseElement, _Compiled] = WeakKeyDictionary()


def _compiled(statement: ClauseElement, given: Mapping[str, object]) -> _Compiled:
    found = _known.get(statement)
    if found is None or given.keys() != found.names:
        found = _known[statement] = _Compiled(statement, frozenset(given))
    return found
