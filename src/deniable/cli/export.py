"""`deniable export`: an experiment's decisions to a file, or the whole set-up with `--to`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from deniable.cli.stores import KeyFile, Store, opened
from deniable.errors import InvalidArgumentError

app = typer.Typer(add_completion=False)


@app.command()
def export(
    experiment: Annotated[str | None, typer.Argument(help="The experiment's key.")] = None,
    path: Annotated[
        Path | None,
        typer.Argument(help="FILE.(parquet|csv|jsonl)."),
    ] = None,
    shape: Annotated[str, typer.Option(help="private, public or open-bandit.")] = "private",
    to: Annotated[
        Path | None,
        typer.Option(help="Write budget, experiments and keys to FILE.toml, for `deniable apply`."),
    ] = None,
    store: Store = "",
    key_file: KeyFile = "",
) -> None:
    """Write an experiment's decisions. All shapes except `public` contain segments: keep them safe."""
    from deniable.service.export import Shape
    from deniable.service.firm_file import written

    if to is not None:
        if experiment is not None:
            raise InvalidArgumentError("to", str(to), "no experiment beside it")
        with opened(store, key_file) as service:
            to.write_text(written(service), "utf-8")
        typer.echo(f"set-up written: {to}", err=True)
        return
    if experiment is None or path is None:
        raise InvalidArgumentError(
            "experiment", experiment, "an experiment and a file, or --to FILE"
        )

    if shape not in get_args(Shape):
        raise InvalidArgumentError("shape", shape, f"one of {', '.join(get_args(Shape))}")
    with opened(store, key_file) as service:
        count = service.ledger.export(path, experiment=experiment, shape=cast(Shape, shape))
    typer.echo(f"{count:,} decisions: {path}", err=True)
