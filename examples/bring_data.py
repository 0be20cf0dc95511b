"""Read an exposure log of your own: what the shown variants tell a tracker about segments today."""

from pathlib import Path
from tempfile import TemporaryDirectory

import deniable

LOG = """segment,variant,count
students,save money,31200
students,feel safe,7400
families,save money,9800
families,feel safe,28900
"""


def main() -> None:
    """Measure a log of four lines; CSV, Parquet and JSON lines are read."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "exposures.csv")
        file.write_text(LOG, encoding="utf-8")
        found = deniable.measure_leak(file)
    worst = found.experiments[0].worst
    print(
        f"{worst.variant!r} multiplies the odds of {worst.segment!r} against {worst.other!r} "
        f"by {worst.ratio.value:.2f} ({worst.ratio.low:.2f} to {worst.ratio.high:.2f})"
    )


if __name__ == "__main__":
    main()
