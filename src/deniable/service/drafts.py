"""Validation of new experiments: whatever passes can be stored and served, and its promise can be
kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deniable._types import JsonObject
from deniable.errors import NANO, InvalidArgumentError
from deniable.service.limits import (
    LARGEST_REWARD,
    LONGEST_ARM_LABEL,
    LONGEST_EXPERIMENT_KEY,
    MAX_ARMS,
    MAX_BUDGET,
    MAX_CONTEXTS,
    MAX_HOLDOUT,
    MAX_METRICS,
    MAX_PLANNED_VISITORS,
    MAX_SECONDS,
    MAX_SEGMENTS,
    MAX_WEIGHT,
)
from deniable.service.table_making import first_table, recipe_of
from deniable.storage import times
from deniable.storage.records import MICRO, OTHER, Arm, Experiment, Metric
from deniable.strategies import DEFAULT_STRATEGY, TABLE_RULES
from deniable.strategies.dynamic import Dynamic
from deniable.strategies.unbounded import Unbounded

RESERVED_KEYS = ("experiment", "firm", "log")
"""Keys that new experiments may not have, because `deniable audit` gives them another meaning."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
KEY_ALLOWED = "1 to 128 letters, digits, '.', '_' or '-', beginning with a letter or digit"


@dataclass(frozen=True)
class NewArm:
    """An arm to be created.

    Attributes:
        key: what `decide` returns.
        label: text for people.
        budget: the arm's own budget in nats; set for all arms of an experiment or for none.
        weight: its part of the neutral row, relative to the other arms: a whole number, 1 or more. Only
            for strategies without a fixed band (joint); the others derive the row from the budgets.

    >>> NewArm("new", budget=0.5).budget
    0.5
    """

    key: str
    label: str = ""
    budget: float | None = None
    weight: int | None = None


def draft(
    key: str,
    *,
    arms: Sequence[str | NewArm],
    segments: Sequence[str],
    contexts: Sequence[str] = (),
    observed: bool = True,
    budget: float | None,
    strategy: str | None,
    planned_visitors: int | None,
    layer: str | None,
    holdout: float,
    default_arm: str | None,
    attribution_seconds: int | None,
    metrics: Sequence[Metric],
    mask: str | None = None,
    sticky: bool = True,
) -> Experiment:
    """Return the experiment as it will be stored; see `Experiments.create`."""
    from deniable import _validation as check

    wanted = [arm if isinstance(arm, NewArm) else NewArm(arm) for arm in arms]
    keys = [_key("arms", arm.key) for arm in wanted]
    check.distinct("arms", keys, 2)
    names = [_name("segments", name) for name in segments]
    check.distinct("segments", names, 0)
    _at_most("arms", len(keys), MAX_ARMS)
    _at_most("segments", len(names), MAX_SEGMENTS)
    if strategy is None:
        unbounded = mask or contexts or not observed or not (names or budget)
        own = any(arm.budget is not None for arm in wanted)
        strategy = Unbounded.name if unbounded else Dynamic.name if own else DEFAULT_STRATEGY
    if strategy not in TABLE_RULES:
        raise InvalidArgumentError("strategy", strategy, "one of " + ", ".join(TABLE_RULES))
    kind = TABLE_RULES[strategy]
    known_anyway = _contexts(contexts)
    check_rows(
        strategy, len(keys), len(names), len(known_anyway), observed=observed, mask=mask is not None
    )
    if not sticky and mask is None:
        allowed = "true: only experiments on a mask may draw again for a visitor"
        raise InvalidArgumentError("sticky", sticky, allowed)
    if not 0 <= holdout <= MAX_HOLDOUT:
        raise InvalidArgumentError("holdout", holdout, f"a share from 0 to {MAX_HOLDOUT}")
    check.distinct("metrics", [_key("metrics", metric.name) for metric in metrics], 1)
    _at_most("metrics", len(metrics), MAX_METRICS)
    for metric in metrics:
        if not 0 < metric.cap_micro <= LARGEST_REWARD * MICRO:
            allowed = f"a cap above 0, at most {LARGEST_REWARD:g}"
            raise InvalidArgumentError("metrics", metric.cap, allowed)
        if metric.better not in ("more", "less"):
            raise InvalidArgumentError("metrics", metric.better, "more or less")
    if metrics[0].better != "more":
        allowed = "more is better: the first metric decides; tables look for the most of it"
        raise InvalidArgumentError("metrics", metrics[0].name, allowed)
    budgets = _arm_budgets(wanted, budget)
    if budgets[0] is not None and not kind.arm_budgets:
        allowed = f"no budgets of their own with the {strategy} strategy"
        raise InvalidArgumentError("arms", "...", allowed)
    if default_arm is not None and default_arm not in keys:
        raise InvalidArgumentError("default_arm", default_arm, "one of the arms")
    if planned_visitors is not None:
        planned_visitors = check.whole(
            "planned_visitors", planned_visitors, 1, MAX_PLANNED_VISITORS
        )
    if attribution_seconds is not None:
        attribution_seconds = check.whole(
            "attribution_seconds", attribution_seconds, 1, MAX_SECONDS
        )
    if not kind.bounded:
        if budget:
            allowed = f"none: the {strategy} strategy commits no budget"
            raise InvalidArgumentError("budget", budget, allowed)
        budget = 0.0
    experiment = Experiment(
        id="",
        key=_experiment_key(key),
        status="draft",
        arms=tuple(
            Arm(arm.key, _label(arm.label), arm_budget, weight=_weight(arm))
            for arm, arm_budget in zip(wanted, budgets, strict=True)
        ),
        segments=tuple(names),
        strategy=strategy,
        budget_nano=max(b for b in budgets if b is not None)
        if budgets[0] is not None
        else _nano("budget", budget),
        planned_visitors=planned_visitors,
        mask=mask,
        sticky=sticky,
        layer=None if layer is None else _key("layer", layer),
        slots=None,
        holdout=round(holdout * 1000),
        default_arm=default_arm or keys[0],
        attribution_seconds=attribution_seconds,
        metrics=tuple(metrics),
        contexts=(OTHER, *known_anyway) if known_anyway or not (kind.bounded or names) else (),
        observed=observed,
        version=1,
        winner=None,
        table_number=0,
        has_tombstones=False,
        created_at=times.as_datetime(times.now()),
        started_at=None,
        stopped_at=None,
        revision=1,
    )
    first_table(experiment)  # raises unless the table passes the exact check
    check_weights(experiment)
    return experiment


