"""The firm's experiments: four panels, and the paper's summary statistics of ASOS."""

from __future__ import annotations

import numpy as np
import polars as pl

from deniable.charts.studies_firm import summary_panels
from deniable.studies.contract import Claim, Figure, judged
from deniable.studies.portfolio_data import Firm


def summary_figure(firm: Firm) -> Figure:
    """Arms, visitors, click rates and uplifts."""
    arms = [each.n_arms for each in firm.experiments]
    visitors = [each.visitors for each in firm.experiments]
    rates = [100 * rate for each in firm.experiments for rate in each.rates]
    uplifts = [100 * (rate - each.rates[0]) for each in firm.experiments for rate in each.rates[1:]]
    data = pl.DataFrame(
        [
            {
                "experiment": each.name,
                "visitors": each.visitors,
                "days": each.days,
                "arm": index,
                "rate": rate,
                "uplift_points": 100 * (rate - each.rates[0]),
            }
            for each in firm.experiments
            for index, rate in enumerate(each.rates)
        ]
    )
    caption = "The experiments: arms, visitors, click rates and uplifts over the control."
    chart = summary_panels(arms, visitors, rates, uplifts)
    return Figure("firm_summary", caption + firm.mark, chart, data)


def summary_claims(firm: Firm) -> list[Claim]:
    """What the paper says about the experiments, recomputed."""
    visitors = np.array([each.visitors for each in firm.experiments])
    rates = np.array([100 * rate for each in firm.experiments for rate in each.rates])
    days = np.array([each.days for each in firm.experiments])
    arms = [each.n_arms for each in firm.experiments]
    low, high = np.quantile(rates, (0.25, 0.75))
    uplifts = np.array(
        [100 * (rate - each.rates[0]) for each in firm.experiments for rate in each.rates[1:]]
    )
    skew = float(((uplifts - uplifts.mean()) ** 3).mean() / uplifts.std() ** 3)
    counts = ", ".join(f"{arms.count(k)} with {k}" for k in sorted(set(arms)))
    return [
        Claim(
            "Most experiments have two arms, a few four or five",
            "78 experiments",
            f"{len(arms)}: {counts}",
            judged(len(arms) == 78 and arms.count(2) > 39),
            f"{sum(arms)} arms: one control and its variants each.",
        ),
        Claim(
            "Visitors: 21 million on average, from 69,000 to 149,197,471",
            "21 million",
            f"{visitors.mean():,.0f}, {visitors.min():,} to {visitors.max():,}",
            judged(round(visitors.mean() / 1e6) == 21 and visitors.max() == 149_197_471),
            "The control is counted once, every treatment once.",
        ),
        Claim(
            "Click rates: 19.55% on average, quartiles 5.69% and 24.83%, from 2.65% to 77.24%",
            "19.55%",
            f"{rates.mean():.2f}%, {low:.2f}% and {high:.2f}%, {rates.min():.2f}% to {rates.max():.2f}%",
            judged(round(rates.mean(), 2) == 19.55 and round(low, 2) == 5.69),
            "Over all arms of the binary metric, at the last snapshot.",
        ),
        Claim(
            "On average experiments ran for 43.5 days, 131 at most",
            "43.5 on average",
            f"mean {days.mean():.1f}, median {np.median(days):.1f}, most {days.max():g}",
            judged(False, partly=True),
            "43.5 is the median; the mean is larger.",
            settled=True,
        ),
        Claim(
            "Uplifts are centred near zero and skewed to the right",
            "right-skewed",
            f"median {np.median(uplifts):+.3f} points, skewness {skew:+.1f}",
            judged(abs(float(np.median(uplifts))) < 0.1 and skew > 0, partly=skew > 0),
            f"{uplifts.size} treatments, from {uplifts.min():+.2f} to {uplifts.max():+.2f} points.",
        ),
    ]
