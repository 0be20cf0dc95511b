"""Chart of the firm's budget over time: available and committed."""

from __future__ import annotations

from deniable.charts.experiments import HOVER_TIME, HOVER_UNIT, hover_points
from deniable.charts.library import ChartType, alt
from deniable.charts.theme import ACCENT, STRATEGY_COLOURS, utc_axis


def spending_chart(data: alt.Data | None = None) -> ChartType:
    """Chart committed nats below the firm's budget; reads the dataset `spending` by default."""
    base = alt.Chart(alt.NamedData(name="spending") if data is None else data).encode(
        x=utc_axis("time", ticks=6)
    )
    y = alt.Y("committed:Q", title="nats", axis=alt.Axis(tickCount=5))
    committed = base.mark_area(
        interpolate="step-after",
        color=STRATEGY_COLOURS["dynamic"],
        opacity=0.35,
        line={"color": STRATEGY_COLOURS["dynamic"]},
    )
    limit = base.mark_line(interpolate="step-after", color=ACCENT, strokeDash=[5, 3])
    hovered = hover_points(
        base.encode(y=y),
        alt.Tooltip(f"{HOVER_UNIT}(time):T", title="time (UTC)", format=HOVER_TIME),
        alt.Tooltip("committed:Q", title="counts, nats", format=".4~g"),
        alt.Tooltip("budget:Q", title="firm's budget, nats", format=".4~g"),
    )
    return (committed.encode(y=y) + limit.encode(y="budget:Q") + hovered).properties(height=200)
