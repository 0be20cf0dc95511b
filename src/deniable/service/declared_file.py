"""The firm, its experiments, keys and people as a TOML file, for `deniable export`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from deniable.errors import NANO
from deniable.privacy.composition import nano_down
from deniable.service.service import Deniable
from deniable.storage.records import SLOTS, Experiment


def written(service: Deniable) -> str:
    """The store as a file that `compare` reads: applied to it, it changes nothing."""
    firm = service.firm.current()
    parts = [_table("firm", {"budget": nats(firm.budget_nano), "window_days": firm.window_days})]
    parts += [
        _table(f"experiments.{_text(experiment.key)}", _members(experiment))
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


def _members(experiment: Experiment) -> dict[str, object]:
    """An experiment's members in a file; what is None is left out."""
    arms = [
        {
            "key": arm.key,
            "label": arm.label or None,
            "budget": None if arm.budget_nano is None else nats(arm.budget_nano),
            "active": None if arm.active else False,
        }
        for arm in experiment.arms
    ]
    return {
        "status": experiment.status,
        "arms": arms,
        "segments": list(experiment.segments),
        "budget": None if experiment.arm_specific else nats(experiment.budget_nano),
        "strategy": experiment.strategy,
        "across_time": experiment.across_time or None,
        "trace_budget": None if experiment.trace_nano is None else nats(experiment.trace_nano),
        "planned_visitors": experiment.planned_visitors,
        "layer": experiment.layer,
        "share": None if experiment.slots is None else slots_taken(experiment) / SLOTS,
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


def nats(nano: int) -> float:
    """The shortest number of nats that is rounded down to these nano-nats."""
    near = (nano / NANO, (nano + 1) / NANO, math.nextafter(nano / NANO, math.inf))
    return min((one for one in near if nano_down(one) == nano), key=lambda one: len(repr(one)))


def slots_taken(experiment: Experiment) -> int:
    """How many of its layer's slots the experiment has."""
    return sum(byte.bit_count() for byte in experiment.slots or b"")


def _table(name: str, members: Mapping[str, object]) -> str:
    lines = [f"{key} = {_value(value)}" for key, value in members.items() if value is not None]
    return "\n".join([f"[{name}]", *lines, ""])


def _value(value: object) -> str:
    """A value in TOML, whose texts and lists are those of JSON but for the braces of tables."""
    if isinstance(value, dict):
        members = [f"{_text(k)} = {_value(v)}" for k, v in value.items() if v is not None]
        return f"{{{', '.join(members)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
