"""Labels for whole files: CSV, Parquet and JSON lines, in constant memory.

The output is written in parts beside its final name and moved there when it is whole, so a file with
labels is never half-written. A run that was stopped goes on after its last part.

A label must follow the first segment that was ever known of a visitor. With a file of first values, the
work has three passes. The rows are sorted into partitions by a keyed hash of the visitor; each
partition, which fits into memory, is joined with its part of the file of first values; and the
labels, kept by row number, are added to the rows in order.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from deniable._extras import require
from deniable.errors import DeniableError, InvalidArgumentError
from deniable.masks.mask import Mask, visitor_bytes

if TYPE_CHECKING:
    import polars as pl

FileKind = Literal["csv", "parquet", "jsonl"]
KINDS: dict[str, FileKind] = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
"""Extension -> format."""

BATCH = 500_000
"""Rows that are held in memory at once."""

_PARTITIONS = 64


class LabelFileError(DeniableError, ValueError):
    """A file cannot be labelled; nothing was written."""


@dataclass(frozen=True)
class LabelledFile:
    """What was written.

    Attributes:
        path: the file with labels.
        rows: its rows.
        label_counts: rows by label.
        without_segment: rows whose segment was not known; they have a label from the null row.
        changed: rows whose segment differs from the visitor's first one; None without first values.
    """

    path: Path
    rows: int
    label_counts: dict[str, int]
    without_segment: int
    changed: int | None


def label_file(
    mask: Mask,
    source: str | Path,
    target: str | Path,
    *,
    key: bytes,
    visitor: str = "visitor",
    segment: str = "segment",
    replace: bool = False,
    first_values: str | Path | None = None,
    progress: Callable[[int], None] = lambda rows: None,
) -> LabelledFile:
    """Add a column `<mask>_label` to a file, and write it to `target`.

    Args:
        mask: whose labels.
        source: a CSV, Parquet or JSON-lines file.
        target: the file to write, in the format of its extension.
        key: the mask's key, for the hashes in the file of first values.
        visitor: the column with the visitor's id.
        segment: the column with the segment; empty if it is not known yet.
        replace: drop the segment's column.
        first_values: the Parquet file that remembers each visitor's first group. It is created if
            it does not exist, and updated. Use the same one for all files of a mask.
        progress: called with the number of rows labelled so far.

    Raises:
        InvalidArgumentError: a wrong path or column.
        LabelFileError: a bad row, or a file that is not whole. Nothing is written.
    """
    require("polars", extra="data")
    firsts = None if first_values is None else Path(first_values)
    job = _Job(mask, Path(source), Path(target), visitor, segment, replace, firsts)
    job.check()
    if firsts is None:
        return job.write(progress, None)
    with _locked(firsts):
        return job.write(progress, job.frozen_labels(firsts, key))


@dataclass(frozen=True)
class _Frozen:
    """The label of every row, by number of the label, and how many rows had another segment."""

    numbers: np.memmap[tuple[int, ...], np.dtype[np.uint16]]
    changed: int


@dataclass(frozen=True)
class _Job:
    mask: Mask
    source: Path
    target: Path
    visitor: str
    segment: str
    replace: bool
    first_values: Path | None

    @property
    def column(self) -> str:
        """The column of labels."""
        return f"{self.mask.name}_label"

    @property
    def parts(self) -> Path:
        """The folder of what is not finished."""
        return self.target.with_name(f".{self.target.name}.parts")

    def check(self) -> None:
        """Refuse what cannot work before anything is read."""
        _kind("file", self.source)
        _kind("out", self.target)
        if not self.target.parent.is_dir():
            raise InvalidArgumentError("out", str(self.target), "a file in a folder that exists")
        if self.source.resolve() == self.target.resolve():
            raise InvalidArgumentError("out", str(self.target), "another file than the input")
        columns = scan(self.source).collect_schema().names()
        for argument, name in (("visitor", self.visitor), ("segment", self.segment)):
            if name not in columns:
                raise InvalidArgumentError(argument, name, f"a column: {', '.join(columns)}")
        if self.column in columns:
            raise InvalidArgumentError("file", str(self.source), f"no column {self.column} yet")

    def write(self, progress: Callable[[int], None], frozen: _Frozen | None) -> LabelledFile:
        """Write the parts that are missing, then the whole file."""
        try:
            return self._write(progress, frozen)
        except LabelFileError:
            shutil.rmtree(self.parts, ignore_errors=True)  # there is nothing to go on with
            raise

    def _write(self, progress: Callable[[int], None], frozen: _Frozen | None) -> LabelledFile:
        import polars as pl

        done, counts, unknown = self._begun()
        row = 0
        for batch in read_batches(self.source):
            start, row = row, row + batch.height
            if row <= done:
                continue
            rows = batch.slice(max(done - start, 0))
            labels = self._labels(rows, row - rows.height, frozen)
            part = rows.with_columns(pl.Series(self.column, labels, pl.String))
            for label in labels:
                counts[label] += 1
            unknown += rows[self.segment].null_count()
            part = part.drop(self.segment) if self.replace else part
            self._keep(part, row, counts, unknown)
            progress(row)
        if row == 0:
            raise LabelFileError(f"{self.source}: no rows")
        self._assemble()
        changed = None if frozen is None else frozen.changed
        return LabelledFile(self.target, row, counts, unknown, changed)

    def _labels(self, rows: pl.DataFrame, first_row: int, frozen: _Frozen | None) -> list[str]:
        names = self.mask.labels_in_order
        if frozen is not None:
            return [names[n] for n in frozen.numbers[first_row : first_row + rows.height]]
        visitors, segments = self._values(rows)
        try:
            return self.mask.labels(visitors, segments)
        except InvalidArgumentError:
            raise self._bad_row(visitors, segments, first_row) from None

    def _values(self, rows: pl.DataFrame) -> tuple[list[str], list[str | None]]:
        import polars as pl

        return (
            rows[self.visitor].cast(pl.String).to_list(),
            rows[self.segment].cast(pl.String).to_list(),
        )

    def _bad_row(
        self, visitors: list[str], segments: list[str | None], first_row: int
    ) -> LabelFileError:
        """The first bad row by number: ids and segments are not repeated in errors."""
        for n, (visitor, segment) in enumerate(zip(visitors, segments, strict=True), first_row + 1):
            try:
                self.mask.label(visitor, segment)
            except InvalidArgumentError as error:
                words = f"row {n:,}: column {getattr(self, error.argument)}"
                return LabelFileError(f"{self.source}: {words}: expected {error.allowed}")
        raise AssertionError("no bad row")

    # -- parts --------------------------------------------------------------------------------------

    def _begun(self) -> tuple[int, dict[str, int], int]:
        """Rows, counts and unknown segments of an earlier run of the same work, or of a new one."""
        state = self.parts / "state.json"
        if state.exists():
            kept = json.loads(state.read_text())
            if kept["work"] == self._work():
                return kept["rows"], kept["counts"], kept["unknown"]
        shutil.rmtree(self.parts, ignore_errors=True)
        self.parts.mkdir(mode=0o700)
        return 0, dict.fromkeys(self.mask.labels_in_order, 0), 0

    def _keep(self, part: pl.DataFrame, row: int, counts: dict[str, int], unknown: int) -> None:
        path = self.parts / f"{row:015}.parquet"
        part.write_parquet(path, compression="lz4", statistics=False)
        kept = {"work": self._work(), "rows": row, "counts": counts, "unknown": unknown}
        temporary = self.parts / "state.tmp"
        temporary.write_text(json.dumps(kept))
        temporary.replace(self.parts / "state.json")

    def _work(self) -> list[str]:
        """Identifies the work: another input, mask, column or file of first values begins anew."""
        stat = self.source.stat()
        file = [str(self.source.resolve()), str(stat.st_size), str(stat.st_mtime_ns)]
        columns = [self.visitor, self.segment, str(self.replace), str(self.first_values)]
        return [*file, *columns, *self.mask.message_head, self.mask.fingerprint]

    def _assemble(self) -> None:
        import polars as pl

        # A run that was stopped between a part and its state leaves a part that is not counted.
        last = json.loads((self.parts / "state.json").read_text())["rows"]
        parts = sorted(path for path in self.parts.glob("*.parquet") if int(path.stem) <= last)
        rows = pl.scan_parquet(parts)
        whole = self.parts / "whole"
        kind = _kind("out", self.target)
        if kind == "parquet":
            rows.sink_parquet(whole)
        elif kind == "csv":
            rows.sink_csv(whole, check_extension=False)
        else:
            rows.sink_ndjson(whole, check_extension=False)
        whole.replace(self.target)
        shutil.rmtree(self.parts)

    # -- first values -------------------------------------------------------------------------------

    def frozen_labels(self, first_values: Path, key: bytes) -> _Frozen:
        """Return the label of every row by its visitor's first group, and remember new visitors."""
        import polars as pl

        known = read_first_values(self.mask, first_values)
        folder = self.parts.with_name(self.parts.name + ".first")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        try:
            n_rows = self._partition(folder, key)
            numbers = np.memmap(folder / "labels", np.uint16, "w+", shape=(n_rows,))
            changed = sum(
                self._freeze(folder, partition, known, numbers) for partition in range(_PARTITIONS)
            )
            merged = pl.scan_parquet(sorted(folder.glob("known-*.parquet")))
            fresh = first_values.with_name(f".{first_values.name}.tmp")
            fresh.touch(mode=0o600)
            merged.sink_parquet(fresh, metadata=_identity(self.mask))
            # First values are kept before a label is given out: another segment sent later must
            # not change it.
            fresh.replace(first_values)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return _Frozen(numbers, changed)

    def _partition(self, folder: Path, key: bytes) -> int:
        """Write visitor, hash, group and number of each row to the partition of its hash."""
        import polars as pl

        row = 0
        for n, batch in enumerate(read_batches(self.source)):
            visitors, segments = self._values(batch)
            try:
                hashes = [visitor_hash(key, self.mask.name, visitor) for visitor in visitors]
                groups = list(map(self.mask.group_number, segments))
            except InvalidArgumentError:
                raise self._bad_row(visitors, segments, row) from None
            frame = pl.DataFrame(
                {
                    "visitor": hashes,
                    "id": visitors,
                    "group": pl.Series(groups, dtype=pl.UInt16),
                    "row": pl.int_range(row, row + batch.height, eager=True),
                    "partition": pl.Series([h[0] % _PARTITIONS for h in hashes], dtype=pl.UInt8),
                }
            )
            for (partition,), part in frame.partition_by("partition", as_dict=True).items():
                part.drop("partition").write_parquet(folder / f"{partition}-{n:06}.parquet")
            row += batch.height
        if row == 0:
            raise LabelFileError(f"{self.source}: no rows")
        return row

    def _freeze(
        self,
        folder: Path,
        partition: int,
        known: pl.LazyFrame,
        numbers: np.memmap[tuple[int, ...], np.dtype[np.uint16]],
    ) -> int:
        """Label the rows of a partition; return how many have another group than the first one."""
        import polars as pl

        first_byte = pl.col("visitor").bin.slice(0, 1)
        bytes_of_partition = [bytes([b]) for b in range(partition, 256, _PARTITIONS)]
        before = known.filter(first_byte.is_in(bytes_of_partition)).collect(engine="streaming")
        files = sorted(folder.glob(f"{partition}-*.parquet"))
        null = len(self.mask.groups)
        after = before
        changed = 0
        if files:
            rows = pl.read_parquet(files)
            new = rows.filter(pl.col("group") != null).select("visitor", "group")
            after = pl.concat([before, new]).unique("visitor", keep="first", maintain_order=True)
            joined = rows.join(
                after.rename({"group": "first"}), on="visitor", how="left", maintain_order="left"
            )
            first = joined["first"].fill_null(null)
            changed = int(((joined["group"] != first) & (joined["group"] != null)).sum())
            place = {label: n for n, label in enumerate(self.mask.labels_in_order)}
            numbers[joined["row"].to_numpy()] = [
                place[self.mask.label_of_group(visitor, group)]
                for visitor, group in zip(joined["id"].to_list(), first.to_list(), strict=True)
            ]
        after.write_parquet(folder / f"known-{partition:02}.parquet")
        return changed


