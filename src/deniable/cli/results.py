"""`deniable results KEY`: what an experiment has learned, valid at any look. For trusted eyes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from deniable.cli.printing import AsJson, check_chart, print_json
from deniable.cli.stores import KeyFile, Store, opened
from deniable.report.terminal import print_table

if TYPE_CHECKING:
    from altair.typing import ChartType

    from deniable.analysis.result_history import ResultHistory
    from deniable.analysis.result_records import Difference, Results

app = typer.Typer(add_completion=False)

_WHAT = {
    "keep": "Keep running",
    "promote": "One arm for everybody",
    "within": "Best table within the guarantee",
    "winners": "Best variants without a guarantee",
}


@app.command()
def results(
    key: Annotated[str, typer.Argument(help="The experiment's key.")],
    chart: Annotated[
        str | None,
        typer.Option(help="Write a chart of the lifts to a .svg, .png, .pdf or .html file."),
    ] = None,
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Show winners by segment, what is undecided, what each choice would earn, and when to stop."""
    check_chart(chart)
    with opened(store, key_file) as service:
        evidence = service.experiments.evidence(key)
        found = service.experiments.results(key)
    if chart is not None:
        from deniable.analysis.result_history import result_history
        from deniable.charts.save import save_chart

        save_chart(_picture(result_history(evidence)), chart)
    if as_json:
        print_json(found.to_dict())
        return
    print_results(found)
    if chart is not None:
        typer.echo(f"Chart: {chart}")


def _picture(figures: ResultHistory) -> ChartType:
    from deniable.charts.results import lifts_and_rates

    known = [one for one in figures.results.rates if one.estimate is not None]
    return lifts_and_rates(
        arms=figures.arms,
        default=figures.results.default_arm,
        share=figures.results.cap == 1,
        places=figures.places,
        lifts=figures.lifts,
        rates=[
            {name: getattr(one, name) for name in ("segment", "arm", "estimate", "low", "high")}
            for one in known
        ],
    )


def print_results(found: Results) -> None:
    """The verdict, by segment, what each choice would earn, and what it does to privacy."""
    for sentence in (*found.sentences, found.stop_rule):
        typer.echo(sentence)
    typer.echo("")
    print_table(
        f"{found.metric} by segment, each arm against {found.default_arm}",
        ("segment", "status", "arm", "shown", "mean", "difference", "exact"),
        [
            (
                part.segment,
                part.status if part.winner is None else f"{part.winner} won",
                one.arm + (" (retired)" if one.stopped else ""),
                found.rate(part.segment, one.arm).shows,
                found.level(found.rate(part.segment, one.arm)),
                found.change(one),
                _exact(one, found),
            )
            for part in found.segments
            for one in part.differences
        ],
    )
    print_table(
        f"{found.choices_title}: mean per visitor",
        ("choice", "mean", "interval", f"against {found.compared_with}"),
        [
            (one.title, found.level(one.value), found.span(one.value), found.gain(one))
            for one in found.choices
        ],
    )
    typer.echo("What it does to privacy")
    for what, privacy in {one.what: one.privacy for one in found.choices}.items():
        typer.echo(f"  {_WHAT[what]}: {privacy}")
    typer.echo("")
    for guardrail in found.guardrails:
        for one in guardrail.overall:
            told = dict.fromkeys([guardrail.change(one), guardrail.judgement(one)])
            place = f"Guardrail {guardrail.metric}, {one.arm} against {one.against}"
            typer.echo(f"{place}: {', '.join(told)}.")
        for text in guardrail.alerts:
            typer.echo(f"Guardrail, worse: {text}")
        for text in guardrail.improved:
            typer.echo(f"Guardrail, better: {text}")
    if found.holdout is not None:
        held = found.holdout
        typer.echo(
            f"Holdout ({100 * held.share:g}% of visitors, {held.held_out:,} so far): personalising "
            f"is worth {found.change(held.worth)}."
        )
        if held.price is not None:
            typer.echo(f"The promise costs {found.change(held.price)}.")
    typer.echo(
        f"{found.visitors:,} visitors. All intervals hold at every look: "
        f"{1 - found.alpha:.0%} over all {found.n_comparisons:,} comparisons of the deciding metric."
    )


def _exact(one: Difference, found: Results) -> str:
    return found.change(replace(one, low=one.exact_low, high=one.exact_high))