_FINE: dict[str, JsonObject] = {
    "arms": {"arms": ("a", "b"), "budget": 1.0, "default_arm": None},
    "segments": {"segments": ("a",)},
    "contexts": {"contexts": ()},
    "observed": {"observed": True},
    "strategy": {"strategy": None},
    "budget": {"budget": 1.0},
    "holdout": {"holdout": 0.0},
    "metrics": {"metrics": (Metric(),)},
    "default_arm": {"default_arm": None},
    "layer": {"layer": None},
    "planned_visitors": {"planned_visitors": None},
    "attribution_seconds": {"attribution_seconds": None},
}
"""Arguments that `draft` accepts, by the name of a refused one."""


def problems(key: str, arguments: JsonObject) -> list[InvalidArgumentError]:
    """Return everything that `draft` refuses about these arguments, one error for each argument.

    It tries again with every refused argument replaced by one that is fine, until nothing is refused.
    """
    found: dict[str, InvalidArgumentError] = {}
    while True:
        try:
            draft(key, **arguments)
        except InvalidArgumentError as error:
            if error.argument in found:
                return [*found.values()]
            found[error.argument] = error
            key = "fine" if error.argument == "key" else key
            arguments = {**arguments, **_FINE.get(error.argument, {})}
        else:
            return [*found.values()]


def check_weights(experiment: Experiment) -> None:
    """Raise InvalidArgumentError if arms have weights and the neutral row follows from budgets."""
    weights = {arm.weight for arm in experiment.arms}
    if len(weights) > 1 and recipe_of(experiment).fixed_band() is not None:
        allowed = (
            f"none with the {experiment.strategy} strategy: its neutral row follows from budgets"
        )
        raise InvalidArgumentError("weight", max(weights), allowed)


def arguments_of(experiment: Experiment) -> JsonObject:
    """Return the arguments of `draft`, except the key, that recreate this experiment."""
    return {
        "arms": [
            NewArm(arm.key, arm.label, _nats(arm.budget_nano), arm.weight)
            for arm in experiment.arms
        ],
        "segments": experiment.segments,
        "contexts": experiment.contexts[1:],
        "observed": experiment.observed,
        "budget": None if experiment.arm_specific else _nats(experiment.budget_nano),
        "strategy": experiment.strategy,
        "planned_visitors": experiment.planned_visitors,
        "mask": experiment.mask,
        "sticky": experiment.sticky,
        "layer": experiment.layer,
        "holdout": experiment.holdout / 1000,
        "default_arm": experiment.default_arm,
        "attribution_seconds": experiment.attribution_seconds,
        "metrics": experiment.metrics,
    }


