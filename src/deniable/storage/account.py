"""The firm's account: at most so much in any window of so many days, read from the chain.

An experiment counts from its start, through pauses and idle time, until W days after its last answer
with an arm that was drawn at a risk. While it runs or is paused it counts without an end. The entry
`stop` fixes the hour of the last answer; a later hour in the table `answers` (a writer whose clock is
behind) moves it on, an earlier one never moves it back. Hours are rounded up, and one more is added
for clocks that differ between machines.

When W changes, answers that were given while a longer window was in force keep that window, so that
shortening it frees nothing that counts already. A longer window counts everything inside it.

Experiments without a layer cost the sum of their budgets. A layer costs the largest sum over its
slots, because a visitor has one slot. Experiments that stopped before groups became layers have no
slots: their members belong to nobody else, so the layer costs at least the largest of them.

Nothing here depends on a row that can be changed without breaking the chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import Connection, func, select

from deniable.errors import (
    InsufficientBudgetError,
    InvalidArgumentError,
    UnknownNameError,
    WrongStateError,
)
from deniable.storage import promises, times
from deniable.storage.commitments import Entry, check_complete, linked, lock_chain, moment, record
from deniable.storage.records import SLOTS, Experiment, Firm
from deniable.storage.schema import answers, commitments

HOUR = 3_600_000_000
DAY = 24 * HOUR
SKEW = HOUR
"""How far apart the clocks of two machines may be."""

MAX_WINDOW_DAYS = 36_500
EVERY_SLOT = (1 << SLOTS) - 1

_KINDS = ("firm", "migrate", "start", "resume", "stop", "restore")


@dataclass(frozen=True)
class Setting:
    """A budget and a window, from a time on."""

    since: int
    budget_nano: int
    window_days: int


@dataclass(frozen=True)
class Counted:
    """What counts against the firm's budget.

    Attributes:
        experiment_id: whose cost it is; empty for debits: of erasures before migration 0004, and of
            restored stores.
        layer: its layer, or None.
        slots: the layer's slots that it used, as a bitmap: bit i is slot i.
        cost_nano: budget and trace budget.
        until: when it no longer counts; None while it runs or is paused.
    """

    experiment_id: bytes
    layer: str | None
    slots: int
    cost_nano: int
    until: int | None


@dataclass
class _Life:
    """What the chain says about one experiment's time."""

    started: int
    layer: str | None = None
    slots: int = 0
    cost_nano: int = 0
    answered: int | None = field(default=None)  # the end of the last answer; None while it is live


def settings_of(entries: Iterable[Entry]) -> list[Setting]:
    """The firm's settings, oldest first."""
    return [
        Setting(entry.recorded_at, entry.detail["budget_nano"], entry.detail["window_days"])
        for entry in entries
        if entry.experiment_id is None
        and entry.kind in ("firm", "migrate")
        and entry.detail["budget_nano"] is not None
    ]


def counted(
    entries: Sequence[Entry],
    hours: Mapping[bytes, int],
    now: int,
    settings: Sequence[Setting] | None = None,
) -> list[Counted]:
    """What counts at a time.

    Args:
        entries: of the kinds that the account needs, oldest first.
        hours: experiment -> the last hour (since 1970) in which it answered, over all writers.
        now: the time.
        settings: the firm's settings; those of the entries if not given.
    """
    known = settings_of(entries) if settings is None else settings
    lives, debits = _lives(entries)
    _answer_hours(lives, hours)
    found = [
        Counted(identity, life.layer, life.slots, life.cost_nano, _until(life, known))
        for identity, life in (*lives.items(), *debits)
    ]
    return [one for one in found if one.until is None or one.until > now]


@dataclass(frozen=True)
class Balance:
    """What counted, and of how much, from a time on."""

    since: int
    committed_nano: int
    budget_nano: int


def balances(connection: Connection) -> list[Balance]:
    """The account over time: one balance for each start, end of counting and change of budget."""
    entries = _entries(connection)
    settings = settings_of(entries)
    lives, debits = _lives(entries)
    _answer_hours(lives, _hours(connection))
    now = moment(connection)
    changes: list[tuple[int, bool, Counted | Setting]] = []
    for identity, life in (*lives.items(), *debits):
        until = _until(life, settings)
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
            costs[what.layer] = _layer_nano(users)
        found.append(Balance(at, alone + sum(costs.values()), budget))
    return found


def total_nano(counting: Iterable[Counted]) -> int:
    """What these cost together.

    >>> def one(layer, slots, cost):
    ...     return Counted(bytes(16), layer, slots, cost, None)
    >>> total_nano([one(None, 0, 2), one(None, 0, 1), one("page", 0b011, 3), one("page", 0b110, 5)])
    11
    """
    alone = 0
    layers: dict[str, list[Counted]] = {}
    for one in counting:
        if one.layer is None:
            alone += one.cost_nano
        else:
            layers.setdefault(one.layer, []).append(one)
    return alone + sum(map(_layer_nano, layers.values()))


