"""The firm in the chain: its account, a maximum in any window of a given number of days; its settings.

`account_rules.py` defines what counts and until when. This module reads, sets and spends it in
transactions. Nothing depends on a row that can be changed without breaking the chain. The firm's name
and approval rules are the newest `settings` entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal

from sqlalchemy import Connection, func, or_, select, text

from deniable._types import JsonObject
from deniable.errors import (
    NANO,
    BrokenPromiseError,
    InsufficientBudgetError,
    InvalidArgumentError,
    UnknownNameError,
    WrongStateError,
)
from deniable.storage import promise_entries, promises, times
from deniable.storage.account_rules import (
    Counted,
    Life,
    Setting,
    bitmap_slots,
    chained_hours,
    counted,
    counts_until,
    layer_nano,
    lives_of,
    move_to_answers,
    settings_of,
    slots_bitmap,
    total_nano,
)
from deniable.storage.commitments import (
    Entry,
    account_time,
    check_complete,
    checked,
    linked_query,
    lock_chain,
    moment,
    record,
)
from deniable.storage.records import SLOTS, Experiment, Firm
from deniable.storage.schema import answers, commitments

MAX_WINDOW_DAYS = 36_500

_KINDS = ("firm", "start", "resume", "stop", "mask", "end_mask", "restore", "clock")

# Statements are built once: building takes longer than running. Not `in_`, whose values would be
# expanded again on every execution.
_ENTRIES = linked_query(or_(*(commitments.c.kind == kind for kind in _KINDS)))
_LAST_HOURS = select(answers.c.experiment_id, func.max(answers.c.hour)).group_by(
    answers.c.experiment_id
)
NO_WRITER = 0
"""Stands for answers that no writer gave: kept arms, shown without a draw."""
_ANSWERED = text(
    "INSERT INTO answers (experiment_id, writer_id, hour) VALUES (:experiment, :writer, :hour) "
    "ON CONFLICT (experiment_id, writer_id) DO UPDATE SET hour = "
    "CASE WHEN excluded.hour > answers.hour THEN excluded.hour ELSE answers.hour END"
)


@dataclass(frozen=True)
class Balance:
    """The amount that counted, and the budget, from a time on."""

    since: int
    committed_nano: int
    budget_nano: int


def balances(connection: Connection) -> list[Balance]:
    """Return the account over time: one balance for each start, end of counting and change of budget."""
    entries = _entries(connection)
    settings = settings_of(entries)
    lives, debits = lives_of(entries)
    move_to_answers(lives, _hours(connection))
    now = account_time(connection)
    changes: list[tuple[int, bool, Counted | Setting]] = []
    for identity, life in (*lives.items(), *debits):
        until = counts_until(life, settings)
        one = Counted(identity, life.layer, life.slots, life.cost_nano, until)
        changes.append((life.started, True, one))
        if until is not None and until <= now:
            changes.append((until, False, one))
    changes += [(setting.since, True, setting) for setting in settings]
    found: list[Balance] = []
    budget, alone = 0, 0
    layers: dict[str, list[Counted]] = {}
    costs: dict[str, int] = {}
    for at, begins, what in sorted(changes, key=lambda change: change[0]):
        if isinstance(what, Setting):
            budget = what.budget_nano
        elif what.layer is None:
            alone += what.cost_nano if begins else -what.cost_nano
        else:
            users = layers.setdefault(what.layer, [])
            users.append(what) if begins else users.remove(what)
            costs[what.layer] = layer_nano(users)
        found.append(Balance(at, alone + sum(costs.values()), budget))
    return found


def counting(connection: Connection, now: int) -> list[Counted]:
    """Return what counts at a time, according to the chain and the last answers."""
    return counted(_entries(connection), _hours(connection), now)


def current_firm(connection: Connection) -> Firm:
    """Return the budget in force and how much of it counts; raise UnknownNameError if none was set."""
    entries = _entries(connection)
    settings = _settings(entries)
    now = account_time(connection)
    return Firm(
        budget_nano=settings[-1].budget_nano,
        committed_nano=total_nano(counted(entries, _hours(connection), now, settings)),
        window_days=settings[-1].window_days,
        starts_at=times.as_datetime(settings[-1].since),
    )


def set_firm(
    connection: Connection, *, budget_nano: int, window_days: int, reason: str = ""
) -> Firm:
    """Set a new budget or window.

    Args:
        connection: a write transaction.
        budget_nano: Gamma.
        window_days: W.
        reason: recorded in the ledger; required if the promise gets weaker by a larger budget or a
            shorter window.

    Raises:
        InsufficientBudgetError: more than this already counts; nothing changes.
        InvalidArgumentError: the reason is missing.
    """
    if budget_nano < 0:
        raise InvalidArgumentError("budget_nano", budget_nano, "0 or more")
    if not 1 <= window_days <= MAX_WINDOW_DAYS:
        raise InvalidArgumentError("window_days", window_days, f"1 to {MAX_WINDOW_DAYS}")
    lock_chain(connection)
    entries = _entries(connection)
    before, now = settings_of(entries), account_time(connection)
    if _weaker(before, budget_nano, window_days) and not reason.strip():
        raise InvalidArgumentError(
            "reason", reason, "why the budget is raised or the window shortened, in a few words"
        )
    settings = [*before, Setting(moment(connection), budget_nano, window_days)]
    taken = total_nano(counted(entries, _hours(connection), now, settings))
    if taken > budget_nano:
        raise InsufficientBudgetError(remaining=budget_nano, requested=taken)
    record(
        connection,
        "firm",
        None,
        budget_nano=budget_nano,
        window_days=window_days,
        reason=reason.strip(),
    )
    return current_firm(connection)


def is_weaker(connection: Connection, budget_nano: int, window_days: int) -> bool:
    """Whether this budget and window promise less than those in force; False for the first ones."""
    return _weaker(settings_of(_entries(connection)), budget_nano, window_days)


def _weaker(before: Sequence[Setting], budget_nano: int, window_days: int) -> bool:
    return bool(before) and (
        budget_nano > before[-1].budget_nano or window_days < before[-1].window_days
    )


def commit(
    connection: Connection,
    experiment: Experiment,
    kind: Literal["start", "resume"],
    slots: bytes | None,
    **detail: object,
) -> None:
    """Count an experiment from now on: check and debit in one step, under the lock of the chain.

    Args:
        connection: a write transaction.
        experiment: the experiment, whose row must agree with the chain.
        kind: kind of the entry.
        slots: slots of its layer; None without a layer.
        detail: further facts for the entry, such as the band.

    Raises:
        InsufficientBudgetError: with the remaining budget and what it would add.
        BrokenPromiseError: its row disagrees with the chain.
        UnknownNameError: the firm has no budget yet.
    """
    if (slots is None) != (experiment.layer is None):
        raise InvalidArgumentError(
            "slots", slots, "slots for an experiment with a layer, else none"
        )
    lock_chain(connection)
    promises.check(connection, experiment)
    entries, identity = _entries(connection), bytes.fromhex(experiment.id)
    # Visitors of every slot that it ever had may be shown their stored arm again.
    earlier = lives_of(entries)[0].get(identity, Life(started=0))
    bitmap = earlier.slots | (0 if slots is None else slots_bitmap(slots))
    mine = Counted(identity, experiment.layer, bitmap, experiment.budget_nano, None)
    _check_fits(connection, entries, mine, resumes=kind == "resume")
    record(
        connection,
        kind,
        experiment,
        experiment.budget_nano,
        **{**promise_entries.commit_detail(experiment, slots), **detail},
    )


def commit_mask(connection: Connection, mask: bytes, budget_nano: int, detail: JsonObject) -> None:
    """Count a mask from now on, like `commit`; its entry has this detail.

    Raises:
        InsufficientBudgetError: with the remaining budget and what it would add.
        UnknownNameError: the firm has no budget yet.
    """
    lock_chain(connection)
    mine = Counted(mask, None, 0, budget_nano, None)
    _check_fits(connection, _entries(connection), mine, resumes=False)
    record(connection, "mask", mask, budget_nano, **detail)


def _check_fits(
    connection: Connection, entries: Sequence[Entry], mine: Counted, *, resumes: bool
) -> None:
    """Raise InsufficientBudgetError unless the firm's budget has room for what is to count."""
    settings = _settings(entries)
    found = counted(entries, _hours(connection), account_time(connection), settings)
    others = [one for one in found if one.experiment_id != mine.experiment_id]
    before, after = total_nano(found), total_nano([*others, mine])
    # A live experiment is already counted; resuming it adds nothing.
    if after > settings[-1].budget_nano and (not resumes or after > before):
        raise InsufficientBudgetError(
            remaining=max(0, settings[-1].budget_nano - before), requested=after - before
        )


