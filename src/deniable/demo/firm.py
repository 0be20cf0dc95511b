"""A made-up shop: who works there, what it tests, who visits, and how visitors click.

The shop gives each visitor one private label for their interest. Eight experiments see only the label,
two of them the device as well, and one experiment keeps a bound of its own. The true click rates are in
this file; the service does not know them.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deniable.errors import DeniableError, UnknownNameError
from deniable.service.drafts import NewArm
from deniable.service.service import Deniable
from deniable.storage.records import Decision, UserRole

_log = logging.getLogger("deniable.demo")

KEY_LABEL = "demo: admin"
VISITOR_PREFIX = "demo-visitor-"
FIRM_BUDGET = 4.0
FIRM_NAME = "Example Shop"
PEOPLE: dict[str, UserRole] = {
    "ada@shop.example": "privacy-officer",
    "ben@shop.example": "manager",
    "cleo@shop.example": "analyst",
}
"""Name -> role. Their passwords are random and discarded; `.example` is a reserved domain."""
OFFICER, MANAGER, ANALYST = PEOPLE
SECONDS_PER_VISITOR = 2.0
"""Slow, so that charts over the month do not end in a cliff: ten minutes bring fewer than a day."""
AT_ONCE = 10
"""Visitors between whom nothing is learned, where many are sent."""
WATCHED_SECONDS = 60.0
"""Visitors keep coming while a page was opened or refreshed within this time."""

MASK = "interest"
LABEL_BUDGET = 2.0
INTERESTS = {"sports": 0.4, "music": 0.35, "garden": 0.25}
"""Interest -> share of the visitors. Trackers must not learn it."""
DEVICES = {"phone": 0.6, "desktop": 0.4}
"""Device -> share of the visitors. Every script on a page reads it anyway."""
VISITS = {"first-visit": 0.5, "returning": 0.5}

HOLDOUT = 0.15
USUAL_WEIGHT = 998
"""Of 1,000 held-out visitors: the neutral row gives every other arm a chance of one in a thousand."""

Rates = Mapping[str, tuple[float, ...]]
"""Segment -> the true click rate of each arm."""


@dataclass(frozen=True)
class Visitor:
    """Somebody with an id; everything else about them follows from it.

    >>> Visitor("demo-visitor-1").interest, Visitor("demo-visitor-1").device
    ('sports', 'phone')
    """

    id: str

    @property
    def interest(self) -> str:
        """What the shop believes them to be interested in."""
        return self._one_of(INTERESTS)

    @property
    def device(self) -> str:
        """What they use."""
        return self._one_of(DEVICES)

    @property
    def visit(self) -> str:
        """Whether they were here before."""
        return self._one_of(VISITS)

    def _one_of(self, shares: Mapping[str, float]) -> str:
        rng = random.Random(f"{self.id} {' '.join(shares)}")
        return rng.choices([*shares], [*shares.values()])[0]


@dataclass(frozen=True, eq=False)
class DemoExperiment:
    """One experiment of the demo.

    Attributes:
        key: its key.
        arms: its arms.
        rates: the true click rates by interest, or by kind of visit if it is not on the label.
        on_label: whether it is on the label; else it has a budget of its own.
        usual: the arm that everybody was shown before, and that held-out visitors still see.
        desktop: if the device is a context, the true click rates on desktops; `rates` are then
            those on phones.
        budget: of an experiment that is not on the label.
        planned_visitors: how many visitors it is planned for.
    """

    key: str
    arms: tuple[NewArm, ...]
    rates: Rates
    on_label: bool = True
    usual: str = ""
    desktop: Rates | None = None
    budget: float = 0.5
    planned_visitors: int = 20_000

    def create(self, service: Deniable) -> None:
        """Create the experiment as a draft."""
        rows: dict[str, Any] = (
            {"segments": (), "mask": MASK, "contexts": [*DEVICES] if self.desktop else ()}
            if self.on_label
            else {"segments": [*self.rates], "budget": self.budget}
        )
        arms = [
            replace(arm, weight=USUAL_WEIGHT if arm.key == self.usual else 1) for arm in self.arms
        ]
        service.experiments.create(
            self.key,
            arms=arms,
            planned_visitors=self.planned_visitors,
            holdout=HOLDOUT if self.usual else 0.0,
            **rows,
        )

    def segment_of(self, visitor: Visitor) -> str:
        """Return what the shop sends with a visitor."""
        return visitor.interest if self.on_label else visitor.visit

    def rates_for(self, segment: str, device: str) -> tuple[float, ...]:
        """Return the true click rates of one kind of visitor."""
        rates = self.desktop if self.desktop and device == "desktop" else self.rates
        return rates[segment]


def _arms(**titles: str) -> tuple[NewArm, ...]:
    return tuple(NewArm(key, title) for key, title in titles.items())


HERO = DemoExperiment(
    "demo-homepage-hero",
    _arms(stadium="A stadium", stage="A stage", meadow="A meadow"),
    {"sports": (0.36, 0.09, 0.08), "music": (0.08, 0.35, 0.09), "garden": (0.07, 0.10, 0.37)},
    usual="stadium",
)
TEASER = DemoExperiment(
    "demo-newsletter-teaser",
    _arms(match="The match of the week", concert="The concert of the week", plant="What to plant"),
    {"sports": (0.33, 0.08, 0.07), "music": (0.08, 0.34, 0.07), "garden": (0.07, 0.08, 0.36)},
    usual="match",
)
ADVICE = DemoExperiment(
    "demo-product-advice",
    _arms(test="A test report", people="What people say"),
    {"sports": (0.41, 0.08), "music": (0.07, 0.37), "garden": (0.08, 0.38)},
    usual="people",
)
GIFTS = DemoExperiment(
    "demo-gift-ideas",
    _arms(ticket="Tickets", tools="Tools", books="Books"),
    {"sports": (0.35, 0.08, 0.09), "music": (0.07, 0.09, 0.34), "garden": (0.06, 0.37, 0.08)},
    usual="ticket",
    desktop={
        "sports": (0.10, 0.09, 0.32),
        "music": (0.36, 0.07, 0.09),
        "garden": (0.07, 0.34, 0.09),
    },
)
SEARCH = DemoExperiment(
    "demo-search-ranking",
    _arms(new="Newest first", rated="Best rated first"),
    {"sports": (0.38, 0.08), "music": (0.36, 0.08), "garden": (0.07, 0.38)},
    usual="rated",
    desktop={"sports": (0.37, 0.08), "music": (0.07, 0.36), "garden": (0.07, 0.39)},
)
MENU = DemoExperiment(
    "demo-menu-order",
    _arms(brands="Brands first", themes="Themes first"),
    {"sports": (0.42, 0.08), "music": (0.07, 0.36), "garden": (0.08, 0.37)},
    usual="themes",
)
BASKET = DemoExperiment(
    "demo-basket-offer",
    _arms(shirt="A shirt", strings="Strings", seeds="Seeds"),
    {"sports": (0.34, 0.07, 0.07), "music": (0.08, 0.35, 0.06), "garden": (0.06, 0.07, 0.36)},
    usual="shirt",
)
DELIVERY = DemoExperiment(
    "demo-delivery-note",
    _arms(below="Below the price", beside="Beside the price"),
    {"sports": (0.14, 0.26), "music": (0.13, 0.25), "garden": (0.15, 0.27)},
    usual="beside",
    planned_visitors=12_000,
)
"""Everybody prefers the same arm: personalising does not pay."""

ON_LABEL = (HERO, TEASER, ADVICE, GIFTS, SEARCH, MENU, BASKET, DELIVERY)

CHECKOUT = DemoExperiment(
    "demo-checkout-button",
    _arms(grey="Grey, as it was", green="Green", large="Twice as large"),
    {"first-visit": (0.10, 0.13, 0.22), "returning": (0.20, 0.31, 0.15)},
    on_label=False,
    budget=1.0,
)
"""The one experiment that is not on the label: joint, with a budget of its own."""

LIVE = (*ON_LABEL[:-1], CHECKOUT)
"""Experiments that simulated visitors visit."""


def found(service: Deniable) -> None:
    """Set the firm's budget and create its label."""
    service.firm.set(budget=FIRM_BUDGET)
    service.masks.create(MASK, segments=[*INTERESTS], budget=LABEL_BUDGET)


