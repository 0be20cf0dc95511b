"""Types for values without a fixed structure. Values with a structure have a class."""

from __future__ import annotations

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object, read or to be written. Readers must check its members."""

Record: TypeAlias = dict[str, Any]
"""One row of named values, from a table or for a chart."""