def end_of_hour(hour: int) -> int:
    """When the answers of an hour have surely been given, as a stored time."""
    return (hour + 1) * HOUR + SKEW


def counting(connection: Connection, now: int) -> list[Counted]:
    """What counts at a time, by the chain and the last answers."""
    return counted(_entries(connection), _hours(connection), now)


def current_firm(connection: Connection) -> Firm:
    """The budget in force and what counts of it now; UnknownNameError before the first one."""
    entries = _entries(connection)
    settings = _settings(entries)
    now = moment(connection)
    return Firm(
        budget_nano=settings[-1].budget_nano,
        committed_nano=total_nano(counted(entries, _hours(connection), now, settings)),
        window_days=settings[-1].window_days,
        starts_at=times.as_datetime(settings[-1].since),
    )


def set_firm(
    connection: Connection, *, budget_nano: int, window_days: int, reason: str = ""
) -> Firm:
    """Put another budget or window into force.

    Args:
        connection: in a write transaction.
        budget_nano: Gamma.
        window_days: W.
        reason: for the ledger; needed where the promise gets weaker: a larger budget, a shorter window.

    Raises:
        InsufficientBudgetError: what counts under these settings is more; nothing changes.
        InvalidArgumentError: the reason is missing.
    """
    if budget_nano < 0:
        raise InvalidArgumentError("budget_nano", budget_nano, "0 or more")
    if not 1 <= window_days <= MAX_WINDOW_DAYS:
        raise InvalidArgumentError("window_days", window_days, f"1 to {MAX_WINDOW_DAYS}")
    lock_chain(connection)
    entries = _entries(connection)
    before, now = settings_of(entries), moment(connection)
    if _weaker(before, budget_nano, window_days) and not reason.strip():
        raise InvalidArgumentError(
            "reason", reason, "why the budget is raised or the window shortened, in a few words"
        )
    settings = [*before, Setting(now, budget_nano, window_days)]
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
    """Whether this budget and window promise less than those in force; not so for the first ones."""
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
    """Count an experiment from now on: check and debit in one, under the lock of the chain.

    Args:
        connection: in a write transaction.
        experiment: whose row must agree with the chain.
        kind: of the entry.
        slots: of its layer; None without one.
        detail: further facts for the entry, such as the band.

    Raises:
        InsufficientBudgetError: with what remains and what it would add.
        BrokenPromiseError: its row is not what the chain says.
        UnknownNameError: the firm has no budget yet.
    """
    if (slots is None) != (experiment.layer is None):
        raise InvalidArgumentError(
            "slots", slots, "slots for an experiment with a layer, else none"
        )
    lock_chain(connection)
    promises.check(connection, experiment)
    entries = _entries(connection)
    settings, identity = _settings(entries), bytes.fromhex(experiment.id)
    found = counted(entries, _hours(connection), moment(connection), settings)
    # Visitors of every slot that it ever had may be shown their kept arm again.
    earlier = _lives(entries)[0].get(identity, _Life(started=0))
    bitmap = earlier.slots | (0 if slots is None else slots_bitmap(slots))
    mine = Counted(identity, experiment.layer, bitmap, experiment.cost_nano, None)
    others = [one for one in found if one.experiment_id != identity]
    before, after = total_nano(found), total_nano([*others, mine])
    # What a live experiment takes is taken already; resuming it adds nothing.
    if after > settings[-1].budget_nano and (kind != "resume" or after > before):
        raise InsufficientBudgetError(
            remaining=max(0, settings[-1].budget_nano - before), requested=after - before
        )
    record(
        connection,
        kind,
        experiment,
        experiment.cost_nano,
        **{**promises.commit_detail(experiment, slots), **detail},
    )


def restored(connection: Connection, *, lost: str) -> int:
    """Commit everything that counts once more, because answers were lost with a part of the store.

    Visitors whose decisions are gone are drawn for again, so whatever counts may be spent twice. What
    was started after the backup is not known; at most the rest of the budget was. All of it counts
    for one window from now on. This may exceed the budget: then nothing starts until it fits again.

    Args:
        connection: in a write transaction.
        lost: what is known to be missing, for the ledger.

    Returns:
        The nano-nats that were committed.
    """
    lock_chain(connection)
    entries = _entries(connection)
    settings = settings_of(entries)
    found = counted(entries, _hours(connection), moment(connection), settings)
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


def last_hour(connection: Connection, experiment: Experiment) -> int | None:
    """The last hour in which an experiment answered at a risk, over all writers; None: never."""
    return connection.execute(
        select(func.max(answers.c.hour)).where(
            answers.c.experiment_id == bytes.fromhex(experiment.id)
        )
    ).scalar()


def free_slots(connection: Connection, layer: str) -> list[int]:
    """The slots of a layer that nothing uses which counts."""
    used = 0
    for one in counting(connection, moment(connection)):
        if one.layer == layer:
            used |= one.slots
    return [slot for slot in range(SLOTS) if not used >> slot & 1]


