"""The first screen of the demo: what a tracker guesses from all pages together, and what the shop earns.

Guesses and clicks with labels are those of the running demo. What they are compared with, one arm for
everybody and a shop without privacy, is computed from the demo's true click rates, with the same learner
and as many visitors, without luck.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np

from deniable._validation import FloatArray
from deniable.demo.firm import (
    DEVICES,
    INTERESTS,
    LIVE,
    MASK,
    ON_LABEL,
    DemoExperiment,
)
from deniable.demo.month import visitors_of_last_day
from deniable.masks.limit import group_channel
from deniable.service.service import Deniable
from deniable.storage.records import row_names
from deniable.strategies.unbounded import unbounded_table

GROWTH = 1.25
"""The compared learners learn whenever their visitors have grown by this factor."""

FOLLOWED = 240
"""Visitors of the last day whose pages a tracker is followed through."""

_INTERESTS = [*INTERESTS]
_SHARES = np.array([*INTERESTS.values()])
_RUNNING = [experiment for experiment in ON_LABEL if experiment in LIVE]


@dataclass(frozen=True)
class Scores:
    """What the demo shows first; all are shares.

    Attributes:
        blind: how often a tracker guesses a visitor's interest without looking: the largest one.
        guessed: how often it is right after all pages of the shop, with labels.
        possible: how often it can be right at most, whatever it sees.
        open: how often it would be right without Deniable.
        followed: the number of visitors whose pages were looked at.
        everybody: clicks per page view if everybody is shown the same arm.
        labels: clicks per page view with labels, as counted.
        no_privacy: clicks per page view if the shop shows each interest what it likes best.
        views: the page views that were counted.
    """

    blind: float
    guessed: float
    possible: float
    open: float
    followed: int
    everybody: float
    labels: float
    no_privacy: float
    views: int


def scores(service: Deniable) -> Scores:
    """Return the scores so far."""
    cells = [service.experiments.counts(experiment.key) for experiment in _RUNNING]
    sizes = [sum(cell.shows for cell in of_one) for of_one in cells]
    clicks = sum(cell.clicks for of_one in cells for cell in of_one)
    learned = tuple(max(round(size, -3), 1000) for size in sizes)
    guessed, possible, followed = _guesses(service, sum(learned))
    return Scores(
        blind=float(_SHARES.max()),
        guessed=guessed,
        possible=possible,
        open=_open_guesses(learned),
        followed=followed,
        everybody=_earned(learned, tailored=False),
        labels=clicks / max(sum(sizes), 1),
        no_privacy=_earned(learned, tailored=True),
        views=sum(sizes),
    )


@lru_cache(maxsize=1)
def _guesses(service: Deniable, _learned: int) -> tuple[float, float, int]:
    """Return how often a tracker that knows all tables is right, how often it can be, and of how many.

    It follows visitors of the last day through all experiments and applies Bayes' rule: a label's
    probability given the interest, times that of every arm given the label.
    """
    budget = service.masks.get(MASK).budget
    channel = group_channel([[n] for n in range(len(_INTERESTS))], budget)
    shown = {experiment.key: _shown(service, experiment) for experiment in _RUNNING}
    right = followed = 0
    for visitor in visitors_of_last_day(FOLLOWED):
        likelihood = np.ones(len(_INTERESTS))  # by label
        pages = service.visitors.stored(visitor.id)
        for page in pages:
            if page.experiment in shown:
                likelihood = likelihood * shown[page.experiment][visitor.device][page.arm]
        if pages:
            belief = _SHARES * (channel @ likelihood)
            right += _INTERESTS[int(belief.argmax())] == visitor.interest
            followed += 1
    possible = float((_SHARES[:, None] * channel).max(axis=0).sum())
    return (right / followed if followed else float(_SHARES.max())), possible, followed


def _shown(service: Deniable, experiment: DemoExperiment) -> dict[str, dict[str, FloatArray]]:
    """Return device -> arm -> how often each label is shown it."""
    labels = tuple(f"~{interest}" for interest in _INTERESTS)
    counts = {
        (cell.segment, cell.arm): cell.shows + 1
        for cell in service.experiments.counts(experiment.key)
    }
    shown = {}
    for device in DEVICES:
        rows = row_names((device,) if experiment.desktop else (), labels)
        table = np.array(
            [[counts.get((row, arm.key), 1) for arm in experiment.arms] for row in rows]
        )
        by_arm = (table / table.sum(axis=1, keepdims=True)).T
        shown[device] = dict(zip([arm.key for arm in experiment.arms], by_arm, strict=True))
    return shown


# -- what it is compared with ----------------------------------------------------------------------


@lru_cache(maxsize=4)
def _open_guesses(sizes: tuple[int, ...]) -> float:
    """Return how often a tracker is right if every interest is shown its own arms, for all devices."""
    right = 0.0
    for device, share in DEVICES.items():
        tables = [
            _learned(experiment, size, device)[1]
            for experiment, size in zip(_RUNNING, sizes, strict=True)
        ]
        # The probability of every combination of arms, by interest.
        together = reduce(
            lambda known, table: (known[:, :, None] * table[:, None, :]).reshape(len(table), -1),
            tables,
            np.ones((len(_INTERESTS), 1)),
        )
        right += share * float((_SHARES[:, None] * together).max(axis=0).sum())
    return right


@lru_cache(maxsize=8)
def _earned(sizes: tuple[int, ...], *, tailored: bool) -> float:
    """Return clicks per page view, if every interest has its own arm or everybody the same one."""
    clicks = 0.0
    for experiment, size in zip(_RUNNING, sizes, strict=True):
        if tailored:
            clicks += sum(
                share * _learned(experiment, size, device)[0] for device, share in DEVICES.items()
            )
        else:
            clicks += _learned(experiment, size, None)[0]
    return clicks / sum(sizes)


@lru_cache(maxsize=64)
def _learned(experiment: DemoExperiment, size: int, device: str | None) -> tuple[float, FloatArray]:
    """Return the clicks of so many visitors and the last table, with expected counts instead of luck.

    Args:
        experiment: the experiment.
        size: its visitors.
        device: the device of those that learn together, each interest by itself; None for
            everybody together, with one row.
    """
    everybody = sum(
        share * np.array([experiment.rates_for(interest, name) for interest in _INTERESTS])
        for name, share in DEVICES.items()
    )
    if device is None:
        rates, shares = _SHARES @ everybody, np.ones(1)
        rates = rates[None, :]
    else:
        rates = np.array([experiment.rates_for(interest, device) for interest in _INTERESTS])
        shares = _SHARES
    shows, clicks = np.zeros(rates.shape), np.zeros(rates.shape)
    table, done = np.full(rates.shape, 1 / rates.shape[1]), 0
    while done < size:
        new = min(max(100, int(done * (GROWTH - 1))), size - done)
        come = new * shares[:, None] * table
        shows, clicks, done = shows + come, clicks + come * rates, done + new
        table = unbounded_table(shows, clicks, experiment.planned_visitors)
    return float(clicks.sum()), table
