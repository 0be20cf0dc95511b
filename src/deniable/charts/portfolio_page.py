"""Charts of the portfolio page: made once, filled with data as the firm's budget changes."""

from __future__ import annotations

from collections.abc import Callable

from deniable.charts.experiments import ARM_COLOURS
from deniable.charts.lazy_altair import ChartType, alt
from deniable.charts.theme import ACCENT, BLUE, INK, STRATEGY_COLOURS

HEIGHT = 240
RULES = ("this allocation", "equal split", "zero", "random arms", "best for each")


def bars_chart() -> ChartType:
    """Chart the largest budgets, one bar per experiment, coloured by strategy."""
    names = list(STRATEGY_COLOURS)
    colour = alt.Color(
        "strategy:N",
        scale=alt.Scale(domain=names, range=list(STRATEGY_COLOURS.values())),
        legend=alt.Legend(orient="top", title=None, columns=2),
    )
    base = alt.Chart(alt.NamedData(name="bars")).encode(
        y=alt.Y("id:N", sort=None, title=None, axis=alt.Axis(labelLimit=140)),
        x=alt.X("budget:Q", title="privacy budget", axis=alt.Axis(tickCount=6)),
    )
    words = base.mark_text(align="left", dx=4, fontSize=11, color=INK)
    return (
        base.mark_bar(size=13).encode(color=colour)
        + words.encode(text=alt.Text("budget:Q", format=".2~f"))
    ).properties(height=int(1.6 * HEIGHT))


def gains_chart() -> ChartType:
    """Chart what one more nat would save in some experiments; funded ones meet at lambda."""
    colour = alt.Color(
        "experiment:N",
        sort=None,
        scale=alt.Scale(range=list(ARM_COLOURS)),
        legend=alt.Legend(orient="bottom", title=None, columns=2, labelLimit=132),
    )
    lines = (
        alt.Chart(alt.NamedData(name="gains"))
        .mark_line(clip=True)
        .encode(
            x=alt.X("budget:Q", title="privacy budget", axis=alt.Axis(tickCount=6)),
            y=alt.Y("gain:Q", title="clicks saved by one more nat", axis=_number()),
            color=colour,
        )
    )
    dots = alt.Chart(alt.NamedData(name="dots")).mark_point(filled=True, size=80, opacity=1)
    price = alt.Chart(alt.NamedData(name="price")).encode(y="gain:Q")
    # At the right, where curves are low.
    words = price.mark_text(align="right", dx=-6, dy=-8, color=ACCENT, fontSize=12)
    return alt.layer(
        lines,
        price.mark_rule(color=ACCENT, strokeDash=[5, 3], strokeWidth=1.5),
        dots.encode(x="budget:Q", y="gain:Q", color=colour),
        words.encode(x=alt.value("width"), text="text:N"),
    ).properties(height=int(1.25 * HEIGHT))


def what_if_chart() -> ChartType:
    """Chart lost clicks over the firm's budget, with the current one marked."""
    line = (
        alt.Chart(alt.NamedData(name="what_if"))
        .mark_line(color=INK)
        .encode(
            x=alt.X("firm_budget:Q", title="budget to divide, in nats", axis=alt.Axis(tickCount=6)),
            y=alt.Y("regret:Q", title="clicks lost", axis=_number()),
        )
    )
    here = alt.Chart(alt.NamedData(name="here")).encode(x="firm_budget:Q", y="regret:Q")
    words = here.mark_text(align="left", dx=9, dy=-9, color=ACCENT, fontSize=12)
    return alt.layer(
        line,
        here.mark_point(filled=True, size=90, color=ACCENT, opacity=1),
        words.encode(text="text:N"),
    ).properties(height=HEIGHT)


def rules_chart() -> ChartType:
    """Chart the allocation against simpler rules."""
    colours = [BLUE, *["#999999"] * (len(RULES) - 1)]
    base = alt.Chart(alt.NamedData(name="rules")).encode(
        y=alt.Y("rule:N", sort=list(RULES), title=None, axis=alt.Axis(labelLimit=120)),
        x=alt.X("regret:Q", title="clicks lost", axis=_number()),
    )
    scale = alt.Scale(domain=list(RULES), range=colours)
    return (
        base.mark_bar(height=22)
        .encode(color=alt.Color("rule:N", scale=scale, legend=None))
        .properties(height=210)
    )


def _number() -> alt.Axis:
    return alt.Axis(format="~s", tickCount=6)


CHARTS: dict[str, Callable[[], ChartType]] = {
    "bars": bars_chart,
    "gains": gains_chart,
    "what_if": what_if_chart,
    "rules": rules_chart,
}
"""All charts of the page by name."""

DATASETS: dict[str, tuple[str, ...]] = {
    "bars": ("bars",),
    "gains": ("gains", "dots", "price"),
    "what_if": ("what_if", "here"),
    "rules": ("rules",),
}
"""The data each chart reads."""