def read_first_values(mask: Mask, path: Path) -> pl.LazyFrame:
    """Open a file of first values: visitor (its keyed hash) and group. Empty if it does not exist."""
    import polars as pl

    if not path.exists():
        return pl.LazyFrame(schema={"visitor": pl.Binary, "group": pl.UInt16})
    try:
        kept = pl.read_parquet_metadata(path)
    except (pl.exceptions.PolarsError, OSError):
        raise LabelFileError(f"{path}: expected a Parquet file of first values") from None
    for name, value in _identity(mask).items():
        if kept.get(name) != value:
            words = f"its {name} is {kept.get(name)}, that of the mask is {value}"
            raise LabelFileError(f"{path}: expected the first values of this mask; {words}")
    return pl.scan_parquet(path)


def _identity(mask: Mask) -> dict[str, str]:
    """What the groups in a file of first values belong to."""
    return {
        "mask": mask.name,
        "period": mask.period,
        "channel": mask.channel_hash,
        "key": mask.fingerprint,
    }


def visitor_hash(key: bytes, mask: str, visitor: str) -> bytes:
    """Return the keyed hash under which a file of first values knows a visitor."""
    message = f"deniable-first-value-1\x1f{mask}\x1f".encode() + visitor_bytes(visitor)
    return hmac.digest(key, message, "sha256")[:16]


