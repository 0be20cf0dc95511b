"""`deniable audit live`: canaries on a scratch copy of an experiment of a running service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from deniable.cli.sections import print_sections
from deniable.cli.stores import AsJson

if TYPE_CHECKING:
    from deniable.audit.live import LiveAudit
    from deniable.planning.report import Section

BROKEN = 1


def audit_live(
    url: Annotated[str, typer.Argument(help="URL of the service, such as https://host:8000.")],
    experiment: Annotated[str, typer.Argument(help="The experiment's key.")],
    api_key: Annotated[
        str, typer.Option(envvar="DENIABLE_API_KEY", help="API key with the scope `audit`.")
    ] = "",
    visitors: Annotated[int, typer.Option(help="Number of canaries per segment.")] = 100_000,
    segments: Annotated[int, typer.Option(help="Number of listed segments to test.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Send canaries over HTTP to a scratch copy of the experiment, and check the responses.

    The experiment itself is not touched: the copy uses no budget and is removed at the end. The exit
    status is 0 if the promise is kept, 1 if it is not, and 2 if the audit could not run.
    """
    from rich.console import Console
    from rich.progress import Progress

    from deniable.audit.live import audit_live as check
    from deniable.client.canaries import Canaries
    from deniable.errors import InvalidArgumentError

    if not api_key:
        raise InvalidArgumentError(
            "api_key", "", "a key with the scope `audit`, or DENIABLE_API_KEY"
        )
    with (
        Canaries(url, api_key, experiment) as canaries,
        Progress(console=Console(stderr=True), transient=True) as bar,
    ):
        task = bar.add_task("canaries", total=None)
        found = check(
            canaries.copy,
            canaries,
            visitors=visitors,
            most_segments=segments,
            progress=lambda done, of: bar.update(task, completed=done, total=of),
        )
    if as_json:
        typer.echo(json.dumps({"experiment": experiment, **found.to_dict()}, indent=2))
    else:
        print_sections(live_sections(experiment, found))
    if not found.sound:
        raise typer.Exit(BROKEN)


def live_sections(experiment: str, found: LiveAudit) -> list[Section]:
    """The audit, told to a person."""
    from deniable.planning.report import Section

    checks = tuple((check.name, check.outcome) for check in found.checks)
    return [
        Section(
            f"Live audit of {experiment}",
            f"{found.verdict} {found.power_in_words}",
            ("check", "outcome"),
            checks,
        ),
        *(Section(check.name.capitalize(), check.statement) for check in found.checks),
    ]
