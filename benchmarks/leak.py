"""`deniable leak` on ten million exposures: seconds and peak memory, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from benchmarks.timing import row

ROWS = 10_000_000
MOST_SECONDS = 30
MOST_MEGABYTES = 1_000

_CHILD = """
import sys
import time
from benchmarks.timing import peak_megabytes
from deniable.leak.report import measure_leak
measure_leak(sys.argv[1])
print(round(peak_megabytes()), time.process_time())
"""


def main() -> bool:
    """Print a row for each format; True where time and memory stay below their limits."""
    held = []
    with TemporaryDirectory() as folder:
        for path in _write(Path(folder)):
            start = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", _CHILD, str(path)],
                capture_output=True,
                text=True,
                check=True,
            )
            spent = time.perf_counter() - start
            peak, computed = map(float, done.stdout.split())
            name = f"leak, {ROWS:,} rows, {path.suffix[1:]}"
            held.append(row(name, spent, "s", MOST_SECONDS))
            print(f"      {computed:.1f} s of CPU time")
            held.append(row(f"{name}, peak memory", peak, "MB", MOST_MEGABYTES))
    return all(held)


def _write(folder: Path) -> list[Path]:
    """A log of 3 million visitors and 8 experiments, with ids, times and clicks."""
    rng = np.random.default_rng(1)
    visitor, experiment = rng.integers(0, 3_000_000, ROWS), rng.integers(0, 8, ROWS)
    segment, variant = visitor % 5, (visitor // 5 + experiment * (visitor % 5)) % 3
    frame = pl.DataFrame(
        {
            "user_id": visitor,
            "experiment_id": experiment,
            "variation_id": variant,
            "segment": segment,
            "timestamp": np.sort(rng.integers(1_760_000_000, 1_765_000_000, ROWS)),
            "converted": (rng.random(ROWS) < 0.05).astype(np.int8),
        }
    ).with_columns(
        pl.format("user-{}", "user_id").alias("user_id"),
        pl.format("experiment-{}", "experiment_id").alias("experiment_id"),
        pl.format("variant-{}", "variation_id").alias("variation_id"),
        pl.format("segment-{}", "segment").alias("segment"),
        pl.from_epoch("timestamp"),
    )
    paths = [folder / f"log.{ending}" for ending in ("csv", "parquet", "jsonl")]
    frame.write_csv(paths[0])
    frame.write_parquet(paths[1])
    frame.write_ndjson(paths[2])
    return paths
