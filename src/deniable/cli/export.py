"""`deniable export`: decisions of one experiment to Parquet, CSV, JSON lines or Vowpal Wabbit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from deniable.cli.stores import DEFAULT_STORE, KeyFile, Store, opened
from deniable.errors import InvalidArgumentError

app = typer.Typer(add_completion=False)


@app.command()
def export(
    experiment: Annotated[str, typer.Argument(help="The experiment's key.")],
    path: Annotated[Path, typer.Argument(help="FILE.(parquet|csv|jsonl), or .vw for its shape.")],
    shape: Annotated[
        str, typer.Option(help="private, public, open-bandit or vowpal-wabbit.")
    ] = "private",
    store: Store = DEFAULT_STORE,
    key_file: KeyFile = "",
) -> None:
    """Write an experiment's decisions. Every shape but `public` holds segments: keep it safe."""
    from deniable.service.export import Shape

    if shape not in get_args(Shape):
        raise InvalidArgumentError("shape", shape, f"one of {', '.join(get_args(Shape))}")
    with opened(store, key_file) as service:
        count = service.ledger.export(path, experiment=experiment, shape=cast(Shape, shape))
    typer.echo(f"{count:,} decisions: {path}", err=True)
