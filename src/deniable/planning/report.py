"""A plan as text: sections that the command line and notebooks render in their own way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from deniable._formatting import counted, listed, short_percent
from deniable.inference.power import Forecast
from deniable.inference.words import forecast_words
from deniable.planning.ladder import NEAR_BEST
from deniable.planning.plan import Plan, StrategySummary
from deniable.planning.power import Decision
from deniable.report.content import Section, section
from deniable.strategies.rules import GRADE_WORDS


def plan_sections(plan: Plan) -> list[Section]:
    """Return the plan as text for people, the folded sections last.

    Where clicks are expected, bounds are folded: they hold for any click rates and say little.
    """
    named = "budget" if plan.chosen else "suggested budget"
    advice = plan.recommendation
    folded = plan.expected is not None
    sections = [
        *expected_sections(plan),
        section(
            f"{plan.n_arms} arms, {plan.horizon:,} visitors, "
            f"{counted(plan.n_segments, 'segment')}, {named} {plan.budget:.4g}",
            belief_words(plan),
        ),
        _segments(plan),
        replace(_strategies(plan), folded=folded),
        *([] if plan.chosen else [replace(_grid(plan), folded=folded)]),
        section(
            f"{'Recommended' if plan.ladder is None else 'To personalise this experiment alone'}: "
            f"budget {advice.budget:.4g}, {advice.strategy} strategy, {advice.grade}",
            recommendation_words(plan),
        ),
    ]
    return sorted(sections, key=lambda section: section.folded)


def headline(plan: Plan) -> str:
    """Return what is recommended: a step of the ladder; without a base rate, a budget."""
    if plan.ladder is None:
        return f"budget {plan.recommendation.budget:g} with the {plan.recommendation.strategy} strategy"
    chosen = plan.ladder[plan.ladder.recommended]
    return "no personalisation" if chosen.step == "one bandit" else chosen.title


def ladder_rows(plan: Plan) -> list[list[str]]:
    """Return the ladder's table: step, what it is, clicks, clicks beyond one bandit, belief."""
    if plan.ladder is None:
        return []
    return [
        [
            step.title + (" (recommended)" if step.step == plan.ladder.recommended else ""),
            step.sentence,
            "-" if step.clicks is None else f"{step.clicks:,.0f}",
            "-" if step.more is None else f"{step.more:+,.0f}",
            f"{step.belief:.0%}",
        ]
        for step in plan.ladder.steps
    ]


LADDER_HEADER = ("step", "what it is", "clicks", "beyond one bandit", "tracker at most")


def ladder_note(plan: Plan) -> str:
    """Say how good the ladder's figures are, and at which budget; empty without a base rate."""
    if plan.ladder is None:
        return ""
    beyond = "" if plan.ladder.on_surface else "; some are beyond what the surface covers"
    return (
        "In brackets: clicks beyond one bandit for everybody. The lowest step within "
        f"{NEAR_BEST:.0%} of the best one is recommended. Figures are approximate{beyond}."
    )


def expected_sections(plan: Plan) -> list[Section]:
    """Describe what to expect; empty without a base rate."""
    found = plan.expected
    if found is None:
        return []
    steps = tuple(tuple(row) for row in ladder_rows(plan))
    budgets = section(
        "Expected clicks lost, by budget",
        f"{expected_words(plan)} {power_words(plan)} {known_words(plan)}",
        ("budget", f"belief from {plan.prior:.3g}", *found.strategies),
        tuple(
            (
                f"{line.budget:.4g}",
                f"{line.belief:.3f}",
                *(clicks_words(line.outcomes[name].lost) for name in found.strategies),
            )
            for line in found.table
        ),
    )
    words = f"{'' if plan.ladder is None else plan.ladder.sentence} {ladder_note(plan)}"
    return [
        section(f"Recommended: {headline(plan)}", words, LADDER_HEADER, steps, words=2),
        budgets,
    ]


