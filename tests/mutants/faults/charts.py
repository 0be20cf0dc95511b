"""Faults of the figures: swapped axes, collapsed bands, other quantiles, words on the wrong side."""

from __future__ import annotations

from tests.mutants.fault import Fault

ENCODINGS = "tests/charts/test_encodings.py"
MARKS = f"{ENCODINGS}::test_every_mark_shows_what_it_should"


def _of(*names: str) -> tuple[str, ...]:
    return tuple(f"{MARKS}[{name}]" for name in names)


DATA = ("tests/charts/test_charts.py",)

FAULTS = (
    Fault(
        "charts/planning.py",
        '        y2=alt.Y2("high:Q"),\n    )\n    none',
        '        y2=alt.Y2("low:Q"),\n    )\n    none',
        "the band of beliefs has no height",
        _of("belief"),
    ),
    Fault(
        "charts/strategies.py",
        'x=alt.X("greedy:N", sort=names, title="greedy arm", axis=alt.Axis(labelAngle=0)),\n'
        '        y=alt.Y("shown:N", sort=names, title="shown arm"),',
        'x=alt.X("shown:N", sort=names, title="greedy arm", axis=alt.Axis(labelAngle=0)),\n'
        '        y=alt.Y("greedy:N", sort=names, title="shown arm"),',
        "the axes of the heat map are swapped",
        _of("budgets by arm"),
    ),
    Fault(
        "charts/planning.py",
        '"above": "too greedy ↑", "below": "too random ↓"',
        '"above": "too random ↑", "below": "too greedy ↓"',
        "too random is told where it is too greedy",
        (f"{ENCODINGS}::test_too_greedy_is_above_zero_and_too_random_below",),
    ),
    Fault(
        "charts/planning.py",
        "bound = np.where(bound <= ABOVE * horizon, bound, np.nan)",
        "bound = np.where(bound <= 10 * ABOVE * horizon, bound, np.nan)",
        "bounds that say nothing are drawn",
        (f"{DATA[0]}::test_bounds_that_say_nothing_are_not_drawn",),
    ),
    Fault(
        "charts/simulation.py",
        'x=alt.X("q025:Q", title=value',
        'x=alt.X("low:Q", title=value',
        "the spread of repetitions begins at the limit of the mean",
        _of("clicks of policies"),
    ),
    Fault(
        "charts/simulation.py",
        'x=alt.X("low:Q", scale=scale), x2=alt.X2("high:Q")',
        'x=alt.X("low:Q", scale=scale), x2=alt.X2("low:Q")',
        "the interval of the mean has no width",
        _of("clicks of policies"),
    ),
    Fault(
        "charts/results.py",
        'x=alt.X("low:Q", scale=scale, **mean), x2=alt.X2("high:Q")',
        'x=alt.X("estimate:Q", scale=scale, **mean), x2=alt.X2("high:Q")',
        "the interval of an arm begins at its estimate",
        _of("arms with intervals"),
    ),
    Fault(
        "charts/experiments.py",
        '                "visitors:Q",\n                title="visitors",',
        '                "clicks:Q",\n                title="visitors",',
        "clicks are drawn over clicks",
        _of("regret against its bound"),
    ),
    Fault(
        "charts/strategies.py",
        'curves += rows(prior=prior, belief=high, budget=name, bound="high")',
        'curves += rows(prior=prior, belief=low, budget=name, bound="high")',
        "the highest belief is drawn as the lowest",
        (f"{DATA[0]}::test_belief_curves_are_both_bounds",),
    ),
    Fault(
        "charts/audit.py",
        '(("observed", observed), ("designed", expected))',
        '(("observed", expected), ("designed", observed))',
        "what was observed is drawn as the design",
        (f"{DATA[0]}::test_the_audit_shows_what_was_observed_beside_the_design",),
    ),
    Fault(
        "charts/leak.py",
        '"state": "before" if place < before else "added" if place < after else "rest",',
        '"state": "before" if place < after else "added" if place < before else "rest",',
        "the people whom a variant gives away are drawn as known before",
        ("src/deniable/charts/leak.py", "tests/cli/test_leak.py::test_people_are_a_hundred"),
    ),
)
