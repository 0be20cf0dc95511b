"""The demo firm's first month, simulated on a separate clock before the demo starts serving.

Everything goes through the service: firm, experiments, decisions, rewards, stops, audits. No row is
written directly, so the month's ledger, tables and audit are as real as today's.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from datetime import timedelta

from deniable.service.demo import (
    ANALYST,
    DELIVERY,
    EXPERIMENTS,
    FIRM_BUDGET,
    FIRM_NAME,
    MANAGER,
    OFFICER,
    PEOPLE,
    VISITOR_PREFIX,
    DemoExperiment,
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

CHECKOUT, HERO = EXPERIMENTS

NEWSLETTER = DemoExperiment(
    "demo-newsletter-offer",
    (NewArm("plain", "No offer"), NewArm("voucher", "A voucher for the next order")),
    0.4,
    {"first-visit": (0.06, 0.15), "returning": (0.10, 0.19)},
    planned_visitors=6_000,
)
PHOTOS = DemoExperiment(
    "demo-product-photos",
    (NewArm("studio", "In the studio"), NewArm("home", "In a home"), NewArm("video", "A video")),
    0.5,
    {"first-visit": (0.11, 0.16, 0.09), "returning": (0.14, 0.13, 0.12)},
    layer="product-page",
    share=0.5,
    planned_visitors=30_000,
)
DRAFTS = (
    DemoExperiment(
        "demo-search-ranking",
        (NewArm("usual"), NewArm("reviews", "Best reviewed first"), NewArm("new", "Newest first")),
        0.5,
        {"first-visit": (), "returning": (), "business": ()},
        planned_visitors=200_000,
    ),
    DemoExperiment(
        "demo-gift-wrap",
        (NewArm("asked", "Asked in the basket"), NewArm("shown", "Shown on the product")),
        0.5,
        {"first-visit": (), "returning": ()},
        planned_visitors=30_000,
    ),
    DemoExperiment(
        "demo-loyalty-card",
        (NewArm("points"), NewArm("discount")),
        0.5,
        {"first-visit": (), "returning": ()},
        planned_visitors=80_000,
    ),
)
"""Drafts among which the portfolio can divide the remaining budget."""

STARTS = {0: NEWSLETTER, 3: CHECKOUT, 4: DELIVERY, 9: PHOTOS, 16: HERO}
"""Day -> the experiment that starts on it."""
DECIDED, AUDITED, PAUSED, CHECKED = 19, 20, 24, 29
"""Days on which the newsletter's offer is decided and audited, the photos are paused, and the firm
is audited.
"""
DRAFTED = {25: DRAFTS[0], 26: DRAFTS[1], 28: DRAFTS[2]}


LABELS = {
    CHECKOUT.key: ("Checkout team", ("checkout", "winter")),
    HERO.key: ("Content team", ("homepage", "winter")),
    DELIVERY.key: ("Checkout team", ("product-page",)),
    PHOTOS.key: ("Content team", ("product-page",)),
    NEWSLETTER.key: ("Content team", ("newsletter",)),
    DRAFTS[0].key: ("Search team", ("search", "winter")),
    DRAFTS[1].key: ("Checkout team", ("checkout", "winter")),
    DRAFTS[2].key: ("Checkout team", ("loyalty",)),
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
            tracker.
        told: called before the history is made, which takes some seconds.
        visitors: visitors of each experiment at each of these times.
        seed: seed for the visitors' segments and clicks; the service draws arms from system
            entropy.
    """
    end = times.now()
    clock = Clock(end - DAYS * DAY)
    with times.running_on(clock):
        service = opening()
        if not service.experiments.all():
            told()
            _live(service, clock, end, watching(service), visitors, random.Random(seed))
    return service


def _live(
    service: Deniable,
    clock: Clock,
    end: int,
    look: Callable[[], object],
    visitors: int,
    rng: random.Random,
) -> None:
    _found_firm(service)
    running: list[DemoExperiment] = []
    for day in range(DAYS):
        clock.wait(minutes=40 + 37 * day % 180)  # people do not act at the same time every day
        _acts(service, day, running)
        waiting: list[tuple[Decision, int]] = []
        for step in range(STEPS_A_DAY):
            names = [f"{VISITOR_PREFIX}{day}-{step}-{n}" for n in range(visitors)]
            for experiment in running:
                waiting += visit(service, experiment, names, rng)
            # Most clicks come within minutes, some hours later.
            for share, minutes in ((0.4, 1), (0.5, 6), (0.6, 35), (0.0, 300)):
                clock.wait(minutes=minutes)
                count = round(len(waiting) * share) or len(waiting)
                now, waiting = waiting[:count], waiting[count:]
                service.reward_batch((decision.id, click) for decision, click in now)
            look()
        clock.time = end - (DAYS - day - 1) * DAY


def _found_firm(service: Deniable) -> None:
    """Create people with random passwords, and set the firm's budget."""
    with acting("shell", "operator"):
        for name, role in PEOPLE.items():
            service.people.accept(service.people.invite(name, role).token, os.urandom(16).hex())
    with acting("user", OFFICER):
        service.firm.set(budget=FIRM_BUDGET)
        service.firm.change_settings(name=FIRM_NAME)


def _label(service: Deniable, experiment: DemoExperiment) -> None:
    owner, tags = LABELS[experiment.key]
    service.experiments.label(experiment.key, owner=owner, tags=tags)


def _acts(service: Deniable, day: int, running: list[DemoExperiment]) -> None:
    """Do what people do on a given day."""
    drafted = STARTS.get(day) or DRAFTED.get(day)
    if drafted:
        with acting("user", ANALYST):
            drafted.create(service)
            _label(service, drafted)
    with acting("user", MANAGER):
        if day in STARTS:
            STARTS[day].start(service)
            running.append(STARTS[day])
        if day == DECIDED:
            service.experiments.stop(NEWSLETTER.key, promote="voucher")
            note = "Both segments prefer the voucher, so everybody gets it."
            service.experiments.note(NEWSLETTER.key, note)
            running.remove(NEWSLETTER)
        if day == PAUSED:
            service.experiments.pause(PHOTOS.key)
            service.experiments.note(PHOTOS.key, "Paused: the video makes the page slow on phones.")
            running.remove(PHOTOS)
    with acting("user", OFFICER):
        if day == AUDITED:
            service.audits.run(NEWSLETTER.key, record=True)
            service.documents.issue(NEWSLETTER.key, "statement")
        if day == CHECKED:
            service.audits.firm(record=True)
