"""Recomputes the firm's account from the entries of the chain alone.

This is separate from the code that the service uses for spending (`storage.account`), so that a
mistake there does not confirm itself. The two count differently: here each of a layer's 1,000 slots
has its own sum, and every change of budget or window starts a new sweep over time.

An experiment is active from its start to its last answer at a risk. A window of W days that ends at
t covers it if it began by t and its activity ended after t - W. The most that a visitor may have
lost in any window that ends at t is the sum of the covered experiments: all of those without a
layer, and for each layer the largest sum over its slots, because a visitor has one slot. Answers
given while a longer window was promised keep that window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from deniable.storage.commitments import Entry

HOUR = 3_600_000_000
DAY = 24 * HOUR
SKEW = HOUR
SLOTS = 1000


@dataclass(frozen=True)
class Setting:
    """A budget and a window, from a time on.

    Attributes:
        seq: its position in the chain.
        since: when it came into force, as a stored time.
        budget_nano: the promised budget.
        window_days: length of the window.
        reason: the given reason.
    """

    seq: int
    since: int
    budget_nano: int
    window_days: int
    reason: str


@dataclass(frozen=True)
class Life:
    """An experiment, or a debit, in the account.

    Attributes:
        experiment_id: None for a debit of a restored store.
        layer: its layer, or None.
        slots: slots in the layer, as a bitmap.
        cost_nano: its cost to the budget.
        started: when it began to count.
        ended: the end of its last answer at a risk; None while it runs or is paused.
        gaps: times that count for nobody, each from and until.
    """

    experiment_id: bytes | None
    layer: str | None
    slots: int
    cost_nano: int
    started: int
    ended: int | None
    gaps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Peak:
    """The most that counted while one setting was in force.

    Attributes:
        setting: budget and window.
        nano: the largest sum over any window that ended in that time.
        at: when it was first reached.
        restored: whether it includes a debit of a restored store.
    """

    setting: Setting
    nano: int
    at: int
    restored: bool

    @property
    def kept(self) -> bool:
        """Whether it is within the budget."""
        return self.nano <= self.setting.budget_nano


@dataclass(frozen=True)
class Account:
    """The recomputed account.

    Attributes:
        settings: oldest first.
        lives: everything that ever counted.
        peaks: one for each setting.
        points: (time, amount that counts from then on, index of the setting in force), oldest
            first.
        problems: problems with single entries, in words.
    """

    settings: tuple[Setting, ...]
    lives: tuple[Life, ...]
    peaks: tuple[Peak, ...]
    points: tuple[tuple[int, int, int], ...]
    problems: tuple[str, ...]


def recomputed(entries: Sequence[Entry], last_decided: Mapping[bytes, int], now: int) -> Account:
    """Recompute the account of a chain.

    Args:
        entries: the chain of commitments, oldest first; tables may be left out.
        last_decided: experiment -> the time of its newest chained decision at a risk.
        now: the end of the time to consider.
    """
    settings, problems = settings_of(entries)
    lives = [_extended_to_last_decision(life, last_decided) for life in lives_of(entries)]
    problems = [*problems, *_debit_problems(entries), *_slot_problems(lives, settings)]
    peaks: list[Peak] = []
    points: list[tuple[int, int, int]] = []
    for place, setting in enumerate(settings):
        end = settings[place + 1].since if place + 1 < len(settings) else max(now, setting.since)
        found = _sweep(lives, settings[: place + 1], end)
        points += [(at, nano, place) for at, nano, _ in found]
        at, nano, restored = max(found, key=lambda point: (point[1], -point[0]))
        peaks.append(Peak(setting, nano, at, restored))
    return Account(tuple(settings), tuple(lives), tuple(peaks), tuple(points), tuple(problems))


def within(account: Account, experiment_id: bytes) -> tuple[int, int, int] | None:
    """Return the most that counted while an experiment did: (nano-nats, budget, window in days).

    If the budget changed, this is for the setting under which it came closest. None if it never
    counted.
    """
    life = next((one for one in account.lives if one.experiment_id == experiment_id), None)
    if life is None or not account.settings:
        return None
    until = counts_until(life, account.settings)
    found: list[tuple[int, int, int]] = []
    for place, setting in enumerate(account.settings):
        first = max(life.started, setting.since)
        ends = [until, *(later.since for later in account.settings[place + 1 : place + 2])]
        end = min((one for one in ends if one is not None), default=None)
        if end is not None and end <= first:
            continue
        mine = [point for point in account.points if point[2] == place]
        sums = [nano for at, nano, _ in mine if at >= first and (end is None or at < end)]
        before = [nano for at, nano, _ in mine if at <= first]
        most = max([*sums, *before[-1:]], default=0)
        found.append((most, setting.budget_nano, setting.window_days))
    return max(found, key=lambda one: one[0] - one[1], default=None)


def settings_of(entries: Iterable[Entry]) -> tuple[list[Setting], list[str]]:
    """Return the firm's settings, and weaker promises without a reason."""
    found: list[Setting] = []
    problems = []
    for entry in entries:
        detail = entry.detail
        if entry.kind != "firm":
            continue
        reason = str(detail["reason"])
        new = Setting(
            entry.seq, entry.recorded_at, detail["budget_nano"], detail["window_days"], reason
        )
        before = found[-1] if found else None
        weaker = before is not None and (
            new.budget_nano > before.budget_nano or new.window_days < before.window_days
        )
        if weaker and not reason.strip():
            problems.append(f"entry {entry.seq} weakens the firm's promise without a reason")
        found.append(new)
    return found, problems


