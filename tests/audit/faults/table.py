"""`python -m tests.audit.faults.table`: the faults, and what catches each of them."""

from __future__ import annotations

from tests.audit.faults.plants import FAULTS


def table() -> str:
    """As Markdown; that every cell is true is what `test_faults.py` checks."""
    rows = []
    for fault in FAULTS:
        checks = f" ({', '.join(fault.checks)})" if fault.checks else ""
        caught_by = [
            name + checks if name == "audit experiment" else name for name in fault.caught_by
        ]
        rows.append(f"| {fault.name} | {', '.join(caught_by)} |")
    return "\n".join(["| planted fault | caught by |", "|---|---|", *rows])


if __name__ == "__main__":
    print(table())  # noqa: T201