def prepare(service: Deniable) -> str:
    """Create what is missing of the firm and its experiments; return the secret of a new admin key.

    Keys of earlier starts are revoked, because their secrets are not stored and cannot be shown
    again.
    """
    try:
        service.firm.current()
    except UnknownNameError:
        found(service)
    existing = {experiment.key for experiment in service.experiments.all()}
    for wanted in LIVE:
        if wanted.key not in existing:
            wanted.create(service)
            service.experiments.start(wanted.key)
    for key in service.keys.all():
        if key.label == KEY_LABEL and key.revoked_at is None:
            service.keys.revoke(key.id)
    secret, _ = service.keys.create(KEY_LABEL, ["admin"])
    return secret


def visit(
    service: Deniable,
    experiment: DemoExperiment,
    visitors: Sequence[Visitor],
    rng: random.Random,
) -> list[tuple[Decision, int]]:
    """Decide for visitors; return each decision with its reward, which is 1 for a click."""
    position = {arm.key: place for place, arm in enumerate(experiment.arms)}
    decisions = service.decide_batch(
        experiment.key,
        [(visitor.id, experiment.segment_of(visitor)) for visitor in visitors],
        contexts=[visitor.device for visitor in visitors] if experiment.desktop else None,
    )
    return [
        (
            decision,
            int(
                rng.random()
                < experiment.rates_for(experiment.segment_of(visitor), visitor.device)[
                    position[decision.arm]
                ]
            ),
        )
        for decision, visitor in zip(decisions, visitors, strict=True)
    ]


