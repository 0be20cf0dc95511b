"""`deniable results KEY`: what an experiment has learned, valid at any look. For trusted eyes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from deniable.cli.stores import (
    DEFAULT_STORE,
    AsJson,
    KeyFile,
    Store,
    opened,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from deniable.inference.words import Unit
    from deniable.service.results import Difference, Estimate, Rate, Results

app = typer.Typer(add_completion=False)

_WHAT = {
    "keep": "Keep running",
    "promote": "One arm for everybody",
    "within": "Best arms within the promise",
    "winners": "Best arms without a promise",
}


@app.command()
def results(
    key: Annotated[str, typer.Argument(help="The experiment's key.")],
    chart: Annotated[
        str | None, typer.Option(help="Draw the lifts to this file: .svg, .png, .pdf or .html.")
    ] = None,
    store: Store = DEFAULT_STORE,
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Who won where, what is undecided, what each choice would earn, and when to stop."""
    if chart is not None:
        from deniable.charts.save import check_chart_path

        check_chart_path(chart)
    with opened(store, key_file) as service:
        evidence = service.experiments.evidence(key)
        found = service.experiments.results(key)
    if chart is not None:
        from deniable.charts.results import lifts_and_rates
        from deniable.charts.save import save_chart
        from deniable.service.result_figures import figures_of

        save_chart(lifts_and_rates(figures_of(evidence)), chart)
    if as_json:
        print_json(found.to_dict())
        return
    _print(found)
    if chart is not None:
        typer.echo(f"Chart: {chart}")


def _print(found: Results) -> None:
    for sentence in (*found.sentences, found.stop_rule):
        typer.echo(sentence)
    typer.echo("")
    unit = found.unit
    print_table(
        f"{found.metric} by segment, each arm against {found.default_arm}",
        ("segment", "status", "arm", "shown", "mean", "difference", "exact"),
        [
            (
                part.segment,
                part.status if part.winner is None else f"{part.winner} won",
                one.arm + (" (retired)" if one.stopped else ""),
                _rate(found, part.segment, one.arm).shows,
                _level(_rate(found, part.segment, one.arm), found),
                change(one, unit, found.cap),
                change(one, unit, found.cap, exact=True),
            )
            for part in found.segments
            for one in part.differences
        ],
    )
    print_table(
        "What to do now: mean per visitor",
        ("choice", "mean", "interval", "against keeping it running"),
        [
            (
                one.title,
                _level(one.value, found),
                span(one.value, unit, found.cap),
                "" if one.what == "keep" else _gain(one.gain, found),
            )
            for one in found.choices
        ],
    )
    typer.echo("What it does to privacy")
    for what, privacy in {one.what: one.privacy for one in found.choices}.items():
        typer.echo(f"  {_WHAT[what]}: {privacy}")
    typer.echo("")
    for guardrail in found.guardrails:
        if not guardrail.alerts:
            typer.echo(f"Guardrail {guardrail.metric}: nothing moved beyond chance.")
        for text in guardrail.alerts:
            typer.echo(f"Guardrail: {text}")
    if found.holdout is not None:
        held = found.holdout
        typer.echo(
            f"Holdout ({100 * held.share:g}% of visitors, {held.held_out:,} so far): personalisation "
            f"is worth {_gain(held.worth, found)}; the promise costs {_gain(held.price, found)}."
        )
    typer.echo(
        f"{found.visitors:,} visitors. All intervals hold at every look: "
        f"{1 - found.alpha:.0%} over all {found.n_comparisons:,} comparisons of the deciding metric."
    )


def _rate(found: Results, segment: str, arm: str) -> Rate:
    return next(one for one in found.rates if (one.segment, one.arm) == (segment, arm))


def _level(value: Rate | Estimate, found: Results) -> str:
    return "too early" if value.estimate is None else found.unit.level(value.estimate / found.cap)


def span(value: Estimate, unit: Unit, cap: float) -> str:
    """From where to where a mean lies."""
    if value.low is None or value.high is None:
        return "too early"
    return f"{unit.level(value.low / cap)} to {unit.level(value.high / cap)}"


def _gain(value: Estimate, found: Results) -> str:
    if value.low is None or value.high is None:
        return "too early to say"
    return found.unit.change(value.low / found.cap, value.high / found.cap)


def change(one: Difference, unit: Unit, cap: float, *, exact: bool = False) -> str:
    """From where to where a difference lies."""
    low, high = (one.exact_low, one.exact_high) if exact else (one.low, one.high)
    return "too early" if low is None or high is None else unit.change(low / cap, high / cap)
