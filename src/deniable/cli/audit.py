"""`deniable audit`: what was designed, stored, answered and spent. One table of what can be audited.

`deniable audit KEY` means `deniable audit experiment KEY`. New experiments may not be named like a
subcommand (`service.drafts.RESERVED_KEYS`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from deniable.cli.printing import AsJson, ChartFile, check_chart, write_chart
from deniable.cli.stores import KeyFile, Store, opened
from deniable.errors import NANO, BrokenPromiseError
from deniable.report.terminal import print_sections

if TYPE_CHECKING:
    from deniable.audit.firm_report import FirmAudit
    from deniable.audit.log import LogAudit
    from deniable.audit.report import Audit
    from deniable.report.content import Section

Record = Annotated[bool, typer.Option("--record", help="Record the verdict in the ledger.")]

Out = Annotated[Path | None, typer.Option(help="Write a report to FILE.html or FILE.pdf.")]

BROKEN = 1
"""The exit status where the promise is not kept: for scheduled audits."""


def audit_experiment(
    experiment: Annotated[str, typer.Argument(help="The experiment's key.")],
    store: Store = "",
    key_file: KeyFile = "",
    record: Record = False,
    as_json: AsJson = False,
    chart: ChartFile = None,
    out: Out = None,
) -> None:
    """Check an experiment's promise: every table in exact arithmetic, every decision against it.

    The exit status is 0 if the promise is kept and 1 if it is not.
    """
    check_chart(chart)
    if out is not None:
        from deniable.audit.page import experiment_page
        from deniable.report.save import check_report_path, save_report

        check_report_path(out)
    with opened(store, key_file) as service:
        try:
            found = service.audits.run(experiment, record=record)
        except BrokenPromiseError as error:  # there is nothing left that could be audited
            typer.echo(f"The promise is NOT kept: {error}.", err=True)
            raise typer.Exit(BROKEN) from None
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2))
    else:
        print_sections(audit_sections(found))
    write_chart(found.chart, chart)
    if out is not None:
        save_report(experiment_page(found), out)
        typer.echo(f"report: {out}", err=True)
    if not found.sound:
        raise typer.Exit(BROKEN)


def audit_sections(found: Audit) -> list[Section]:
    """The audit, told to a person."""
    from deniable.audit.exact import decimal
    from deniable.report.content import section

    promise = found.promise
    checks = tuple(
        (check.name, check.outcome, "" if check.p_value is None else f"{check.p_value:.3g}")
        for check in found.checks
    )
    final = found.proofs[-1]
    arms = tuple(
        (
            promise.arms[proof.arm],
            f"{proof.budget_nano / NANO:g}",
            "-" if proof.promised_ratio is None else decimal(proof.promised_ratio),
            decimal(proof.bound),
            "yes" if proof.holds else "NO",
        )
        for proof in final.arms
    )
    words = tuple(section(check.name.capitalize(), check.statement) for check in found.checks)
    return [
        section(
            f"Audit of {promise.name}, {found.made_at:%Y-%m-%d %H:%M} UTC",
            f"{found.verdict} {promise.strategy.capitalize()} strategy, {promise.grade}, budget "
            f"{promise.budget_nano / NANO:g} nats, {len(promise.segments)} segments. {found.power}",
            ("check", "outcome", "p-value"),
            checks,
        ),
        section(
            f"Exact worst case of each shown arm, {final.n_tables:,} tables published",
            "By how much seeing the arm can multiply a tracker's odds, cut after 20 digits.",
            ("arm", "budget", "worst ratio", "e^budget, from below", "kept"),
            arms,
        ),
        *words,
    ]


MOST_ROWS = 40
"""Experiments that are printed one by one; more are in the JSON and in the report."""


def audit_firm(
    store: Store = "",
    key_file: KeyFile = "",
    record: Record = False,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Check the whole firm: every window, layer, debit and table, recomputed from the chain.

    The exit status is 0 if the promise is kept and 1 if it is not.
    """
    if out is not None:
        from deniable.audit.page import firm_page
        from deniable.report.save import check_report_path, save_report

        check_report_path(out)
    with opened(store, key_file) as service:
        try:
            found = service.audits.firm(record=record)
        except BrokenPromiseError as error:
            typer.echo(f"The firm's promise is NOT kept: {error}.", err=True)
            raise typer.Exit(BROKEN) from None
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2))
    else:
        print_sections(firm_sections(found))
    if out is not None:
        save_report(firm_page(found), out)
        typer.echo(f"report: {out}", err=True)
    if not found.sound:
        raise typer.Exit(BROKEN)