def only_demo(service: Deniable) -> bool:
    """Whether only the demo uses the store; its pages can then be entered with one click."""
    live = [key.label for key in service.keys.all() if key.revoked_at is None]
    people = {user.name for user in service.people.all()}
    return people <= set(PEOPLE) and set(live) <= {KEY_LABEL}


class Simulator(threading.Thread):
    """Sends visitors through the service while a page is open, until all have been sent.

    Args:
        service: the service.
        visitors: the total number of visitors.
        seed: seed for the visitors' clicks; the service draws labels and arms.
        watched: returns when a page was last opened (monotonic time); None means always active.
        experiments: the experiments that every visitor meets.
    """

    def __init__(
        self,
        service: Deniable,
        visitors: int,
        seed: int | None = None,
        *,
        watched: Callable[[], float] | None = None,
        experiments: Sequence[DemoExperiment] = LIVE,
    ) -> None:
        super().__init__(name="deniable-demo", daemon=True)
        self._service = service
        self._left = visitors
        self._random = random.Random(seed)
        self._run_id = f"{self._random.getrandbits(32):08x}"
        self._number = 0
        self._watched = watched
        self._experiments = experiments
        self._ended = threading.Event()

    @property
    def idle(self) -> bool:
        """Whether no page has been opened for a while."""
        return self._watched is not None and time.monotonic() - self._watched() > WATCHED_SECONDS

    def run(self) -> None:
        """See threading.Thread."""
        while self._left > 0 and not self._ended.is_set():
            if not self.idle:
                try:
                    self.step(1)
                except DeniableError as error:  # the service was closed or an experiment removed
                    _log.info("the demo's visitors stopped: %s", type(error).__name__)
                    return
            self._ended.wait(SECONDS_PER_VISITOR)

    def end(self) -> None:
        """Stop sending visitors."""
        self._ended.set()

    def step(self, visitors: int) -> None:
        """Send some visitors through every experiment; some of them click."""
        visitors = min(visitors, self._left)
        self._left -= visitors
        start, self._number = self._number, self._number + visitors
        people = [
            Visitor(f"{VISITOR_PREFIX}{self._run_id}-{n}") for n in range(start, self._number)
        ]
        for experiment in self._experiments:
            # In small steps, so that it learns in between.
            for first in range(0, visitors, AT_ONCE):
                seen = visit(
                    self._service, experiment, people[first : first + AT_ONCE], self._random
                )
                self._service.reward_batch((decision.id, click) for decision, click in seen)
