"""`deniable scores put KEY FILE`: what a model outside wants, for the next scheduled table."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from deniable._types import JsonObject
from deniable.cli.printing import AsJson, print_json
from deniable.cli.stores import KeyFile, Store, opened
from deniable.errors import InvalidArgumentError

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Send scores of an external model."
)

_COLUMNS = ("segment", "arm", "score")
_ALLOWED = "JSON, segment -> arm -> number, or a CSV file with the columns segment, arm and score"


@app.callback()
def scores() -> None:
    """Send scores of an external model."""


@app.command()
def put(
    key: Annotated[str, typer.Argument(help="Key of an experiment with the strategy gate.")],
    file: Annotated[Path, typer.Argument(help="JSON or CSV (columns segment, arm, score).")],
    kind: Annotated[str, typer.Option(help="scores or probabilities.")] = "scores",
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Send a model's scores for the next scheduled table, and show the cost of the promise."""
    given = _csv(file) if file.suffix.lower() == ".csv" else _json(file)
    with opened(store, key_file) as service:
        report = service.scores.put(key, given, kind=cast(Any, kind))
    if as_json:
        print_json({**asdict(report), "cost": report.cost})
        return
    told = "Recorded." if report.recorded else "The same scores are recorded already."
    typer.echo(f"{report.experiment}: {told} {report.words}")


def _json(file: Path) -> JsonObject:
    try:
        given: JsonObject = json.loads(file.read_text("utf-8"))
    except ValueError:  # also text that is not UTF-8
        raise InvalidArgumentError("file", file.name, _ALLOWED) from None
    return given


def _csv(file: Path) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.DictReader(lines)
            if not set(_COLUMNS) <= set(rows.fieldnames or ()):
                raise InvalidArgumentError("file", file.name, _ALLOWED)
            for number, row in enumerate(rows, start=2):
                segment, arm, score = (row[name] for name in _COLUMNS)
                if arm in found.setdefault(segment, {}):
                    allowed = f"each segment and arm once; line {number} repeats one"
                    raise InvalidArgumentError("file", file.name, allowed)
                try:
                    found[segment][arm] = float(score)
                except (TypeError, ValueError):
                    allowed = f"a number as the score in line {number}"
                    raise InvalidArgumentError("file", file.name, allowed) from None
    except (UnicodeDecodeError, csv.Error):
        raise InvalidArgumentError("file", file.name, _ALLOWED) from None
    return found
