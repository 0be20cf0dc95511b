"""The paper's illustration of the firm's problem."""

from __future__ import annotations

from deniable.portfolio.problem import Portfolio

TWO_EXPERIMENTS = Portfolio.of(
    [{"id": "A", "arms": 2, "visitors": 1000}, {"id": "B", "arms": 2, "visitors": 10_000}],
    form="paper",
)
"""Experiment A with 1,000 visitors and B with 10,000, two arms each."""
