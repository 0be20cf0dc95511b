"""The firm's TOML file: reading the wanted experiments, and writing a store as a file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from deniable._types import JsonObject
from deniable.errors import NANO, InvalidArgumentError
from deniable.service.drafts import NewArm, draft
from deniable.service.service import Deniable
from deniable.storage.records import MICRO, SLOTS, Experiment, Metric, Status
from deniable.strategies import TABLE_RULES

SETTINGS = (
    "segments",
    "contexts",
    "observed",
    "budget",
    "strategy",
    "planned_visitors",
    "layer",
    "holdout",
    "default_arm",
    "attribution_seconds",
)
"""Members of an experiment that are passed to `create` unchanged."""
_OTHERS = ("arms", "metrics", "share", "status", "winner")


@dataclass(frozen=True)
class Wanted:
    """An experiment as described in a file."""

    made: Experiment
    arms: tuple[NewArm, ...]
    off: tuple[str, ...]
    share: float
    status: Status
    winner: str | None


def parsed(text: str) -> JsonObject:
    """Parse the file."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgumentError("file", "...", f"TOML: {error}") from None
    only(document, ("firm", "experiments", "keys", "users"), "file")
    return document


def tables(document: JsonObject, name: str) -> Iterator[tuple[str, JsonObject]]:
    """Yield the tables [name.KEY], each with its key."""
    found = document.get(name, {})
    if not isinstance(found, dict) or not all(isinstance(item, dict) for item in found.values()):
        raise InvalidArgumentError(name, "...", f"tables [{name}.NAME]")
    yield from found.items()


def only(given: JsonObject, allowed: Sequence[str], where: str) -> None:
    """Reject unknown members."""
    for name in given:
        if name not in allowed:
            raise InvalidArgumentError(where, name, f"only {', '.join(allowed)}")


def wanted_experiment(key: str, given: JsonObject) -> Wanted:
    """Read the experiment in one table, validated like a draft."""
    where = f"experiments.{key}"
    only(given, (*SETTINGS, *_OTHERS), where)
    for name in ("arms", "segments", "contexts"):
        if not isinstance(given.get(name, None if name == "arms" else []), list):
            raise InvalidArgumentError(f"{where}.{name}", given.get(name), "a list")
    status = given.get("status", "draft")
    if status not in ("draft", "running", "paused", "stopped"):
        raise InvalidArgumentError(f"{where}.status", status, "draft, running, paused or stopped")
    share = given.get("share", 1.0)
    if not isinstance(share, int | float) or not 0.001 <= share <= 1:
        raise InvalidArgumentError(f"{where}.share", share, "0.001 to 1")
    arms = [_arm(f"{where}.arms", arm) for arm in given["arms"]]
    winner = given.get("winner")
    if winner is not None and (status != "stopped" or winner not in [a.key for a, _ in arms]):
        raise InvalidArgumentError(f"{where}.winner", winner, "an arm, where status is stopped")
    settings: JsonObject = {name: given.get(name) for name in SETTINGS}
    settings |= {
        "segments": given.get("segments", []),
        "contexts": given.get("contexts", []),
        "observed": given.get("observed", True),
        "holdout": given.get("holdout", 0.0),
    }
    new, metrics = tuple(arm for arm, _ in arms), _metrics(where, given)
    try:
        made = draft(key, arms=new, metrics=metrics, **settings)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"{where}.{error.argument}", error.value, error.allowed
        ) from None
    except TypeError:
        raise InvalidArgumentError(where, "...", "texts, numbers and lists as documented") from None
    off = tuple(arm.key for arm, active in arms if not active)
    return Wanted(made, new, off, float(share), status, winner)