def expected_words(plan: Plan) -> str:
    """Summarise what to expect in a sentence or two; empty without a base rate."""
    found = plan.expected
    if found is None:
        return ""
    best = found.strategies[found.best]
    time = "" if found.days is None else f" in {counted(found.days, 'day')}"
    words = (
        f"At budget {plan.budget:.4g} the {found.best} strategy brings {best.clicks:,.0f} clicks{time}, "
        f"{best.clicks - found.rivals['pooled'].clicks:+,.0f} against one bandit for everybody; "
        f"{clicks_words(best.lost)} are lost against perfect information "
        f"({clicks_words(best.low)} to {clicks_words(best.high)} in 8 of 10 experiments)."
    )
    if found.privacy_cost < 0.005 * found.gain:
        return f"{words} More budget would win almost nothing."
    daily = found.privacy_cost_per_day
    cost = (
        f"{clicks_words(found.privacy_cost)} clicks"
        if daily is None
        else f"{clicks_words(daily)} clicks a day"
    )
    return f"{words} Keeping to this budget costs {cost} of these."


def power_words(plan: Plan) -> str:
    """Say when the experiment can be decided, and what it can show; empty without a base rate."""
    found = plan.expected
    if found is None:
        return ""
    power = found.power
    places = {"for everybody": power.everybody, "within the smallest segment": power.segment}
    known = {where: one for where, one in places.items() if one is not None}
    soon = [f"{where} {decision_words(one)}" for where, one in known.items()]
    least = [f"{detectable_words(plan, one)} {where}" for where, one in known.items()]
    return (
        f"Two arms that differ by {points_words(power.difference)} "
        f"({short_percent(found.lift)} of the click rate) are told apart "
        f"{listed(soon)}. {plan.horizon:,} visitors can show a difference of {listed(least)}. "
        "Both hold for arms that are shown equally often; the ones in contention are shown more "
        "often and decided sooner."
    )


def decision_words(decision: Decision) -> str:
    """Say after how many visitors, and days if traffic is known, a comparison is decided.

    >>> decision_words(Decision(Forecast(visitors=24_925, days=5), detectable=0.005))
    'after 25,000 visitors (5 days)'
    """
    found = decision.forecast
    if found.visitors is None:
        return forecast_words(found)
    days = "" if found.days is None else f" ({counted(found.days, 'day')})"
    return f"after {forecast_words(Forecast(found.visitors, None))}{days}"


def detectable_words(plan: Plan, decision: Decision) -> str:
    """Format the smallest difference that the planned visitors show."""
    if decision.detectable is None or plan.expected is None:
        return "no size"
    relative = short_percent(decision.detectable / plan.expected.base_rate)
    return f"{points_words(decision.detectable)} ({relative})"


def points_words(difference: float) -> str:
    """Format a difference of click rates in points of a percent, to two digits.

    >>> points_words(0.01), points_words(0.00123), points_words(0.125)
    ('1 point', '0.12 points', '12 points')
    """
    number = f"{float(f'{100 * difference:.2g}'):g}"
    return f"{number} point{'' if number == '1' else 's'}"


def expected_chart_words(plan: Plan) -> str:
    """Describe the chart of expected losses; empty without a base rate."""
    found = plan.expected
    if found is None:
        return ""
    return (
        "Lower is better. Dashed: what random arms and one bandit for everybody lose. Grey: 8 in 10 "
        f"experiments with the {found.best} strategy."
    )


def known_words(plan: Plan) -> str:
    """Describe the assumptions behind the expectation."""
    found = plan.expected
    if found is None:
        return ""
    words = (
        f"For a base rate of {short_percent(found.base_rate)}, arms that differ by "
        f"{short_percent(found.lift)} of it (standard deviation), and "
        f"{short_percent(found.heterogeneity)} of that variance by segment."
    )
    if found.error is not None:
        share = found.error / found.gain
        words += (
            f" Figures are read from a surface; against direct simulation that of {found.best} was "
            f"off by at most {share:.1%} of what perfect information gains, here "
            f"{clicks_words(found.error)} clicks."
        )
    return f"{words} {found.note}".strip()


def lift_words(plan: Plan) -> str:
    """Explain the lift in terms of click rates; empty without a base rate."""
    found = plan.expected
    if found is None:
        return ""
    low, high = (max(0.0, found.base_rate * (1 + side * found.lift)) for side in (-1, 1))
    return f"Two of three arms then have a click rate of {short_percent(low)} to {short_percent(high)}."


def bounds_words(plan: Plan) -> str:
    """Describe the bound at the plan's budget in a sentence or two, and what its segments mean."""
    least = min(plan.strategies.values(), key=lambda one: one.regret)
    bound = (
        f"Whatever the click rates, the {least.strategy} strategy loses at most "
        f"{bound_words(least.regret, plan.horizon)} clicks at budget {plan.budget:.4g}."
        if least.informative
        else f"At budget {plan.budget:.4g} all bounds are above the {plan.horizon:,} visitors: they say "
        "nothing."
    )
    return f"{bound} {segments_words(plan)}"


