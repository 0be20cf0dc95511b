"""Two experiments with segments, and their visitors: the same for all tests of pages."""

from __future__ import annotations

from deniable.demo.firm import CHECKOUT, DemoExperiment, Simulator
from deniable.service.drafts import NewArm
from deniable.service.service import Deniable

EXPERIMENTS = (
    CHECKOUT,
    DemoExperiment(
        "demo-homepage-hero",
        (NewArm("photo", "A photograph"), NewArm("offer", "This week's offer")),
        {"first-visit": (0.09, 0.05), "returning": (0.06, 0.12)},
        on_label=False,
    ),
)
CHECKOUT_KEY = CHECKOUT.key


def create(service: Deniable, experiment: DemoExperiment, budget: float) -> None:
    """One of them, running, with the paper's dynamic strategy."""
    service.experiments.create(
        experiment.key,
        arms=experiment.arms,
        segments=[*experiment.rates],
        budget=budget,
        strategy="dynamic",
        planned_visitors=experiment.planned_visitors,
    )
    service.experiments.start(experiment.key)


def send(service: Deniable, number: int, seed: int = 1) -> None:
    """So many visitors through both."""
    Simulator(service, number, seed, experiments=EXPERIMENTS).step(number)
