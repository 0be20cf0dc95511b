"""A verdict as plain sentences, shared by web pages, command line and notebooks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from deniable._formatting import counted, listed, short
from deniable.inference.power import Forecast
from deniable.inference.verdict import Verdict


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
    Undecided for returning; if the estimates are right, about 220,000 more visitors.
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
    said += undecided_words(found, stopped=stopped)
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
        return f"{100 * value:.1f}%" if self.cap is None else short(self.cap * value, 4)

    def change(self, low: float, high: float) -> str:
        """Format the interval of a difference, with typographic minus signs."""
        text = (
            f"{100 * low:+.1f} to {100 * high:+.1f} points"
            if self.cap is None
            else f"{short(self.cap * low, sign='+')} to {short(self.cap * high, sign='+')}"
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


def undecided_words(found: Verdict, *, stopped: bool = False) -> list[str]:
    """Return which segments are undecided, and for how long; nothing about those that are too early."""
    by_segment: dict[str, list[Forecast]] = {}
    for item in found.undecided:
        if item.lift.segment not in found.too_early:
            by_segment.setdefault(str(item.lift.segment), []).append(item.forecast)
    if stopped:
        return [f"Undecided for {listed(tuple(by_segment))}."] if by_segment else []
    waits = {place: longest(forecasts) for place, forecasts in by_segment.items()}
    known = {place: wait for place, wait in waits.items() if wait.visitors is not None}
    never = [place for place in waits if place not in known]
    said = []
    if known:
        when = forecast_words(longest([*known.values()]), more=True)
        said.append(
            f"Undecided for {listed(tuple(known))}; if the estimates are right, about {when}."
        )
    if never:
        said.append(
            f"Undecided for {listed(never)}; {forecast_words(waits[never[0]])}: "
            "the estimates are too close."
        )
    return said


def longest(forecasts: Sequence[Forecast]) -> Forecast:
    """Return the forecast that takes longest; without a number of visitors, it takes for ever."""
    return max(forecasts, key=lambda one: math.inf if one.visitors is None else one.visitors)


def forecast_words(found: Forecast, *, more: bool = False) -> str:
    """Format how long a comparison takes: days if traffic is known, else visitors.

    >>> forecast_words(Forecast(24_925, 5)), forecast_words(Forecast(24_925, None), more=True)
    ('5 days', '25,000 more visitors')
    >>> forecast_words(Forecast(None, None))
    'not with this traffic'
    """
    if found.visitors is None:
        return "not with this traffic"
    further = "more " if more else ""
    if found.days is not None:
        return counted(found.days, f"{further}day")
    return f"{float(f'{found.visitors:.2g}'):,.0f} {further}visitors"


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]
