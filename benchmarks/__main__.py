"""`python -m benchmarks [NAME ...]`: run the benchmarks, all or the named ones.

Every other module in this folder with a `main` is one; `main` returns False where a limit is missed.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path


def main() -> int:
    """Run them in order of name; the exit status says whether every limit held."""
    found = sorted(p.stem for p in Path(__file__).parent.glob("[a-z]*.py") if p.stem != "timing")
    wanted = sys.argv[1:] or found
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
