"""`python -m benchmarks [NAME ...] [--against CHECKOUT]`: run the benchmarks, all or the named ones.

Every other module in this folder with a `main` is one; `main` returns False where a limit is missed.
With `--against`, this checkout is compared with another one (`benchmarks.against`).
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path


def main() -> int:
    """Run them in order of name; the exit status says whether every limit held."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", help="which; all if none is named")
    parser.add_argument("--against", metavar="CHECKOUT", help="compare with this checkout")
    given = parser.parse_args()
    if given.against is not None:
        return 0 if import_module("benchmarks.against").main(given.against) else 1
    found = sorted(p.stem for p in Path(__file__).parent.glob("[a-z]*.py") if p.stem != "timing")
    wanted = given.names or found
    unknown = set(wanted) - set(found)
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(found)}")
        return 2
    held = []
    for name in wanted:
        print(f"\n== {name}")
        held.append(import_module(f"benchmarks.{name}").main())
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
