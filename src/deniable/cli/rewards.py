"""`deniable rewards import FILE`: rewards from a warehouse, checked as a whole, then counted once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deniable.cli.printing import AsJson, print_json
from deniable.cli.progress import progress_bar
from deniable.cli.stores import KeyFile, Store, opened
from deniable.errors import InvalidArgumentError
from deniable.report.terminal import print_table

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Import rewards from files.")


@app.callback()
def rewards() -> None:
    """Import rewards from files."""


@app.command("import")
def import_file(
    file: Annotated[Path, typer.Argument(help="A CSV or Parquet file.")],
    experiment: Annotated[str | None, typer.Option(help="Experiment of all rows.")] = None,
    metric: Annotated[str | None, typer.Option(help="Metric of all rows.")] = None,
    currency: Annotated[
        str | None,
        typer.Option(help="Expected currency, such as EUR; rows with another one are bad."),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="WHAT=NAME, such as value=revenue_eur. Can be repeated."),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option(help="Apply the good rows of a file with bad rows.")
    ] = False,
    allow_unknown: Annotated[
        bool, typer.Option(help="Apply the file even if more than a tenth of its ids are unknown.")
    ] = False,
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Import the rewards in a file. Running it again changes nothing."""
    columns = dict(_column(text) for text in column or [])
    with opened(store, key_file) as service, progress_bar("rows") as progress:
        found = service.import_rewards(
            file,
            experiment=experiment,
            metric=metric,
            currency=currency,
            columns=columns,
            skip_bad=skip_bad,
            allow_unknown=allow_unknown,
            progress=progress,
        )
    if as_json:
        print_json(found)
        return
    reasons = [*found.skipped.items()]
    print_table(
        f"{file.name}: {found.rows:,} rows",
        ("outcome", "rows"),
        [
            ("applied", found.applied),
            ("duplicate", found.duplicate),
            ("unknown", found.unknown),
            ("late", found.late),
            *reasons,
        ],
    )


def _column(text: str) -> tuple[str, str]:
    what, separator, name = text.partition("=")
    if not separator or not name:
        raise InvalidArgumentError("column", text, "WHAT=NAME, such as value=revenue_eur")
    return what, name
