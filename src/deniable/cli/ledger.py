"""`deniable ledger`: verify the chains, show the commitments, or write everything as a log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deniable.cli.printing import AsJson, print_found, print_json
from deniable.cli.stores import KeyFile, Store, opened
from deniable.errors import NANO

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Verify, show or export the append-only ledger.",
)

BROKEN = 1
"""Exit status of a ledger that does not hold."""


@app.command()
def verify(
    head: Annotated[
        list[str] | None, typer.Option(help="CHAIN=LENGTH:HASH noted earlier. Can be repeated.")
    ] = None,
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Check every chain and total; if one is wrong, name the first bad row and exit with 1."""
    with opened(store, key_file) as service:
        result = service.ledger.verify(noted=noted_heads(head or []))
    if as_json:
        print_json({"sound": result.sound, **vars(result)})
    elif result.sound:
        typer.echo(
            f"sound: {result.commitments:,} commitments, {result.decisions:,} decisions "
            f"({result.erased:,} erased)"
        )
        for chain, end in result.heads.items():
            typer.echo(f"  {chain}={end}")
    else:
        typer.echo(f"BROKEN: {result.problem}", err=True)
    if not result.sound:
        raise typer.Exit(BROKEN)


@app.command()
def show(store: Store = "", key_file: KeyFile = "", as_json: AsJson = False) -> None:
    """List everything that changed the budget or an experiment's state."""
    with opened(store, key_file) as service:
        entries = service.ledger.entries()
    print_found(
        entries,
        "Ledger",
        ("no", "when", "what", "experiment", "nats", "detail"),
        lambda e: (e.seq, e.recorded_at, e.kind, e.experiment, e.amount_nano / NANO, e.detail),
        as_json=as_json,
    )


@app.command()
def export(
    path: Annotated[Path, typer.Argument(help="FILE.(parquet|csv|csv.gz|jsonl|jsonl.gz).")],
    experiment: Annotated[
        str | None, typer.Option(help="Open only this experiment's decisions; others stay closed.")
    ] = None,
    store: Store = "",
    key_file: KeyFile = "",
) -> None:
    """Write every chain as a log for `deniable audit log`. It contains segments: keep it safe."""
    with opened(store, key_file) as service:
        count = service.ledger.export_log(path, experiment=experiment)
    typer.echo(f"{count:,} rows: {path}", err=True)


def noted_heads(heads: list[str]) -> dict[str, str]:
    """Chain -> `length:hash`, from what `verify` printed."""
    from deniable.errors import InvalidArgumentError

    noted: dict[str, str] = {}
    for text in heads:
        chain, separator, end = text.partition("=")
        if not separator or not end.partition(":")[0].isdecimal():
            raise InvalidArgumentError("head", text, "CHAIN=LENGTH:HASH as `verify` prints it")
        noted[chain] = end
    return noted
