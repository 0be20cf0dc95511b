"""Names for values whose shape only their reader knows. What has a shape has a class of its own."""

from __future__ import annotations

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object, read or to be written. Whoever reads one checks its members."""

Record: TypeAlias = dict[str, Any]
"""One row of named values: of a table that was read, or of a chart's data."""