def take_slots(connection: Connection, layer: str, share_thousandths: int) -> bytes:
    """The lowest free slots of a layer, to be committed in the same transaction.

    Raises:
        WrongStateError: fewer are free.
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


def slots_bitmap(slots: bytes) -> int:
    """Stored slots as a bitmap: slot i is bit i % 8 of byte i // 8.

    >>> slots_bitmap(bytes([0b101]) + bytes(124))
    5
    """
    return int.from_bytes(slots, "little")


def bitmap_slots(bitmap: int) -> bytes:
    """A bitmap as it is stored.

    >>> list(bitmap_slots(5)[:2]), len(bitmap_slots(5))
    ([5, 0], 125)
    """
    return bitmap.to_bytes(SLOTS // 8, "little")


def _lives(entries: Iterable[Entry]) -> tuple[dict[bytes, _Life], list[tuple[bytes, _Life]]]:
    """Experiments that were ever started; debits of old erasures and of restored stores."""
    lives: dict[bytes, _Life] = {}
    debits: list[tuple[bytes, _Life]] = []
    for entry in entries:
        identity, detail, at = entry.experiment_id, entry.detail, entry.recorded_at
        if entry.kind == "migrate" and identity is None:
            debits = [
                (b"", _Life(started=since, cost_nano=amount, answered=since + SKEW))
                for amount, since in detail["debits"]
            ]
        elif entry.kind == "restore":
            debits = debits + [
                (
                    b"",
                    _Life(
                        started=at,
                        layer=again["layer"],
                        slots=_detail_slots(again),
                        cost_nano=again["cost_nano"],
                        answered=at + SKEW,
                    ),
                )
                for again in detail["debits"]
            ]
        elif identity is None:
            continue
        elif entry.kind == "migrate" and detail["started_at"] is not None:
            lives[identity] = _Life(
                started=detail["started_at"],
                layer=detail["layer"],
                slots=_detail_slots(detail),
                cost_nano=entry.amount_nano,
                answered=detail["answered_until"],
            )
        elif entry.kind in ("start", "resume") and "slots" in detail:
            life = lives.setdefault(identity, _Life(started=at))
            life.layer = detail["layer"]
            life.slots |= _detail_slots(detail)
            life.cost_nano = max(life.cost_nano, entry.amount_nano)
            life.answered = None
        elif entry.kind == "stop" and identity in lives:
            lives[identity].answered = _last_answer(lives[identity], entry)
    return lives, debits


def _answer_hours(lives: Mapping[bytes, _Life], hours: Mapping[bytes, int]) -> None:
    """Move the end of stopped experiments to their last answer, where that is later."""
    for identity, life in lives.items():
        if life.answered is not None and identity in hours:
            life.answered = max(life.answered, end_of_hour(hours[identity]))


def _last_answer(life: _Life, stop: Entry) -> int:
    """When the last answer was surely given, by the entry of the stop."""
    hour = stop.detail.get("last_answer", -1)
    if hour == -1:
        return stop.recorded_at + SKEW
    return max(life.started + SKEW, 0 if hour is None else end_of_hour(hour))


def _until(life: _Life, settings: Sequence[Setting]) -> int | None:
    """When it no longer counts. Answers keep the window that was in force when they were given."""
    if life.answered is None or not settings:
        return None
    # Answers that were given before a setting's end were surely given by then.
    ends = [*(later.since + HOUR + SKEW for later in settings[1:]), None]
    return max(
        (life.answered if end is None else min(life.answered, end)) + setting.window_days * DAY
        for setting, end in zip(settings, ends, strict=True)
        if end is None or end > life.started
    )


def _layer_nano(users: Sequence[Counted]) -> int:
    """The largest sum over slots, and at least the largest cost of one without slots."""
    sums = {EVERY_SLOT: 0}  # disjoint sets of slots -> what their users cost together
    largest = 0
    for one in users:
        largest = max(largest, one.cost_nano)
        split = [(one.slots & group, nano + one.cost_nano) for group, nano in sums.items()]
        rest = [(group & ~one.slots, nano) for group, nano in sums.items()]
        sums = {group: nano for group, nano in (*split, *rest) if group}
    return max(largest, *sums.values())


def _detail_slots(detail: Mapping[str, object]) -> int:
    text = detail["slots"]
    return 0 if text is None else slots_bitmap(bytes.fromhex(str(text)))


def _settings(entries: Iterable[Entry]) -> list[Setting]:
    settings = settings_of(entries)
    if not settings:
        raise UnknownNameError("firm budget", "current")
    return settings


def _entries(connection: Connection) -> list[Entry]:
    check_complete(connection)
    return linked(connection, commitments.c.kind.in_(_KINDS))


def _hours(connection: Connection) -> dict[bytes, int]:
    query = select(answers.c.experiment_id, func.max(answers.c.hour)).group_by(
        answers.c.experiment_id
    )
    return {row[0]: row[1] for row in connection.execute(query)}