def lives_of(entries: Iterable[Entry]) -> list[Life]:
    """Return everything that counts or counted: experiments that were started, and debits."""
    lives: dict[bytes, Life] = {}
    debits: list[Life] = []
    gaps: list[tuple[int, int]] = []
    answered: dict[bytes, int] = {}
    for entry in entries:
        identity, detail, at = entry.experiment_id, entry.detail, entry.recorded_at
        if identity is None:
            if entry.kind == "restore":
                debits += [
                    Life(None, one["layer"], _bitmap(one["slots"]), one["cost_nano"], at, at + SKEW)
                    for one in detail["debits"]
                ]
            elif entry.kind == "clock":
                if detail["skipped"]:
                    gaps.append((at - detail["skipped"], at))
                for name, hour in detail["answers"].items():
                    answered[bytes.fromhex(name)] = max(
                        (hour + 1) * HOUR + SKEW, answered.get(bytes.fromhex(name), 0)
                    )
        elif entry.kind in ("start", "resume", "mask"):
            old = lives.get(identity)
            layer = detail.get("layer")  # a mask has none
            slots, cost = _bitmap(detail.get("slots")), entry.amount_nano
            if old is None:
                old = Life(identity, layer, 0, 0, at, None)
            lives[identity] = replace(
                old,
                layer=layer,
                slots=old.slots | slots,
                cost_nano=max(old.cost_nano, cost),
                ended=None,
            )
        elif entry.kind in ("stop", "end_mask") and identity in lives:
            lives[identity] = replace(lives[identity], ended=_ended(lives[identity], entry))
    for identity, life in lives.items():
        if life.ended is not None:
            lives[identity] = replace(life, ended=max(life.ended, answered.get(identity, 0)))
    return [replace(life, gaps=tuple(gaps)) for life in (*lives.values(), *debits)]


def _extended_to_last_decision(life: Life, last_decided: Mapping[bytes, int]) -> Life:
    """Move its end to its newest chained decision, if that is later than the stop entry."""
    if life.experiment_id is None or life.ended is None:
        return life
    return replace(life, ended=max(life.ended, last_decided.get(life.experiment_id, 0)))


def _ended(life: Life, stop: Entry) -> int:
    """Return when the last answer was certainly given: the end of its hour, plus the clock skew."""
    hour = stop.detail["last_answer"]
    return max(life.started + SKEW, 0 if hour is None else (hour + 1) * HOUR + SKEW)


def counts_until(life: Life, settings: Sequence[Setting]) -> int | None:
    """Return when it stops counting under these settings, oldest first; None while it is live."""
    if life.ended is None:
        return None
    latest = 0
    for place, setting in enumerate(settings):
        replaced = settings[place + 1].since + HOUR + SKEW if place + 1 < len(settings) else None
        if replaced is not None and replaced <= life.started:
            continue  # this setting ended before the first answer
        last = life.ended if replaced is None else min(life.ended, replaced)
        latest = max(latest, last + setting.window_days * DAY)
    for begin, end in life.gaps:  # nobody knows whether that time has passed
        if latest > begin:
            latest += max(0, end - max(begin, life.ended))
    return latest


