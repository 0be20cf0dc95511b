"""`deniable apply FILE`: bring a store to what a file says, or show what that would take."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deniable.cli.printing import AsJson, print_json
from deniable.cli.stores import KeyFile, Store, opened
from deniable.errors import InvalidArgumentError, WrongStateError

if TYPE_CHECKING:
    from deniable.service.apply import Difference

app = typer.Typer(add_completion=False)

CHANGES = 1
"""The exit status of `--check` where there is something to do."""


@app.command()
def apply(
    file: Annotated[
        Path, typer.Argument(help="TOML file, as written by `deniable export --to FILE`.")
    ],
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Show the steps without taking them; exit with 1 if there are any."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Compare the store with FILE, show the steps, and take them.

    Changes that would break a promise are refused, and then no step is taken. Experiments that FILE
    does not name are left alone.
    """
    from deniable.service.apply import compare

    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError:
        raise InvalidArgumentError("file", str(file), "a TOML file in UTF-8") from None
    with opened(store, key_file) as service:
        found = compare(text, service)
        if not as_json:
            _show(found)
        if found.refused:
            raise WrongStateError(
                f"nothing was done: {len(found.refused)} of the wanted changes cannot be: "
                + "; ".join(found.refused)
            )
        told = {}
        if found.steps and not check:
            if not yes and not (sys.stdin.isatty() and typer.confirm("Do this?")):
                raise WrongStateError("nothing was done: confirm it, or give --yes")
            told = _taken(found, quiet=as_json)
    if as_json:
        print_json(
            {
                "steps": [step.words for step in found.steps],
                "left_alone": found.left_alone,
                "done": not check,
                "secrets": told,
            }
        )
    if check and found.steps:
        raise typer.Exit(CHANGES)


def _show(found: Difference) -> None:
    for step in found.steps:
        typer.echo(f"  + {step.words}")
    for reason in found.refused:
        typer.echo(f"  ! {reason}")
    if found.left_alone:
        typer.echo(f"  not in the file, left alone: {', '.join(found.left_alone)}")
    if not found.steps and not found.refused:
        typer.echo("nothing to do")


def _taken(found: Difference, *, quiet: bool) -> dict[str, str]:
    """Take the steps; returns what must be told once. A step that fails keeps those before it."""
    told = {}
    for number, step in enumerate(found.steps, 1):
        secret = step.act()
        if secret is not None:
            told[step.words] = secret
        if not quiet:
            shown = f" (shown once): {secret}" if secret is not None else ""
            typer.echo(f"{number}/{len(found.steps)} {step.words}{shown}")
    return told
