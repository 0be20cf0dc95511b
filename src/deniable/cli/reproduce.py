"""`deniable reproduce`: every figure, table and claim of the paper, with one command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable._numbers import whole
from deniable.errors import InvalidArgumentError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from deniable.studies.reproduce import Finished

app = typer.Typer(add_completion=False)


@app.command()
def reproduce(
    studies: Annotated[
        list[str] | None, typer.Argument(help="all, or names of studies; --list tells them.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for results; taken up again.")] = Path(
        "results"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Small numbers: see that it works.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of public data; else $DENIABLE_DATA, else none."),
    ] = None,
    workers: Annotated[
        str | None, typer.Option(help="Number of worker processes (default: one per CPU core).")
    ] = None,
    dask: Annotated[str | None, typer.Option(help="Address of a Dask scheduler to run on.")] = None,
    seed: Annotated[str, typer.Option(help="Same seed, same tables.")] = "0",
    listed: Annotated[bool, typer.Option("--list", help="List the studies and stop.")] = False,
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

    from deniable.cli.study_progress import StudyProgress
    from deniable.studies.reproduce import reproduce as run

    with _cluster(dask) as executor, StudyProgress() as progress:
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
    from deniable.datasets.experiment import data_folder

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


@contextmanager
def _cluster(address: str | None) -> Iterator[Executor | None]:
    """Workers of a Dask scheduler as an executor; none without an address."""
    if address is None:
        yield None
        return
    try:
        import distributed
    except ImportError:
        raise InvalidArgumentError(
            "dask", address, "an installed Dask: pip install 'deniable[cluster]'"
        ) from None
    connect: Any = distributed.Client
    with connect(address, timeout=10) as client:
        yield client.get_executor()
