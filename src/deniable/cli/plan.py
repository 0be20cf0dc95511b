"""`deniable plan`: the privacy budget of one experiment, planned on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deniable.cli.numbers import number_list, whole_number
from deniable.cli.plan_files import kept_number, plan_file
from deniable.cli.sections import print_sections
from deniable.errors import InvalidArgumentError

if TYPE_CHECKING:
    from deniable.planning.arm_plan import ArmPlan
    from deniable.planning.plan import Plan
    from deniable.planning.report import Section

app = typer.Typer(add_completion=False)


@app.command()
def plan(
    visitors: Annotated[str | None, typer.Option(help="Visitors planned for; 1e6 is fine.")] = None,
    arms: Annotated[str | None, typer.Option(help="Number of arms, 2 or more.")] = None,
    segments: Annotated[str | None, typer.Option(help="Number of segments; 1.")] = None,
    prior: Annotated[
        float | None, typer.Option(help="What a tracker believes before; 0.2.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Budget in nats; without it, a table.")
    ] = None,
    max_belief: Annotated[
        float | None, typer.Option(help="The most a tracker may believe.")
    ] = None,
    arm_budgets: Annotated[str | None, typer.Option(help="A budget for each arm: .5,1,2")] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="A plan.toml from the planner page.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    chart: Annotated[Path | None, typer.Option(help="Draw to FILE.(svg|png|pdf|html).")] = None,
) -> None:
    """Plan the privacy budget of one experiment: what it buys, what it costs, which to take."""
    from deniable.charts.save import check_chart_path, save_chart
    from deniable.planning.report import plan_sections

    if chart is not None:
        check_chart_path(chart)
    if source is not None:
        kept = plan_file(source)
        visitors, arms, segments = (
            given or kept.get(name)
            for name, given in (("visitors", visitors), ("arms", arms), ("segments", segments))
        )
        prior, budget, max_belief = (
            kept_number(name, kept) if given is None else given
            for name, given in (("prior", prior), ("budget", budget), ("max_belief", max_belief))
        )
        arm_budgets = arm_budgets or kept.get("arm_budgets")
    if visitors is None:
        raise InvalidArgumentError("visitors", None, "--visitors, a whole number, 1 or more")
    prior = 0.2 if prior is None else prior
    horizon = whole_number("visitors", visitors)
    n_segments = whole_number("segments", segments or "1")
    planned: Plan | ArmPlan
    if arm_budgets is not None:
        planned, sections = _arms(arms, arm_budgets, horizon, n_segments, prior, budget, max_belief)
    else:
        from deniable.planning.plan import plan as plan_experiment

        if arms is None:
            raise InvalidArgumentError("arms", None, "a whole number, 2 or more, or --arm-budgets")
        planned = whole = plan_experiment(
            n_arms=whole_number("arms", arms),
            horizon=horizon,
            n_segments=n_segments,
            prior=prior,
            budget=budget,
            max_belief=max_belief,
        )
        sections = plan_sections(whole)
    if as_json:
        typer.echo(json.dumps(planned.to_dict(), indent=2))
    else:
        print_sections(sections)
    if chart is not None:
        save_chart(planned.chart(), chart)
        typer.echo(f"chart: {chart}", err=True)


def _arms(
    arms: str | None,
    arm_budgets: str,
    horizon: int,
    n_segments: int,
    prior: float,
    budget: float | None,
    max_belief: float | None,
) -> tuple[ArmPlan, list[Section]]:
    from deniable.planning.arm_plan import plan_arms
    from deniable.planning.report import arm_plan_sections

    budgets = number_list("arm_budgets", arm_budgets)
    if arms is not None and whole_number("arms", arms) != len(budgets):
        raise InvalidArgumentError("arm_budgets", arm_budgets, f"{arms} budgets, one for each arm")
    for name, value in (("budget", budget), ("max_belief", max_belief)):
        if value is not None:
            raise InvalidArgumentError(name, value, "nothing beside --arm-budgets")
    planned = plan_arms(arm_budgets=budgets, horizon=horizon, n_segments=n_segments, prior=prior)
    return planned, arm_plan_sections(planned)
