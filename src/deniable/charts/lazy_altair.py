"""Imports Altair when a chart is first made: pages find most charts cached and start without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["ChartType", "alt"]

if TYPE_CHECKING:
    import altair as alt
    from altair.typing import ChartType
else:
    ChartType = Any

    class _Altair:
        """Altair's names; importing it takes about half a second."""

        def __getattr__(self, name: str) -> object:
            import altair

            return getattr(altair, name)

    alt = _Altair()
