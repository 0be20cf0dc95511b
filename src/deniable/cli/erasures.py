"""What `erase` and `purge` print: what was forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from deniable.cli.stores import print_json

if TYPE_CHECKING:
    from deniable.storage.erasure import Erasure


def print_erasure(outcome: Erasure, as_json: bool) -> None:
    """Say how many decisions were stripped of their visitor."""
    if as_json:
        print_json(outcome)
        return
    typer.echo(f"{outcome.decisions:,} decisions forgotten; counters and ledger keep their totals")