def restored(connection: Connection, *, lost: str) -> int:
    """Commit everything that counts again, because a part of the store was lost.

    Visitors whose decisions are lost get a second draw, so whatever counts may be spent twice. What
    was started after the backup is unknown, but took at most the rest of the budget. All of it
    counts for one window from now on. This may exceed the budget; then nothing can start until it
    fits again.

    Args:
        connection: a write transaction.
        lost: what is known to be missing, for the ledger.

    Returns:
        The committed nano-nats.
    """
    lock_chain(connection)
    entries = _entries(connection)
    settings = settings_of(entries)
    found = counted(entries, _hours(connection), account_time(connection), settings)
    debits: list[dict[str, object]] = [
        {
            "layer": one.layer,
            "slots": None if one.layer is None else bitmap_slots(one.slots).hex(),
            "cost_nano": one.cost_nano,
        }
        for one in found
    ]
    unknown = max(0, settings[-1].budget_nano - total_nano(found)) if settings else 0
    debits.append({"layer": None, "slots": None, "cost_nano": unknown})
    before = total_nano(found)
    record(connection, "restore", None, before + unknown, lost=lost, debits=debits)
    return before + unknown


def last_hour(connection: Connection, identity: bytes) -> int | None:
    """Return the last hour in which an experiment or mask answered at a risk, stored or chained."""
    known = (_hours(connection), chained_hours(_entries(connection)))
    return max((hours[identity] for hours in known if identity in hours), default=None)


