"""When tables are due: an epoch is the time between two published tables.

An epoch ends when the decisions of all segments together have grown by a factor, and by a least number.
Both depend on the numbers of arms and segments, on nobody's segment and on no reward. The service
publishes by this rule, and so does the simulator. Measured in docs/trace.md: learning that is lost
against per-visitor updates stays under 3%.
"""

from __future__ import annotations

from typing import NamedTuple

LARGEST_STEP, SMALLEST_STEP = 0.05, 0.01
"""By which part decisions grow from table to table, at most and at least. With many arms one that was
lucky is shown for a whole epoch, and epochs have to be shorter."""

FEW_ARMS = 10
"""Arms up to which the largest step does."""

TRACE_GROWTH = 2.0
"""With a trace budget, where every publication adds noise, few large steps are better."""

LEAST_NEW = 100
"""Decisions of every epoch, at least."""

LEAST_BY_ARM, ENOUGH_BY_SEGMENT = 5, 60
"""The same for each segment: so many by arm, or altogether. Fewer tell too little for a new table."""


class Epochs(NamedTuple):
    """How far it is from table to table.

    Attributes:
        growth: the factor by which decisions grow.
        least: new decisions, at least.
    """

    growth: float
    least: int


def epochs_of(n_arms: int, n_segments: int, *, trace: bool = False) -> Epochs:
    """How the service publishes for an experiment.

    Decisions grow by 5% up to 10 arms, by 4/K^2 above, which is 1% from 20 on, and by J min(5 K, 60),
    which is at least 100. With a trace budget they double, and grow by 100.

    Args:
        n_arms: K.
        n_segments: J.
        trace: whether there is a trace budget.

    >>> epochs_of(2, 2), epochs_of(10, 20)
    (Epochs(growth=1.05, least=100), Epochs(growth=1.05, least=1000))
    >>> epochs_of(20, 5), epochs_of(20, 5, trace=True)
    (Epochs(growth=1.01, least=300), Epochs(growth=2.0, least=100))
    """
    if trace:
        return Epochs(TRACE_GROWTH, LEAST_NEW)
    step = LARGEST_STEP if n_arms <= FEW_ARMS else max(SMALLEST_STEP, 4 / n_arms**2)
    by_segment = min(LEAST_BY_ARM * n_arms, ENOUGH_BY_SEGMENT)
    return Epochs(1 + step, max(LEAST_NEW, by_segment * n_segments))


def simulated_epochs(n_arms: int, n_segments: int, *, trace: bool = False) -> Epochs:
    """How the simulator publishes the joint strategy and one bandit for everybody.

    As the service does up to 10 arms. With more arms the service publishes more often, up to five times;
    their tables take long to make, and tables that are 5% apart lose little (docs/joint.md).

    >>> simulated_epochs(2, 2) == epochs_of(2, 2), simulated_epochs(20, 5)
    (True, Epochs(growth=1.05, least=300))
    """
    served = epochs_of(n_arms, n_segments, trace=trace)
    return served._replace(growth=max(served.growth, 1 + LARGEST_STEP))


def due_at(decisions: int, epochs: Epochs) -> int:
    """The number of decisions at which the table after one of `decisions` is due.

    >>> due_at(0, epochs_of(2, 2)), due_at(5_000, epochs_of(2, 2)), due_at(5_000, epochs_of(10, 20))
    (100, 5250, 6000)
    """
    return max(decisions + epochs.least, int(decisions * epochs.growth))
