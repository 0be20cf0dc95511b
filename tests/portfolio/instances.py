"""Random portfolios for tests: all regimes, pins, limits, groups, tight and loose budgets."""

from __future__ import annotations

from typing import Any

import numpy as np

REGIMES = ("flexible", "constant", "dynamic")


def random_instance(seed: int) -> tuple[list[dict[str, Any]], float, str]:
    """Rows, a firm budget that holds the commitments, and a regime."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for i in range(int(rng.integers(2, 5))):
        row: dict[str, Any] = {
            "id": f"e{i}",
            "arms": int(rng.choice([2, 2, 3, 5, 10, 20, 50])),
            "visitors": int(10 ** rng.uniform(1, 7)),
            "segments": int(rng.choice([1, 1, 1, 2, 5, 12])),
        }
        pin = rng.integers(0, 8)
        if pin == 0:
            row["strategy"] = str(rng.choice(["constant", "dynamic"]))
        elif pin == 1:
            row["min_budget"] = round(float(rng.uniform(0, 2)), 3)
        elif pin == 2:
            row["max_budget"] = round(float(rng.uniform(0, 3)), 3)
        elif pin == 3:
            row["committed"] = round(float(rng.uniform(0, 2)), 3)
        if rng.random() < 0.3:
            row["layer"] = str(rng.choice(["g", "h"]))
        rows.append(row)
    held = sum(row.get("committed", row.get("min_budget", 0.0)) for row in rows)
    loose = rng.choice([0.3, 1, 2.5, 5, 9, 16])
    return rows, round(held + float(loose * rng.uniform(0.5, 1.2)), 3), REGIMES[seed % 3]
