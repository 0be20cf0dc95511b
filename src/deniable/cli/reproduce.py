"""`deniable reproduce`: every figure, table and claim of the paper, with one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from deniable._numbers import whole
from deniable.errors import InvalidArgumentError

if TYPE_CHECKING:
    from deniable.studies.registry import Study
    from deniable.studies.reproduce import Finished

app = typer.Typer(add_completion=False)

_LINES = 10  # of progress for a simulation, where there is no terminal


@app.command()
def reproduce(
    studies: Annotated[
        list[str] | None, typer.Argument(help="all, or names of studies (see --list).")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the results. An interrupted run is resumed.")
    ] = Path("results"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Use small numbers, to check that it works.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of public data (default: $DENIABLE_DATA)."),
    ] = None,
    workers: Annotated[
        str | None, typer.Option(help="Number of worker processes (default: one per CPU core).")
    ] = None,
    dask: Annotated[str | None, typer.Option(help="Address of a Dask scheduler to run on.")] = None,
    seed: Annotated[str, typer.Option(help="The same seed gives the same tables.")] = "0",
    listed: Annotated[bool, typer.Option("--list", help="List the studies and exit.")] = False,
) -> None:
    """Recompute the paper's figures, tables and claims into a folder, with a report."""
    from deniable.studies.registry import STUDIES, chosen_studies

    if listed:
        for study in STUDIES:
            typer.echo(
                f"{study.name:<16}{study.title}{'' if study.in_paper else ' (beyond the paper)'}"
            )
        return
    chosen = chosen_studies(studies or ["all"])
    count = None if workers is None else whole("workers", workers)
    if count is not None and count < 1:
        raise InvalidArgumentError("workers", workers, "a whole number, 1 or more")
    entropy = whole("seed", seed)
    if entropy < 0:
        raise InvalidArgumentError("seed", seed, "a whole number, 0 or more")
    folder = _data(data)

    from deniable.simulation.run import dask_executor
    from deniable.studies.reproduce import reproduce as run

    with dask_executor(dask) as executor, StudyProgress() as progress:
        done = run(
            chosen,
            out,
            quick=quick,
            seed=entropy,
            data=folder,
            workers=count,
            executor=executor,
            started=progress.started,
            finished=progress.finished,
            progress=progress.repetitions,
        )
    typer.echo(_summary(done))
    typer.echo(f"report: {out / 'report.html'}")


def _data(given: Path | None) -> Path | None:
    """The folder of public data: as told, else as DENIABLE_DATA says, else none."""
    from deniable.datasets import data_folder

    named = given or data_folder()
    if named is not None and not named.is_dir():
        raise InvalidArgumentError("data", str(named), "a folder that exists")
    return named


def _summary(done: list[Finished]) -> str:
    from deniable.studies.contract import counted

    claims = [claim for study in done for claim in study.record.claims]
    parts = {
        "claims of the paper": [claim for claim in claims if claim.of_paper],
        "claims of our own": [claim for claim in claims if not claim.of_paper],
    }
    told = [f"{name}: {len(made)} ({counted(made)})" for name, made in parts.items() if made]
    return "; ".join([f"studies: {len(done)}", *told])


class StudyProgress:
    """Told when a study starts, how its simulation gets on, and when it ends.

    Where there is no terminal, a line for each study's start, each tenth of its simulation, and its end.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._study = ""
        self._told = 0
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
        self._study, self._told = study.name, 0
        self._bar.reset(self._task, description=study.name, total=None)
        if not self._console.is_terminal:
            self._console.print(f"{study.name:<16} started")

    def repetitions(self, done: int, total: int) -> None:
        """Repetitions of the simulation that is running."""
        self._bar.update(self._task, completed=done, total=total)
        part = _LINES * done // total if total else 0
        if part < self._told:  # the study's next simulation
            self._told = 0
        if not self._console.is_terminal and part > self._told:
            self._told = part
            self._console.print(f"{self._study:<16} {done:,} of {total:,} repetitions")

    def finished(self, done: Finished) -> None:
        """A study is over."""
        told = "found" if done.found else f"{done.seconds:.1f} s"
        self._console.print(f"{done.study.name:<16} {told:>8}  {_counts(done)}")


def _counts(done: Finished) -> str:
    claims = done.record.claims
    held = sum(claim.verdict == "holds" for claim in claims)
    return f"{held} of {len(claims)} claims hold" if claims else ""
