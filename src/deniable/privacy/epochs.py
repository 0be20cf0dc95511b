"""When tables are due. An epoch is the time between two published tables.

An epoch ends when the decisions of all segments together have grown by a given factor, and by a
minimum number. Both depend only on the numbers of arms and segments, not on any visitor's segment
or reward. The service and the simulator publish by this rule. As measured in research/publishing.md, it
loses less than 3% of learning compared with per-visitor updates.
"""

from __future__ import annotations

from typing import NamedTuple

LARGEST_STEP, SMALLEST_STEP = 0.05, 0.01
"""Largest and smallest growth of the decisions from table to table. With many arms, a lucky arm is
shown for a whole epoch, so epochs have to be shorter.
"""

FEW_ARMS = 10
"""The largest step is used up to this number of arms."""

LEAST_NEW = 100
"""Minimum decisions per epoch."""

LEAST_BY_ARM, ENOUGH_BY_SEGMENT = 5, 60
"""Minimum decisions per epoch and segment: per arm, but no more than this in total. Fewer carry too
little information for a new table.
"""


class Epochs(NamedTuple):
    """The distance from table to table.

    Attributes:
        growth: the factor by which decisions grow.
        least: minimum number of new decisions.
    """

    growth: float
    least: int


def epochs_of(n_arms: int, n_segments: int) -> Epochs:
    """Return the service's publication schedule for an experiment.

    Decisions grow by 5% up to 10 arms and by 4/K^2 above, which is 1% from 20 on. They also grow by
    at least J min(5 K, 60), and by at least 100.

    Args:
        n_arms: K.
        n_segments: J.

    >>> epochs_of(2, 2), epochs_of(10, 20)
    (Epochs(growth=1.05, least=100), Epochs(growth=1.05, least=1000))
    >>> epochs_of(20, 5)
    Epochs(growth=1.01, least=300)
    """
    step = LARGEST_STEP if n_arms <= FEW_ARMS else max(SMALLEST_STEP, 4 / n_arms**2)
    by_segment = min(LEAST_BY_ARM * n_arms, ENOUGH_BY_SEGMENT)
    return Epochs(1 + step, max(LEAST_NEW, by_segment * n_segments))


def simulated_epochs(n_arms: int, n_segments: int) -> Epochs:
    """Return the simulator's schedule for the joint strategy and for one bandit for all segments.

    Up to 10 arms it is the service's. With more arms the service publishes up to five times more
    often. Such tables take long to compute, and tables that are 5% apart lose little
    (research/joint.md).

    >>> simulated_epochs(2, 2) == epochs_of(2, 2), simulated_epochs(20, 5)
    (True, Epochs(growth=1.05, least=300))
    """
    served = epochs_of(n_arms, n_segments)
    return served._replace(growth=max(served.growth, 1 + LARGEST_STEP))


def due_at(decisions: int, epochs: Epochs) -> int:
    """Return the number of decisions at which the table after one of `decisions` is due.

    >>> due_at(0, epochs_of(2, 2)), due_at(5_000, epochs_of(2, 2)), due_at(5_000, epochs_of(10, 20))
    (100, 5250, 6000)
    """
    return max(decisions + epochs.least, int(decisions * epochs.growth))


def last_due(decisions: int, stored: int, epochs: Epochs) -> int:
    """Return the last number up to `stored` at which a table was due, after one of `decisions`.

    A publisher that comes late, or finds a large batch, skips the numbers before. If none was due,
    the result is `decisions`.

    >>> last_due(0, 99, epochs_of(2, 2)), last_due(0, 350, epochs_of(2, 2))
    (0, 300)
    """
    due = decisions
    while (following := due_at(due, epochs)) <= stored:
        due = following
    return due
