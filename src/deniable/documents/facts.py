"""What the chain says about an experiment and the firm at one height: the input of all documents.

Nothing is read from rows that could be changed unnoticed. Budgets, arms, segments, times and the
firm's account come from entries of the chain; tables must match the digests in their entries. The
same height therefore always gives the same facts.
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
from deniable.storage.promise_entries import promised_table
from deniable.storage.times import as_datetime


@dataclass(frozen=True)
class Share:
    """An experiment's share of the firm's budget.

    Attributes:
        key: the experiment, or "labels of" a mask; empty for a debit of a restored store.
        nano: the amount.
        layer: its layer, or None.
        until: when it stops counting; None while it runs or is paused.
        mask: the entry of the mask, if it is one.
    """

    key: str
    nano: int
    layer: str | None
    until: datetime | None
    mask: Entry | None


@dataclass(frozen=True)
class FirmAccount:
    """The firm's account at one time, recomputed from the chain.

    Attributes:
        budget_nano: the firm's budget in any window.
        window_days: the length of the window.
        counting_nano: what counts at that time: a visitor's worst case over all experiments.
        peak_nano: the most that counted since this budget was set.
        shares: what counts, largest first.
    """

    budget_nano: int
    window_days: int
    counting_nano: int
    peak_nano: int
    shares: tuple[Share, ...]

    @property
    def year_nano(self) -> int:
        """The most that the firm's limit allows in any 365 days: one limit for each window begun."""
        return -(-365 // self.window_days) * self.budget_nano

    @property
    def experiments(self) -> int:
        """Number of experiments that count."""
        return sum(bool(share.key) and share.mask is None for share in self.shares)

    @property
    def masks(self) -> tuple[Entry, ...]:
        """The entries of the masks that count."""
        return tuple(share.mask for share in self.shares if share.mask is not None)

    @property
    def bounded(self) -> bool:
        """Whether anything besides masks counts: experiments that read segments add up with labels."""
        return any(share.nano and share.mask is None for share in self.shares)


@dataclass(frozen=True)
class RecordedAudit:
    """The newest audit in the chain.

    Attributes:
        seq: number of its entry.
        at: time of the audit.
        sound: whether the promise was found to be kept.
        verdict: the verdict as text.
        decisions: number of decisions considered.
    """

    seq: int
    at: datetime
    sound: bool
    verdict: str
    decisions: int


@dataclass(frozen=True)
class FirmFacts:
    """All facts about the firm's labels.

    Attributes:
        height: the last entry that was read.
        head: its hash, in hexadecimal.
        at: the time of the account.
        account: the firm's account; None without a budget.
        firm: the firm's settings: name, contact, purpose and legal basis, where they are given.
        masks: the entries of the masks.
    """

    height: int
    head: str
    at: datetime
    account: FirmAccount | None
    firm: Mapping[str, str]
    masks: tuple[Entry, ...]

    @property
    def bounded(self) -> bool:
        """Whether experiments that read segments count too."""
        return self.account is not None and self.account.bounded

    @property
    def budget_nano(self) -> int:
        """What everything together may tell: the masks, and experiments that read segments."""
        labels = sum(entry.amount_nano for entry in self.masks)
        return self.account.counting_nano if self.account and self.account.bounded else labels


@dataclass(frozen=True)
class Facts:
    """All facts about an experiment.

    Attributes:
        height: the last entry that was read.
        head: its hash, in hexadecimal.
        at: the time of the account.
        promise: the promise, with all recorded tables.
        told: the promise in its entries.
        proofs: the exact check of each version.
        created: when the draft was created.
        started: the first start; None for a draft.
        stopped: when it stopped; None while it has not.
        decisions: number of decisions stored when the newest table was recorded.
        erased: number of decisions of erased visitors.
        purges: number of purges of old visitors.
        switched_off: arm -> the version from which it is off.
        added: arm -> the version that added it, for arms added later.
        account: the firm's account; None without a budget.
        audit: the newest recorded audit.
        firm: the firm's settings: name, contact, purpose and legal basis, where they are given.
        mask: the entry of the mask whose labels its rows are; None without one.
        unobserved: number of the firm's experiments that were started for unobserved visits.
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
    decisions: int
    erased: int
    purges: int
    switched_off: Mapping[str, int]
    added: Mapping[str, int]
    account: FirmAccount | None
    audit: RecordedAudit | None
    firm: Mapping[str, str]
    mask: Entry | None = None
    unobserved: int = 0

    @property
    def budget_nano(self) -> int:
        """The budget of what the experiment shows: its own, or that of the labels it reads."""
        return self.promise.budget_nano if self.mask is None else self.mask.amount_nano

    @property
    def key(self) -> str:
        """The experiment's key."""
        return self.told.key

    @property
    def changes(self) -> Mapping[int, tuple[str, str]]:
        """Version -> the arm that began it, and whether it was switched off or added."""
        off = {since: (arm, "switched off") for arm, since in self.switched_off.items()}
        return off | {since: (arm, "added") for arm, since in self.added.items()}

    @property
    def offered(self) -> tuple[str, ...]:
        """All arms, with a note at those that are switched off."""
        return tuple(key if on else f"{key} (switched off)" for key, _, on in self.told.arms)

    @property
    def own_budgets(self) -> bool:
        """Whether arms have different budgets."""
        return len(set(self.promise.budgets_nano)) > 1

    @property
    def kept(self) -> bool:
        """Whether every version keeps its budgets."""
        return all(proof.holds for proof in self.proofs)

    @property
    def tables(self) -> int:
        """Number of recorded tables."""
        return len(self.promise.tables)

    @property
    def layer_share(self) -> float:
        """The experiment's share of its layer's visitors; 1 without a layer."""
        if self.told.slots is None:
            return 1.0
        return int.from_bytes(self.told.slots, "little").bit_count() / SLOTS


@dataclass(frozen=True)
class Ledger:
    """The part of the chain that documents about one experiment need, up to one height.

    Attributes:
        entries: oldest first, each checked against its link; table entries only of this experiment.
        head: the hash of the chain's last entry at that height, in hexadecimal.
        height: its position.
        experiment_id: the experiment; empty for the firm.
        tables: the recorded tables, each matching the digest in its entry.
    """

    entries: tuple[Entry, ...]
    head: str
    height: int
    experiment_id: bytes
    tables: tuple[AuditedTable, ...]


def facts_of(ledger: Ledger, at: int) -> Facts:
    """Return the facts at the ledger's height, with the firm's account at a given time.

    Args:
        ledger: the part of the chain.
        at: the time, as stored, not before the newest entry.

    Raises:
        WrongStateError: the experiment did not exist at that height.
        BrokenPromiseError: the chain does not define its promise.
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
        for table in (promised_table(entry) for entry in mine if entry.kind == "table")
    }
    forgot = [entry for entry in mine if entry.kind in ("erase", "purge")]
    return Facts(
        height=ledger.height,
        head=ledger.head,
        at=as_datetime(at),
        promise=promise,
        told=told,
        proofs=exact_proof(promise, replay=False),
        created=as_datetime(mine[0].recorded_at),
        started=_time_of(mine, "start"),
        stopped=_time_of(mine, "stop"),
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
        firm=firm_texts(ledger.entries),
        mask=next(
            (
                e
                for e in reversed(ledger.entries)
                if e.kind == "mask" and e.detail["mask"] == told.mask
            ),
            None,
        ),
        unobserved=_unobserved(ledger.entries),
    )


def _unobserved(entries: Sequence[Entry]) -> int:
    drafts = ("create", "redraft")
    observed = {e.experiment_id: e.detail["observed"] for e in entries if e.kind in drafts}
    return sum(not observed[e.experiment_id] for e in entries if e.kind == "start")


def firm_facts_of(ledger: Ledger, at: int) -> FirmFacts:
    """Return the facts about the firm's labels: masks that count, else that of the ledger's experiment.

    Raises:
        WrongStateError: there is no such mask.
    """
    account = _account(ledger.entries, at)
    masks = () if account is None else account.masks
    if not masks and ledger.experiment_id:
        mask = facts_of(ledger, at).mask
        masks = () if mask is None else (mask,)
    if not masks:
        raise WrongStateError("no labels count in the firm's account, so there is nothing to state")
    return FirmFacts(
        height=ledger.height,
        head=ledger.head,
        at=as_datetime(at),
        account=account,
        firm=firm_texts(ledger.entries),
        masks=masks,
    )


def firm_texts(entries: Sequence[Entry]) -> Mapping[str, str]:
    """Return what the firm's newest settings say about it; empty where nothing is given."""
    names = ("name", "contact", "purpose", "legal_basis")
    for entry in reversed(entries):
        if entry.kind == "settings" and entry.experiment_id is None:
            return {name: str(entry.detail.get(name, "")) for name in names}
    return dict.fromkeys(names, "")


def _time_of(entries: Sequence[Entry], kind: str) -> datetime | None:
    """Return when it first happened."""
    for entry in entries:
        if entry.kind == kind:
            return as_datetime(entry.recorded_at)
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
        entry.experiment_id: str(entry.detail.get("key") or f"labels of {entry.detail['mask']}")
        for entry in entries
        if entry.experiment_id is not None and entry.detail.keys() & {"key", "mask"}
    }
    masks = {entry.experiment_id: entry for entry in entries if entry.kind == "mask"}
    shares = []
    for life in found.lives:
        until = counts_until(life, found.settings)
        if until is None or until > at:
            ends = None if until is None else as_datetime(until)
            key = "" if life.experiment_id is None else keys.get(life.experiment_id, "")
            mask = masks.get(life.experiment_id)
            shares.append(Share(key, life.cost_nano, life.layer, ends, mask))
    setting = found.settings[-1]
    return FirmAccount(
        budget_nano=setting.budget_nano,
        window_days=setting.window_days,
        counting_nano=found.points[-1][1],
        peak_nano=found.peaks[-1].nano,
        shares=tuple(sorted(shares, key=lambda share: (-share.nano, share.key))),
    )