def redrafted(before: Experiment, changes: JsonObject) -> Experiment:
    """Return a draft with some arguments changed; a default arm that is no longer there is forgotten.

    Arms keep their weight unless another one is given.
    """
    arguments = arguments_of(before)
    for name in changes.keys() - arguments.keys():
        raise InvalidArgumentError(name, "...", "one of " + ", ".join(arguments))
    if "arms" in changes and "default_arm" not in changes:
        names = [arm if isinstance(arm, str) else arm.key for arm in changes["arms"]]
        if before.default_arm not in names:
            arguments["default_arm"] = None
    if "arms" in changes:
        known = {arm.key: arm.weight for arm in before.arms}
        given = [arm if isinstance(arm, NewArm) else NewArm(arm) for arm in changes["arms"]]
        kept = [
            replace(arm, weight=known.get(arm.key)) if arm.weight is None else arm for arm in given
        ]
        changes = {**changes, "arms": kept}
    return draft(before.key, **{**arguments, **changes})


def _nats(nano: int | None) -> float | None:
    return None if nano is None else nano / NANO


def checked_text(argument: str, value: object, most: int) -> str:
    """Validate text for people and strip surrounding white space."""
    text = value.strip() if isinstance(value, str) else ""
    printable = all(character.isprintable() or character == "\n" for character in text)
    if isinstance(value, str) and len(text) <= most and printable:
        return text
    raise InvalidArgumentError(argument, "...", f"printable text of up to {most} characters")


def added_arm(experiment: Experiment, new: NewArm) -> Arm:
    """Return the arm as it will be stored after the existing arms; see `Experiments.add_arm`."""
    key = _key("arm", new.key)
    if new.weight is not None:
        allowed = "none: an arm that is added gets the mean chance of the others in the neutral row"
        raise InvalidArgumentError("weight", new.weight, allowed)
    if key in {arm.key for arm in experiment.arms}:
        allowed = "a key that no arm of the experiment has, switched off or not"
        raise InvalidArgumentError("arm", key, allowed)
    _check_size(experiment, more_arms=1)
    if not experiment.arm_specific:
        if new.budget is not None:
            raise InvalidArgumentError("budget", new.budget, "none: all arms share one budget")
        return Arm(key, _label(new.label))
    own = _nano("budget", new.budget)
    if own > experiment.budget_nano:
        allowed = f"at most {experiment.budget:g} nats, which were committed to the firm's budget"
        raise InvalidArgumentError("budget", new.budget, allowed)
    if bool(own) != bool(experiment.budget_nano):
        raise InvalidArgumentError("budget", new.budget, "above 0, as those of the other arms")
    return Arm(key, _label(new.label), own)


def added_segment(experiment: Experiment, name: str) -> str:
    """Validate the name of a new segment; see `Experiments.add_segment`."""
    if experiment.mask is not None:
        raise InvalidArgumentError("segment", "...", "none: labels are those of the mask")
    checked = _name("segment", name)
    if checked in experiment.segments:
        raise InvalidArgumentError("segment", "...", "a name that the experiment does not list yet")
    _check_size(experiment, more_segments=1)
    return checked


def added_context(experiment: Experiment, name: str) -> str:
    """Validate the name of a new context; see `Experiments.add_context`."""
    if not experiment.contexts:
        allowed = "an experiment on contexts; this one has segments"
        raise InvalidArgumentError("context", name, allowed)
    checked, *_ = _contexts([name])
    if checked in experiment.contexts:
        raise InvalidArgumentError("context", name, "a name that the experiment does not list yet")
    _at_most("contexts", len(experiment.contexts), MAX_CONTEXTS)
    return checked


def _contexts(names: Sequence[str]) -> list[str]:
    from deniable import _validation as check

    checked = [_name("contexts", name) for name in names]
    check.distinct("contexts", checked, 0)
    _at_most("contexts", len(checked), MAX_CONTEXTS)
    if OTHER in checked:
        allowed = f"names without {OTHER!r}: visitors without a listed context have that row anyway"
        raise InvalidArgumentError("contexts", OTHER, allowed)
    return checked


def _check_size(experiment: Experiment, *, more_arms: int = 0, more_segments: int = 0) -> None:
    arms = len(experiment.arms) + more_arms
    segments = len(experiment.segments) + more_segments
    _at_most("arms", arms, MAX_ARMS)
    _at_most("segments", segments, MAX_SEGMENTS)
    declared = len(experiment.contexts[1:])
    check_rows(
        experiment.strategy,
        arms,
        segments,
        declared,
        observed=experiment.observed,
        mask=experiment.mask is not None,
    )


