"""`deniable audit experiment`: is its promise kept? A verdict that can be filed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deniable.cli.sections import print_sections
from deniable.cli.stores import AsJson, KeyFile, Store, opened
from deniable.errors import NANO, BrokenPromiseError

if TYPE_CHECKING:
    from deniable.audit.report import Audit
    from deniable.planning.report import Section

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
    chart: Annotated[
        Path | None, typer.Option(help="Write a chart to FILE.(svg|png|pdf|html).")
    ] = None,
    out: Out = None,
) -> None:
    """Check an experiment's promise: every table in exact arithmetic, every decision against it.

    The exit status is 0 if the promise is kept and 1 if it is not.
    """
    if chart is not None:
        from deniable.charts.save import check_chart_path, save_chart

        check_chart_path(chart)
    if out is not None:
        from deniable.audit.page import experiment_page
        from deniable.audit.paper import check_report_path, save_report

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
    if chart is not None:
        save_chart(found.chart(), chart)
        typer.echo(f"chart: {chart}", err=True)
    if out is not None:
        save_report(experiment_page(found), out)
        typer.echo(f"report: {out}", err=True)
    if not found.sound:
        raise typer.Exit(BROKEN)


def audit_sections(found: Audit) -> list[Section]:
    """The audit, told to a person."""
    from deniable.audit.exact import decimal
    from deniable.planning.report import Section

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
    words = tuple(Section(check.name.capitalize(), check.statement) for check in found.checks)
    return [
        Section(
            f"Audit of {promise.name}, {found.made_at:%Y-%m-%d %H:%M} UTC",
            f"{found.verdict} {promise.strategy.capitalize()} strategy, {promise.stated_grade}, budget "
            f"{promise.budget_nano / NANO:g} nats, {len(promise.segments)} segments. {found.power}",
            ("check", "outcome", "p-value"),
            checks,
        ),
        Section(
            f"Exact worst case of each shown arm, {final.n_tables:,} tables published",
            "By how much seeing the arm can multiply a watcher's odds, cut after 20 digits.",
            ("arm", "budget", "worst ratio", "e^budget, from below", "kept"),
            arms,
        ),
        *words,
    ]