def clicks_words(clicks: float) -> str:
    """Format clicks: whole numbers, or two digits if there are few.

    >>> clicks_words(1234.5), clicks_words(12.34), clicks_words(0.1234), clicks_words(0)
    ('1,234', '12', '0.12', '0')
    """
    if clicks == 0:
        return "0"
    return f"{clicks:,.0f}" if abs(clicks) >= 10 else f"{clicks:.2g}"


def belief_words(plan: Plan) -> str:
    """Explain what the plan's budget means."""
    return (
        f"A tracker that believes a visitor is in some segment with probability {plan.prior:.3g} "
        f"could, after seeing the shown arm, believe anything from {plan.lowest_belief:.3f} to "
        f"{plan.highest_belief:.3f}, and nothing beyond: its odds move by at most a factor of "
        f"e^{plan.budget:.4g}. What it learns from clicks comes on top and is not promised."
    )


def recommendation_words(plan: Plan) -> str:
    """Explain the recommended budget and what it means."""
    return " ".join(recommendation_reasons(plan))


def recommendation_reasons(plan: Plan) -> list[str]:
    """Return why this budget, what it means, and what its grade is: one point each."""
    advice = plan.recommendation
    words = f"A tracker at {short_percent(plan.prior)} could reach {advice.belief:.1%}"
    if advice.lost is not None:
        words += f"; {clicks_words(advice.lost)} clicks are expected to be lost"
    elif advice.informative:
        words += f"; at most {advice.regret:,.0f} clicks of {plan.horizon:,} visitors are lost"
    points = [advice.reason, f"{words}."]
    if plan.n_segments > 1:
        points.append(GRADE_WORDS[advice.grade])
    return points


def segments_words(plan: Plan) -> str:
    """Explain what the number of segments means, and what budget 0 is."""
    if plan.n_segments == 1:
        words = (
            "There is one segment, so nothing about segments can leak and no budget is needed. Say how "
            "many groups of visitors must not be told apart."
        )
    else:
        words = (
            f"{plan.n_segments} groups of visitors must not be told apart by the arm they are shown. "
            "Whose arm does not depend on the segment, at the least: "
            f"{_by_value(plan, lambda one: f'{one.drawn_by_lot:.1%} of all visitors')}."
        )
    return f"{words} What budget 0 means: {_by_value(plan, lambda one: one.at_zero)}."


def bound_words(regret: float, horizon: int) -> str:
    """Format a regret bound; one above the number of visitors is uninformative.

    >>> bound_words(1234.5, 10_000), bound_words(12_345, 10_000)
    ('1,234', 'says nothing')
    """
    return f"{regret:,.0f}" if regret < horizon else "says nothing"


def chart_summaries(plan: Plan) -> dict[str, str]:
    """Describe each chart of the plan in a sentence or two."""
    shown = list(plan.strategies.values())
    lowest = min(one.best_regret for one in shown)
    parts = (
        "Learning: lost while the best arm is found. Random arms: the price of deniability. Wrong best "
        "arm: lost while the favourite is mistaken."
    )
    silent = f"All bounds are above the {plan.horizon:,} visitors"
    return {
        "ladder": "Clicks beyond one bandit for everybody, and how sure a tracker can become of a "
        "segment. No privacy is the ceiling.",
        "expected": expected_chart_words(plan),
        "belief": f"From {short_percent(plan.prior)}, a tracker that sees the arm can come to believe "
        f"at most {plan.highest_belief:.1%} and at least {plan.lowest_belief:.1%}.",
        "schedule": " ".join(f"{one.title}: {_schedule(one)}" for one in shown),
        "regret": f"{silent}, at every budget: they say nothing. Real losses are far smaller."
        if lowest >= plan.horizon
        else " ".join(f"{one.title}: {_lost(one, plan.horizon)}" for one in shown)
        + " Real losses are far smaller.",
        "parts": parts
        if any(one.informative for one in shown)
        else f"{silent} at this budget: they say nothing.",
        "elasticity": " ".join(f"{one.title}: {_lower(one.reading_words)}" for one in shown),
    }


