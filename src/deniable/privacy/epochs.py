"""When tables are due: an epoch is the time between two published tables.

An epoch ends when the decisions of all segments together have grown by a factor, and by 100. It depends
on nobody's segment and on no reward. The service publishes by this rule, and so does the simulator.
"""

from __future__ import annotations

GROWTH = 1.05
"""An experiment's decisions grow by this factor between two tables. Measured in docs/trace.md: learning
that is lost against per-visitor updates stays under 3%, which 1.1 exceeds with many arms."""

TRACE_GROWTH = 2.0
"""With a trace budget, where every publication adds noise, few large steps are better."""

LEAST_NEW = 100
"""And by at least so many decisions."""


def due_at(decisions: int, *, trace: bool, growth: float | None = None) -> int:
    """The number of decisions at which the table after one of `decisions` is due.

    Args:
        decisions: stored when the last table was made.
        trace: whether there is a trace budget.
        growth: another factor than the service's, for simulation.

    >>> due_at(0, trace=False), due_at(5_000, trace=False), due_at(5_000, trace=True)
    (100, 5250, 10000)
    """
    factor = growth or (TRACE_GROWTH if trace else GROWTH)
    return max(decisions + LEAST_NEW, int(decisions * factor))