def last_hours(connection: Connection) -> dict[bytes, int | None]:
    """Return experiment -> the last hour in which it answered at a risk; None if that is no hour."""
    found = connection.execute(_LAST_HOURS)
    # SQLite stores text in any column, and text is more than every number.
    return {row[0]: row[1] if isinstance(row[1], int) else None for row in found}


def record_answers(connection: Connection, experiments: Sequence[bytes], hour: int) -> None:
    """Record that kept arms of these experiments, or of others on these masks, were shown."""
    # Always in the same order, so that two transactions do not wait for each other.
    rows = [{"experiment": one, "writer": NO_WRITER, "hour": hour} for one in sorted(experiments)]
    connection.execute(_ANSWERED, rows)


def free_slots(connection: Connection, layer: str) -> list[int]:
    """Return the slots of a layer that are not used by anything that counts."""
    used = 0
    for one in counting(connection, account_time(connection)):
        if one.layer == layer:
            used |= one.slots
    return [slot for slot in range(SLOTS) if not used >> slot & 1]


def take_slots(connection: Connection, layer: str, share_thousandths: int) -> bytes:
    """Return the lowest free slots of a layer, to be committed in the same transaction.

    Raises:
        WrongStateError: fewer slots are free.
    """
    if not 1 <= share_thousandths <= SLOTS:
        raise InvalidArgumentError("share_thousandths", share_thousandths, f"1 to {SLOTS}")
    lock_chain(connection)
    free = free_slots(connection, layer)
    if len(free) < share_thousandths:
        raise WrongStateError(
            f"layer {layer!r} has {len(free)} of its {SLOTS} slots free, and {share_thousandths} are "
            "asked for; slots of a stopped experiment are free again when it no longer counts"
        )
    return bitmap_slots(sum(1 << slot for slot in free[:share_thousandths]))


def _settings(entries: Iterable[Entry]) -> list[Setting]:
    settings = settings_of(entries)
    if not settings:
        raise UnknownNameError("firm budget", "current")
    return settings


