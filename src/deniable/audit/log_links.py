"""Recomputes the links of decisions and rewards for a whole block of a log at a time.

Each row contains its link, so every link can be checked against the previous stored one,
independently of the other rows. The bytes to be hashed are assembled in one matrix and hashed row
by row. The encoding is that of `storage.chain`.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deniable.audit.log_blocks import COLUMNS, WIDTHS
from deniable.storage.chain import GENESIS
from deniable.storage.log_rows import DECISION, OLD, REWARD

if TYPE_CHECKING:
    import polars as pl

Bytes: TypeAlias = NDArray[np.uint8]
Flags: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]

_CODES = {DECISION: 1, REWARD: 2, OLD: 3}
_KEPT = {"kind", "writer", "seq", "experiment", "id", "time", "hash"}
_SHAPES = {
    (DECISION, True): {*_KEPT, "version", "table", "role", "visitor", "salt", "segment", "shown"},
    (DECISION, False): {*_KEPT, "version", "table", "role", "commitment"},
    (REWARD, True): {*_KEPT, "metric", "salt", "value"},
    (REWARD, False): {*_KEPT, "metric", "commitment"},
    (OLD, False): {*_KEPT, "version", "commitment"},
}
"""(Kind, whether it is open) -> the columns that must be filled; all others must be empty."""


class Rows:
    """Decisions and rewards of one block as arrays, with one entry per row.

    Args:
        frame: the block.
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        import polars as pl

        self.size = frame.height
        self.kind = (
            frame["kind"].replace_strict(_CODES, default=0, return_dtype=pl.Int64).to_numpy()
        )
        missing = [frame[name].is_null().to_numpy() for name in COLUMNS]
        self._frame, self._missing = frame, dict(zip(COLUMNS, missing, strict=True))
        self.decision: Flags = self.kind == _CODES[DECISION]
        self.open: Flags = ~self._missing["salt"]

        self._ints: dict[str, Ints] = {}
        self._raw: dict[str, Bytes] = {}
        self._groups: list[tuple[bytes, Ints]] | None = None

    def ints(self, name: str) -> Ints:
        """Return an integer column, with 0 for empty values."""
        if name not in self._ints:
            column = self._frame[name].fill_null(0).to_numpy()
            self._ints[name] = np.asarray(column, dtype=np.int64)
        return self._ints[name]

    def raw(self, name: str) -> Bytes:
        """Return a bytes column, (rows, width), with zeros for empty values."""
        import polars as pl

        if name not in self._raw:
            width = WIDTHS[name]
            column = self._frame[name].fill_null(bytes(width))
            matrix = column.bin.reinterpret(dtype=pl.Array(pl.UInt8, width)).to_numpy()
            self._raw[name] = np.ascontiguousarray(matrix)
        return self._raw[name]

    def experiments(self, chosen: Flags | None = None) -> list[tuple[bytes, Ints]]:
        """Return experiments and the indices of their rows, or of the chosen ones."""
        if self._groups is None:
            ids = self.raw("experiment")
            keys = ids.view(">u8").astype(np.uint64)
            order = np.lexsort((keys[:, 1], keys[:, 0]))
            cuts = np.flatnonzero((keys[order][1:] != keys[order][:-1]).any(axis=1)) + 1
            self._groups = [(ids[part[0]].tobytes(), part) for part in np.split(order, cuts)]
        if chosen is None:
            return self._groups
        some = ((identity, part[chosen[part]]) for identity, part in self._groups)
        return [(identity, part) for identity, part in some if part.size]

    def unreadable(self) -> Flags:
        """Return rows that lack a required value, or have one that does not belong."""
        filled = sum(
            (~missing).astype(np.int64) << place
            for place, missing in enumerate(self._missing.values())
        )
        good = np.zeros(self.size, dtype=bool)
        for (kind, is_open), names in _SHAPES.items():
            wanted = sum(1 << COLUMNS.index(name) for name in names)
            good |= (self.kind == _CODES[kind]) & (self.open == is_open) & (filled == wanted)
        return ~good

    def links(self, previous: Bytes) -> tuple[Bytes, Flags]:
        """Return the link of each row after these, (rows, 32), and rows with a number out of range."""
        found = np.zeros((self.size, 32), dtype=np.uint8)
        outside = np.zeros(self.size, dtype=bool)
        for kind, layout in (
            (DECISION, (b"D", ("version", ">u4"), ("table", ">u4"), ("role", ">i2"))),
            (REWARD, (b"R", ("metric", ">i2"))),
            (OLD, (b"", ("version", ">u4"))),
        ):
            here = np.flatnonzero(self.kind == _CODES[kind])
            if not here.size:
                continue
            committed, wrong = self._committed(kind, here)
            letter, *numbers = layout
            parts: list[Bytes] = [previous[here]]
            if letter:
                parts.append(np.full((here.size, 1), ord(str(letter, "ascii")), dtype=np.uint8))
            parts += [self.raw("experiment")[here], self.raw("id")[here]]
            for name, width in (*numbers, ("time", ">i8"), ("writer", ">i4"), ("seq", ">i8")):
                encoded, beyond = _encoded(self.ints(name)[here], str(width))
                wrong |= beyond
                parts.append(encoded)
            found[here] = _hashed(np.concatenate([*parts, committed], axis=1))
            outside[here] = wrong
        return found, outside

    def _committed(self, kind: str, here: NDArray[np.intp]) -> tuple[Bytes, Flags]:
        """Return the commitments of rows of one kind: given, or computed from open values."""
        found = self.raw("commitment")[here]
        wrong = np.zeros(here.size, dtype=bool)
        opened = self.open[here]
        some = here[opened]
        if some.size:
            layout = {
                DECISION: ("visitor", "salt", ("segment", ">i2"), ("shown", ">i2")),
                REWARD: ("salt", ("metric", ">i2"), ("value", ">i8")),
            }[kind]
            parts = []
            for column in layout:
                if isinstance(column, str):
                    parts.append(self.raw(column)[some])
                    continue
                encoded, beyond = _encoded(self.ints(column[0])[some], column[1])
                wrong[opened] |= beyond
                parts.append(encoded)
            found[opened] = _hashed(np.concatenate(parts, axis=1))
        return found, wrong


def shifted(links: Bytes, begins: Flags, before: bytes) -> Bytes:
    """Return the link before each row: that of the previous row, or zeros where a chain begins.

    Args:
        links: stored links, (rows, 32).
        begins: whether a row is the first of its chain.
        before: the link of the last row before the block.
    """
    previous = np.empty_like(links)
    previous[0] = np.frombuffer(before, dtype=np.uint8)
    previous[1:] = links[:-1]
    previous[begins] = np.frombuffer(GENESIS, dtype=np.uint8)
    return previous


def _encoded(values: Ints, width: str) -> tuple[Bytes, Flags]:
    """Return integers as big-endian bytes, and which of them do not fit."""
    cast = values.astype(np.dtype(width))
    rows = cast.view(np.uint8).reshape(values.size, -1)
    return rows, cast.astype(np.int64) != values


def _hashed(rows: Bytes) -> Bytes:
    """Return the SHA-256 of each row, (rows, 32)."""
    given = np.ascontiguousarray(rows).view(f"V{rows.shape[1]}").ravel().tolist()
    digests = b"".join([sha256(row).digest() for row in given])
    return np.frombuffer(digests, dtype=np.uint8).reshape(-1, 32)