def firm_sections(found: FirmAudit) -> list[Section]:
    """The audit, told to a person."""
    from deniable.report.content import section
    from deniable.storage.times import as_datetime

    peaks = tuple(
        (
            f"{as_datetime(peak.setting.since):%Y-%m-%d}",
            f"{peak.setting.window_days}",
            f"{peak.setting.budget_nano / NANO:g}",
            f"{peak.nano / NANO:g}",
            f"{as_datetime(peak.at):%Y-%m-%d %H:%M}",
            "yes" if peak.kept else "NO",
            peak.setting.reason,
        )
        for peak in found.account.peaks
    )
    worst_first = sorted(found.experiments, key=lambda line: (not line.problems, line.key))
    lines = tuple(
        (
            line.key,
            line.status,
            f"{line.budget_nano / NANO:g}",
            "-" if line.layer is None else f"{line.layer} ({line.slots})",
            f"{line.decisions:,}",
            f"{line.tables:,}",
            f"{line.tombstones:,}",
            "-" if line.counts_until is None else f"{line.counts_until:%Y-%m-%d}",
            _audited(line.audited),
            "NO" if line.problems else "yes",
        )
        for line in worst_first[:MOST_ROWS]
    )
    more = len(found.experiments) - len(lines)
    return [
        section(
            f"Audit of the firm, {found.made_at:%Y-%m-%d %H:%M} UTC",
            f"{found.verdict} {found.commitments:,} commitments followed from the first to the last.",
            ("check", "outcome"),
            tuple((check.name, check.outcome) for check in found.checks),
        ),
        section(
            "Windows",
            "The most that counted at once in any window, against what was promised then.",
            ("since", "days", "budget", "most", "reached", "kept", "reason"),
            peaks,
        ),
        section(
            "Experiments",
            f"{more:,} more are in the JSON and in the report." if more else "",
            (
                *("experiment", "status", "budget", "layer (slots)", "decisions", "tables"),
                *("tombstones", "uses budget until", "audited", "kept"),
            ),
            lines,
        ),
        *(section(check.name.capitalize(), check.statement) for check in found.checks),
    ]


def _audited(newest: tuple[datetime, bool] | None) -> str:
    if newest is None:
        return "never"
    return f"{newest[0]:%Y-%m-%d} {'kept' if newest[1] else 'NOT kept'}"


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
    from deniable.report.content import section

    chains = tuple((name, *end.split(":")) for name, end in found.heads.items())
    experiments = tuple(
        (
            one.key,
            one.promise.grade,
            f"{len(one.promise.tables):,}",
            f"{one.decisions:,}",
            "yes" if one.sound else "NO",
        )
        for one in found.experiments
    )
    words = tuple(
        section(f"{one.key}: {check.name}", check.statement)
        for one in found.experiments
        for check in one.checks
        if not one.sound or len(found.experiments) <= 3
    )
    sections = [
        section(
            "Audit of a log",
            f"{found.verdict} {found.rows:,} rows: {found.commitments:,} commitments, "
            f"{found.decisions:,} decisions, of which {found.closed:,} are closed.",
            ("experiment", "grade", "tables", "decisions", "kept"),
            experiments,
        )
    ]
    if found.problem is None:
        heads = "Note them somewhere else, and give them back with --head."
        sections.append(section("Ends of the chains", heads, ("chain", "length", "hash"), chains))
    return [*sections, *words]


SUBCOMMANDS: dict[str, Callable[..., None]] = {
    "experiment": audit_experiment,
    "firm": audit_firm,
    "log": audit_log,
}
"""What can be audited -> its command."""

_HELP = ("-h", "--help")


class AuditGroup(TyperGroup):
    """A group whose first argument may also be an experiment's key, or an option of its audit."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take what is no subcommand for the arguments of `experiment`."""
        if args and args[0] not in (*self.commands, *_HELP):
            args = ["experiment", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=AuditGroup,
    add_completion=False,
    help="Check whether the promise is kept. "
    "`deniable audit KEY` is short for `deniable audit experiment KEY`.",
)
for name, command in SUBCOMMANDS.items():
    app.command(name)(command)
