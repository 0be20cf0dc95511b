"""`deniable experiment`: create, start, pause, resume, stop, switch off or add an arm, list."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from deniable._numbers import whole
from deniable.cli.printing import AsJson, print_found, print_json
from deniable.cli.results import print_results
from deniable.cli.stores import KeyFile, Store, opened
from deniable.errors import InvalidArgumentError
from deniable.strategies import DEFAULT_STRATEGY, TABLE_RULES
from deniable.strategies.unbounded import Unbounded

if TYPE_CHECKING:
    from deniable.service.drafts import NewArm
    from deniable.storage.records import Better, Experiment, Metric

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Create, start, pause, stop and list experiments.",
)

Key = Annotated[str, typer.Argument(help="The experiment's key.")]


@app.command()
def create(
    key: Key,
    arm: Annotated[list[str], typer.Option(help="KEY or KEY=BUDGET. Repeat for each arm.")],
    segment: Annotated[
        list[str] | None, typer.Option(help="Name of a segment. Repeat for each segment.")
    ] = None,
    context: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead of segments: a value that trackers know anyway. Repeat for each."
        ),
    ] = None,
    unobserved: Annotated[
        bool,
        typer.Option("--unobserved", help="No third party receives anything of these visits."),
    ] = False,
    budget: Annotated[float | None, typer.Option(help="Cap on a visitor's risk, in nats.")] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help=f"How tables are made: {', '.join(TABLE_RULES)} (default: {DEFAULT_STRATEGY}; "
            f"{Unbounded.name} without segments, or if unobserved)."
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="Weights of the arms in the neutral row, such as 3,1 (joint only; default: equal)."
        ),
    ] = None,
    planned_visitors: Annotated[
        int | None,
        typer.Option(
            help="Planned number of visitors, for reports and for strategies that plan ahead."
        ),
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option("--layer", "--group", help="Layer; its experiments share no visitor."),
    ] = None,
    holdout: Annotated[float, typer.Option(help="Share of visitors to hold out, 0 to 0.5.")] = 0.0,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME, NAME=CAP or NAME=CAP:less (less is better); the first one decides."
        ),
    ] = None,
    default_arm: Annotated[
        str | None,
        typer.Option(help="Arm shown before the start and after the stop (default: the first)."),
    ] = None,
    attribution_seconds: Annotated[
        int | None, typer.Option(help="Attribution window in seconds; later rewards do not count.")
    ] = None,
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Create a draft."""
    with opened(store, key_file) as service:
        created = service.experiments.create(
            key,
            arms=_arms(arm, weights),
            segments=segment or [],
            contexts=context or [],
            observed=not unobserved,
            budget=budget,
            strategy=strategy,
            planned_visitors=planned_visitors,
            layer=layer,
            holdout=holdout,
            metrics=_metrics(metric or []),
            default_arm=default_arm,
            attribution_seconds=attribution_seconds,
        )
    _print(created, as_json)