def check_rows(
    strategy: str,
    n_arms: int,
    n_segments: int,
    n_contexts: int,
    *,
    observed: bool,
    mask: bool,
) -> None:
    """Raise InvalidArgumentError if a strategy cannot make, or must not make, tables with these rows.

    Without a bound between rows, they must be contexts, labels, or segments of unobserved visits.
    """
    kind = TABLE_RULES[strategy]
    kind.check_size(n_arms, n_segments)
    if mask and kind.bounded:
        allowed = f"{Unbounded.name} on a mask: labels are private already"
        raise InvalidArgumentError("strategy", strategy, allowed)
    if mask and not observed:
        raise InvalidArgumentError("observed", False, "true on a mask: labels may be observed")
    if mask:
        return
    if n_contexts and n_segments:
        allowed = "none besides segments: what trackers know anyway needs no budget, segments do"
        raise InvalidArgumentError("contexts", n_contexts, allowed)
    if n_contexts and kind.bounded:
        allowed = (
            f"none with the {strategy} strategy, which bounds all rows: trackers know contexts "
            f"anyway, so use {Unbounded.name}"
        )
        raise InvalidArgumentError("contexts", n_contexts, allowed)
    if kind.bounded and not n_segments:
        raise InvalidArgumentError("segments", 0, f"1 or more with the {strategy} strategy")
    if not observed and (kind.bounded or not n_segments):
        allowed = f"true, or segments with the {Unbounded.name} strategy"
        raise InvalidArgumentError("observed", False, allowed)
    if observed and n_segments and not kind.bounded:
        allowed = f"none with the {strategy} strategy, which keeps no bound between rows"
        raise InvalidArgumentError("segments", n_segments, allowed)


def _weight(arm: NewArm) -> int:
    from deniable import _validation as check

    return 1 if arm.weight is None else check.whole("weight", arm.weight, 1, MAX_WEIGHT)


def _arm_budgets(arms: Sequence[NewArm], budget: float | None) -> list[int | None]:
    given = [arm.budget is not None for arm in arms]
    if not any(given):
        return [None] * len(arms)
    if not all(given):
        raise InvalidArgumentError("arms", "...", "a budget for every arm, or for none")
    if budget is not None:
        raise InvalidArgumentError("budget", budget, "none, because every arm has its own")
    nano: list[int | None] = [_nano("arms", arm.budget) for arm in arms]
    if 0 in nano and any(nano):
        raise InvalidArgumentError("arms", "...", "budgets above 0 for all arms, or 0 for all")
    return nano


def _nano(argument: str, budget: float | None) -> int:
    from deniable.privacy.composition import nano_down

    allowed = f"a budget in nats, 0 to {MAX_BUDGET:g}"
    if not isinstance(budget, int | float):
        raise InvalidArgumentError(argument, budget, allowed)
    try:
        nano = nano_down(budget)
    except InvalidArgumentError:
        raise InvalidArgumentError(argument, budget, allowed) from None
    if nano > MAX_BUDGET * NANO:
        raise InvalidArgumentError(argument, budget, allowed)
    return nano


def is_key(value: object) -> bool:
    """Whether a value can name an experiment, an arm, a layer or a metric."""
    return isinstance(value, str) and _KEY.fullmatch(value) is not None


def _key(argument: str, value: object) -> str:
    if isinstance(value, str) and is_key(value):
        return value
    raise InvalidArgumentError(argument, value, KEY_ALLOWED)


def _experiment_key(value: object) -> str:
    key = _key("key", value)
    if key in RESERVED_KEYS:
        raise InvalidArgumentError("key", key, "any other key: `deniable audit` reserves this one")
    return key


def _name(argument: str, value: object) -> str:
    """Validate a segment name: any printable text."""
    if isinstance(value, str) and 0 < len(value) <= LONGEST_EXPERIMENT_KEY and value.isprintable():
        return value
    allowed = f"printable names of 1 to {LONGEST_EXPERIMENT_KEY} characters"
    raise InvalidArgumentError(argument, "...", allowed)


def _label(value: object) -> str:
    if (
        isinstance(value, str)
        and len(value) <= LONGEST_ARM_LABEL
        and (value.isprintable() or not value)
    ):
        return value
    allowed = f"printable text of up to {LONGEST_ARM_LABEL} characters"
    raise InvalidArgumentError("label", value, allowed)


def _at_most(argument: str, count: int, most: int) -> None:
    if count > most:
        raise InvalidArgumentError(argument, count, f"at most {most}")