def _entries(connection: Connection) -> list[Entry]:
    check_complete(connection)
    return checked(connection, _ENTRIES)


def _hours(connection: Connection) -> dict[bytes, int]:
    """Return `last_hours`; raise BrokenPromiseError, because a stop would chain what is no hour."""
    found = {}
    for identity, hour in last_hours(connection).items():
        if hour is None:
            raise BrokenPromiseError(
                f"the last answer of experiment {identity.hex()} was changed; see `ledger verify`"
            )
        found[identity] = hour
    return found


# -- name and approval rules -----------------------------------------------------------------------

_NEWEST_SETTINGS = linked_query(
    commitments.c.experiment_id.is_(None), commitments.c.kind == "settings", newest=1
)


@dataclass(frozen=True)
class FirmSettings:
    """What documents print about the firm, how long visitors are kept, and approval rules.

    Attributes:
        name: name on documents; empty if none was given.
        contact: whom visitors and authorities can ask; empty if nobody was named.
        purpose: why the firm runs experiments, in its own words.
        legal_basis: on which the firm relies, in its own words.
        retention_days: decisions of stopped experiments that are older lose their visitor, every day;
            None keeps them.
        start_above_nano: starting an experiment that costs more than this needs a second person;
            None if none does.
        approve_budget: whether raising the firm's budget, or shortening its window, needs one.
        approve_erasure: whether erasing visitors needs one.
    """

    name: str = ""
    contact: str = ""
    purpose: str = ""
    legal_basis: str = ""
    retention_days: int | None = None
    start_above_nano: int | None = None
    approve_budget: bool = False
    approve_erasure: bool = False

    def rules(self) -> tuple[int | None, bool, bool]:
        """Which actions need a second person."""
        return self.start_above_nano, self.approve_budget, self.approve_erasure

    def weaker_than(self, before: FirmSettings) -> bool:
        """Whether these rules require a second person less often.

        >>> FirmSettings(start_above_nano=2).weaker_than(FirmSettings(start_above_nano=1))
        True
        >>> FirmSettings(approve_budget=True).weaker_than(FirmSettings())
        False
        """
        starts = before.start_above_nano is not None and (
            self.start_above_nano is None or self.start_above_nano > before.start_above_nano
        )
        return (
            starts
            or (before.approve_budget and not self.approve_budget)
            or (before.approve_erasure and not self.approve_erasure)
        )

    def forgets_earlier_than(self, before: FirmSettings) -> bool:
        """Whether visitors are erased earlier than before.

        >>> FirmSettings(retention_days=30).forgets_earlier_than(FirmSettings(retention_days=90))
        True
        """
        if self.retention_days is None:
            return False
        return before.retention_days is None or self.retention_days < before.retention_days

    def rules_in_words(self) -> str:
        """Format the rules for people.

        >>> FirmSettings(start_above_nano=1_500_000_000, approve_erasure=True).rules_in_words()
        'starting above 1.5 nats, erasing'
        >>> FirmSettings().rules_in_words()
        'nothing'
        """
        parts = []
        if self.start_above_nano is not None:
            parts.append(f"starting above {self.start_above_nano / NANO:g} nats")
        if self.approve_budget:
            parts.append("raising the firm’s budget")
        if self.approve_erasure:
            parts.append("erasing")
        return ", ".join(parts) or "nothing"


def read_settings(connection: Connection) -> FirmSettings:
    """Return the newest settings, checked against their link; the defaults if there are none."""
    newest = checked(connection, _NEWEST_SETTINGS)
    return firm_settings_of(newest[0].detail) if newest else FirmSettings()


def firm_settings_of(detail: JsonObject) -> FirmSettings:
    """Return the settings of an entry; unknown members are ignored."""
    known = {field.name for field in fields(FirmSettings)}
    return FirmSettings(**{name: value for name, value in detail.items() if name in known})


def write_settings(connection: Connection, settings: FirmSettings) -> FirmSettings:
    """Record the settings, unless they are unchanged."""
    lock_chain(connection)
    if read_settings(connection) != settings:
        record(connection, "settings", None, **asdict(settings))
    return settings
