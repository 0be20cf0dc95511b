"""What the chain says about an experiment and the firm at one height: all that documents are made of.

Nothing is read from rows that can be changed unnoticed. Budgets, arms, segments, times and the firm's
account come from entries of the chain; tables are those that have the digests of their entries. So the
same height gives the same facts, whatever happens later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from deniable.audit.exact import VersionProof, exact_proof
from deniable.audit.firm import SLOTS, counts_until, recomputed
from deniable.audit.promise import AuditedTable, Promise
from deniable.errors import WrongStateError
from deniable.storage import promises
from deniable.storage.commitments import Entry
from deniable.storage.times import as_datetime


@dataclass(frozen=True)
class Share:
    """What one experiment takes of the firm's budget.

    Attributes:
        key: the experiment; empty for a debit of a restored store or of an older one.
        nano: what it takes.
        layer: or None.
        until: when it no longer counts; None while it runs or is paused.
    """

    key: str
    nano: int
    layer: str | None
    until: datetime | None


@dataclass(frozen=True)
class FirmAccount:
    """The firm's account at one time, recomputed from the chain.

    Attributes:
        budget_nano: what the firm allows in any window.
        window_days: the length of the window.
        counting_nano: what counts at that time: a visitor's worst case over all experiments.
        peak_nano: the most that counted at once since this budget was set.
        shares: what counts, largest first.
    """

    budget_nano: int
    window_days: int
    counting_nano: int
    peak_nano: int
    shares: tuple[Share, ...]

    @property
    def experiments(self) -> int:
        """How many experiments count."""
        return sum(bool(share.key) for share in self.shares)


@dataclass(frozen=True)
class RecordedAudit:
    """The newest audit in the chain.

    Attributes:
        seq: its entry.
        at: when.
        sound: whether the promise was found to be kept.
        verdict: in words.
        decisions: how many it looked at.
    """

    seq: int
    at: datetime
    sound: bool
    verdict: str
    decisions: int


@dataclass(frozen=True)
class Facts:
    """Everything.

    Attributes:
        height: the last entry that was read.
        head: its hash, hexadecimal.
        at: the time of the account.
        promise: what is promised, with all published tables.
        told: the same as the entries say it.
        proofs: each version in exact arithmetic.
        created: when the draft was made.
        started: the first start; None for a draft.
        stopped: None while it is not.
        settled: when a band that is fixed after the start was fixed; None: there is none (yet).
        decisions: that were stored when the newest table was published.
        erased: decisions whose visitor was forgotten.
        purges: how often old visitors were forgotten.
        switched_off: arm -> the version from which it is off.
        added: arm -> the version that added it, of those that came later.
        account: the firm's; None before it has a budget.
        audit: the newest recorded one.
    """

    height: int
    head: str
    at: datetime
    promise: Promise
    told: promises.Promise
    proofs: tuple[VersionProof, ...]
    created: datetime
    started: datetime | None
    stopped: datetime | None
    settled: datetime | None
    decisions: int
    erased: int
    purges: int
    switched_off: Mapping[str, int]
    added: Mapping[str, int]
    account: FirmAccount | None
    audit: RecordedAudit | None

    @property
    def key(self) -> str:
        """The experiment's."""
        return self.told.key

    @property
    def tables(self) -> int:
        """How many were published."""
        return len(self.promise.tables)

    @property
    def layer_share(self) -> float:
        """The share of a layer's visitors that are this experiment's; 1 without a layer."""
        if self.told.slots is None:
            return 1.0
        return int.from_bytes(self.told.slots, "little").bit_count() / SLOTS

    @property
    def cost_nano(self) -> int:
        """What it takes of the firm's budget: the budget and the trace budget."""
        return self.told.budget_nano + (self.told.trace_nano or 0)


@dataclass(frozen=True)
class Ledger:
    """The part of the chain that documents about one experiment need, up to one height.

    Attributes:
        entries: oldest first, each checked against its link; of tables only this experiment's.
        head: the hash of the last entry of the chain at that height, hexadecimal.
        height: its place.
        experiment_id: the experiment.
        tables: the published tables, each with the digest of its entry.
    """

    entries: tuple[Entry, ...]
    head: str
    height: int
    experiment_id: bytes
    tables: tuple[AuditedTable, ...]


