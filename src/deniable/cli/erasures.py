"""What `erase` and `purge` print: what was forgotten and what it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from deniable.cli.stores import print_json
from deniable.errors import NANO

if TYPE_CHECKING:
    from deniable.storage.erasure import Erasure


def print_erasure(outcome: Erasure, as_json: bool) -> None:
    """Say how many decisions were stripped and what was debited for possible second draws."""
    if as_json:
        print_json(outcome)
        return
    typer.echo(f"{outcome.decisions:,} decisions forgotten; counters and ledger keep their totals")
    for key, debit in outcome.debits_nano.items():
        typer.echo(f"{key}: {debit / NANO:g} nats debited, because they can be drawn for again")
    for key in outcome.exhausted:
        typer.echo(f"{key}: no budget left for second draws; new visitors now get a uniform arm")