def _strategies(plan: Plan) -> Section:
    shown = list(plan.strategies.values())
    table = (
        ("random arms, first visitor of a segment", *(_random(o.exploration_first) for o in shown)),
        ("random arms, last visitor of a segment", *(_random(o.exploration_last) for o in shown)),
        (
            "budget binds at a segment's visitor",
            *("-" if o.exploration_last is None else clock_words(o.binds_at) for o in shown),
        ),
        ("regret bound", *(_share(o.regret, plan.horizon) for o in shown)),
        ("  learning", *(_part(o, o.learning) for o in shown)),
        ("  price of privacy", *(_part(o, o.exploration) for o in shown)),
        ("  wrong best arms and the rest", *(_part(o, o.estimation) for o in shown)),
        ("elasticity of the bound", *(f"{o.elasticity + 0.0:+.3f}  {o.reading}" for o in shown)),
        ("one more nat lowers it by, at this rate", *(_part(o, o.gain + 0.0) for o in shown)),
        ("best budget", *(f"{o.best_budget:.4g}" for o in shown)),
        ("regret bound there", *(_share(o.best_regret, plan.horizon) for o in shown)),
        ("promise holds", *(o.grade for o in shown)),
    )
    better = min(shown, key=lambda o: o.regret)
    words = [f"{o.title}: {o.description}." for o in shown]
    words += [o.bound_note for o in shown if o.bound_note]
    words += [
        f"The {o.strategy} strategy is not served with so many arms or segments."
        for o in shown
        if not o.servable
    ]
    words.append(
        f"At this budget the {better.strategy} strategy has the smallest bound. Bounds hold for any "
        "click rates: real losses are far smaller, their comparison is what counts."
    )
    return section("What it costs", " ".join(words), ("", *(o.strategy for o in shown)), table)


def _grid(plan: Plan) -> Section:
    names = list(plan.strategies)
    timed = [name for name in names if plan.strategies[name].exploration_last is not None]
    least = min(min(line.regret.values()) for line in plan.table)
    rows = tuple(
        (
            f"{line.budget:.4g}",
            f"{line.belief:.3f}",
            *(_random(line.exploration[name]) for name in timed),
            *(bound_words(line.regret[name], plan.horizon) for name in names),
            _above(min(line.regret.values()), least, plan.horizon),
        )
        for line in plan.table
    )
    header = (
        "budget",
        f"belief from {plan.prior:.3g}",
        *(f"random arms in the end, {name}" for name in timed),
        *(f"regret bound, {name}" for name in names),
        "above the best",
    )
    return section("Budgets", "", header, rows)


def _above(regret: float, least: float, horizon: int) -> str:
    return f"{regret / least - 1:.0%}" if regret < horizon else "-"


def _share(regret: float, horizon: int) -> str:
    words = bound_words(regret, horizon)
    return f"{words} ({regret / horizon:.1%} of visitors)" if regret < horizon else words


def _part(summary: StrategySummary, clicks: float) -> str:
    return f"{clicks:,.0f}" if summary.informative else "-"


def _lost(summary: StrategySummary, horizon: int) -> str:
    here = f"at most {summary.regret:,.0f}" if summary.informative else "the bound says nothing"
    if summary.best_regret >= horizon:
        return f"{here}, at any budget."
    return f"{here} (lowest: {summary.best_regret:,.0f} at budget {summary.best_budget:.2f})."


def _schedule(summary: StrategySummary) -> str:
    first, last = summary.exploration_first, summary.exploration_last
    if first is None or last is None:
        return "no fixed schedule; what is shown depends on what was learned."
    if first == last:
        return f"{last:.0%} random arms for everybody."
    ends = "" if summary.binds_at is None else f" from visitor {summary.binds_at:,} of a segment on"
    return f"{first:.0%} at first, {last:.0%}{ends or ' for the last visitor'}."


def _by_value(plan: Plan, describe: Callable[[StrategySummary], str]) -> str:
    """Describe all strategies, grouping those with the same description."""
    found: dict[str, list[str]] = {}
    for one in plan.strategies.values():
        found.setdefault(describe(one), []).append(one.strategy)
    return "; ".join(f"{value} ({', '.join(names)})" for value, names in found.items())


def _random(share: float | None) -> str:
    return "as learned" if share is None else f"{share:.1%}"


def _segments(plan: Plan) -> Section:
    return section(counted(plan.n_segments, "segment"), segments_words(plan))


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def clock_words(clock: int | None) -> str:
    """Format the clock at which a budget binds."""
    return "never" if clock is None else f"{clock:,}"
