"""The demo firm's first month, lived through on a separate clock before the demo starts serving.

Everything goes through the service: firm, label, experiments, decisions, rewards, stops, audits. No row
is written directly, so the month's audit log, tables and audits are as real as today's.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from datetime import timedelta

from deniable.demo.firm import (
    ADVICE,
    ANALYST,
    BASKET,
    CHECKOUT,
    DELIVERY,
    FIRM_NAME,
    GIFTS,
    HERO,
    MANAGER,
    MENU,
    OFFICER,
    PEOPLE,
    SEARCH,
    TEASER,
    VISITOR_PREFIX,
    DemoExperiment,
    Visitor,
    found,
    visit,
)
from deniable.service.drafts import NewArm
from deniable.service.service import Deniable
from deniable.storage import times
from deniable.storage.commitments import acting
from deniable.storage.records import Decision

DAYS = 30
STEPS_A_DAY = 3
VISITORS_A_STEP = 120
DAY = 86_400_000_000
"""One day in microseconds."""

_NOBODY_YET = {"first-visit": (), "returning": ()}
DRAFTS = (
    DemoExperiment(
        "demo-loyalty-card", (NewArm("points"), NewArm("discount")), _NOBODY_YET, on_label=False
    ),
    DemoExperiment(
        "demo-gift-wrap",
        (NewArm("asked", "Asked in the basket"), NewArm("shown", "Shown on the product")),
        _NOBODY_YET,
        on_label=False,
        planned_visitors=30_000,
    ),
)
"""Drafts among which the portfolio can divide the remaining budget."""

STARTS: dict[int, tuple[DemoExperiment, ...]] = {
    1: (HERO, TEASER),
    2: (ADVICE, MENU),
    3: (CHECKOUT,),
    4: (GIFTS, DELIVERY),
    5: (SEARCH, BASKET),
}
"""Day -> the experiments that start on it."""
DECIDED, AUDITED, CHECKED = 22, 23, 29
"""Days on which the delivery note is decided, the checkout button audited, and the firm audited."""
DRAFTED = {25: DRAFTS[0], 26: DRAFTS[1]}

OWNERS = {
    HERO.key: ("Content team", ("homepage",)),
    TEASER.key: ("Content team", ("newsletter",)),
    ADVICE.key: ("Content team", ("product-page",)),
    MENU.key: ("Search team", ("homepage",)),
    CHECKOUT.key: ("Checkout team", ("checkout", "winter")),
    GIFTS.key: ("Content team", ("product-page", "winter")),
    SEARCH.key: ("Search team", ("search",)),
    BASKET.key: ("Checkout team", ("checkout", "winter")),
    DELIVERY.key: ("Checkout team", ("product-page",)),
    DRAFTS[0].key: ("Checkout team", ("loyalty",)),
    DRAFTS[1].key: ("Checkout team", ("checkout", "winter")),
}
"""Experiment -> its owner and tags."""


class Clock:
    """A manually advanced clock, in microseconds since 1970."""

    def __init__(self, start: int) -> None:
        self.time = start

    def __call__(self) -> int:
        """Return the current time."""
        return self.time

    def wait(self, **span: float) -> None:
        """Advance the clock."""
        self.time += timedelta(**span) // timedelta(microseconds=1)


def opened(
    opening: Callable[[], Deniable],
    *,
    watching: Callable[[Deniable], Callable[[], object]] = lambda _service: lambda: None,
    told: Callable[[], object] = lambda: None,
    visitors: int = VISITORS_A_STEP,
    seed: int = 1,
) -> Deniable:
    """Open a service. An empty store is first filled with a month of history that ends now.

    Args:
        opening: opens the service. A new store records its creation time, so this too happens a
            month ago.
        watching: returns a function that is called three times a day, like the pages' background
            monitor.
        told: called before the history is made, which takes some seconds.
        visitors: visitors of each experiment at each of these times.
        seed: seed for the visitors' clicks; the service draws labels and arms from its own entropy.
    """
    end = times.now()
    clock = Clock(end - DAYS * DAY)
    with times.running_on(clock):
        service = opening()
        if not service.experiments.all():
            told()
            _live(service, clock, end, watching(service), visitors, random.Random(seed))
    return service


def visitors_of_last_day(most: int) -> list[Visitor]:
    """Return the visitors of the month's last day, up to so many; tests send fewer."""
    return [
        Visitor(f"{VISITOR_PREFIX}{DAYS - 1}-{step}-{n}")
        for n in range(most // STEPS_A_DAY)
        for step in range(STEPS_A_DAY)
    ]


def _live(
    service: Deniable,
    clock: Clock,
    end: int,
    look: Callable[[], object],
    visitors: int,
    rng: random.Random,
) -> None:
    _hire(service)
    running: list[DemoExperiment] = []
    for day in range(DAYS):
        clock.wait(minutes=40 + 37 * day % 180)  # people do not act at the same time every day
        _act(service, day, running)
        waiting: list[tuple[Decision, int]] = []
        for step in range(STEPS_A_DAY):
            people = [Visitor(f"{VISITOR_PREFIX}{day}-{step}-{n}") for n in range(visitors)]
            for experiment in running:
                waiting += visit(service, experiment, people, rng)
            # Most clicks come within minutes, some hours later.
            for share, minutes in ((0.4, 1), (0.5, 6), (0.6, 35), (0.0, 300)):
                clock.wait(minutes=minutes)
                count = round(len(waiting) * share) or len(waiting)
                now, waiting = waiting[:count], waiting[count:]
                service.reward_batch((decision.id, click) for decision, click in now)
            look()
        clock.time = end - (DAYS - day - 1) * DAY


def _hire(service: Deniable) -> None:
    """Create people with random passwords; the officer sets the budget and creates the label."""
    with acting("shell", "operator"):
        for name, role in PEOPLE.items():
            service.people.accept(service.people.invite(name, role).token, os.urandom(16).hex())
    with acting("user", OFFICER):
        found(service)
        service.firm.change_settings(name=FIRM_NAME)


def _act(service: Deniable, day: int, running: list[DemoExperiment]) -> None:
    """Do what people do on a given day."""
    started = STARTS.get(day, ())
    for experiment in started or [DRAFTED[day]] if day in DRAFTED else started:
        with acting("user", ANALYST):
            experiment.create(service)
            owner, tags = OWNERS[experiment.key]
            service.experiments.label(experiment.key, owner=owner, tags=tags)
    with acting("user", MANAGER):
        for experiment in started:
            service.experiments.start(experiment.key)
            running.append(experiment)
        if day == DECIDED:
            service.experiments.stop(DELIVERY.key, promote="beside")
            note = "Everybody prefers the note beside the price: personalising does not pay here."
            service.experiments.note(DELIVERY.key, note)
            running.remove(DELIVERY)
    with acting("user", OFFICER):
        if day == AUDITED:
            service.audits.run(CHECKOUT.key, record=True)
            service.documents.issue(CHECKOUT.key, "statement")
        if day == CHECKED:
            service.audits.firm(record=True)
