"""A demo firm: two experiments and a bounded, clearly marked crowd of simulated visitors.

Only `deniable serve --demo` makes it. The visitors' true click rates are in this file; the service
does not know them and learns which arm is best in which segment.
"""

from __future__ import annotations

import logging
import random
import threading
from dataclasses import dataclass

from deniable.errors import DeniableError, UnknownNameError
from deniable.service.drafts import NewArm
from deniable.service.service import Deniable

_log = logging.getLogger("deniable.demo")

LABEL = "demo: admin"
VISITOR_PREFIX = "demo-visitor-"
FIRM_BUDGET = 4.0
BURST = 2_000
VISITORS_PER_STEP = 20
SECONDS_PER_STEP = 0.5


@dataclass(frozen=True)
class DemoExperiment:
    """One experiment of the demo.

    Attributes:
        click_rates: segment -> the true click rate of each arm.
    """

    key: str
    arms: tuple[NewArm, ...]
    budget: float
    click_rates: dict[str, tuple[float, ...]]


EXPERIMENTS = (
    DemoExperiment(
        "demo-checkout-button",
        (NewArm("grey", "Grey, as it was"), NewArm("green", "Green"), NewArm("large", "Large")),
        2.0,
        {"first-visit": (0.10, 0.13, 0.22), "returning": (0.20, 0.31, 0.15)},
    ),
    DemoExperiment(
        "demo-homepage-hero",
        (NewArm("photo", "A photograph"), NewArm("offer", "This week's offer")),
        1.0,
        {"first-visit": (0.09, 0.05), "returning": (0.06, 0.12)},
    ),
)


def prepare(service: Deniable) -> str:
    """Make whatever of the demo is missing and return the secret of a new admin key.

    Keys of earlier starts are revoked: their secrets are not stored and cannot be shown again.
    """
    try:
        service.firm.current()
    except UnknownNameError:
        service.firm.set(budget=FIRM_BUDGET)
    existing = {experiment.key for experiment in service.experiments.all()}
    for wanted in EXPERIMENTS:
        if wanted.key not in existing:
            service.experiments.create(
                wanted.key,
                arms=wanted.arms,
                segments=list(wanted.click_rates),
                budget=wanted.budget,
                planned_visitors=50_000,
            )
            service.experiments.start(wanted.key)
    for key in service.keys.all():
        if key.label == LABEL and key.revoked_at is None:
            service.keys.revoke(key.id)
    secret, _ = service.keys.create(LABEL, ["admin"])
    return secret


def only_demo(service: Deniable) -> bool:
    """Whether nobody but the demo uses the store: then its pages may be entered by one click."""
    live = [key.label for key in service.keys.all() if key.revoked_at is None]
    return not service.people.all() and set(live) <= {LABEL}


class Simulator(threading.Thread):
    """Sends visitors through the service until it has sent them all or the service is closed.

    Args:
        service: where to.
        visitors: how many altogether.
        seed: of the visitors' segments and clicks; the service draws its arms from the system.
    """

    def __init__(self, service: Deniable, visitors: int, seed: int | None = None) -> None:
        super().__init__(name="deniable-demo", daemon=True)
        self._service = service
        self._left = visitors
        self._random = random.Random(seed)
        self._run_id = f"{self._random.getrandbits(32):08x}"
        self._number = 0
        self._ended = threading.Event()

    def run(self) -> None:
        """See threading.Thread."""
        try:
            while self._left > 0 and not self._ended.is_set():
                first = self._number == 0
                self.step(BURST if first else VISITORS_PER_STEP)
                self._ended.wait(SECONDS_PER_STEP)
        except DeniableError as error:  # closed, or stopped by a person
            _log.info("the demo's visitors stopped: %s", type(error).__name__)

    def end(self) -> None:
        """Send no more visitors."""
        self._ended.set()

    def step(self, visitors: int) -> None:
        """Send some visitors through every experiment; some of them click."""
        visitors = min(visitors, self._left)
        self._left -= visitors
        start, self._number = self._number, self._number + visitors
        names = [f"{VISITOR_PREFIX}{self._run_id}-{n}" for n in range(start, self._number)]
        for experiment in EXPERIMENTS:
            rates = experiment.click_rates
            position = {arm.key: place for place, arm in enumerate(experiment.arms)}
            segments = self._random.choices(list(rates), k=visitors)
            pairs = list(zip(names, segments, strict=True))
            for start in range(0, visitors, VISITORS_PER_STEP):  # rewards come while it learns
                some = pairs[start : start + VISITORS_PER_STEP]
                decisions = self._service.decide_batch(experiment.key, some)
                self._service.reward_batch(
                    (
                        decision.id,
                        int(self._random.random() < rates[segment][position[decision.arm]]),
                    )
                    for decision, (_, segment) in zip(decisions, some, strict=True)
                )
