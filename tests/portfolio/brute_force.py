"""The firm's problem solved on a grid: every division of the budget in steps, nothing clever.

It shares the bounds with the package and nothing of its solver. A unit's loss at a cost is the least
bound over a fine grid of budgets that cost no more; units are combined one after another over all
splits. Every value is reached by some allocation, so the optimum can only be lower.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deniable.theory.regret import Form, constant_regret, dynamic_regret

FINER = 6


def grid_optimum(
    rows: list[dict[str, Any]], firm_budget: float, regime: str, steps: int, form: Form = "paper"
) -> float:
    """The least total regret over a grid of costs; infinite where nothing fits."""
    cost = np.linspace(0, firm_budget, steps + 1)
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row.get("layer") or f"alone {row['id']}", []).append(row)
    total = np.zeros(steps + 1)
    for members in groups.values():
        loss = sum(_least_loss(row, cost, regime, form) for row in members)
        assert isinstance(loss, np.ndarray)
        total = _combine(total, loss)
    return float(total[-1])


def loss_at(
    row: dict[str, Any], budget: np.ndarray, regime: str, form: Form = "paper"
) -> np.ndarray:
    """The best bound among the strategies allowed."""
    everything = ["constant", "dynamic"] + (["joint"] if form == "summed" else [])
    allowed = [row["strategy"]] if row.get("strategy") else everything
    if not row.get("strategy") and regime != "flexible":
        allowed = [regime]
    formulas = {"constant": constant_regret, "dynamic": dynamic_regret}
    sizes = (row["arms"], row["visitors"])
    losses = [
        joint_loss(row, budget)
        if s == "joint"
        else np.asarray(formulas[s](*sizes, budget, row.get("segments", 1), form=form))
        for s in allowed
    ]
    return np.asarray(np.minimum.reduce(losses))


def joint_loss(row: dict[str, Any], budget: np.ndarray) -> np.ndarray:
    """The joint bound, written out; nothing more is given where privacy adds 5% to learning."""
    k, t, j = row["arms"], row["visitors"], row.get("segments", 1)
    learning = 4 * math.sqrt(3 * k * j * t * math.log(t))
    learning += 2 * math.sqrt(1.5 * (j - 1) * t) + 3.5 * k * j
    others = min(j, k) - 1
    power = others * (t / (0.05 * learning) - 1)
    most = max(math.log(max(power, 1.0)), row.get("committed", row.get("min_budget", 0.0)))
    used = np.minimum(budget, most)
    return np.asarray(t * others / (others + np.exp(used)) + learning)


def _least_loss(row: dict[str, Any], cost: np.ndarray, regime: str, form: Form) -> np.ndarray:
    low = row.get("committed", row.get("min_budget", 0.0))
    high = row.get("committed", row.get("max_budget", np.inf))
    fine = np.linspace(0, cost[-1], (cost.size - 1) * FINER + 1)
    fine = np.unique(
        np.concatenate([fine[(fine >= low) & (fine <= high)], [low], [min(high, 1e6)]])
    )
    fine = fine[fine <= cost[-1] + 1e-12]
    least = np.minimum.accumulate(loss_at(row, fine, regime, form)) if fine.size else np.empty(0)
    # The last fine budget that a cost pays for.
    index = np.searchsorted(fine, cost + 1e-12, side="right") - 1
    return np.where(index >= 0, least[np.maximum(index, 0)] if fine.size else np.inf, np.inf)


def _combine(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The least sum over all splits of each cost."""
    size = first.size
    padded = np.concatenate([np.full(size - 1, np.inf), first])
    # Row `cost` has first[cost], first[cost - 1], ..., and infinity where the split is impossible.
    rest = np.lib.stride_tricks.sliding_window_view(padded, size)[:, ::-1]
    return np.asarray((rest + second).min(axis=1))
