"""Exposure logs with a known truth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from deniable.leak.counting import Counts

SEGMENTS = ("families", "premium", "students")
VARIANTS = ("blue", "green", "red")
TRUTH = np.array([[0.50, 0.30, 0.20], [0.10, 0.20, 0.70], [0.30, 0.40, 0.30]])
"""Chance of each variant (column) in each segment (row): the worst odds ratio is 5, for blue."""

SHARES = np.array([0.5, 0.2, 0.3])


def counted(table: Any, *, name: str = "checkout", rewards: Any = None) -> Counts:
    """Counts with the same table in both halves."""
    shown = np.asarray(table, dtype=np.float64)
    halves = np.stack([shown, shown])
    reward = None if rewards is None else np.stack([rewards, rewards]).astype(np.float64)
    segments = tuple(f"s{i}" for i in range(shown.shape[0]))
    variants = tuple(f"v{i}" for i in range(shown.shape[1]))
    return Counts(name, segments, variants, halves, reward, reward)


def drawn(rng: np.random.Generator, visitors: int, truth: Any = TRUTH) -> Counts:
    """An experiment whose variants are drawn from a known table."""
    sizes = rng.multinomial(visitors, SHARES)
    parts = (sizes - sizes // 2, sizes // 2)
    halves = [
        [rng.multinomial(n, row) for n, row in zip(part, truth, strict=True)] for part in parts
    ]
    return Counts("drawn", SEGMENTS, VARIANTS, np.array(halves, dtype=np.float64))


def visits(
    seed: int, visitors: int, *, experiments: int = 3, truth: Any = TRUTH, met: float = 0.7
) -> pl.DataFrame:
    """A log with visitor ids: each visitor meets some of the experiments, once or more often."""
    rng = np.random.default_rng(seed)
    segment = rng.choice(len(SHARES), size=visitors, p=SHARES)
    rows = []
    for experiment in range(experiments):
        who = np.flatnonzero(rng.random(visitors) < met)
        edges = np.asarray(truth).cumsum(axis=1)[segment[who]]
        shown = (rng.random((who.size, 1)) > edges).sum(axis=1).clip(0, edges.shape[1] - 1)
        clicked = rng.random(who.size) < 0.05 + 0.1 * (shown == segment[who])
        rows.append(
            pl.DataFrame(
                {
                    "visitor": [f"u{i}" for i in who],
                    "experiment": f"e{experiment}",
                    "segment": [SEGMENTS[s] for s in segment[who]],
                    "variant": [VARIANTS[v] for v in shown],
                    "time": rng.integers(1_760_000_000, 1_765_000_000, who.size),
                    "clicked": clicked.astype(np.int64),
                }
            )
        )
    return pl.concat(rows).sample(fraction=1.0, shuffle=True, seed=seed)


def written(frame: pl.DataFrame, path: Path) -> Path:
    """The log as a file of the format that its ending names."""
    write: dict[str, Callable[[Path], Any]] = {
        ".csv": frame.write_csv,
        ".parquet": frame.write_parquet,
        ".jsonl": frame.write_ndjson,
    }
    write[path.suffix](path)
    return path
