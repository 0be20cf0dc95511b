"""`deniable simulate`: policies against each other on click rates that are known."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deniable._extras import require
from deniable._numbers import numbers, whole
from deniable._types import JsonObject
from deniable.cli.printing import check_chart
from deniable.errors import InvalidArgumentError
from deniable.report.terminal import print_table

if TYPE_CHECKING:
    import polars as pl

    from deniable.simulation.results import SimulationResult
    from deniable.simulation.scenario import Scenario

app = typer.Typer(add_completion=False)

_CURVE_POINTS = 24


@app.command()
def simulate(
    scenario: Annotated[
        Path | None, typer.Argument(help="Scenario file (TOML).", show_default=False)
    ] = None,
    rates: Annotated[
        str | None, typer.Option(help="Click rates by arm, such as .324,.295.")
    ] = None,
    visitors: Annotated[
        str | None, typer.Option("--visitors", "--horizon", help="Number of visitors, such as 1e8.")
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated list of constant, dynamic, joint, arm-constant, "
            "arm-dynamic, pooled, unbounded, best-private, epsilon-greedy, gittins, thompson, "
            "thompson-response, ucb, ucb-response, random, perfect."
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Privacy budget, or several, such as 1,3.")
    ] = None,
    budgets: Annotated[
        str | None, typer.Option(help="Privacy budgets by arm, for arm-constant and arm-dynamic.")
    ] = None,
    discount: Annotated[float | None, typer.Option(help="Discount of the Gittins index.")] = None,
    publishing: Annotated[
        str | None,
        typer.Option(
            help="When private policies learn: visitor (after every visitor) or service "
            "(from table to table)."
        ),
    ] = None,
    repetitions: Annotated[
        int | None, typer.Option(help="Independent runs of each policy.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same results.")] = None,
    kernel: Annotated[
        str | None, typer.Option(help="leap, or step to simulate visitor by visitor.")
    ] = None,
    delay: Annotated[
        int | None, typer.Option(help="Number of visitors after which a reward is known.")
    ] = None,
    values: Annotated[
        str | None, typer.Option(help="Value of a click, or by arm, such as 40,35.")
    ] = None,
    value_spread: Annotated[
        float | None, typer.Option(help="Standard deviation of the logarithm of a click's value.")
    ] = None,
    mask_budget: Annotated[
        float | None,
        typer.Option(help="Show policies private labels with this budget instead of segments."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    chart: Annotated[
        Path | None, typer.Option(help="Write a chart to a .svg, .png, .pdf or .html file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write every repetition to a .parquet file.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Number of worker processes (default: one per CPU core).")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Folder to keep finished work in and to resume from."),
    ] = None,
) -> None:
    """Compare policies on known click rates: total clicks and regret, with 95% intervals."""
    require("numba", extra="simulate")
    require("polars", extra="simulate")
    flags: JsonObject = {
        "rates": _numbers("rates", rates),
        "visitors": None if visitors is None else whole("visitors", visitors),
        "policies": policies.split(",") if policies is not None else None,
        "budget": _numbers("budget", budget),
        "budgets": _numbers("budgets", budgets),
        "discount": discount,
        "publishing": publishing,
        "repetitions": repetitions,
        "seed": seed,
        "kernel": kernel,
        "delay": delay,
        "values": _one_or_more(_numbers("values", values)),
        "value_spread": value_spread,
        "mask_budget": mask_budget,
    }
    chosen = _scenario(scenario, {key: value for key, value in flags.items() if value is not None})
    if out is not None and out.suffix != ".parquet":
        raise InvalidArgumentError("out", str(out), "a file name that ends in .parquet")
    check_chart(chart)
    result = _run(chosen, workers, resume, curves=chart is not None)
    if out is not None:
        result.frame.write_parquet(out)
    if chart is not None:
        from deniable.charts.save import save_chart

        save_chart(result.chart(), chart)
    if as_json:
        typer.echo(json.dumps(_document(chosen, result)))
    else:
        _print(chosen, result)


def _scenario(path: Path | None, flags: JsonObject) -> Scenario:
    from deniable.simulation.scenario import make_scenario, read_scenario, read_values

    if path is None:
        return make_scenario(flags)
    scenario = read_scenario(path)  # errors of the file first
    return make_scenario({**read_values(path), **flags}) if flags else scenario


def _run(
    scenario: Scenario, workers: int | None, resume: Path | None, *, curves: bool
) -> SimulationResult:
    from contextlib import ExitStack

    from deniable.simulation.run import (
        Progress,
        compiling_notice,
        no_progress,
        progress_bar,
    )
    from deniable.simulation.run import simulate as run

    with ExitStack() as stack:
        progress: Progress = no_progress
        notice = compiling_notice(scenario.environment, scenario.policies, scenario.kernel)
        if sys.stderr.isatty():
            progress = stack.enter_context(progress_bar(notice=notice))
        elif notice is not None:
            typer.echo(f"{notice} ...", err=True)
        return run(
            scenario.environment,
            scenario.policies,
            repetitions=scenario.repetitions,
            seed=scenario.seed,
            checkpoints=scenario.checkpoints or (_curve(scenario) if curves else ()),
            kernel=scenario.kernel,
            workers=workers,
            progress=progress,
            folder=resume,
            by_arm=False,
        )


def _curve(scenario: Scenario) -> tuple[int, ...]:
    """Checkpoints for the regret curve, even on a log axis."""
    import numpy as np

    horizon = scenario.environment.horizon
    points = np.geomspace(min(100, horizon), horizon, _CURVE_POINTS)
    return tuple(sorted({int(point) for point in points}))


def _at_horizon(scenario: Scenario, result: SimulationResult, value: str) -> pl.DataFrame:
    import polars as pl

    return result.summary(value).filter(pl.col("visitors") == scenario.environment.horizon)


def _document(scenario: Scenario, result: SimulationResult) -> JsonObject:
    from deniable.simulation.results import VALUES

    keys = ("mean", "low", "high", "median", "q25", "q75", "q025", "q05", "q975")
    found = {value: _at_horizon(scenario, result, value).to_dicts() for value in VALUES}
    rows = [
        {
            "policy": row["policy"],
            **{value: {key: found[value][i][key] for key in keys} for value in VALUES},
        }
        for i, row in enumerate(found["clicks"])
    ]
    return {
        "environment": scenario.environment.name,
        "visitors": scenario.environment.horizon,
        "repetitions": scenario.repetitions,
        "seed": scenario.seed,
        "kernel": scenario.kernel,
        "policies": rows,
    }


def _print(scenario: Scenario, result: SimulationResult) -> None:
    world = scenario.environment
    value = "clicks" if world.is_plain else "reward"
    clicks = _at_horizon(scenario, result, value).to_dicts()
    regret = _at_horizon(scenario, result, "regret").to_dicts()
    rows = []
    for one, other in zip(clicks, regret, strict=True):
        found = (one["mean"], one["high"] - one["mean"], one["q05"], one["median"], other["mean"])
        rows.append((one["policy"], *map(_rounded, found)))
    print_table(
        f"{world.name}: {world.horizon:,} visitors, {scenario.repetitions:,} repetitions",
        ("policy", value, "±95%", "5% quantile", "median", "regret"),
        rows,
    )


def _rounded(value: float) -> float:
    """To the digits that a person reads: whole numbers from a thousand on."""
    return round(value) if abs(value) >= 1000 else round(value, 1)


def _numbers(argument: str, text: str | None) -> list[float] | None:
    return None if text is None else numbers(argument, text)


def _one_or_more(found: list[float] | None) -> float | list[float] | None:
    return found[0] if found is not None and len(found) == 1 else found
