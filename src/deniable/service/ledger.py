"""The ledger: its entries, verification of the chains, and exports."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import IO

from sqlalchemy import Connection

from deniable._types import JsonObject
from deniable.audit.log_blocks import COLUMNS, TEXT, WIDTHS, ending_of
from deniable.errors import WrongStateError
from deniable.service.export import Shape, export, opened_privately
from deniable.service.table_making import restart_unbounded
from deniable.storage import account, commitments, experiments
from deniable.storage.ledger import Verification, chains_behind, verify
from deniable.storage.log_rows import LogRow, log_rows
from deniable.storage.records import Commitment, Experiment
from deniable.storage.store import Store


class Ledger:
    """The part of `Deniable` that reads, verifies and exports the ledger."""

    def __init__(self, store: Store, key: bytes) -> None:
        self._store = store
        self._key = key

    def entries(self, *, after: int = 0, limit: int | None = None) -> list[Commitment]:
        """Return all changes to the firm's budget or an experiment's promise, oldest first.

        Args:
            after: only entries after this number.
            limit: at most so many.
        """
        with self._store.read() as connection:
            return commitments.entries(connection, after=after, limit=limit)

    def page(
        self,
        *,
        experiment: str = "",
        kinds: Collection[str] = (),
        without: Collection[str] = (),
        spends: bool = False,
        first: int = 0,
        limit: int = 50,
    ) -> tuple[list[Commitment], int]:
        """Return some entries, newest first, and the total number; see `storage.commitments.page`."""
        with self._store.read() as connection:
            return commitments.page(
                connection,
                experiment=experiment,
                kinds=kinds,
                without=without,
                spends=spends,
                first=first,
                limit=limit,
            )

    def kinds(self) -> dict[str, int]:
        """Return the number of entries per kind."""
        with self._store.read() as connection:
            return commitments.kinds_of(connection)

    def verify(self, *, noted: Mapping[str, str] | None = None) -> Verification:
        """Check all chains, the tables, the counters and the totals; reports the first problem.

        Args:
            noted: `heads` of an earlier verification, kept outside the store; each must still be
                part of its chain.
        """
        with self._store.read() as connection:
            return verify(connection, noted or {})

    def restored(self, *, noted: Mapping[str, str] | None = None) -> int:
        """Record that this store was restored: everything that counts is committed again.

        Visitors whose decisions were lost are drawn a second time. Experiments without a fixed band
        therefore learn from zero again.

        Args:
            noted: heads noted after the backup was made; chains may be shorter than those.

        Returns:
            The committed nano-nats.

        Raises:
            WrongStateError: the ledger is broken, or is not an earlier state of the noted one.
        """

        def work(connection: Connection) -> int:
            behind, present = chains_behind(connection, noted or {})
            found = verify(connection, present)
            if not found.sound:
                raise WrongStateError(f"this store cannot be used: {found.problem}")
            lost = ", ".join(behind) or "what came after the backup, if anything"
            again = account.restored(connection, lost=lost)
            restart_unbounded(connection)
            return again

        return self._store.retried(work)

    def export(self, path: str | Path, *, experiment: str, shape: Shape = "private") -> int:
        """Write decisions to a file (.parquet, .csv, .jsonl) and return the number of rows.

        Args:
            path: the file; its extension determines the format.
            experiment: the experiment.
            shape: `private` (segment, shown, table, propensities, role, version, reward), `public`
                (what a tracker sees: arm and time), or `open-bandit` for off-policy tools. All
                except `public` contain segments: keep them in the trusted zone.
        """
        with self._store.read() as connection:
            found = experiments.by_key(connection, experiment)
            rows = export(connection, Path(path), found, shape, self._key)
        self._note_export(found, shape, rows=rows)
        return rows

    def export_log(self, path: str | Path, *, experiment: str | None = None) -> int:
        """Write the chains as a log for `deniable audit log` and return the number of rows.

        It contains keyed HMACs of visitors, salts, segments and arms of the experiment, or of all:
        keep it in the trusted zone. For other experiments it contains the input of their links, and
        it has all commitments of the firm, because a chain can only be verified as a whole.

        Args:
            path: the file; its extension determines the format (.parquet, .csv, .csv.gz, .jsonl,
                .jsonl.gz).
            experiment: the experiment whose decisions are included in full; None for all.
        """
        with self._store.read() as connection:
            found = None if experiment is None else experiments.by_key(connection, experiment)
        # Recorded first, so that the log contains this entry and ends where the ledger does.
        self._note_export(found, "log")
        with self._store.read() as connection:
            return export_log(connection, Path(path), found)

    def _note_export(self, experiment: Experiment | None, shape: str, **more: int) -> None:
        """Record in the ledger that data left the store, and who exported it."""

        def work(connection: Connection) -> None:
            commitments.lock_chain(connection)
            commitments.record(connection, "export", experiment, 0, shape=shape, **more)

        self._store.retried(work)


_ROW_GROUP = 1 << 17


def export_log(connection: Connection, path: Path, experiment: Experiment | None) -> int:
    """Write the log of one experiment, or of all; return the number of rows. See `Ledger.export_log`."""
    ending = ending_of(path)
    wanted = None if experiment is None else [bytes.fromhex(experiment.id)]
    with closing(log_rows(connection, wanted)) as rows:
        if ending == ".parquet":
            opened_privately(path).close()
            return _write_parquet(path, rows)
        with _opened(path, ending) as file:
            return (_write_csv if ".csv" in ending else _write_jsonl)(file, rows)


def _opened(path: Path, ending: str) -> IO[str]:
    opened_privately(path).close()
    if not ending.endswith(".gz"):
        return path.open("w", encoding="utf-8", newline="")
    return io.TextIOWrapper(gzip.open(path, "wb", compresslevel=4), encoding="utf-8", newline="")


def _write_csv(file: IO[str], rows: Iterable[LogRow]) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    for row in rows:
        writer.writerow([_plain(value) for value in row])
        count += 1
    return count


def _write_jsonl(file: IO[str], rows: Iterable[LogRow]) -> int:
    count = 0
    for row in rows:
        filled = {
            name: _plain(value)
            for name, value in zip(COLUMNS, row, strict=True)
            if value is not None
        }
        file.write(json.dumps(filled, separators=(",", ":")) + "\n")
        count += 1
    return count


def _write_parquet(path: Path, rows: Iterable[LogRow]) -> int:
    """Write via a temporary text file, to limit memory use."""
    import polars as pl

    text = path.with_name(path.name + ".csv")
    kinds: JsonObject = dict.fromkeys(COLUMNS, pl.Int64)
    kinds |= dict.fromkeys([*TEXT, *WIDTHS], pl.String)
    try:
        with text.open("w", encoding="utf-8", newline="") as file:
            count = _write_csv(file, rows)
        lazy = pl.scan_csv(text, schema=kinds).with_columns(
            pl.col(name).str.decode("hex") for name in WIDTHS
        )
        lazy.sink_parquet(path, row_group_size=_ROW_GROUP)
    finally:
        text.unlink(missing_ok=True)
    return count


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value
