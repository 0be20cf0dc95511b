"""When an experiment can be decided: visitors and days for a usual difference, and the least one seen.

Two arms are compared as the verdict does it: at every look, with the error probability divided over all
pairs of arms in all segments and overall. All arms are taken to be shown equally often; a strategy shows
the arms in contention more often than that, so most decisions come earlier.
"""

from __future__ import annotations

from dataclasses import dataclass

from deniable.expectations.prior import Prior
from deniable.inference.power import (
    Forecast,
    detectable_difference,
    forecast,
    visitors_until_decided,
)
from deniable.planning.experiment import PlannedExperiment

ALPHA = 0.05


@dataclass(frozen=True)
class Decision:
    """When two arms are told apart, for everybody or within one segment.

    Attributes:
        forecast: visitors of the whole experiment, and days, until the usual difference is decided.
        detectable: the smallest difference of click rates that the planned visitors decide; None if it
            is larger than any that is possible.
    """

    forecast: Forecast
    detectable: float | None


@dataclass(frozen=True)
class Power:
    """When an experiment can be decided.

    Attributes:
        difference: the usual difference of two click rates: base rate times lift.
        everybody: over all segments.
        segment: within the smallest segment; None if there is only one.
    """

    difference: float
    everybody: Decision
    segment: Decision | None


def power(planned: PlannedExperiment, rate_prior: Prior, per_day: float | None = None) -> Power:
    """Return when the usual difference of two arms is decided, and what the planned visitors can show.

    >>> found = power(PlannedExperiment(2, 100_000, 2), Prior(0.05, 0.2), per_day=5_000)
    >>> found.everybody.forecast, round(found.everybody.detectable, 4)
    (Forecast(visitors=24925, days=5), 0.0047)
    >>> found.segment.forecast.visitors, round(found.segment.detectable, 4)
    (45710, 0.0067)
    """
    rate, n_segments = rate_prior.base_rate, planned.n_segments
    n_pairs = planned.n_arms * (planned.n_arms - 1) // 2
    alpha = ALPHA / (n_pairs * (n_segments + (n_segments > 1)))
    smallest = min(share for share in planned.shares or (1 / n_segments,) if share)
    difference = rate * rate_prior.lift

    def decision(share: float) -> Decision:
        each = 1 / (2 * planned.n_arms)  # p_a p_b / (p_a + p_b) for two arms with 1/K
        members = planned.horizon * share
        needed = float(
            visitors_until_decided(
                difference,
                weight_each=each,
                variance=rate * (1 - rate),
                planned_weight=members * each,
                alpha=alpha,
            )
        )
        least = float(
            detectable_difference(
                members, weight_each=each, variance=rate * (1 - rate), alpha=alpha
            )
        )
        return Decision(
            forecast(needed, share=share, expected=planned.horizon, per_day=per_day),
            least if least < 1 - rate else None,
        )

    return Power(difference, decision(1.0), decision(smallest) if n_segments > 1 else None)
