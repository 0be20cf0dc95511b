"""Published tables as the chain names them, compared with what is stored."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from deniable.storage.commitments import Entry
from deniable.storage.schema import StoredRow


@dataclass(frozen=True)
class PromisedTable:
    """A published table by the digests that the chain holds.

    Attributes:
        number: its number within the experiment.
        version: version of the promise.
        rows: SHA-256 of the encoded table, in hexadecimal.
        counts: SHA-256 of the counts it was made from.
        decisions: number of decisions stored at that time.
        ratios: the exact worst ratio of each arm, "numerator/denominator".
        strategy: the strategy that made it.
        recorded_at: when it was chained, as a stored time.
        published_at: when it was made, as a stored time; None in entries from before it was chained.
        late_band: whether it names a band that was not fixed at the start.
    """

    number: int
    version: int
    rows: str
    counts: str
    decisions: int
    ratios: tuple[str, ...]
    strategy: str
    recorded_at: int
    published_at: int | None = None
    late_band: bool = False


def table_problem(row: StoredRow | None, chained: PromisedTable | None) -> str | None:
    """Return what is wrong with a stored table, compared with its entry; None if nothing is."""
    if chained is None:
        return "is not in the ledger"
    if row is None:
        return "was removed"
    if not isinstance(row.rows, bytes) or not isinstance(row.counts, bytes):
        return "was changed"  # SQLite stores text in any column
    stored = (
        row.version,
        row.decisions,
        sha256(row.rows).hexdigest(),
        sha256(row.counts).hexdigest(),
    )
    if stored != (chained.version, chained.decisions, chained.rows, chained.counts):
        return "was changed"
    if row.strategy != chained.strategy:
        return "has another strategy"
    if chained.published_at not in (None, row.published_at):
        return "has another time"
    return None


def promised_table(entry: Entry) -> PromisedTable:
    """Parse a `table` entry."""
    detail = entry.detail
    return PromisedTable(
        number=detail["number"],
        version=detail["version"],
        rows=detail["rows"],
        counts=detail["counts"],
        decisions=detail["decisions"],
        ratios=tuple(detail["ratios"]),
        strategy=detail["strategy"],
        published_at=detail.get("published_at"),
        recorded_at=entry.recorded_at,
        late_band=detail.get("band") is not None,
    )
