"""The settings of `deniable serve`: one model for flags, environment variables and TOML.

Flags take precedence over environment variables, then the TOML file, then the defaults. The name
`queue_limit` is `--queue-limit` as a flag, `DENIABLE_QUEUE_LIMIT` in the environment and
`queue_limit` in the file. The other commands find their store the same way.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deniable._types import JsonObject
from deniable.errors import InvalidArgumentError
from deniable.service.limits import DEFAULT_STORE

PREFIX = "DENIABLE_"
CONFIG = f"{PREFIX}CONFIG"

_PASSWORD = re.compile(r"//[^/@]*:[^/@]+@|[?&]password=")
"""A URL that contains a password."""

Seconds = Annotated[float, Field(allow_inf_nan=False)]


class Settings(BaseModel):
    """All settings, with defaults, descriptions and allowed values."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: str = Field(
        default=DEFAULT_STORE,
        description="Store for decisions: sqlite:///FILE or postgresql://...",
    )
    key_file: str = Field(
        default="",
        description="File with the visitors' HMAC key, created if missing. Default: beside "
        "the SQLite file.",
    )
    accept_empty_store: bool = Field(
        default=False,
        description="Start on an empty store even if a key file shows that there was another one.",
    )
    host: str = Field(
        default="127.0.0.1", description="Address to listen on; 0.0.0.0 for all interfaces."
    )
    port: int = Field(
        default=8000, ge=0, le=65_535, description="Port to listen on; 0 picks a free one."
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Number of worker processes that share the port and the store.",
    )
    only: Literal["everything", "decide", "pages"] = Field(
        default="everything",
        description="What to answer: decide (decisions and rewards alone), pages (pages and "
        "administration alone) or everything.",
    )
    connection_limit: int = Field(
        default=4_000,
        ge=1,
        description="Maximum open connections per process; more wait until one is closed.",
    )
    request_seconds: Seconds = Field(
        default=10.0, gt=0, le=3_600, description="Maximum time for a request's body to arrive."
    )
    idle_seconds: Seconds = Field(
        default=30.0,
        gt=0,
        le=3_600,
        description="Maximum time a connection may be idle, or take to send its headers.",
    )
    body_limit: int = Field(
        default=262_144,
        ge=1_024,
        le=16_777_216,
        description="Maximum size of a request body, in bytes.",
    )
    batch_limit: int = Field(
        default=1_000, ge=1, le=10_000, description="Maximum visitors or rewards per batch request."
    )
    in_flight_limit: int = Field(
        default=200,
        ge=1,
        description="Maximum concurrent requests other than decide and reward; more get 503.",
    )
    queue_limit: int = Field(
        default=20_000,
        ge=1,
        description="Maximum decisions and rewards queued in one process; more get 503.",
    )
    queue_seconds: Seconds = Field(
        default=0.1,
        gt=0,
        le=3_600,
        description="Maximum wait in the queue under overload; then 503.",
    )
    decide_seconds: Seconds = Field(
        default=2.0,
        gt=0,
        le=3_600,
        description="Maximum time for a decision; then it is answered without the store.",
    )
    key_cache_seconds: Seconds = Field(
        default=5.0,
        ge=0,
        le=3_600,
        description="How long API keys are cached; a revoked key works for up to this long.",
    )
    key_outage_seconds: Seconds = Field(
        default=3_600.0,
        ge=0,
        le=604_800,
        description="How long a valid API key works while the store does not respond.",
    )
    shutdown_seconds: int = Field(
        default=30,
        ge=1,
        le=3_600,
        description="Maximum time to shut down after SIGTERM or SIGHUP.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Minimum log level."
    )
    log_requests: Literal["all", "administration", "none"] = Field(
        default="administration", description="Which requests to log; metrics count all of them."
    )
    sign_in_header: str = Field(
        default="",
        description="Header in which a proxy names the signed-in user of the pages. Default: none.",
    )
    trusted_proxies: str = Field(
        default="",
        description="Addresses or networks of trusted proxies, comma-separated. The header "
        "is accepted only from them.",
    )
    webhook_url: str = Field(
        default="",
        description="URL that receives signed notifications of ledger entries. Default: none.",
    )
    demo: bool = Field(
        default=False,
        description="Create a demo firm with eight experiments, a month of history and "
        "simulated visitors. Do not use with real data.",
    )
    demo_visitors: int = Field(
        default=200_000,
        ge=0,
        le=10_000_000,
        description="Maximum visitors that the demo simulates. They arrive while a page is open.",
    )


def variable(name: str) -> str:
    """Return the environment variable of a setting.

    >>> variable("queue_limit")
    'DENIABLE_QUEUE_LIMIT'
    """
    return PREFIX + name.upper()


def flag(name: str) -> str:
    """Return the command-line flag of a setting.

    >>> flag("queue_limit")
    '--queue-limit'
    """
    return "--" + name.replace("_", "-")


def load(
    flags: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Load the settings.

    Args:
        flags: values from the command line, None if not given. `config` names the TOML file.
        environment: defaults to the process's environment.
    """
    env = os.environ if environment is None else environment
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    file = given.pop("config", None) or env.get(CONFIG)
    from_file = _read(Path(str(file))) if file else {}
    _checked(from_file, {}, strict=True)  # in a file, text instead of a number is an error
    named = {variable(name): name for name in Settings.model_fields}
    from_environment = {name: env[known] for known, name in named.items() if known in env}
    sources = {name: variable(name) for name in from_environment.keys() - given.keys()}
    return _checked({**from_file, **from_environment, **given}, sources)


def _read(path: Path) -> JsonObject:
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgumentError("config", str(path), f"TOML ({error})") from None
    if _PASSWORD.search(str(found.get("store", ""))) and path.stat().st_mode & 0o077:
        raise InvalidArgumentError(
            "config", str(path), "mode 0600, because it contains the database's password"
        )
    return found


def _checked(values: JsonObject, sources: Mapping[str, str], *, strict: bool = False) -> Settings:
    try:
        return Settings.model_validate(values, strict=strict)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            known = ", ".join(Settings.model_fields)
            raise InvalidArgumentError("config", name, f"one of {known}") from None
        given = sources.get(name, name)
        raise InvalidArgumentError(given, first["input"], _allowed(name, first["msg"])) from None


def _allowed(name: str, message: str) -> str:
    """Return a setting's allowed values from its schema; else pydantic's message."""
    schema = Settings.model_json_schema()["properties"][name]
    if "enum" in schema:
        return " or ".join(schema["enum"])
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    if least is None:
        return "true or false" if schema["type"] == "boolean" else message
    more = "more than " if "exclusiveMinimum" in schema else ""
    kind = "a whole number, " if schema["type"] == "integer" else "a number, "
    if "maximum" in schema:
        return f"{kind}{more}{least:g} to {schema['maximum']:.0f}"
    return f"{kind}{least:g} or more"
