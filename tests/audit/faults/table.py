"""`python -m tests.audit.faults.table`: the faults, and what catches each of them."""

from __future__ import annotations

from tests.audit.faults.plants import FAULTS


def table() -> str:
    """As Markdown; that every cell is true is what `test_faults.py` checks."""
    rows = [f"| {fault.name} | {', '.join(fault.caught_by)} |" for fault in FAULTS]
    return "\n".join(["| planted fault | caught by |", "|---|---|", *rows])


if __name__ == "__main__":
    print(table())  # noqa: T201
