"""`deniable audit firm`: windows, layers, debits and every experiment's promise, from the chain."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from deniable.cli.audit_experiment import BROKEN, Out, Record
from deniable.cli.sections import print_sections
from deniable.cli.stores import AsJson, KeyFile, Store, opened
from deniable.errors import NANO, BrokenPromiseError

if TYPE_CHECKING:
    from deniable.audit.firm_report import FirmAudit
    from deniable.planning.report import Section

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
        from deniable.audit.paper import check_report_path, save_report

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
    from deniable.planning.report import Section
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
        Section(
            f"Audit of the firm, {found.made_at:%Y-%m-%d %H:%M} UTC",
            f"{found.verdict} {found.commitments:,} commitments followed from the first to the last.",
            ("check", "outcome"),
            tuple((check.name, check.outcome) for check in found.checks),
        ),
        Section(
            "Windows",
            "The most that counted at once in any window, against what was promised then.",
            ("since", "days", "budget", "most", "reached", "kept", "reason"),
            peaks,
        ),
        Section(
            "Experiments",
            f"{more:,} more are in the JSON and in the report." if more else "",
            (
                *("experiment", "status", "budget", "layer (slots)", "decisions", "tables"),
                *("tombstones", "counts until", "audited", "kept"),
            ),
            lines,
        ),
        *(Section(check.name.capitalize(), check.statement) for check in found.checks),
    ]


def _audited(newest: tuple[datetime, bool] | None) -> str:
    if newest is None:
        return "never"
    return f"{newest[0]:%Y-%m-%d} {'kept' if newest[1] else 'NOT kept'}"