def _arm(where: str, given: object) -> tuple[NewArm, bool]:
    """Return an arm, and whether it is on."""
    if isinstance(given, str):
        return NewArm(given), True
    if not isinstance(given, dict) or "key" not in given:
        raise InvalidArgumentError(where, given, "keys, or tables with a key")
    only(given, ("key", "label", "budget", "weight", "active"), where)
    arm = NewArm(given["key"], given.get("label", ""), given.get("budget"), given.get("weight"))
    return arm, given.get("active", True) is True


_METRICS = 'a table of NAME = CAP, or NAME = { cap = CAP, better = "less" }'


def _metrics(where: str, given: JsonObject) -> tuple[Metric, ...]:
    given_metrics = given.get("metrics", {"reward": 1.0})
    if not isinstance(given_metrics, dict):
        raise InvalidArgumentError(f"{where}.metrics", given_metrics, _METRICS)
    found = []
    for name, one in given_metrics.items():
        own = one if isinstance(one, dict) else {"cap": one}
        only(own, ("cap", "better"), f"{where}.metrics.{name}")
        cap, better = own.get("cap", 1.0), own.get("better", "more")
        if type(cap) not in (int, float) or better not in ("more", "less"):
            raise InvalidArgumentError(f"{where}.metrics", given_metrics, _METRICS)
        found.append(Metric(name, round(cap * MICRO), better))
    return tuple(found)


def written(service: Deniable) -> str:
    """Write the store as a file for `compare`. Applying it to the same store changes nothing."""
    firm = service.firm.current()
    parts = [_table("firm", {"budget": firm.budget, "window_days": firm.window_days})]
    parts += [
        _table(f"experiments.{_text(experiment.key)}", members(experiment))
        for experiment in service.experiments.all()
    ]
    parts += [
        _table(f"keys.{_text(key.label)}", {"scopes": list(key.scopes)})
        for key in service.keys.all()
        if key.revoked_at is None
    ]
    parts += [
        _table(
            f"users.{_text(user.name)}",
            {"role": user.role, "disabled": True if user.disabled_at else None},
        )
        for user in service.people.all()
    ]
    return "\n".join(parts)


def members(experiment: Experiment) -> dict[str, object]:
    """Return an experiment's members in a file, without those that are None."""
    arms = [
        {
            "key": arm.key,
            "label": arm.label or None,
            "budget": None if arm.budget_nano is None else arm.budget_nano / NANO,
            "weight": None if arm.weight == 1 else arm.weight,
            "active": None if arm.active else False,
        }
        for arm in experiment.arms
    ]
    unbounded = not TABLE_RULES[experiment.strategy].bounded
    return {
        "status": experiment.status,
        "arms": arms,
        "segments": list(experiment.segments) or None,
        "contexts": list(experiment.contexts[1:]) or None,
        "observed": None if experiment.observed else False,
        "budget": None if experiment.arm_specific or unbounded else experiment.budget,
        "strategy": experiment.strategy,
        "planned_visitors": experiment.planned_visitors,
        "layer": experiment.layer,
        "share": None if experiment.slots is None else slots_of(experiment) / SLOTS,
        "holdout": experiment.holdout / 1000 or None,
        "default_arm": experiment.default_arm,
        "attribution_seconds": experiment.attribution_seconds,
        "metrics": {
            metric.name: metric.cap
            if metric.better == "more"
            else {"cap": metric.cap, "better": metric.better}
            for metric in experiment.metrics
        },
        "winner": experiment.winner,
    }


def slots_of(experiment: Experiment) -> int:
    """Return the number of layer slots of an experiment."""
    return sum(byte.bit_count() for byte in experiment.slots or b"")


def _table(name: str, values: Mapping[str, object]) -> str:
    lines = [f"{key} = {_value(value)}" for key, value in values.items() if value is not None]
    return "\n".join([f"[{name}]", *lines, ""])


def _value(value: object) -> str:
    """Format a value as TOML. Strings and lists are as in JSON; only inline tables differ."""
    if isinstance(value, dict):
        pairs = [f"{_text(k)} = {_value(v)}" for k, v in value.items() if v is not None]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