def scan(path: Path) -> pl.LazyFrame:
    """Open a file without reading it; CSV columns are text, so that nothing changes on the way."""
    import polars as pl

    kind = _kind("file", path)
    if not path.is_file():
        raise FileNotFoundError(2, "No such file", str(path))
    if kind != "parquet":
        _check_end(path)
    try:
        if kind == "parquet":
            rows = pl.scan_parquet(path)
        elif kind == "csv":
            rows = pl.scan_csv(path, infer_schema=False)
        else:
            rows = pl.scan_ndjson(path, infer_schema_length=None)
        rows.collect_schema()  # a file that is not whole is noticed here
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(path, error) from None
    return rows


def count_rows(path: Path) -> int:
    """Return the number of rows of a file."""
    import polars as pl

    try:
        return int(scan(path).select(pl.len()).collect(engine="streaming").item())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(path, error) from None


def read_batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[pl.DataFrame]:
    """Yield the rows of a file in order, `BATCH` at a time; all columns, or those named, as text."""
    import polars as pl

    rows = scan(path)
    if columns is not None:
        present = rows.collect_schema().names()
        for name in columns:
            if name not in present:
                raise InvalidArgumentError("column", name, f"a column: {', '.join(present)}")
        rows = rows.select(pl.col(columns).cast(pl.String))
    try:
        yield from rows.collect_batches(chunk_size=BATCH, engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> LabelFileError:
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    return LabelFileError(f"{path}: expected a whole {_kind('file', path)} file: {first}")


def _check_end(path: Path) -> None:
    """Refuse a text file without a line break at its end: it may have been cut off."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        if file.tell() == 0:
            raise LabelFileError(f"{path}: the file is empty")
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            raise LabelFileError(
                f"{path}: the last line has no line break, so the file may have been cut off; "
                "add one if it is complete"
            )


def _kind(argument: str, path: Path) -> FileKind:
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise InvalidArgumentError(argument, str(path), f"a file that ends in {', '.join(KINDS)}")
    return kind


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time use a file of first values."""
    if not path.parent.is_dir():
        raise InvalidArgumentError("first_values", str(path), "a file in a folder that exists")
    lock = os.open(path.with_name(f".{path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
