"""A verdict as plain sentences, shared by web pages, command line and notebooks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from deniable._formatting import listed
from deniable.inference.verdict import Undecided, Verdict


def sentences(found: Verdict, *, cap: float | None = None, stopped: bool = False) -> list[str]:
    """Return the verdict as sentences, most important first. Rates are in percent, lifts in points.

    Args:
        found: the verdict.
        cap: the largest reward, if rewards are amounts, which are shown in their own unit.
        stopped: whether the experiment has ended, so that there is nothing to wait for.

    >>> from deniable.inference.state import VisitorBatch, new_state, update
    >>> from deniable.inference.verdict import verdict
    >>> state = new_state(2, 2, horizon=4000)
    >>> for _ in range(8):
    ...     state = update(
    ...         state, VisitorBatch([[0.5, 0.5]] * 2, [[250, 250]] * 2, [[25, 45], [40, 38]])
    ...     )
    >>> found = verdict(
    ...     state, arms=["old", "large"], segments=["first-visit", "returning"], default_arm="old"
    ... )
    >>> for sentence in sentences(found):
    ...     print(sentence)
    One winner: large for first-visit (+4.3 to +11.7 points).
    Keep running: 14.8%.
    Large for everybody: 16.6%.
    Each segment its best arm: 17.0%.
    Undecided for returning; if the estimates are right, about 110,000 more visitors.
    """
    unit = Unit(cap)
    said = [_who_won(found, unit)]
    said += _worth(found, unit, stopped)
    known = {winner.segment for winner in found.winners}
    waiting = {item.lift.segment for item in found.undecided} | {*found.too_early, *found.hidden}
    stuck = [place for place in found.segments if place not in known and place not in waiting]
    if len(known) == len(found.segments):
        decided = "Every segment is decided"
        said.append(f"{decided}." if stopped else f"{decided}; stopping now is safe.")
    open_still = [item for item in found.undecided if item.lift.segment not in found.too_early]
    if open_still and stopped:
        said.append(f"{_undecided(open_still)}.")
    elif open_still:
        said.append(_when_decided(open_still))
    if stuck and not stopped:
        said.append(f"No winner will be found for {listed(stuck)} while the table stays as it is.")
    said += [
        f"{_capital(arm)} has retired for {segment}; its comparisons there have stopped."
        for arm, segment in found.retired
    ]
    if found.too_early:
        said.append(f"Too early to say anything for {listed(found.too_early)}.")
    if found.hidden:
        said.append(f"Not shown separately, to protect small groups: {listed(found.hidden)}.")
    return said


def _worth(found: Verdict, unit: Unit, stopped: bool) -> list[str]:
    """Return what choices earn, of those that have enough data to be shown."""
    ready = [choice for choice in found.choices if choice.value.ready]
    known = {choice.what: unit.level(choice.value.estimate) for choice in ready}
    said = [f"{keeping(stopped)}: {known['keep']}."] if "keep" in known else []
    arms = [choice for choice in ready if choice.what == "promote"]
    if arms:
        top = max(arms, key=lambda choice: choice.value.estimate)
        said.append(f"{_capital(str(top.arm))} for everybody: {unit.level(top.value.estimate)}.")
    if len(found.segments) > 1 and "winners" in known:
        said.append(
            f"The best table within the guarantee: {known['within']}; without a guarantee: "
            f"{known['winners']}."
            if "within" in known
            else f"Each segment its best arm: {known['winners']}."
        )
    return said


def keeping(stopped: bool) -> str:
    """Return the name of the choice that changes nothing.

    >>> keeping(False), keeping(True)
    ('Keep running', 'The last table')
    """
    return "The last table" if stopped else "Keep running"


class Unit:
    """How rewards are displayed: as shares in percent, or as amounts up to a cap.

    Args:
        cap: the largest amount; None for shares.

    >>> Unit(None).level(0.123), Unit(None).change(0.01, -0.02), Unit(50).level(0.123)
    ('12.3%', '+1.0 to −2.0 points', '6.15')
    """

    def __init__(self, cap: float | None) -> None:
        self.cap = cap

    def level(self, value: float) -> str:
        """Format a mean reward, given as a share of the cap."""
        if math.isnan(value):
            return "unknown"
        return f"{100 * value:.1f}%" if self.cap is None else f"{self.cap * value:,.4g}"

    def change(self, low: float, high: float) -> str:
        """Format the interval of a difference, with typographic minus signs."""
        text = (
            f"{100 * low:+.1f} to {100 * high:+.1f} points"
            if self.cap is None
            else f"{self.cap * low:+,.3g} to {self.cap * high:+,.3g}"
        )
        return text.replace("-", "−")


def _who_won(found: Verdict, unit: Unit) -> str:
    if not found.winners:
        return "No winner yet."
    places: dict[str, list[str]] = {}  # by arm: an arm that wins two segments is listed once
    for winner in found.winners:
        lift = winner.lift
        interval = ""
        if lift is not None and lift.ready:
            interval = f" ({unit.change(lift.low, lift.high)})"
        places.setdefault(winner.arm, []).append(f"{winner.segment}{interval}")
    number = {1: "One winner", 2: "Two winners", 3: "Three winners"}.get(
        len(places), f"{len(places)} winners"
    )
    return f"{number}: {', '.join(f'{arm} for {listed(where)}' for arm, where in places.items())}."


def _undecided(undecided: Sequence[Undecided]) -> str:
    places = tuple(dict.fromkeys(str(item.lift.segment) for item in undecided))
    return f"Undecided for {listed(places)}"


def _when_decided(undecided: Sequence[Undecided]) -> str:
    head = _undecided(undecided)
    longest = max(item.visitors for item in undecided)
    if math.isinf(longest):
        return f"{head}; the arms are too close to say when."
    days = max((item.days for item in undecided if item.days is not None), default=None)
    when = (
        f"{float(f'{longest:.2g}'):,.0f} more visitors"
        if days is None or math.isinf(days)
        else f"{math.ceil(days):,} more days"
    )
    return f"{head}; if the estimates are right, about {when}."


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]
