"""`deniable plan`: the privacy budget of one experiment, planned on the command line."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deniable._numbers import numbers, toml_words, whole
from deniable.cli.printing import check_chart, write_chart
from deniable.errors import InvalidArgumentError
from deniable.report.terminal import print_sections
from deniable.strategies import STRATEGIES

if TYPE_CHECKING:
    from deniable.planning.arm_plan import ArmPlan
    from deniable.planning.plan import Plan
    from deniable.report.content import Section

app = typer.Typer(add_completion=False)

KEYS = (
    "arms",
    "visitors",
    "segments",
    "shares",
    "prior",
    "budget",
    "max_belief",
    "arm_budgets",
    "base_rate",
    "lift",
    "heterogeneity",
    "per_day",
    "experiments",
    "unobserved",
    "contexts",
    "by_context",
)
"""What a plan's file may hold; lists for shares and arm_budgets, numbers for the others."""

_EPILOG = "Strategies compared: " + "; ".join(
    f"{strategy.name} ({strategy.description})" for strategy in STRATEGIES.values()
)


@app.command(epilog=_EPILOG + ".")
def plan(
    visitors: Annotated[
        str | None, typer.Option(help="Number of visitors, such as 1e6.", show_default=False)
    ] = None,
    arms: Annotated[str | None, typer.Option(help="Number of arms, 2 or more.")] = None,
    segments: Annotated[str | None, typer.Option(help="Number of segments (default: 2).")] = None,
    shares: Annotated[
        str | None,
        typer.Option(help="Share of the visitors in each segment, such as .7,.3 (default: equal)."),
    ] = None,
    prior: Annotated[
        float | None,
        typer.Option(help="A tracker's belief before it sees the arm (default: 0.2)."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Privacy budget in nats (default: show a table and recommend one)."),
    ] = None,
    max_belief: Annotated[
        float | None, typer.Option(help="Maximum belief that a tracker may reach.")
    ] = None,
    base_rate: Annotated[
        float | None,
        typer.Option(
            "--base-rate", "--rate", help="Usual click rate, such as .05, to show expected clicks."
        ),
    ] = None,
    lift: Annotated[
        float | None,
        typer.Option(
            help="How much arms usually differ: standard deviation relative to the base rate "
            "(default: 0.05)."
        ),
    ] = None,
    heterogeneity: Annotated[
        float | None,
        typer.Option(help="How much of that differs by segment, from 0 to 1 (default: 0.5)."),
    ] = None,
    per_day: Annotated[
        str | None, typer.Option(help="Visitors per day, to show the duration and costs per day.")
    ] = None,
    experiments: Annotated[
        str | None,
        typer.Option(
            help="Number of experiments that a visitor meets, to compare one label for all of them."
        ),
    ] = None,
    unobserved: Annotated[
        float | None,
        typer.Option(help="Share of the visits that no third party observes, such as .3."),
    ] = None,
    contexts: Annotated[
        str | None,
        typer.Option(help="Number of values of what trackers know anyway, such as the device."),
    ] = None,
    by_context: Annotated[
        float | None,
        typer.Option(help="How much of the arms' differences is by context, from 0 to 1."),
    ] = None,
    arm_budgets: Annotated[
        str | None, typer.Option(help="A budget for each arm, such as .5,1,2.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Read options from a plan.toml file.")
    ] = None,
    bounds: Annotated[
        bool, typer.Option("--bounds", help="Show the bounds too where clicks are expected.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    chart: Annotated[
        Path | None, typer.Option(help="Write a chart to a .svg, .png, .pdf or .html file.")
    ] = None,
) -> None:
    """Plan the privacy budget of one experiment: its gain, its cost and a recommendation."""
    from deniable.planning.report import plan_sections

    check_chart(chart)
    if source is not None:
        kept = _read(source)
        visitors, arms, segments, shares, arm_budgets = (
            given or kept.get(name)
            for name, given in (
                ("visitors", visitors),
                ("arms", arms),
                ("segments", segments),
                ("shares", shares),
                ("arm_budgets", arm_budgets),
            )
        )
        per_day = per_day or kept.get("per_day")
        experiments = experiments or kept.get("experiments")
        contexts = contexts or kept.get("contexts")
        prior, budget, max_belief, base_rate, lift, heterogeneity, unobserved, by_context = (
            (float(kept[name]) if name in kept else None) if given is None else given
            for name, given in (
                ("prior", prior),
                ("budget", budget),
                ("max_belief", max_belief),
                ("base_rate", base_rate),
                ("lift", lift),
                ("heterogeneity", heterogeneity),
                ("unobserved", unobserved),
                ("by_context", by_context),
            )
        )
    if visitors is None:
        raise InvalidArgumentError("visitors", None, "--visitors, a whole number, 1 or more")
    prior = 0.2 if prior is None else prior
    horizon = whole("visitors", visitors, 1)
    n_segments = None if segments is None else whole("segments", segments, 1)
    known = {"lift": lift, "heterogeneity": heterogeneity, "per_day": per_day}
    known |= {"experiments": experiments, "unobserved": unobserved}
    known |= {"contexts": contexts, "by_context": by_context}
    for name, value in known.items():
        if value is not None and base_rate is None:
            raise InvalidArgumentError(name, value, "nothing without --base-rate")
    planned: Plan | ArmPlan
    if arm_budgets is not None:
        others = {
            "budget": budget,
            "max_belief": max_belief,
            "shares": shares,
            "base_rate": base_rate,
        }
        planned, sections = _by_arm(arms, arm_budgets, horizon, n_segments, prior, others)
    else:
        from deniable.expectations.prior import HETEROGENEITY, LIFT
        from deniable.planning.plan import plan as plan_experiment

        if arms is None:
            raise InvalidArgumentError("arms", None, "a whole number, 2 or more, or --arm-budgets")
        planned = found = plan_experiment(
            n_arms=whole("arms", arms, 2),
            horizon=horizon,
            n_segments=n_segments,
            shares=None if shares is None else numbers("shares", shares),
            prior=prior,
            budget=budget,
            max_belief=max_belief,
            base_rate=base_rate,
            lift=LIFT if lift is None else lift,
            heterogeneity=HETEROGENEITY if heterogeneity is None else heterogeneity,
            per_day=None if per_day is None else whole("per_day", per_day, 1, 10**12),
            experiments=1 if experiments is None else whole("experiments", experiments, 1),
            unobserved=unobserved or 0.0,
            contexts=1 if contexts is None else whole("contexts", contexts, 1),
            by_context=0.0 if by_context is None else by_context,
        )
        sections = plan_sections(found)
    if as_json:
        typer.echo(json.dumps(planned.to_dict(), indent=2))
    else:
        print_sections([section for section in sections if bounds or not section.folded])
        if not bounds and any(section.folded for section in sections):
            typer.echo("--bounds shows regret bounds too, which hold for any click rates.")
    write_chart(planned.chart, chart)


def _by_arm(
    arms: str | None,
    arm_budgets: str,
    horizon: int,
    n_segments: int | None,
    prior: float,
    others: dict[str, float | str | None],
) -> tuple[ArmPlan, list[Section]]:
    from deniable.expectations.prior import SEGMENTS
    from deniable.planning.arm_plan import arm_plan_sections, plan_arms

    budgets = numbers("arm_budgets", arm_budgets)
    if arms is not None and whole("arms", arms) != len(budgets):
        raise InvalidArgumentError("arm_budgets", arm_budgets, f"{arms} budgets, one for each arm")
    for name, value in others.items():
        if value is not None:
            raise InvalidArgumentError(name, value, "nothing beside --arm-budgets")
    planned = plan_arms(
        arm_budgets=budgets, horizon=horizon, n_segments=n_segments or SEGMENTS, prior=prior
    )
    return planned, arm_plan_sections(planned)


def _read(path: Path) -> dict[str, str]:
    """The options in a TOML file, as they would be typed."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(
            "from", str(path), f"a TOML file ({toml_words(error)})"
        ) from None
    for key, value in found.items():
        kinds = (int, float, list) if key in ("shares", "arm_budgets") else (int, float)
        if key not in KEYS or isinstance(value, bool) or not isinstance(value, kinds):
            raise InvalidArgumentError(key, value, f"numbers, for {', '.join(KEYS)}")
    return {
        key: ",".join(map(str, value)) if isinstance(value, list) else str(value)
        for key, value in found.items()
    }
