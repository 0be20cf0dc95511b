"""`deniable status`: the firm's budget and every experiment's counts. For trusted eyes."""

from __future__ import annotations

import typer

from deniable.cli.printing import AsJson, print_json, print_table
from deniable.cli.stores import KeyFile, Store, opened

app = typer.Typer(add_completion=False)


@app.command()
def status(store: Store = "", key_file: KeyFile = "", as_json: AsJson = False) -> None:
    """Show the firm's budget, and shows and clicks by experiment, segment and arm."""
    with opened(store, key_file) as service:
        firm = service.firm.current()
        counted = [(e, service.experiments.counts(e.key)) for e in service.experiments.all()]
    if as_json:
        print_json(
            {"firm": firm, "experiments": [{"experiment": e, "counts": c} for e, c in counted]}
        )
        return
    print_table(
        "Firm",
        ("budget", "window (days)", "committed", "remaining", "set at"),
        [
            (firm.budget, firm.window_days, firm.committed, firm.remaining, firm.starts_at),
        ],
    )
    print_table(
        "Experiments",
        ("experiment", "status", "segment", "arm", "shows", "clicks", "rate"),
        [
            (
                experiment.key,
                experiment.status,
                cell.segment or "(other)",
                cell.arm,
                cell.shows,
                cell.clicks,
                cell.clicks / max(1, cell.shows),
            )
            for experiment, cells in counted
            for cell in cells
            if cell.shows or cell.segment is not None
        ],
    )
