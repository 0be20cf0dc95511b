"""What counts against the firm's budget, and until when, computed from entries of the chain.

An experiment counts from its start, through pauses and idle time, until W days after its last
answer with an arm that was drawn at a risk. While it runs or is paused, it counts without an end.
The entry `stop` fixes the hour of the last answer; a later hour in the table `answers` (a writer
whose clock is behind) moves it forward, an earlier one never moves it back. Hours are rounded up,
and one more is added for clock differences between machines.

Time counts only if the chain says that it passed. A running service adds an entry a day. After more
than a week without any (`commitments.LONGEST_GAP`) the service was off or the clock is wrong; the
entry `clock` that ends such a gap names it, and windows are longer by it.

When W changes, answers given while a longer window was in force keep that window, so that
shortening it frees nothing that already counts. A longer window counts everything inside it.

Experiments without a layer cost the sum of their budgets. A layer costs the largest sum over its
slots, because a visitor has only one slot. Experiments that stopped before groups became layers
have no slots. Their members are in no other experiment, so the layer costs at least the largest of
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from deniable.storage.commitments import Entry
from deniable.storage.records import SLOTS

HOUR = 3_600_000_000


DAY = 24 * HOUR


SKEW = HOUR
"""Maximum clock difference between two machines."""


EVERY_SLOT = (1 << SLOTS) - 1


@dataclass(frozen=True)
class Setting:
    """A budget and a window, from a time on."""

    since: int
    budget_nano: int
    window_days: int


@dataclass(frozen=True)
class Counted:
    """An item that counts against the firm's budget.

    Attributes:
        experiment_id: the experiment; empty for debits of restored stores.
        layer: its layer, or None.
        slots: the slots of the layer that it used, as a bitmap: bit i is slot i.
        cost_nano: its budget.
        until: when it stops counting; None while it runs or is paused.
    """

    experiment_id: bytes
    layer: str | None
    slots: int
    cost_nano: int
    until: int | None


@dataclass
class Life:
    """What the chain says about when an experiment was active."""

    started: int
    layer: str | None = None
    slots: int = 0
    cost_nano: int = 0
    answered: int | None = field(default=None)  # the end of the last answer; None while it is live
    gaps: tuple[tuple[int, int], ...] = ()  # times that do not count, each from and until
    chained_hour: int | None = None  # the last one with an answer, according to the chain


def settings_of(entries: Iterable[Entry]) -> list[Setting]:
    """Return the firm's settings, oldest first."""
    return [
        Setting(entry.recorded_at, entry.detail["budget_nano"], entry.detail["window_days"])
        for entry in entries
        if entry.kind == "firm"
    ]


def counted(
    entries: Sequence[Entry],
    hours: Mapping[bytes, int],
    now: int,
    settings: Sequence[Setting] | None = None,
) -> list[Counted]:
    """Return what counts at a time.

    Args:
        entries: entries of the kinds that the account needs, oldest first.
        hours: experiment -> the last hour (since 1970) in which it answered, over all writers.
        now: the time.
        settings: the firm's settings; by default those of the entries.
    """
    known = settings_of(entries) if settings is None else settings
    lives, debits = lives_of(entries)
    move_to_answers(lives, hours)
    found = [
        Counted(identity, life.layer, life.slots, life.cost_nano, counts_until(life, known))
        for identity, life in (*lives.items(), *debits)
    ]
    return [one for one in found if one.until is None or one.until > now]


