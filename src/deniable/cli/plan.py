"""`deniable plan`."""

import typer

app = typer.Typer()
