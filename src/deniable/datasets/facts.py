"""Published numbers that the paper's applications use, so that they run without any file."""

from __future__ import annotations

WEBSITE_RATES = (0.324, 0.295)
"""Click rates of the two website designs, from the paper's text."""

WEBSITE_RATES_AS_PLOTTED = (0.0324, 0.0295)
"""The same rates, as read from the paper's axes."""

RECOMMENDATION_COUNTS = (
    (48, 17657),
    (39, 17616),
    (22, 17299),
    (43, 16729),
    (20, 17428),
    (41, 16594),
    (80, 17555),
    (92, 17516),
)
"""Clicks and impressions of items 0 to 7 of the Open Bandit data, campaign "all"."""

RECOMMENDATION_RATES = tuple(clicks / shown for clicks, shown in RECOMMENDATION_COUNTS)
"""Click rates of those items."""
