"""`make mutants`: the table of planted faults by layer; any that is not caught makes it fail."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from tests.mutants.fault import chosen
from tests.mutants.faults import FAULTS
from tests.mutants.runner import CAUGHT, LIMIT, Outcome, Results, run

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "mutants"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen faults: 0 where all were caught, 1 where not, 3 where the time was over before."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", default="", help="layers, or parts of files or words, by comma")
    parser.add_argument("--jobs", type=int, default=1, help="faults tried at once")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for each fault's tests")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin none after that")
    parser.add_argument("--again", action="store_true", help="also those that were caught before")
    parser.add_argument("--list", action="store_true", help="tell the faults and run nothing")
    options = parser.parse_args(arguments)
    console = Console()
    faults = chosen(FAULTS, options.only.split(","))
    if not faults:
        console.print(f"no fault has {options.only!r} as its layer, or in its file or words")
        return 2
    if options.list:
        for layer, fault in faults:
            note = f" (equivalent: {fault.equivalent})" if fault.equivalent else ""
            console.print(f"{layer}: {fault.file}: {fault.why}{note}", markup=False)
        return 0
    kept = KEPT / "results.jsonl"
    if options.again:
        kept.unlink(missing_ok=True)
    until = time.monotonic() + 60 * options.minutes
    columns = (TextColumn("{task.description:24.24}"), BarColumn(), MofNCompleteColumn())
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as scratch,
        Progress(*columns, TimeElapsedColumn(), console=console) as bar,
    ):
        task = bar.add_task("planting", total=sum(not fault.equivalent for _, fault in faults))

        def told(outcome: Outcome) -> None:
            bar.update(task, advance=1, description=outcome.file)
            if outcome.state != CAUGHT:
                bar.console.print(_line(outcome), markup=False, highlight=False, soft_wrap=True)

        outcomes, left = run(
            ROOT,
            faults,
            Results(kept),
            Path(scratch),
            jobs=options.jobs,
            limit=options.limit,
            until=until,
            environment={"DENIABLE_CACHE": str(KEPT / "cache")},
            told=told,
        )
    console.print(_by_layer(outcomes))
    for layer, fault in faults:
        if fault.equivalent:
            console.print(f"equivalent  {layer}: {fault.why}: {fault.equivalent}", markup=False)
    if left:
        console.print(f"{left} left: the time was over. The next run goes on with them.")
    if any(outcome.state != CAUGHT for outcome in outcomes):
        return 1
    return 3 if left else 0


def _line(outcome: Outcome) -> str:
    return f"{outcome.state}  {outcome.layer}: {outcome.file}: {outcome.why} ({outcome.told})"


def _by_layer(outcomes: Sequence[Outcome]) -> Table:
    table = Table("layer", "faults", "caught", "seconds", "longest")
    layers = dict.fromkeys([*FAULTS, *(outcome.layer for outcome in outcomes)])
    groups = [(layer, [one for one in outcomes if one.layer == layer]) for layer in layers]
    for name, group in [*groups, ("all", list(outcomes))]:
        if group:
            caught = sum(outcome.state == CAUGHT for outcome in group)
            seconds = [outcome.seconds for outcome in group]
            figures = (f"{sum(seconds):.0f}", f"{max(seconds):.1f}")
            table.add_row(name, str(len(group)), str(caught), *figures)
    return table


if __name__ == "__main__":
    sys.exit(main())
