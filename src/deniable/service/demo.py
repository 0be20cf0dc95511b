"""A demo firm: its experiments, a limited number of simulated visitors, and a tracker.

Only `deniable serve --demo` uses it. The visitors' true click rates are in this file; the service
does not know them and learns which arm is best in which segment. `demo_history.py` creates the
firm's first month.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from deniable.errors import DeniableError, UnknownNameError
from deniable.service.drafts import NewArm
from deniable.service.service import Deniable
from deniable.storage.records import Cell, Decision, UserRole

_log = logging.getLogger("deniable.demo")

LABEL = "demo: admin"
VISITOR_PREFIX = "demo-visitor-"
FIRM_BUDGET = 3.0
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


@dataclass(frozen=True)
class DemoExperiment:
    """One experiment of the demo.

    Attributes:
        click_rates: segment -> the true click rate of each arm.
        layer: layer shared with other experiments, if any.
        share: share of the layer's slots.
    """

    key: str
    arms: tuple[NewArm, ...]
    budget: float
    click_rates: dict[str, tuple[float, ...]]
    layer: str | None = None
    share: float = 1.0
    planned_visitors: int = 50_000

    def create(self, service: Deniable) -> None:
        """Create the experiment as a draft."""
        service.experiments.create(
            self.key,
            arms=self.arms,
            segments=list(self.click_rates),
            budget=self.budget,
            planned_visitors=self.planned_visitors,
            layer=self.layer,
        )

    def start(self, service: Deniable) -> None:
        """Start the draft."""
        service.experiments.start(self.key, share=self.share)


EXPERIMENTS = (
    DemoExperiment(
        "demo-checkout-button",
        (
            NewArm("grey", "Grey, as it was"),
            NewArm("green", "Green"),
            NewArm("large", "Twice as large"),
        ),
        1.0,
        {"first-visit": (0.10, 0.13, 0.22), "returning": (0.20, 0.31, 0.15)},
    ),
    DemoExperiment(
        "demo-homepage-hero",
        (NewArm("photo", "A photograph"), NewArm("offer", "This week's offer")),
        0.5,
        {"first-visit": (0.09, 0.05), "returning": (0.06, 0.12)},
    ),
)
"""Experiments whose segments prefer different arms."""

DELIVERY = DemoExperiment(
    "demo-delivery-note",
    (NewArm("below", "Below the price"), NewArm("beside", "Beside the price")),
    0.5,
    {"first-visit": (0.10, 0.23), "returning": (0.16, 0.31)},
    layer="product-page",
    share=0.5,
    planned_visitors=40_000,
)
"""An experiment whose segments prefer the same arm."""

LIVE = (*EXPERIMENTS, DELIVERY)
"""Experiments that simulated visitors visit."""


def prepare(service: Deniable) -> str:
    """Create what is missing of the firm and its experiments; return the secret of a new admin key.

    Keys of earlier starts are revoked, because their secrets are not stored and cannot be shown
    again.
    """
    try:
        service.firm.current()
    except UnknownNameError:
        service.firm.set(budget=FIRM_BUDGET)
    existing = {experiment.key for experiment in service.experiments.all()}
    for wanted in LIVE:
        if wanted.key not in existing:
            wanted.create(service)
            wanted.start(service)
    for key in service.keys.all():
        if key.label == LABEL and key.revoked_at is None:
            service.keys.revoke(key.id)
    secret, _ = service.keys.create(LABEL, ["admin"])
    return secret


def visit(
    service: Deniable, experiment: DemoExperiment, names: Sequence[str], rng: random.Random
) -> list[tuple[Decision, int]]:
    """Decide for visitors; return each decision with its reward, which is 1 for a click."""
    rates = experiment.click_rates
    position = {arm.key: place for place, arm in enumerate(experiment.arms)}
    segments = rng.choices(list(rates), k=len(names))
    decisions = service.decide_batch(experiment.key, zip(names, segments, strict=True))
    return [
        (decision, int(rng.random() < rates[segment][position[decision.arm]]))
        for decision, segment in zip(decisions, segments, strict=True)
    ]


def only_demo(service: Deniable) -> bool:
    """Whether only the demo uses the store; its pages can then be entered with one click."""
    live = [key.label for key in service.keys.all() if key.revoked_at is None]
    people = {user.name for user in service.people.all()}
    return people <= set(PEOPLE) and set(live) <= {LABEL}


class Simulator(threading.Thread):
    """Sends visitors through the service while a page is open, until all have been sent.

    Args:
        service: the service.
        visitors: the total number of visitors.
        seed: seed for the visitors' segments and clicks; the service draws arms from system
            entropy.
        watched: returns when a page was last opened (monotonic time); None means always active.
        experiments: the experiments to visit.
    """

    def __init__(
        self,
        service: Deniable,
        visitors: int,
        seed: int | None = None,
        *,
        watched: Callable[[], float] | None = None,
        experiments: Sequence[DemoExperiment] = EXPERIMENTS,
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
        names = [f"{VISITOR_PREFIX}{self._run_id}-{n}" for n in range(start, self._number)]
        for experiment in self._experiments:
            # In small steps, so that it learns in between.
            for first in range(0, visitors, AT_ONCE):
                some = names[first : first + AT_ONCE]
                seen = visit(self._service, experiment, some, self._random)
                self._service.reward_batch((decision.id, click) for decision, click in seen)


# -- the tracker ------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrackerScore:
    """How often a tracker guesses a visitor's segment, with equally many visitors per segment.

    It sees the arm and knows how often each arm is shown to each segment, which is all that can be
    known.

    Attributes:
        experiment: the watched experiment.
        blind: success rate without looking at the arm.
        ordinary: success rate against an ordinary bandit, which shows each segment its best arm
            nine times in ten.
        private: success rate against Deniable, from the arms actually shown.
        promised: the highest success rate that the budget allows.
        ordinary_clicks: clicks per visitor of the ordinary bandit.
        private_clicks: clicks per visitor of the experiment.
        visitors: number of watched visitors.
    """

    experiment: str
    blind: float
    ordinary: float
    private: float
    promised: float
    ordinary_clicks: float
    private_clicks: float
    visitors: int


def tracker_score(service: Deniable, experiment: DemoExperiment = EXPERIMENTS[0]) -> TrackerScore:
    """Return the tracker's score on an experiment so far, with and without Deniable."""
    cells = [cell for cell in service.experiments.counts(experiment.key) if cell.segment]
    visitors = sum(cell.shows for cell in cells)
    kinds = len(experiment.click_rates)
    ordinary, clicks = ordinary_bandit(experiment.key, max(500, round(visitors, -3)))
    odds = math.exp(experiment.budget)
    return TrackerScore(
        experiment=experiment.key,
        blind=1 / kinds,
        ordinary=ordinary,
        private=guessed_right(cells),
        promised=odds / (odds + kinds - 1),
        ordinary_clicks=clicks,
        private_clicks=sum(cell.clicks for cell in cells) / visitors if visitors else 0.0,
        visitors=visitors,
    )