def total_nano(counting: Iterable[Counted]) -> int:
    """Return the total cost of these items.

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
    return alone + sum(map(layer_nano, layers.values()))


def end_of_hour(hour: int) -> int:
    """Return the time by which all answers of an hour have certainly been given, as a stored time."""
    return (hour + 1) * HOUR + SKEW


def slots_bitmap(slots: bytes) -> int:
    """Convert stored slots to a bitmap: slot i is bit i % 8 of byte i // 8.

    >>> slots_bitmap(bytes([0b101]) + bytes(124))
    5
    """
    return int.from_bytes(slots, "little")


def bitmap_slots(bitmap: int) -> bytes:
    """Convert a bitmap to stored slots.

    >>> list(bitmap_slots(5)[:2]), len(bitmap_slots(5))
    ([5, 0], 125)
    """
    return bitmap.to_bytes(SLOTS // 8, "little")


def chained_hours(entries: Iterable[Entry]) -> dict[bytes, int]:
    """Return experiment -> the last hour in which it answered at a risk, from the entries `clock`."""
    hours: dict[bytes, int] = {}
    for entry in entries:
        if entry.kind == "clock":
            for name, hour in entry.detail["answers"].items():
                identity = bytes.fromhex(name)
                hours[identity] = max(hour, hours.get(identity, hour))
    return hours


def lives_of(entries: Sequence[Entry]) -> tuple[dict[bytes, Life], list[tuple[bytes, Life]]]:
    """Return experiments that were ever started, and debits of restored stores."""
    lives: dict[bytes, Life] = {}
    debits: list[tuple[bytes, Life]] = []
    gaps: list[tuple[int, int]] = []
    for entry in entries:
        identity, detail, at = entry.experiment_id, entry.detail, entry.recorded_at
        if entry.kind == "restore":
            debits += [
                (
                    b"",
                    Life(
                        started=at,
                        layer=again["layer"],
                        slots=_detail_slots(again),
                        cost_nano=again["cost_nano"],
                        answered=at + SKEW,
                    ),
                )
                for again in detail["debits"]
            ]
        elif entry.kind == "clock":
            if detail["skipped"]:
                gaps.append((at - detail["skipped"], at))
        elif identity is None:
            continue
        elif entry.kind in ("start", "resume", "mask"):
            life = lives.setdefault(identity, Life(started=at))
            life.layer = detail.get("layer")
            life.slots |= _detail_slots(detail)
            life.cost_nano = max(life.cost_nano, entry.amount_nano)
            life.answered = None
        elif entry.kind in ("stop", "end_mask") and identity in lives:
            lives[identity].answered = _last_answer(lives[identity], entry)
    for identity, hour in chained_hours(entries).items():
        if identity in lives:
            lives[identity].chained_hour = hour
    for life in (*lives.values(), *(debit for _, debit in debits)):
        life.gaps = tuple(gaps)
    return lives, debits


def move_to_answers(lives: Mapping[bytes, Life], hours: Mapping[bytes, int]) -> None:
    """Move the end of stopped experiments to their last answer, stored or chained, if that is later."""
    for identity, life in lives.items():
        if life.answered is not None:
            known = [hour for hour in (hours.get(identity), life.chained_hour) if hour is not None]
            life.answered = max([life.answered, *map(end_of_hour, known)])


def _last_answer(life: Life, stop: Entry) -> int:
    """Return when the last answer was certainly given, according to the stop entry."""
    hour = stop.detail["last_answer"]
    return max(life.started + SKEW, 0 if hour is None else end_of_hour(hour))


def counts_until(life: Life, settings: Sequence[Setting]) -> int | None:
    """Return when it stops counting. Answers keep the window that was in force when they were given."""
    if life.answered is None or not settings:
        return None
    # Answers under a setting were certainly given by the end of that setting.
    ends = [*(later.since + HOUR + SKEW for later in settings[1:]), None]
    until = max(
        (life.answered if end is None else min(life.answered, end)) + setting.window_days * DAY
        for setting, end in zip(settings, ends, strict=True)
        if end is None or end > life.started
    )
    for first, last in life.gaps:
        if first < until:  # it was still counting then
            until += max(0, last - max(first, life.answered))
    return until


def layer_nano(users: Sequence[Counted]) -> int:
    """Return the largest sum over slots, and at least the largest cost of one without slots."""
    sums = {EVERY_SLOT: 0}  # disjoint sets of slots -> total cost of their users
    largest = 0
    for one in users:
        largest = max(largest, one.cost_nano)
        split = [(one.slots & group, nano + one.cost_nano) for group, nano in sums.items()]
        rest = [(group & ~one.slots, nano) for group, nano in sums.items()]
        sums = {group: nano for group, nano in (*split, *rest) if group}
    return max(largest, *sums.values())


def _detail_slots(detail: Mapping[str, object]) -> int:
    text = detail.get("slots")
    return 0 if text is None else slots_bitmap(bytes.fromhex(str(text)))