@app.command()
def start(
    key: Key,
    share: Annotated[float, typer.Option(help="Share of the layer's visitors.")] = 1.0,
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Commit the budget, publish the first table and start serving."""
    with opened(store, key_file) as service:
        _print(service.experiments.start(key, share=share), as_json)


@app.command()
def pause(key: Key, store: Store = "", key_file: KeyFile = "", as_json: AsJson = False) -> None:
    """Serve new visitors from the neutral row."""
    with opened(store, key_file) as service:
        _print(service.experiments.pause(key), as_json)


@app.command()
def resume(key: Key, store: Store = "", key_file: KeyFile = "", as_json: AsJson = False) -> None:
    """Resume after a pause."""
    with opened(store, key_file) as service:
        _print(service.experiments.resume(key), as_json)


@app.command()
def stop(
    key: Key,
    promote: Annotated[
        str | None,
        typer.Option(help="Arm to show to everyone from now on. The results are shown first."),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Do not ask for confirmation (implied without a terminal)."),
    ] = False,
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Stop permanently; everyone then gets the promoted (or default) arm."""
    with opened(store, key_file) as service:
        if promote is not None and not as_json:
            print_results(service.experiments.results(key))
            typer.echo("")
        if promote is not None and not yes and sys.stdin.isatty():
            typer.confirm(f"End {key!r} and show {promote!r} to everyone?", abort=True)
        _print(service.experiments.stop(key, promote=promote), as_json)


@app.command("switch-off")
def switch_off(
    key: Key,
    arm: Annotated[str, typer.Argument(help="Arm that new visitors no longer get.")],
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Switch an arm off in a new version; visitors who have it keep it."""
    with opened(store, key_file) as service:
        _print(service.experiments.switch_off(key, arm), as_json)


@app.command("add-arm")
def add_arm(
    key: Key,
    arm: Annotated[str, typer.Argument(help="The new arm's key.")],
    budget: Annotated[
        float | None, typer.Option(help="The arm's budget in nats, if arms have their own budgets.")
    ] = None,
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Add an arm in a new version, "given the time"; visitors who have an arm keep it."""
    with opened(store, key_file) as service:
        told = "Seeing the new arm reveals that a visitor came after it was added: given the time."
        _print(service.experiments.add_arm(key, arm, budget=budget), as_json, told)


@app.command("add-segment")
def add_segment(
    key: Key,
    segment: Annotated[str, typer.Argument(help="Name of the segment to add.")],
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Add a segment: it counts as unlisted until the next table, which has its own row."""
    with opened(store, key_file) as service:
        told = "Visitors of the new segment count as unlisted until the next table."
        _print(service.experiments.add_segment(key, segment), as_json, told)


@app.command("add-context")
def add_context(
    key: Key,
    context: Annotated[str, typer.Argument(help="Name of the context to add.")],
    store: Store = "",
    key_file: KeyFile = "",
    as_json: AsJson = False,
) -> None:
    """Add a context: it has a row of its own from the next table on, and cannot be removed."""
    with opened(store, key_file) as service:
        told = "Visitors of the new context get the mean row until the next table."
        _print(service.experiments.add_context(key, context), as_json, told)


@app.command("list")
def list_all(store: Store = "", key_file: KeyFile = "", as_json: AsJson = False) -> None:
    """List all experiments."""
    with opened(store, key_file) as service:
        found = service.experiments.all()
    print_found(
        found,
        "Experiments",
        ("key", "status", "arms", "rows", "strategy", "budget", "layer", "winner", "started"),
        lambda e: (
            e.key,
            e.status,
            ", ".join(a.key if a.active else f"({a.key})" for a in e.arms),
            len(e.rows),
            f"arm-specific {e.strategy}" if e.arm_specific else e.strategy,
            e.budget,
            e.layer,
            e.winner,
            e.started_at,
        ),
        as_json=as_json,
    )


def _arms(texts: list[str], weights: str | None) -> list[NewArm]:
    arms = [_arm(text) for text in texts]
    if weights is None:
        return arms
    given = [whole("weights", part, 1) for part in weights.split(",")]
    if len(given) != len(arms):
        raise InvalidArgumentError("weights", weights, f"{len(arms)} weights, one for each arm")
    return [replace(arm, weight=weight) for arm, weight in zip(arms, given, strict=True)]


def _arm(text: str) -> NewArm:
    from deniable.service.drafts import NewArm

    key, separator, budget = text.partition("=")
    if not separator:
        return NewArm(key)
    try:
        return NewArm(key, budget=float(budget))
    except ValueError:
        raise InvalidArgumentError("arm", text, "KEY or KEY=BUDGET, such as new=.5") from None


_BETTER: dict[str, Better] = {"": "more", "more": "more", "less": "less"}


def _metrics(texts: list[str]) -> list[Metric]:
    from deniable.storage.records import MICRO, Metric

    if not texts:
        return [Metric()]
    found = []
    for text in texts:
        told, _, direction = text.partition(":")
        name, _, cap = told.partition("=")
        try:
            better = _BETTER[direction]
            found.append(Metric(name, round(float(cap or 1) * MICRO), better))
        except (ValueError, OverflowError, KeyError):
            allowed = "NAME, NAME=CAP or NAME=CAP:less, such as revenue=50 or seconds=30:less"
            raise InvalidArgumentError("metric", text, allowed) from None
    return found


def _print(experiment: Experiment, as_json: bool, told: str = "") -> None:
    if as_json:
        print_json(experiment)
    else:
        winner = f", everybody gets {experiment.winner}" if experiment.winner else ""
        typer.echo(
            f"{experiment.key}: {experiment.status}, version {experiment.version}, "
            f"budget {experiment.budget:g} nats{winner}"
        )
        if told:
            typer.echo(told)
