"""Logs as JSON lines, with route templates but no paths, segments, ids or error messages.

A request's line has the same members for every segment and every draw.
"""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import orjson

from deniable.errors import causes

LogRequests: TypeAlias = Literal["all", "administration", "none"]

_log = logging.getLogger("deniable.http")


class JsonFormatter(logging.Formatter):
    """Formats each record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        moment = datetime.fromtimestamp(record.created, UTC)
        entry: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        entry.update(getattr(record, "members", {}))
        if record.exc_info and record.exc_info[1] is not None:
            entry["error"] = causes(record.exc_info[1])
            # Only code locations: an exception's message may quote a visitor's request.
            frames = traceback.extract_tb(record.exc_info[2])
            entry["at"] = [f"{frame.name}:{frame.lineno}" for frame in frames[-8:]]
        return orjson.dumps(entry).decode()


def log_to_stderr(level: str) -> None:
    """Log everything at or above the level to stderr as JSON lines, including Granian's messages."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def log_request(
    method: str, route: str, status: int, seconds: float, caller: str | None = None
) -> None:
    """Log one request, with the label of the API key or the name of the user, if known."""
    members = {
        "caller": caller,
        "method": method,
        "route": route,
        "status": status,
        "milliseconds": round(seconds * 1e3, 3),
    }
    _log.info("request", extra={"members": members})


def log_failure(route: str, error: BaseException) -> None:
    """Log a request that failed unexpectedly."""
    _log.error("request failed", exc_info=error, extra={"members": {"route": route}})
