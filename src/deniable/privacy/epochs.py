"""When tables are due: an epoch is the time between two published tables.

An epoch ends when the decisions of all segments together have grown by a factor, and by 100. It depends
on nobody's segment and on no reward. The service publishes by this rule, and so does the simulator.
"""

from __future__ import annotations

GROWTH = 1.1
"""An experiment's decisions grow by this factor between two tables."""

TRACE_GROWTH = 2.0
"""With a trace budget, where every publication adds noise, few large steps are better."""

LEAST_NEW = 100
"""And by at least so many decisions."""


def due_at(decisions: int, growth: float = GROWTH) -> int:
    """The number of decisions at which the table after one of `decisions` is due.

    >>> due_at(0), due_at(5_000), due_at(5_000, TRACE_GROWTH)
    (100, 5500, 10000)
    """
    return max(decisions + LEAST_NEW, int(decisions * growth))