def guessed_right(cells: Sequence[Cell]) -> float:
    """Return how often the best guess from the arm is right, weighting all segments equally.

    >>> def cell(segment, arm, shows):
    ...     return Cell(segment, arm, shows, 0, 0)
    >>> guessed_right([cell("a", "x", 3), cell("a", "y", 1), cell("b", "x", 2), cell("b", "y", 6)])
    0.75
    """
    shown: dict[str, dict[str, int]] = {}
    for cell in cells:
        shown.setdefault(cell.segment or "", {})[cell.arm] = cell.shows
    known = [arms for arms in shown.values() if any(arms.values())]
    if not known:
        return 1 / max(1, len(shown))
    chances = [{arm: n / sum(arms.values()) for arm, n in arms.items()} for arms in known]
    return sum(max(row[arm] for row in chances) for arm in chances[0]) / len(chances)


@lru_cache(maxsize=16)
def ordinary_bandit(key: str, visitors: int) -> tuple[float, float]:
    """Return the tracker's score against a bandit without a budget, and its clicks per visitor.

    One visitor in ten sees a random arm; the others see the best arm so far in their segment.
    """
    experiment = next(one for one in LIVE if one.key == key)
    rng = random.Random(visitors)
    cells = {
        (segment, place): [0, 0]
        for segment in experiment.click_rates
        for place in range(len(experiment.arms))
    }
    for _ in range(visitors):
        segment = rng.choice(list(experiment.click_rates))
        rates = experiment.click_rates[segment]
        place = rng.randrange(len(rates))
        if rng.random() >= 0.1:
            place = max(
                range(len(rates)),
                key=lambda arm: (cells[segment, arm][1] + 1) / (cells[segment, arm][0] + 2),
            )
        cells[segment, place][0] += 1
        cells[segment, place][1] += rng.random() < rates[place]
    found = [
        Cell(segment, str(place), shows, shows, clicks)
        for (segment, place), (shows, clicks) in cells.items()
    ]
    return guessed_right(found), sum(clicks for _, clicks in cells.values()) / visitors