def _sweep(
    lives: Sequence[Life], settings: Sequence[Setting], end: int
) -> list[tuple[int, int, bool]]:
    """Return (time, amount from then on, whether it includes debits) while the last setting holds."""
    since = settings[-1].since
    # Time, 0 for an end and 1 for a start, index of the life.
    changes: list[tuple[int, int, int]] = []
    for place, life in enumerate(lives):
        until = counts_until(life, settings)
        if life.started >= end or (until is not None and until <= since):
            continue
        changes.append((max(life.started, since), 1, place))
        if until is not None and until < end:
            changes.append((until, 0, place))
    alone, debits = 0, 0
    layers: dict[str, tuple[NDArray[np.int64], list[int]]] = {}
    costs: dict[str, int] = {}
    found: list[tuple[int, int, bool]] = [(since, 0, False)]
    for at, begins, place in sorted(changes):
        life = lives[place]
        sign = 1 if begins else -1
        debits += sign * (life.experiment_id is None)
        if life.layer is None:
            alone += sign * life.cost_nano
        else:
            sums, unslotted = layers.setdefault(life.layer, (np.zeros(SLOTS, dtype=np.int64), []))
            sums[_places(life.slots)] += sign * life.cost_nano
            if not life.slots:  # its members are in no other experiment
                (unslotted.append if begins else unslotted.remove)(life.cost_nano)
            costs[life.layer] = max(int(sums.max()), max(unslotted, default=0))
        now = (at, alone + sum(costs.values()), debits > 0)
        if found[-1][0] == at:
            found[-1] = now
        else:
            found.append(now)
    return found


def _debit_problems(entries: Iterable[Entry]) -> list[str]:
    """Return starts that took less than they promise, and entries whose time runs backwards."""
    problems = []
    cost: dict[bytes, int] = {}
    before = 0
    for entry in entries:
        if entry.recorded_at < before:
            problems.append(f"entry {entry.seq} is older than the one before it")
        before = entry.recorded_at
        identity, detail = entry.experiment_id, entry.detail
        if identity is None:
            continue
        if entry.kind in ("create", "redraft", "replan"):
            cost[identity] = detail["budget_nano"]
        elif entry.kind == "mask":
            promised = int(Decimal(detail["budget"]) * 10**9)
            if entry.amount_nano < promised:
                problems.append(
                    f"entry {entry.seq} takes {entry.amount_nano:,} nano-nats, and {promised:,} are "
                    "promised"
                )
        elif entry.kind in ("start", "resume"):
            if entry.amount_nano < cost.get(identity, 0):
                problems.append(
                    f"entry {entry.seq} takes {entry.amount_nano:,} nano-nats, and "
                    f"{cost[identity]:,} are promised"
                )
            if (detail["layer"] is None) != (detail["slots"] is None):
                problems.append(f"entry {entry.seq} has slots without a layer, or none in one")
    return problems


def _slot_problems(lives: Sequence[Life], settings: Sequence[Setting]) -> list[str]:
    """Return experiments of one layer that count at the same time and share a slot, and so visitors."""
    problems = []
    by_layer: dict[str, list[Life]] = {}
    for life in lives:
        if life.layer is not None and life.experiment_id is not None:
            by_layer.setdefault(life.layer, []).append(life)
    for layer, users in by_layer.items():
        live: list[tuple[Life, int | None]] = []
        for life in sorted(users, key=lambda one: one.started):
            live = [(o, u) for o, u in live if u is None or u > life.started]
            if any(other.slots & life.slots for other, _ in live):
                identity = (life.experiment_id or b"").hex()
                problems.append(
                    f"experiment {identity} of layer {layer!r} was given a slot that was in use"
                )
            live.append((life, counts_until(life, settings)))
    return problems


def _places(bitmap: int) -> NDArray[np.intp]:
    packed = np.frombuffer(bitmap.to_bytes(SLOTS // 8, "little"), dtype=np.uint8)
    return np.flatnonzero(np.unpackbits(packed, bitorder="little"))


def _bitmap(text: object) -> int:
    return 0 if text is None else int.from_bytes(bytes.fromhex(str(text)), "little")
