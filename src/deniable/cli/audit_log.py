"""`deniable audit log`: follow every chain of an exported log and check all it promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deniable.cli.sections import print_sections
from deniable.cli.stores import AsJson

if TYPE_CHECKING:
    from deniable.audit.log import LogAudit
    from deniable.planning.report import Section

BROKEN = 1


def audit_log(
    file: Annotated[Path, typer.Argument(help="Log written by `deniable ledger export`.")],
    head: Annotated[
        list[str] | None, typer.Option(help="CHAIN=LENGTH:HASH noted earlier. Can be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a log without its store: chains, commitments, exact tables and every draw.

    The exit status is 0 if the log holds, 1 if it does not, and 2 if the file is not a log.
    """
    from deniable.audit.log import audit_log as check
    from deniable.cli.ledger import noted_heads

    found = check(file, noted=noted_heads(head or []))
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2))
    else:
        print_sections(log_sections(found))
    if not found.sound:
        raise typer.Exit(BROKEN)


def log_sections(found: LogAudit) -> list[Section]:
    """The audit, told to a person."""
    from deniable.planning.report import Section

    chains = tuple((name, *end.split(":")) for name, end in found.heads.items())
    experiments = tuple(
        (
            one.key + (" (scratch copy)" if one.scratch else ""),
            one.promise.stated_grade,
            f"{len(one.promise.tables):,}",
            f"{one.decisions:,}",
            "yes" if one.sound else "NO",
        )
        for one in found.experiments
    )
    words = tuple(
        Section(f"{one.key}: {check.name}", check.statement)
        for one in found.experiments
        for check in one.checks
        if not one.sound or len(found.experiments) <= 3
    )
    sections = [
        Section(
            "Audit of a log",
            f"{found.verdict} {found.rows:,} rows: {found.commitments:,} commitments, "
            f"{found.decisions:,} decisions, of which {found.closed:,} are closed.",
            ("experiment", "grade", "tables", "decisions", "kept"),
            experiments,
        )
    ]
    if found.problem is None:
        heads = "Note them somewhere else, and give them back with --head."
        sections.append(Section("Ends of the chains", heads, ("chain", "length", "hash"), chains))
    return [*sections, *words]
