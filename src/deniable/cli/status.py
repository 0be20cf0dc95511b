"""`deniable status`: the firm's budget, and where its experiments stand. For trusted eyes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from deniable.cli.printing import AsJson, print_json
from deniable.cli.stores import KeyFile, Store, opened
from deniable.report.terminal import print_table

if TYPE_CHECKING:
    from deniable.analysis.summary import ExperimentSummary
    from deniable.service.service import Deniable
    from deniable.storage.records import Firm

app = typer.Typer(add_completion=False)

MOST_MOMENTS = 12
"""Of an experiment's history as a table; `--json` has all."""


@app.command()
def status(
    key: Annotated[str | None, typer.Argument(help="One experiment, in detail.")] = None,
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Show the firm's budget, and shows and clicks by experiment, segment and arm.

    Of one experiment, show the leaderboard, rates and risk by segment, and totals over time. Segments
    with few visitors are then left out.
    """
    with opened(store, key_file) as service:
        firm = service.firm.current()
        if key is None:
            _print_all(service, firm, as_json)
            return
        experiment, summary = service.experiments.get(key), service.experiments.summary(key)
    if as_json:
        print_json({"firm": firm, "experiment": experiment, "summary": summary})
    else:
        print_summary(summary)


def _print_all(service: Deniable, firm: Firm, as_json: bool) -> None:
    counted = [(e, service.experiments.released_counts(e.key)) for e in service.experiments.all()]
    if as_json:
        found = [
            {
                "experiment": experiment,
                "counts": counts,
                "summary": replace(service.experiments.summary(experiment.key), history=()),
            }
            for experiment, counts in counted
        ]
        print_json({"firm": firm, "experiments": found})
        return
    print_table(
        "Firm",
        ("budget", "window (days)", "committed", "remaining", "set at"),
        [
            (firm.budget, firm.window_days, firm.committed, firm.remaining, firm.starts_at),
        ],
    )
    print_table(
        "Experiments",
        ("experiment", "status", "segment", "arm", "shows", "clicks", "rate"),
        [
            (
                experiment.key,
                experiment.status,
                cell.segment or "(other)",
                cell.arm,
                cell.shows,
                cell.clicks,
                cell.clicks / max(1, cell.shows),
            )
            for experiment, cells in counted
            for cell in cells
            if cell.shows or cell.segment is not None
        ],
    )


def print_summary(found: ExperimentSummary) -> None:
    """Where an experiment stands, as tables."""
    from deniable.planning.report import bound_words

    print_table(
        f"{found.experiment}, {found.status}",
        (
            "visitors",
            "clicks",
            "rate",
            "over random arms",
            "same for all segments",
            "lost",
            "bound",
        ),
        [
            (
                found.visitors,
                found.clicks,
                found.click_rate,
                found.gain_over_random,
                found.common_share,
                found.clicks_lost,
                bound_words(found.regret_bound, found.visitors),
            )
        ],
    )
    print_table(
        "Leaderboard: rates as if everybody had been shown the arm, valid for a single look",
        ("arm", "shows", "clicks", "rate", "low", "high", "best with chance"),
        [
            (
                one.arm if one.active else f"{one.arm} (off)",
                one.shows,
                one.clicks,
                one.rate,
                one.low,
                one.high,
                one.best_chance,
            )
            for one in found.leaderboard
        ],
    )
    arms = [*found.segments[0].rates] if found.segments else []
    print_table(
        "Plain rates by segment",
        ("segment", "visitors", *arms),
        [(one.segment, one.visitors, *(one.rates[arm] for arm in arms)) for one in found.segments],
    )
    print_table(
        "Risk of the next visitor, in nats",
        ("segment", "risk", "cap", "same for all segments", "cap reached"),
        [
            (one.segment, one.risk, one.cap, one.common_share, one.when)
            for one in found.segment_risks
        ],
    )
    if found.hidden_segments:
        typer.echo(
            f"{found.hidden_segments} segments are not shown: every arm must have been shown to "
            f"{found.smallest_cell} visitors of a segment, and no small one may follow from the rest.\n"
        )
    print_table(
        "Over time",
        ("time (UTC)", "visitors", "clicks", "lost", "bound"),
        [
            (
                one.time,
                one.visitors,
                sum(one.clicks.values()),
                one.clicks_lost,
                bound_words(one.regret_bound, one.visitors),
            )
            for one in found.history[-MOST_MOMENTS:]
        ],
    )