def facts_of(ledger: Ledger, at: int) -> Facts:
    """The facts at the ledger's height, with the firm's account told for a time.

    Args:
        ledger: what was read.
        at: the time, as stored, not before the newest entry.

    Raises:
        WrongStateError: the experiment was not made by that height.
        BrokenPromiseError: the chain does not say what it promises.
    """
    mine = [entry for entry in ledger.entries if entry.experiment_id == ledger.experiment_id]
    if not mine:
        raise WrongStateError(f"the ledger does not know this experiment at entry {ledger.height}")
    told = promises.promise_from(
        ledger.experiment_id.hex(), [entry for entry in mine if promises.matters(entry)]
    )
    off = {e.detail["arm"]: e.detail["version"] for e in mine if e.kind == "switch_off"}
    promise = Promise.chained(told, off, ledger.tables)
    chained = {
        table.number: table
        for table in (promises.promised_table(entry) for entry in mine if entry.kind == "table")
    }
    settled = [
        chained[table.number].recorded_at
        for table in ledger.tables
        if table.version == told.version and table.floors is not None
    ]
    forgot = [entry for entry in mine if entry.kind in ("erase", "purge")]
    return Facts(
        height=ledger.height,
        head=ledger.head,
        at=as_datetime(at),
        promise=promise,
        told=told,
        proofs=exact_proof(promise, replay=False),
        created=as_datetime(mine[0].recorded_at),
        started=_time_of(mine, "start", "started_at"),
        stopped=_time_of(mine, "stop", "stopped_at"),
        settled=as_datetime(min(settled)) if promise.late and settled else None,
        decisions=max((table.decisions for table in chained.values()), default=0),
        erased=sum(entry.detail["decisions"] for entry in forgot),
        purges=sum(entry.kind == "purge" for entry in forgot),
        switched_off=off,
        added={
            key: since
            for (key, _, _), since in zip(told.arms, told.arms_since, strict=True)
            if since > 1
        },
        account=_account(ledger.entries, at),
        audit=_newest_audit(mine),
    )


def _time_of(entries: Sequence[Entry], kind: str, migrated: str) -> datetime | None:
    """When it first happened; entries from before migration 0004 are told by `migrate`."""
    for entry in entries:
        if entry.kind == kind:
            return as_datetime(entry.recorded_at)
        if entry.kind == "migrate" and entry.detail.get(migrated) is not None:
            return as_datetime(entry.detail[migrated])
    return None


def _newest_audit(entries: Sequence[Entry]) -> RecordedAudit | None:
    for entry in reversed(entries):
        if entry.kind == "audit":
            detail = entry.detail
            return RecordedAudit(
                seq=entry.seq,
                at=as_datetime(entry.recorded_at),
                sound=bool(detail["sound"]),
                verdict=str(detail["verdict"]),
                decisions=int(detail["decisions"]),
            )
    return None


def _account(entries: Sequence[Entry], at: int) -> FirmAccount | None:
    found = recomputed([e for e in entries if e.kind != "table"], {}, at + 1)
    if not found.settings:
        return None
    keys = {
        entry.experiment_id: str(entry.detail["key"])
        for entry in entries
        if entry.experiment_id is not None and "key" in entry.detail
    }
    shares = []
    for life in found.lives:
        until = counts_until(life, found.settings)
        if until is None or until > at:
            ends = None if until is None else as_datetime(until)
            key = "" if life.experiment_id is None else keys.get(life.experiment_id, "")
            shares.append(Share(key, life.cost_nano, life.layer, ends))
    setting = found.settings[-1]
    return FirmAccount(
        budget_nano=setting.budget_nano,
        window_days=setting.window_days,
        counting_nano=found.points[-1][1],
        peak_nano=found.peaks[-1].nano,
        shares=tuple(sorted(shares, key=lambda share: (-share.nano, share.key))),
    )
