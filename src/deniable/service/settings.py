"""The settings of `deniable serve`: one table, from which flags, environment and TOML are read.

A flag wins over the environment, which wins over the TOML file, which wins over the default. The name
`queue_limit` is `--queue-limit` as a flag, `DENIABLE_QUEUE_LIMIT` in the environment and
`queue_limit` in the file.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from deniable.errors import InvalidArgumentError

PREFIX = "DENIABLE_"
CONFIG = f"{PREFIX}CONFIG"


def _setting(
    default: str | float | bool,
    help_text: str,
    *,
    least: float | None = None,
    most: float | None = None,
    one_of: tuple[str, ...] = (),
) -> Any:
    allowed = {"help": help_text, "least": least, "most": most, "one_of": one_of}
    return field(default=default, metadata=allowed)


@dataclass(frozen=True)
class Settings:
    """Every setting, with its default; the metadata of a field says what it is and allows."""

    store: str = _setting(
        "sqlite:///deniable.db", "Where decisions are kept: sqlite:///FILE or postgresql://..."
    )
    key_file: str = _setting(
        "", "File of the visitors' HMAC key; made where missing. Empty: beside the SQLite file."
    )
    host: str = _setting("127.0.0.1", "Address to listen on; 0.0.0.0 for all.")
    port: int = _setting(8000, "Port to listen on; 0 picks a free one.", least=0, most=65_535)
    workers: int = _setting(1, "Processes that share the port and the store.", least=1, most=256)
    queue_limit: int = _setting(
        20_000, "Decisions and rewards that may wait in one process; more get 503.", least=1
    )
    batch_limit: int = _setting(
        1_000, "Visitors or rewards in one batch request.", least=1, most=10_000
    )
    body_limit: int = _setting(
        262_144, "Bytes of one request's body.", least=1_024, most=16_777_216
    )
    in_flight_limit: int = _setting(
        200, "Requests besides decide and reward answered at once; more get 503.", least=1
    )
    key_cache_seconds: float = _setting(
        5.0,
        "How long an API key is remembered; a revoked one works this long.",
        least=0,
        most=3_600,
    )
    shutdown_seconds: int = _setting(
        30, "How long requests in flight may take after SIGTERM.", least=1, most=3_600
    )
    log_level: str = _setting(
        "info", "Least level that is logged.", one_of=("debug", "info", "warning", "error")
    )
    log_requests: str = _setting(
        "administration",
        "Requests with a log line; metrics count all of them.",
        one_of=("all", "administration", "none"),
    )
    demo: bool = _setting(
        False, "A demo firm with two experiments and simulated visitors. Never on real data."
    )
    demo_visitors: int = _setting(
        20_000, "Visitors that the demo simulates before it rests.", least=0, most=10_000_000
    )

    def __post_init__(self) -> None:
        for known in fields(self):
            _check(known.name, getattr(self, known.name), known.metadata)

    def environment(self) -> dict[str, str]:
        """The settings as environment variables, for worker processes."""
        return {variable(known.name): str(getattr(self, known.name)) for known in fields(self)}


def variable(name: str) -> str:
    """The environment variable of a setting.

    >>> variable("queue_limit")
    'DENIABLE_QUEUE_LIMIT'
    """
    return PREFIX + name.upper()


def flag(name: str) -> str:
    """The flag of a setting.

    >>> flag("queue_limit")
    '--queue-limit'
    """
    return "--" + name.replace("_", "-")


def load(
    flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """The settings in force.

    Args:
        flags: what the command line gave; None values were not given. `config` names the TOML file.
        environment: the process's own if not given.
    """
    env = os.environ if environment is None else environment
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    file = given.pop("config", None) or env.get(CONFIG)
    found: dict[str, Any] = _from_file(Path(file)) if file else {}
    for known in fields(Settings):
        text = env.get(variable(known.name))
        if text is not None:
            found[known.name] = _parsed(known.name, text, type(known.default))
    return Settings(**{**found, **given})


def _from_file(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgumentError("config", str(path), f"TOML ({error})") from None
    known = {item.name: type(item.default) for item in fields(Settings)}
    for name, value in found.items():
        if name not in known:
            raise InvalidArgumentError("config", name, f"one of {', '.join(known)}")
        if known[name] is float and type(value) is int:
            found[name] = float(value)
    return found


def _parsed(name: str, text: str, kind: type) -> Any:
    try:
        if kind is bool:
            return {"1": True, "true": True, "0": False, "false": False}[text.lower()]
        return kind(text)
    except (KeyError, ValueError):
        words = {int: "a whole number", float: "a number", bool: "true or false"}
        raise InvalidArgumentError(variable(name), text, words[kind]) from None


def _check(name: str, value: Any, allowed: Mapping[str, Any]) -> None:
    kind = type(next(item.default for item in fields(Settings) if item.name == name))
    if type(value) is not kind:
        raise InvalidArgumentError(name, value, f"a value of type {kind.__name__}")
    if allowed["one_of"] and value not in allowed["one_of"]:
        raise InvalidArgumentError(name, value, " or ".join(allowed["one_of"]))
    least, most = allowed["least"], allowed["most"]
    # Written so that NaN is refused too.
    if (least is not None and not value >= least) or (most is not None and not value <= most):
        bound = f"{least:g} or more" if most is None else f"{least:g} to {most:g}"
        raise InvalidArgumentError(name, value, bound)
