"""The commands of `python -m research`: studies, the surface, the joint rule, known click rates."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from typer.exceptions import TyperException

from deniable.errors import DeniableError, InvalidArgumentError
from research.joint_tuning import SETS
from research.joint_tuning import report as joint_tuning_report
from research.known_rates import report as known_rates_report
from research.learners import SETS as WORLDS
from research.learners import report as learners_report
from research.reproduce import Finished
from research.reproduce import reproduce as run
from research.study import STUDIES, Study, chosen_studies, counted
from research.surface import app as surface

app = typer.Typer(add_completion=False, help="The studies behind the package.")
app.add_typer(surface, name="surface")


@app.command()
def reproduce(
    studies: Annotated[
        list[str] | None, typer.Argument(help="all, or names of studies (see --list).")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the results. An interrupted run is resumed.")
    ] = Path("build/research"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Use small numbers, to check that it works.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            envvar="DENIABLE_DATA", exists=True, file_okay=False, help="Folder of public data."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes (default: one per core).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same tables.")] = 0,
    listed: Annotated[bool, typer.Option("--list", help="List the studies and exit.")] = False,
) -> None:
    """Recompute the paper's figures, tables and claims into a folder, with a report."""
    if listed:
        for study in STUDIES:
            beyond = "" if study.in_paper else " (beyond the paper)"
            typer.echo(f"{study.name:<16}{study.title}{beyond}")
        return
    chosen = chosen_studies(studies or ["all"])
    with StudyProgress() as progress:
        done = run(
            chosen,
            out,
            quick=quick,
            seed=seed,
            data=data,
            workers=workers,
            started=progress.started,
            finished=progress.finished,
            progress=progress.repetitions,
        )
    typer.echo(_summary(done))
    typer.echo(f"report: {out / 'report.html'}")


@app.command()
def known_rates(
    file: Annotated[
        Path | None, typer.Argument(help="CSV: experiment, arm, shows, clicks (default: ASOS).")
    ] = None,
) -> None:
    """Measure what it is worth to know click rates when a firm's budget is divided."""
    typer.echo(known_rates_report(file))


@app.command()
def joint_tuning(
    settings: Annotated[str, typer.Argument(help=f"One of {', '.join(SETS)}.")],
    folder: Annotated[Path, typer.Argument(help="Where repetitions are kept.")],
    seconds: Annotated[float, typer.Option(help="Begin nothing new after so long.")] = 0.0,
) -> None:
    """Run the joint rule on the settings on which it was tuned or judged, and print a table."""
    if settings not in SETS:
        raise InvalidArgumentError("settings", settings, f"one of {', '.join(SETS)}")
    typer.echo(joint_tuning_report(settings, folder, seconds))


@app.command()
def learners(
    worlds: Annotated[str, typer.Argument(help=f"One of {', '.join(WORLDS)}.")],
    repetitions: Annotated[int, typer.Option(min=1, help="Runs in each world.")] = 20,
) -> None:
    """Compare learners: means, 5% quantiles, and how often a run stays below half."""
    if worlds not in WORLDS:
        raise InvalidArgumentError("worlds", worlds, f"one of {', '.join(WORLDS)}")
    typer.echo(learners_report(worlds, repetitions))


def _summary(done: Sequence[Finished]) -> str:
    claims = [claim for study in done for claim in study.record.claims]
    parts = {
        "claims of the paper": [claim for claim in claims if claim.of_paper],
        "claims of our own": [claim for claim in claims if not claim.of_paper],
    }
    lines = [f"{name}: {len(made)} ({counted(made)})" for name, made in parts.items() if made]
    return "; ".join([f"studies: {len(done)}", *lines])


class StudyProgress:
    """A bar on a terminal; elsewhere a line at each study's start, tenth and end."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._study = ""
        self._tenths = 0
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> StudyProgress:
        self._bar.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._bar.stop()

    def started(self, study: Study) -> None:
        """A study begins."""
        self._study, self._tenths = study.name, 0
        self._bar.reset(self._task, description=study.name, total=None)
        if not self._console.is_terminal:
            self._console.print(f"{study.name:<16} started")

    def repetitions(self, done: int, total: int) -> None:
        """Repetitions of the simulation that is running."""
        self._bar.update(self._task, completed=done, total=total)
        tenths = 10 * done // total if total else 0
        if tenths < self._tenths:  # the study's next simulation
            self._tenths = 0
        if not self._console.is_terminal and tenths > self._tenths:
            self._tenths = tenths
            self._console.print(f"{self._study:<16} {done:,} of {total:,} repetitions")

    def finished(self, done: Finished) -> None:
        """A study is over."""
        took = "found" if done.found else f"{done.seconds:.1f} s"
        self._console.print(f"{done.study.name:<16} {took:>8}  {_counts(done)}")


def _counts(done: Finished) -> str:
    claims = done.record.claims
    held = sum(claim.verdict == "holds" for claim in claims)
    return f"{held} of {len(claims)} claims hold" if claims else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0, or 2 for a mistake, told in one line."""
    command = typer.main.get_command(app)
    try:
        command.main(arguments, prog_name="python -m research", standalone_mode=False)
    except (TyperException, DeniableError, OSError) as error:
        describe = getattr(error, "format_message", error.__str__)
        sys.stderr.write(f"error: {' '.join(describe().split())}\n")
        return 2
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("interrupted; the same command goes on from here\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
