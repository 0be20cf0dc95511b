"""A plan as a file: what the planner page saves and `deniable plan --from` reads."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from deniable.errors import InvalidArgumentError

KEYS = ("arms", "visitors", "segments", "prior", "budget", "max_belief", "arm_budgets")


def plan_file(path: Path) -> dict[str, str]:
    """The options in a TOML file, as they would be typed."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgumentError("from", str(path), f"a TOML file ({error})") from None
    for key, value in found.items():
        kinds = (int, float, list) if key == "arm_budgets" else (int, float)
        if key not in KEYS or isinstance(value, bool) or not isinstance(value, kinds):
            raise InvalidArgumentError(key, value, f"numbers, for {', '.join(KEYS)}")
    return {
        key: ",".join(map(str, value)) if isinstance(value, list) else str(value)
        for key, value in found.items()
    }


def kept_number(name: str, kept: Mapping[str, str]) -> float | None:
    """One number of a plan's file; None where it has none."""
    return float(kept[name]) if name in kept else None
